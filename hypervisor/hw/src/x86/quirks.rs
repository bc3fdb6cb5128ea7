//! Faults of the machine below that are worked around. Each is looked for once, at boot, and named in the log.

use core::sync::atomic::{AtomicBool, Ordering};

use super::asm::cpuid;
use super::cpu::features;
use crate::info;

/// Signature of QEMU's own emulation (TCG) in CPUID leaf 0x4000_0000, EBX, ECX, EDX.
const TCG: [u8; 12] = *b"TCGTCGTCGTCG";
const HYPERVISOR_LEAF: u32 = 0x4000_0000;

static LOSES_INTERRUPTS: AtomicBool = AtomicBool::new(false);

/// Looks for them. Boot CPU, before the first guest.
pub fn detect() {
    if !features::get().hypervisor {
        return;
    }
    let [_, b, c, d] = cpuid(HYPERVISOR_LEAF, 0);
    let mut signature = [0; 12];
    for (to, from) in signature.chunks_exact_mut(4).zip([b, c, d]) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    if signature == TCG {
        LOSES_INTERRUPTS.store(true, Ordering::Relaxed);
        info!("QEMU TCG: pending interrupts are looked for again after virtual ones");
    }
}

/// VMRUN with a virtual interrupt may drop a physical one that arrives at the same moment: QEMU's VMRUN changes the CPU's
/// word of pending requests without the lock that everyone else takes. The local APIC still has the interrupt, but the CPU is not
/// told until the APIC looks again ([`super::apic::look_again`]).
#[inline]
pub fn loses_interrupts() -> bool {
    LOSES_INTERRUPTS.load(Ordering::Relaxed)
}
