//! From the entry code to the guest's body: processor block, traps, hypercalls, start info, command line.

use core::sync::atomic::{AtomicU64, Ordering};

static START_INFO: AtomicU64 = AtomicU64::new(0);

/// First Rust code on the boot processor.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn rt_start(start_info: u64) -> ! {
    unsafe extern "Rust" {
        safe fn guest_main();
    }
    crate::cpu::install(0);
    crate::trap::init();
    crate::trap::load();
    crate::hypercall::init();
    START_INFO.store(start_info, Ordering::Relaxed);
    guest_main();
    crate::report::end()
}

/// Reads a value at a physical address below 4 GiB.
pub fn read_phys<T: Copy>(address: u64) -> T {
    assert!(address < 1 << 32, "address outside the map: {address:#x}");
    // SAFETY: identity mapped; `T` is a plain number in every use in this crate and its guests, and unaligned
    // reads are allowed.
    unsafe { core::ptr::read_unaligned(address as *const T) }
}

/// Physical address of the start info.
pub fn start_info() -> u64 {
    START_INFO.load(Ordering::Relaxed)
}

/// A 32-bit field of the start info.
pub fn start_info_u32(offset: u64) -> u32 {
    read_phys(start_info() + offset)
}

/// A 64-bit field of the start info.
pub fn start_info_u64(offset: u64) -> u64 {
    read_phys(start_info() + offset)
}

/// The command line, without the NUL; empty if there is none or if it is not UTF-8.
pub fn command_line() -> &'static str {
    let at = start_info_u64(24);
    if at == 0 || at >= 1 << 32 {
        return "";
    }
    let mut len = 0;
    while len < 4096 && read_phys::<u8>(at + len) != 0 {
        len += 1;
    }
    // SAFETY: mapped, NUL found within bounds, and nobody writes the command line.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len as usize) };
    core::str::from_utf8(bytes).unwrap_or("")
}

/// The value of `key=value` on the command line.
pub fn option(key: &str) -> Option<&'static str> {
    command_line()
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}
