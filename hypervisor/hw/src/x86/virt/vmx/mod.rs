//! Intel VT-x. The vCPU keeps its control structure ([`vmcs`]) and general-purpose registers; each CPU keeps its VMXON region,
//! the structure that is current on it and its TLB tags ([`cpu`]).
//!
//! A control structure can only be read and written by the CPU on which it is current. It is current between `enter_cpu` and
//! `leave`; at other times whoever looks at the vCPU makes it current for that moment ([`vcpu::VmxVcpu::with`]). `leave` and
//! that look both end with VMCLEAR, so that any CPU may be the next.

mod cpu;
mod delivery;
mod early;
mod entry;
mod events;
mod exit;
mod instr;
mod registers;
mod state;
mod translation;
mod vcpu;
mod vmcs;

use spin::Once;
use x86_model::regs::msr;
use x86_model::virt::vmx::capability::{ApicFeatures, Controls};
use x86_model::virt::vmx::{FEATURE_LOCKED, FEATURE_VMXON};

use super::Assist;
use crate::machine::ApicAssists;
use crate::x86::asm::{cpuid, rdmsr};

pub use cpu::{disable_this_cpu, enable_this_cpu, prepare};
pub use early::notification;
pub use vcpu::VmxVcpu;

/// What guests run with; taken from the boot CPU.
static CONTROLS: Once<Controls> = Once::new();
/// `apicv=`
static ASSIST: Once<Assist> = Once::new();

/// Whether this machine can run guests; if not, why.
pub fn detect(assist: Assist) -> Result<(), &'static str> {
    ASSIST.call_once(|| assist);
    CONTROLS.try_call_once(probe).map(|_| ())
}

/// What is used of the CPU's APIC features.
pub fn apic_features() -> ApicFeatures {
    let assist = ASSIST.get().copied().unwrap_or_default();
    let allowed = ApicFeatures {
        accesses: assist.xapic,
        x2apic: assist.x2apic,
        registers: assist.registers,
        delivery: assist.delivery,
        posted: assist.post,
    };
    CONTROLS
        .get()
        .map_or(ApicFeatures::default(), |c| c.apic.and(allowed))
}

/// The same in neutral words.
pub fn apic_assists() -> ApicAssists {
    let f = apic_features();
    ApicAssists {
        any: f.accesses || f.x2apic,
        page: f.accesses,
        xapic: f.accesses && f.registers,
        x2apic: f.x2apic && f.registers && f.delivery,
    }
}

/// Order of the largest page that EPT has here.
pub fn largest_order() -> u8 {
    CONTROLS.get().map_or(9, |c| c.ept.largest_order().min(18))
}

fn probe() -> Result<Controls, &'static str> {
    if cpuid(1, 0)[2] & 1 << 5 == 0 {
        return Err("the CPU has no VT-x (CPUID leaf 1 ECX.VMX is clear)");
    }
    let feature = rdmsr(msr::FEATURE_CONTROL);
    if feature & FEATURE_LOCKED != 0 && feature & FEATURE_VMXON == 0 {
        return Err(
            "VT-x is disabled and locked by the firmware (FEATURE_CONTROL): enable VT-x in its setup",
        );
    }
    Controls::choose(rdmsr)
}

/// One line for the boot log.
pub fn describe() -> alloc::string::String {
    use core::fmt::Write;
    let Some(c) = CONTROLS.get() else {
        return alloc::string::String::from("none");
    };
    let f = apic_features();
    let mut line = alloc::string::String::from("Intel VT-x, EPT, unrestricted guest");
    for (have, name) in [
        (c.tagged(), "VPID"),
        (c.ept.largest_order() >= 18, "1 GiB pages"),
        (f.accesses, "APIC page"),
        (f.x2apic, "x2APIC MSRs"),
        (f.registers, "APIC registers"),
        (f.delivery, "virtual-interrupt delivery"),
        (f.delivery && f.posted, "posted interrupts"),
    ] {
        if have {
            // Writing to a string cannot fail.
            let _ = write!(line, ", {name}");
        }
    }
    line
}
