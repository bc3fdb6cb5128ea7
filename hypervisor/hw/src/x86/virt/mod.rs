//! Hardware virtualization: a closed set of backends behind one neutral face. Nothing outside this folder knows a
//! vendor's words.
//!
//! Order of use: [`detect`] once, [`Backend::enable_this_cpu`] on every CPU when its tables (GDT, TSS, GS base) are final,
//! then [`Backend::new_vcpu`] from any CPU.

#[cfg(any(CONFIG_AMD, CONFIG_INTEL))]
mod fpu;
pub(in crate::x86) mod pages;
#[cfg(CONFIG_AMD)]
mod svm;
#[cfg(CONFIG_INTEL)]
mod vmx;

use alloc::sync::Arc;

use x86_model::Gprs;
use x86_model::apic::ApicMode;
use x86_model::virt::choice::{self, Extension};

use super::cpu::percpu::PerCpu;
use crate::machine::{
    ApicAssist, ApicAssists, ApicVectors, Event, Exit, GuestContext, PagingState, SystemState,
    VcpuSetup,
};
use crate::mem::Stage2;
use crate::mem::stage2::Format;
use crate::posted::PostTarget;

#[cfg(CONFIG_AMD)]
pub use svm::SvmVcpu;
#[cfg(CONFIG_INTEL)]
pub use vmx::VmxVcpu;

use super::asm::{cpuid, has_leaf};

/// The backend that this machine has. Without values in a build that has no driver: nothing then comes after [`detect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// AMD-V with nested paging.
    #[cfg(CONFIG_AMD)]
    Svm,
    /// Intel VT-x with EPT.
    #[cfg(CONFIG_INTEL)]
    Vmx,
}

/// What the processor may do for guests' local APICs, where it can (`apicv=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assist {
    /// Handle xAPIC mode.
    pub xapic: bool,
    /// Handle x2APIC mode.
    pub x2apic: bool,
    /// Let guests read registers.
    pub registers: bool,
    /// Deliver interrupts.
    pub delivery: bool,
    /// Take those that are posted to a vCPU in guest mode; only with delivery.
    pub post: bool,
}

/// Finds the backend, or says why there is none, in words for the administrator. The answer is kept for [`Backend::new_vcpu`].
pub fn detect(assist: Assist) -> Result<Backend, &'static str> {
    let built = choice::Built {
        domains: cfg!(CONFIG_HVM),
        amd: cfg!(CONFIG_AMD),
        intel: cfg!(CONFIG_INTEL),
    };
    let has = choice::Has {
        svm: has_leaf(0x8000_0001) && cpuid(0x8000_0001, 0)[2] & 1 << 2 != 0,
        vmx: cpuid(1, 0)[2] & 1 << 5 != 0,
    };
    #[cfg(not(CONFIG_INTEL))]
    let _ = assist;
    match choice::choose(built, has)? {
        #[cfg(CONFIG_AMD)]
        Extension::Svm => svm::detect().map(|()| Backend::Svm),
        #[cfg(CONFIG_INTEL)]
        Extension::Vmx => vmx::detect(assist).map(|()| Backend::Vmx),
        #[cfg(not(all(CONFIG_AMD, CONFIG_INTEL)))]
        _ => Err("no virtualization in this build"),
    }
}

/// The vector by which another CPU is told of what was posted to its guest. Outside of guest mode each is a kick.
pub fn notification(target: &PerCpu) -> u8 {
    #[cfg(CONFIG_INTEL)]
    let vector = vmx::notification(target);
    #[cfg(not(CONFIG_INTEL))]
    let (vector, _) = (super::apic::vectors::POSTED, target);
    vector
}

