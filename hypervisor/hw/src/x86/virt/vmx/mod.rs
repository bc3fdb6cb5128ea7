//! Intel VT-x. The vCPU keeps its control structure ([`vmcs`]) and general-purpose registers; each CPU keeps its VMXON region,
//! the structure that is current on it and its TLB tags ([`cpu`]).
//!
//! A control structure can only be read and written by the CPU on which it is current. It is current between `enter_cpu` and
//! `leave`; at other times whoever looks at the vCPU makes it current for that moment ([`vcpu::VmxVcpu::with`]). `leave` and
//! that look both end with VMCLEAR, so that any CPU may be the next.

mod cpu;
mod delivery;
mod entry;
mod exit;
mod instr;
mod registers;
mod state;
mod translation;
mod vcpu;
mod vmcs;

use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;
use x86_model::apic::ApicMode;
use x86_model::regs::msr;
use x86_model::virt::vmx::capability::Controls;
use x86_model::virt::vmx::delivery as delivery_model;
use x86_model::virt::vmx::{FEATURE_LOCKED, FEATURE_VMXON};

use crate::x86::asm::{cpuid, rdmsr};

pub use cpu::{disable_this_cpu, enable_this_cpu, prepare};
pub use vcpu::VmxVcpu;

/// What guests run with; taken from the boot CPU.
static CONTROLS: Once<Controls> = Once::new();
/// `apicv=`
static ASSIST: AtomicBool = AtomicBool::new(true);

/// Whether this machine can run guests; if not, why.
pub fn detect(assist: bool) -> Result<(), &'static str> {
    ASSIST.store(assist, Ordering::Relaxed);
    CONTROLS.try_call_once(probe).map(|_| ())
}

/// Whether the CPU delivers the interrupts of guests whose APIC is in x2APIC mode.
pub fn delivers() -> bool {
    let controls = CONTROLS.get();
    ASSIST.load(Ordering::Relaxed)
        && controls.is_some_and(|c| delivery_model::controls(c.apic, ApicMode::X2Apic) != 0)
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
    let mut line = alloc::string::String::from("Intel VT-x, EPT, unrestricted guest");
    for (have, name) in [
        (c.tagged(), "VPID"),
        (c.ept.largest_order() >= 18, "1 GiB pages"),
        (delivers(), "virtual-interrupt delivery in x2APIC mode"),
    ] {
        if have {
            // Writing to a string cannot fail.
            let _ = write!(line, ", {name}");
        }
    }
    line
}
