//! Control registers that paging depends on, and the jump of the running image to its final place.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};

use x86_model::Hpa;
use x86_model::regs::{cr, msr};

use crate::x86::asm::{rdmsr, read_cr0, read_cr4, write_cr0, write_cr4, wrmsr};

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
    let mut cr4 = read_cr4() | cr::CR4_PGE;
    if __cpuid(0).eax >= 7 {
        let leaf = __cpuid_count(7, 0);
        for (have, bit) in [
            (leaf.ebx & 1 << 7, cr::CR4_SMEP),
            (leaf.ebx & 1 << 20, cr::CR4_SMAP),
            (leaf.ecx & 1 << 2, cr::CR4_UMIP),
        ] {
            if have != 0 {
                cr4 |= bit;
            }
        }
    }
    let cr0 = (read_cr0() | cr::CR0_WP | cr::CR0_NE)
        & !(cr::CR0_CD | cr::CR0_NW | cr::CR0_EM | cr::CR0_TS);
    // SAFETY: the bits exist (checked above); none of them takes away what our code does: it runs in supervisor pages
    // only, and never touches user pages.
    unsafe {
        wrmsr(msr::PAT, PAT_VALUE);
        wrmsr(msr::EFER, rdmsr(msr::EFER) | msr::EFER_NXE);
        write_cr4(cr4);
        write_cr0(cr0);
    }
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
