//! Control registers that paging depends on, and the jump of the running image to its final place.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};

use x86_model::Hpa;

const EFER: u32 = 0xc000_0080;
const PAT: u32 = 0x277;
/// Write-back, write-through, UC-, uncached, write-combining, write-protected, UC-, uncached.
const PAT_VALUE: u64 = 0x0007_0501_0007_0406;

/// Width of a physical address, in bits.
pub fn physical_bits() -> u32 {
    if __cpuid(0x8000_0000).eax >= 0x8000_0008 {
        (__cpuid(0x8000_0008).eax & 0xff).clamp(32, 52)
    } else {
        36
    }
}

/// Whether 1 GiB pages exist.
pub fn gib_pages() -> bool {
    __cpuid(0x8000_0001).edx & 1 << 26 != 0
}

/// Sets what the page tables rely on, on every CPU, after it has loaded [`crate::x86::paging::root`]: memory types,
/// write protection, caches on, no-execute, global pages, and SMEP, SMAP and UMIP where they exist. (Guest memory is
/// reached through the direct map, which is supervisor memory, so SMAP never stands in the way.)
pub fn init_cpu() {
    let extended = if __cpuid(0).eax >= 7 {
        __cpuid_count(7, 0)
    } else {
        // SAFETY: all bit patterns are valid; the leaf does not exist and reads as empty.
        unsafe { core::mem::zeroed() }
    };
    let mut cr4: u64;
    // SAFETY: reading CR4 has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) };
    cr4 |= 1 << 7;
    if extended.ebx & 1 << 7 != 0 {
        cr4 |= 1 << 20;
    }
    if extended.ebx & 1 << 20 != 0 {
        cr4 |= 1 << 21;
    }
    if extended.ecx & 1 << 2 != 0 {
        cr4 |= 1 << 11;
    }
    // SAFETY: the bits exist (checked above); none of them takes away what our code does: it runs in supervisor pages
    // only, and never touches user pages.
    unsafe {
        write_msr(PAT, PAT_VALUE);
        write_msr(EFER, read_msr(EFER) | 1 << 11);
        asm!("mov cr4, {}", in(reg) cr4, options(nomem, nostack, preserves_flags));
        let mut cr0: u64;
        asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags));
        // WP and NE on; CD, NW, EM and TS off.
        cr0 = (cr0 | 1 << 16 | 1 << 5) & !(1 << 30 | 1 << 29 | 1 << 3 | 1 << 2);
        asm!("mov cr0, {}", in(reg) cr0, options(nostack, preserves_flags));
    }
}

unsafe fn write_msr(index: u32, value: u64) {
    // SAFETY: the caller's business: only the two MSRs above.
    unsafe {
        asm!("wrmsr", in("ecx") index, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

unsafe fn read_msr(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: as for `write_msr`.
    unsafe {
        asm!("rdmsr", in("ecx") index, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Copies `len` bytes of the running image and switches to the page tables that map the copy in its stead. Nothing may
/// change in between, the stack (which is part of the image) least of all, hence one block of instructions.
///
/// # Safety
/// Interrupts are off and this is the only CPU. `root` maps the image at its present virtual address to the physical
/// place that `to` points to in the present tables, and everything that is used afterwards.
#[inline(never)]
pub unsafe fn move_image(to: *mut u8, from: *const u8, len: u64, root: Hpa) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "cld",
            "rep movsq",
            "mov cr3, {root}",
            root = in(reg) root.0,
            inout("rcx") len / 8 => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack),
        );
    }
}
