//! Virtual CPUs: life cycle, the run loop, interrupt injection, blocking and notification.
//!
//! A vCPU has two halves. [`VcpuLocal`] is owned by the run loop of the one pCPU that runs it (the lock around it is
//! never contended on that path). Everything that other CPUs may touch is atomic, in [`Vcpu`] itself.

pub mod block;
pub mod boot_state;
pub mod info;
pub mod inject;
pub mod notify;
pub mod pin;
pub mod posting;
pub mod run;
pub mod runstate;
pub mod stats;
pub mod timer;

mod dump;
pub mod exits;
mod exits_io;
mod exits_mmio;
mod exits_msr;
mod ipi;
mod traced;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use alloc::sync::Arc;
use hv_hw::HwVcpu;
use hv_hw::machine::ApicAssist;
use hv_hw::sync::{SpinLock, rank};
use x86_model::apic::ApicMode;
use xen_abi::DomId;

use crate::hvm::cpuid::CpuidTable;
use crate::hvm::msr::MsrState;
use crate::hvm::vlapic::{LapicPost, Vlapic};
use crate::sched::CpuMask;

/// Number of no CPU.
pub const NO_CPU: u32 = u32::MAX;
/// Deadline value for "never".
pub const NEVER: u64 = u64::MAX;

/// Name of a vCPU in the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuKey {
    /// Domain.
    pub domain: DomId,
    /// Index within the domain.
    pub vcpu: u32,
}

impl core::fmt::Display for VcpuKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "d{}v{}", self.domain.0, self.vcpu)
    }
}

/// What a vCPU sleeps for, besides ordinary interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Sleep {
    /// Not asleep.
    Awake = 0,
    /// HLT or SCHEDOP_block: any deliverable event ends it.
    Halted = 1,
    /// SCHEDOP_poll: a listed port, any event, or the timeout ends it.
    Polling = 2,
}

/// The shared half of a vCPU.
pub struct Vcpu {
    /// Name.
    pub key: VcpuKey,
    /// Whether the vCPU is up (started and not halted with interrupts off).
    pub up: AtomicBool,
    /// Holds that keep the vCPU off every pCPU.
    pub pause: AtomicU32,
    /// The vCPU has register state to start from (VCPUOP_initialise, INIT or domain building).
    pub initialised: AtomicBool,
    /// INIT was taken: the next SIPI starts the vCPU.
    pub waits_for_sipi: AtomicBool,
    /// [`Sleep`] as a number.
    pub sleep: AtomicU8,
    /// The pCPU that runs it now, or [`NO_CPU`].
    pub running_on: AtomicU32,
    /// The pCPU it last ran on (where its timers are watched), or [`NO_CPU`].
    pub home: AtomicU32,
    /// Stage-2 generation that the running entry started with; [`NEVER`] outside guest mode.
    pub entered_generation: AtomicU64,
    /// Interrupts, NMI, INIT and SIPI that others posted.
    pub post: LapicPost,
    /// Where vectors are posted instead, if its backend takes them from there.
    pub posting: Option<posting::Posting>,
    /// Upcall vector set by HVMOP_set_evtchn_upcall_vector; 0 means the domain's callback is used.
    pub upcall_vector: AtomicU8,
    /// Absolute deadline of the one-shot timer.
    pub singleshot: AtomicU64,
    /// Period of the periodic timer in ns, 0 if stopped.
    pub period: AtomicU64,
    /// Next tick of the periodic timer.
    pub next_tick: AtomicU64,
    /// When a sleeping or waiting vCPU must be woken.
    pub wake_at: AtomicU64,

    /// The affinity that a pin override replaced.
    pub pinned_from: SpinLock<Option<CpuMask>, { rank::DEVICE }>,
    /// pCPUs that the toolstack prefers; only kept.
    pub soft_affinity: SpinLock<CpuMask, { rank::DEVICE }>,
    /// Where vcpu_info, the runstate area and the time area are.
    pub areas: info::Areas,
    /// Time accounting by run state.
    pub runstate: runstate::RunState,
    /// Counters of exits and injections.
    pub stats: stats::Stats,
    /// The run loop's half.
    pub local: SpinLock<VcpuLocal, { rank::VCPU }>,
}

/// The half that only the running pCPU touches.
pub struct VcpuLocal {
    /// Hardware context.
    pub ctx: HwVcpu,
    /// Local APIC registers.
    pub lapic: Vlapic,
    /// The processor can do something for this APIC.
    pub assistable: bool,
    /// What it was told last: mode, and whether the APIC is enabled.
    pub assisted_as: Option<(ApicMode, bool)>,
    /// What it does at present.
    pub assist: ApicAssist,
    /// CPUID leaves, precomputed.
    pub cpuid: CpuidTable,
    /// Last value written to port 0xcf8.
    pub pci_address: u32,
    /// NMI waiting, and whether one is being handled is known to hardware only.
    pub nmi_pending: bool,
    /// INIT or SIPI taken from the posts and not acted upon yet.
    pub reset: Option<Reset>,
    /// Runs code (false between INIT and SIPI).
    pub started: bool,
    /// XCR0 bits that the guest may set.
    pub xcr0_allowed: u64,
    /// CR4 bits that the guest may set.
    pub cr4_allowed: u64,
    /// Instruction-length memory for exits whose length hardware does not tell.
    pub lengths: exits::LengthCache,
    /// Recent translations of the guest's addresses.
    pub walks: core::cell::RefCell<crate::guest::WalkCache>,
    /// MSRs that are state without effect (MTRRs, MCG, ...).
    pub msrs: MsrState,
    /// Guest TSC minus host TSC.
    pub tsc_offset: u64,
}

/// A pending INIT and/or SIPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// INIT.
    pub init: bool,
    /// SIPI with its vector; it came after the INIT.
    pub sipi: Option<u8>,
}

/// A counted vCPU.
pub type VcpuRef = Arc<Vcpu>;
