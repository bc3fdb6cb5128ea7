//! AMD-V. The vCPU keeps its control block ([`vmcb`]) and general-purpose registers; each CPU keeps its host save area and
//! TLB tags ([`cpu`]). A vCPU and its control block are used by one CPU at a time, with interrupts off.

mod cpu;
mod entry;
mod exit;
mod state;
mod vcpu;
mod vmcb;

use spin::Once;
use x86_model::virt::svm::{
    CPUID_ECX_SVM, CPUID_SVM_LEAF, MSR_VM_CR, SvmFeatures, VM_CR_LOCK, VM_CR_SVMDIS, intercept,
};

use crate::x86::asm::{cpuid, has_leaf, rdmsr};

pub use cpu::{disable_this_cpu, enable_this_cpu, prepare};
pub use vcpu::SvmVcpu;

/// What the CPUs can do; taken from the boot CPU.
#[derive(Clone, Copy, Debug)]
struct Capabilities {
    features: SvmFeatures,
    /// Number of TLB tags, the host's included.
    asids: u32,
    /// Intercept words for guests, with those of instructions that only this CPU has.
    intercepts: [u32; 3],
}

static CAPABILITIES: Once<Capabilities> = Once::new();

/// Whether this machine can run guests; if not, why.
pub fn detect() -> Result<(), &'static str> {
    CAPABILITIES.try_call_once(probe).map(|_| ())
}

fn probe() -> Result<Capabilities, &'static str> {
    if !has_leaf(0x8000_0001) || cpuid(0x8000_0001, 0)[2] & CPUID_ECX_SVM == 0 {
        return Err("the CPU has no AMD-V (CPUID Fn8000_0001 ECX.SVM is clear)");
    }
    if rdmsr(MSR_VM_CR) & (VM_CR_SVMDIS | VM_CR_LOCK) == VM_CR_SVMDIS | VM_CR_LOCK {
        return Err(
            "AMD-V is disabled and locked by the firmware (VM_CR.SVMDIS): enable SVM in its setup",
        );
    }
    if !has_leaf(CPUID_SVM_LEAF) {
        return Err("the CPU has AMD-V but does not describe it (CPUID Fn8000_000A is missing)");
    }
    let [_, asids, _, edx] = cpuid(CPUID_SVM_LEAF, 0);
    let features = SvmFeatures::from_bits_truncate(edx);
    if !features.contains(SvmFeatures::NESTED_PAGING) {
        return Err("the CPU has AMD-V without nested paging");
    }
    let extended = if has_leaf(0x8000_0008) {
        cpuid(0x8000_0008, 0)[1]
    } else {
        0
    };
    let mut intercepts = intercept::ALWAYS;
    for (bit, words) in [
        (4, intercept::RDPRU),
        (3, intercept::BROADCAST_TLB),
        (8, intercept::MCOMMIT),
    ] {
        if extended & 1 << bit != 0 {
            for (all, new) in intercepts.iter_mut().zip(words) {
                *all |= new;
            }
        }
    }
    Ok(Capabilities {
        features,
        asids,
        intercepts,
    })
}

/// One line for the boot log.
pub fn describe() -> alloc::string::String {
    use core::fmt::Write;
    let Some(c) = CAPABILITIES.get() else {
        return alloc::string::String::from("none");
    };
    let mut line = alloc::format!("AMD-V, {} ASIDs", c.asids);
    for (name, _) in c.features.iter_names() {
        // Writing to a string cannot fail.
        let _ = write!(line, ", {}", name.to_ascii_lowercase().replace('_', " "));
    }
    line
}
