//! Faults of the machine below that are worked around. Each is looked for once, at boot, and named in the log.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::acpi;
use super::asm::cpuid;
use super::cpu::{features, percpu};
use crate::info;

/// Signature of QEMU's own emulation (TCG) in CPUID leaf 0x4000_0000, EBX, ECX, EDX.
const TCG: [u8; 12] = *b"TCGTCGTCGTCG";
const HYPERVISOR_LEAF: u32 = 0x4000_0000;

/// Who made the tables, according to their headers, on Bochs; its BIOS, run by others, says the same.
const BOCHS: &[u8] = b"BOCHS ";

static BOCHS_BELOW: AtomicBool = AtomicBool::new(false);
static EMULATED: AtomicBool = AtomicBool::new(false);
static REPAIRED: AtomicU32 = AtomicU32::new(0);

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
        EMULATED.store(true, Ordering::Relaxed);
        info!("QEMU TCG: pending interrupts are looked for again after virtual ones");
    }
}

/// Looks for those that the ACPI tables give away.
pub fn detect_by_tables() {
    let f = features::get();
    let maker = acpi::table(b"FACP").and_then(|t| t.bytes.get(10..16));
    if f.vmx && !f.hypervisor && maker == Some(BOCHS) {
        BOCHS_BELOW.store(true, Ordering::Relaxed);
        info!("Bochs: physical interrupts are looked for around its entries and exits");
    }
}

/// Bochs is below. Its emulation of VT-x changes RFLAGS.IF at entries and exits without looking at what that means for
/// physical interrupts, until an instruction changes the flag.
///
/// A guest that is entered with interrupts off is not stopped by them: a timer stops it ([`super::virt`]).
///
/// With several CPUs, what a guest was interrupted at is forgotten when an exception has been delivered in it: an exit that comes
/// before the next instruction tells the faulting one, with the handler's stack. All faults of guests exit therefore, and
/// are put back by the entry, which does not forget.
///
/// A virtual interrupt may be delivered although the guest has interrupts off; such a delivery is undone
/// ([`x86_model::virt::vmx::early`]).
///
/// After an exit from a guest with interrupts on, the hypervisor gets one with its own interrupts off. The entry code changes
/// the flag at once, so that it is at most one, and looks whether one came.
pub fn bochs() -> bool {
    BOCHS_BELOW.load(Ordering::Relaxed)
}

/// QEMU's TCG is below. Two faults of its AMD-V follow.
///
/// VMRUN with a virtual interrupt may drop a physical one that arrives at the same moment: QEMU's VMRUN changes the CPU's
/// word of pending requests without the lock that everyone else takes. The local APIC still has the interrupt, but the CPU is not
/// told until the APIC looks again ([`super::apic::look_again`]).
///
/// An exit may be made twice ([`x86_model::virt::svm::twice`]).
#[inline]
pub fn emulated() -> bool {
    EMULATED.load(Ordering::Relaxed)
}

/// An exit that was made twice has been put right. Told the first time.
#[cold]
pub fn exit_repaired() {
    percpu::this().count_repaired(1);
    if REPAIRED.fetch_add(1, Ordering::Relaxed) == 0 {
        info!(
            "QEMU TCG made an exit twice: the guest's state is put back, and it is entered again"
        );
    }
}

/// So many interrupts that came while a guest had them off have been taken back. Told the first time.
#[cfg(CONFIG_INTEL)]
#[cold]
pub fn delivery_undone(n: u32) {
    percpu::this().count_repaired(n);
    if REPAIRED.fetch_add(1, Ordering::Relaxed) == 0 {
        info!("Bochs delivered an interrupt to a guest that has them off: it is taken back");
    }
}
