//! Stacks of the traps that must not trust the interrupted one.
//!
//! The boot CPU starts with three stacks inside the image; every other stack, and the boot CPU's own later, lies over
//! an unmapped page, so that an overflow faults instead of overwriting a neighbour.

use core::cell::UnsafeCell;

use x86_model::PAGE_SIZE;

use super::gdt::{self, IST_COUNT, Ist};
use super::percpu::PerCpu;
use crate::x86::boot;
use crate::x86::paging::{self, StackKind};

const EARLY_BYTES: usize = 8 << 10;

#[repr(C, align(16))]
struct Early(UnsafeCell<[[u8; EARLY_BYTES]; IST_COUNT]>);
// SAFETY: memory that only the boot CPU's trap entry uses.
unsafe impl Sync for Early {}
static EARLY: Early = Early(UnsafeCell::new([[0; EARLY_BYTES]; IST_COUNT]));

/// Gives the boot CPU its first trap stacks.
pub(super) fn give_static(block: &PerCpu) {
    let base = EARLY.0.get() as usize;
    for (i, ist) in [Ist::Nmi, Ist::DoubleFault, Ist::MachineCheck]
        .into_iter()
        .enumerate()
    {
        // SAFETY: three separate parts of a static that nothing else uses; the boot CPU is this one.
        unsafe { gdt::set_ist(block, ist, base + (i + 1) * EARLY_BYTES) };
    }
}

/// Gives a CPU trap stacks over guard pages; `slot` is a number that no other CPU has. False without memory. For a CPU
/// that has not started, or for this one.
pub(in crate::x86) fn give_guarded(block: &PerCpu, slot: u32) -> bool {
    for (ist, kind) in [
        (Ist::Nmi, StackKind::Nmi),
        (Ist::DoubleFault, StackKind::DoubleFault),
        (Ist::MachineCheck, StackKind::MachineCheck),
    ] {
        let Some(top) = paging::new_stack(slot, kind) else {
            return false;
        };
        // SAFETY: a stack made just now for this purpose.
        unsafe { gdt::set_ist(block, ist, top as usize) };
    }
    true
}

/// Whether the address is in the unmapped part below a stack.
pub(super) fn is_guard(address: u64) -> bool {
    let bottom = boot::stack().start;
    (bottom - PAGE_SIZE..bottom).contains(&address)
        || paging::stack_bottom(address).is_some_and(|bottom| address < bottom)
}
