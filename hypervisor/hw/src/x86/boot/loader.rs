//! First steps in Rust: read what the loader left.

use core::cell::UnsafeCell;

use crate::bootinfo::{BootError, BootInfo, MAX_MODULES, bundle, multiboot2, pvh};

struct Cell(UnsafeCell<BootInfo>);
// SAFETY: written by the boot CPU in `start` before any other CPU runs and before `info` can be called, read-only after.
unsafe impl Sync for Cell {}
static INFO: Cell = Cell(UnsafeCell::new(BootInfo::new()));

/// What the loader said. Only to be called after [`start`].
pub fn info() -> &'static BootInfo {
    // SAFETY: see `Cell`.
    unsafe { &*INFO.0.get() }
}

/// The first 4 GiB through the entry stub's identity map.
struct Identity;

impl pvh::Memory for Identity {
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        let end = address.checked_add(len as u64)?;
        if address == 0 || end > 1 << 32 {
            return None;
        }
        // SAFETY: identity-mapped, and nobody writes there until the image moves, which is after the last use.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, len) })
    }
}

/// Reads the loader's information. `magic` and `address` are EAX and EBX at entry. On failure the reason is on the
/// default consoles and the machine stops.
#[inline(never)]
pub fn start(magic: u32, address: u32) -> &'static BootInfo {
    // SAFETY: the boot CPU is alone and this is the first function to run; `info` was not called yet.
    let boot = unsafe { &mut *INFO.0.get() };
    crate::info!(
        "Xenolith {}, debug={}",
        env!("CARGO_PKG_VERSION"),
        if cfg!(CONFIG_DEBUG) { 'y' } else { 'n' }
    );
    if let Err(e) = read(magic, address, boot) {
        crate::x86::panic::boot_error(format_args!("{e}"));
    }
    crate::info!("Started by {} ({:?})", loader_name(boot), boot.entry);
    crate::info!("Command line: {}", boot.command_line);
    for note in &boot.notes {
        crate::warn!("Boot information: {note}");
    }
    boot
}

fn loader_name(boot: &BootInfo) -> &str {
    if boot.loader.is_empty() {
        "an unnamed loader"
    } else {
        boot.loader.as_str()
    }
}

fn read(magic: u32, address: u32, boot: &mut BootInfo) -> Result<(), BootError> {
    use pvh::Memory;
    let at = u64::from(address);
    match magic {
        multiboot2::MAGIC => {
            let cut = BootError::Block {
                what: "Multiboot2 information",
                offset: 0,
            };
            let len = multiboot2::total_size(Identity.bytes(at, 8).ok_or(cut)?)?;
            multiboot2::parse(Identity.bytes(at, len).ok_or(cut)?, boot)?;
        }
        pvh::MAGIC => pvh::parse(at, &Identity, boot)?,
        other => return Err(BootError::Magic(other)),
    }
    const { assert!(MAX_MODULES > 0) };
    if let Some(first) = boot.modules.first()
        && let Some(file) = Identity.bytes(first.start, first.size as usize)
    {
        bundle::unpack(file, boot)?;
    }
    Ok(())
}
