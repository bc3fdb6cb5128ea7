//! Hardware virtualization: a closed set of backends behind one neutral face. Nothing outside this folder knows a
//! vendor's words.
//!
//! Order of use: [`detect`] once, [`Backend::enable_this_cpu`] on every CPU when its tables (GDT, TSS, GS base) are final,
//! then [`new_vcpu`] from any CPU.

#[cfg(CONFIG_AMD)]
mod fpu;
pub(in crate::x86) mod pages;
#[cfg(CONFIG_AMD)]
mod svm;

use alloc::sync::Arc;

use x86_model::Gprs;
use x86_model::virt::choice::{self, Extension};

use super::cpu::percpu::PerCpu;
use crate::machine::{Event, Exit, GuestContext, PagingState, SystemState, VcpuSetup};
use crate::mem::Stage2;
use crate::mem::stage2::Format;
use crate::posted::PostTarget;

#[cfg(CONFIG_AMD)]
pub use svm::SvmVcpu;

use super::asm::{cpuid, has_leaf};

/// The backend that this machine has. Without values in a build that has no driver: nothing then comes after [`detect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// AMD-V with nested paging.
    #[cfg(CONFIG_AMD)]
    Svm,
}

/// Finds the backend, or says why there is none, in words for the administrator. The answer is kept for [`new_vcpu`].
pub fn detect() -> Result<Backend, &'static str> {
    let built = choice::Built {
        domains: cfg!(CONFIG_HVM),
        amd: cfg!(CONFIG_AMD),
        intel: cfg!(CONFIG_INTEL),
    };
    let has = choice::Has {
        svm: has_leaf(0x8000_0001) && cpuid(0x8000_0001, 0)[2] & 1 << 2 != 0,
        vmx: cpuid(1, 0)[2] & 1 << 5 != 0,
    };
    match choice::choose(built, has)? {
        #[cfg(CONFIG_AMD)]
        Extension::Svm => svm::detect().map(|()| Backend::Svm),
        #[cfg(not(CONFIG_AMD))]
        Extension::Svm => Err("no virtualization in this build"),
    }
}

impl Backend {
    /// Turns virtualization on for the calling CPU. The CPU's descriptor tables and GS base must not change afterwards:
    /// they are restored from a copy after each exit. May be called again on the same CPU.
    pub fn enable_this_cpu(self) -> Result<(), &'static str> {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::enable_this_cpu(),
        }
    }

    /// Turns virtualization off for the calling CPU, which runs no guest any more.
    pub fn disable_this_cpu(self) {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::disable_this_cpu(),
        }
    }

    /// Makes what a CPU needs that has not started, so that many can start at once without a lock.
    #[cfg_attr(
        not(CONFIG_AMD),
        allow(unused_variables, reason = "no driver takes it")
    )]
    pub fn prepare(self, cpu: &PerCpu) -> Result<(), &'static str> {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::prepare(cpu),
        }
    }

    /// Entry format of second-stage tables.
    pub fn stage2_format(self) -> Format {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => Format::Npt,
        }
    }

    /// One line for the boot log: name and the features in use.
    pub fn describe(self) -> alloc::string::String {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::describe(),
        }
    }
}

/// A fresh vCPU context in the state after reset. `None` without memory or before [`detect`].
#[cfg(CONFIG_AMD)]
pub fn new_vcpu(setup: &VcpuSetup) -> Option<GuestCpu> {
    SvmVcpu::new(setup).map(GuestCpu::Svm)
}

/// There are none in this build.
#[cfg(not(CONFIG_AMD))]
pub fn new_vcpu(_: &VcpuSetup) -> Option<GuestCpu> {
    None
}

/// A virtual CPU's hardware context on this machine.
pub enum GuestCpu {
    /// On AMD-V.
    #[cfg(CONFIG_AMD)]
    Svm(SvmVcpu),
}

macro_rules! delegate {
    ($($name:ident(& $($mutable:ident)? $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?;)*) => {
        impl GuestContext for GuestCpu {
            $(#[inline]
            #[cfg_attr(not(CONFIG_AMD), allow(unused_variables, reason = "no driver takes them"))]
            fn $name(& $($mutable)? self $(, $arg: $ty)*) $(-> $ret)? {
                match *self {
                    #[cfg(CONFIG_AMD)]
                    GuestCpu::Svm(ref $($mutable)? vcpu) => vcpu.$name($($arg),*),
                }
            })*
        }
    };
}
delegate! {
    gprs(&) -> &Gprs;
    gprs_mut(&mut) -> &mut Gprs;
    rip(&) -> u64;
    set_rip(&mut, rip: u64);
    paging(&) -> PagingState;
    state(&) -> SystemState;
    set_state(&mut, state: &SystemState);
    set_cr4(&mut, value: u64);
    context_msr(&, index: u32) -> Option<u64>;
    set_context_msr(&mut, index: u32, value: u64) -> bool;
    set_xcr0(&mut, value: u64);
    xcr0(&) -> u64;
    set_tsc_offset(&mut, offset: u64);
    enter_cpu(&mut);
    leave(&mut);
    run(&mut, stage2: &Stage2) -> Exit;
    interruptible(&) -> bool;
    interrupts_enabled(&) -> bool;
    inject(&mut, event: Event) -> bool;
    injecting(&) -> bool;
    request_window(&mut, on: bool);
    fetched_bytes(&) -> &[u8];
    tpr(&) -> u8;
    set_tpr(&mut, cr8: u8);
    post_target(&) -> Option<Arc<PostTarget>>;
}