impl Backend {
    /// Turns virtualization on for the calling CPU. The CPU's descriptor tables and GS base must not change afterwards:
    /// they are restored from a copy after each exit. May be called again on the same CPU.
    pub fn enable_this_cpu(self) -> Result<(), &'static str> {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::enable_this_cpu(),
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => vmx::enable_this_cpu(),
        }
    }

    /// Turns virtualization off for the calling CPU, which runs no guest any more.
    pub fn disable_this_cpu(self) {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::disable_this_cpu(),
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => vmx::disable_this_cpu(),
        }
    }

    /// Makes what a CPU needs that has not started, so that many can start at once without a lock.
    #[cfg_attr(
        not(any(CONFIG_AMD, CONFIG_INTEL)),
        allow(unused_variables, reason = "no driver takes it")
    )]
    pub fn prepare(self, cpu: &PerCpu) -> Result<(), &'static str> {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::prepare(cpu),
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => vmx::prepare(cpu),
        }
    }

    /// Entry format of second-stage tables.
    pub fn stage2_format(self) -> Format {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => Format::Npt,
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => Format::Ept,
        }
    }

    /// Order of the largest page of second-stage tables.
    pub fn stage2_order(self) -> u8 {
        match self {
            // They are ordinary page tables (CPUID 8000_0001h EDX bit 26).
            #[cfg(CONFIG_AMD)]
            Backend::Svm if cpuid(0x8000_0001, 0)[3] & 1 << 26 != 0 => 18,
            #[cfg(CONFIG_AMD)]
            Backend::Svm => 9,
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => vmx::largest_order(),
        }
    }

    /// What is done for virtual local APICs.
    pub fn apic_assists(self) -> ApicAssists {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => ApicAssists::default(),
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => vmx::apic_assists(),
        }
    }

    /// One line for the boot log: name and the features in use.
    pub fn describe(self) -> alloc::string::String {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => svm::describe(),
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => vmx::describe(),
        }
    }
}

impl Backend {
    /// A fresh vCPU context in the state after reset. `None` without memory.
    #[cfg_attr(
        not(any(CONFIG_AMD, CONFIG_INTEL)),
        allow(unused_variables, reason = "no driver takes it")
    )]
    pub fn new_vcpu(self, setup: &VcpuSetup) -> Option<GuestCpu> {
        match self {
            #[cfg(CONFIG_AMD)]
            Backend::Svm => SvmVcpu::new(setup).map(GuestCpu::Svm),
            #[cfg(CONFIG_INTEL)]
            Backend::Vmx => VmxVcpu::new(setup).map(GuestCpu::Vmx),
        }
    }
}

/// A virtual CPU's hardware context on this machine.
#[allow(
    clippy::large_enum_variant,
    reason = "a few hundred bytes a vCPU are worth less than a pointer to follow at each exit"
)]
pub enum GuestCpu {
    /// On AMD-V.
    #[cfg(CONFIG_AMD)]
    Svm(SvmVcpu),
    /// On VT-x.
    #[cfg(CONFIG_INTEL)]
    Vmx(VmxVcpu),
}

macro_rules! delegate {
    ($($name:ident(& $($mutable:ident)? $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?;)*) => {
        impl GuestContext for GuestCpu {
            $(#[inline]
            #[cfg_attr(not(any(CONFIG_AMD, CONFIG_INTEL)), allow(unused_variables, reason = "no driver takes them"))]
            fn $name(& $($mutable)? self $(, $arg: $ty)*) $(-> $ret)? {
                match *self {
                    #[cfg(CONFIG_AMD)]
                    GuestCpu::Svm(ref $($mutable)? vcpu) => vcpu.$name($($arg),*),
                    #[cfg(CONFIG_INTEL)]
                    GuestCpu::Vmx(ref $($mutable)? vcpu) => vcpu.$name($($arg),*),
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
    extended(&) -> &[u8];
    set_extended(&mut, image: &[u8]);
    breakpoints(&) -> [u64; 4];
    set_breakpoints(&mut, at: [u64; 4]);
    set_tsc_offset(&mut, offset: u64);
    enter_cpu(&mut);
    leave(&mut);
    run(&mut, stage2: &Stage2) -> Exit;
    exit_number(&) -> u32;
    interruptible(&) -> bool;
    interrupts_enabled(&) -> bool;
    inject(&mut, event: Event) -> bool;
    injecting(&) -> bool;
    request_window(&mut, on: bool);
    fetched_bytes(&) -> &[u8];
    tpr(&, last: u8) -> u8;
    set_tpr(&mut, tpr: u8);
    watch_tpr(&mut, class: u8);
    set_apic_mode(&mut, mode: ApicMode, enabled: bool) -> ApicAssist;
    put_registers(&mut, registers: &[(u32, u32)]);
    put_vectors(&mut, vectors: &ApicVectors);
    vectors(&) -> ApicVectors;
    post_target(&) -> Option<Arc<PostTarget>>;
}
