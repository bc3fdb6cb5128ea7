//! Which vCPU runs where: a policy behind one trait. Policies are pure: they are told what happened, and return whom to
//! run or which pCPU to kick. The caller owns the lock (rank RUNQ) and does the kicking.

mod adjust;
pub mod cpumask;
mod fair;
mod null;

use alloc::boxed::Box;
use alloc::string::String;

use hv_hw::machine::CpuId;
use hv_hw::sync::{SpinLock, rank};
use xen_abi::domctl::scheduler;

pub use cpumask::{CpuMask, MAX_CPUS};
pub use fair::{Fair, RATE_LIMIT_NS};
pub use null::Null;

use crate::vcpu::VcpuKey;

/// The ordinary weight.
pub const NORMAL_WEIGHT: u16 = 256;

/// What the policy knows of a vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Share of CPU time relative to others; 256 is ordinary.
    pub weight: u16,
    /// pCPUs that it may run on.
    pub hard: CpuMask,
}

/// A decision for one pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pick {
    /// The vCPU to run, or none: idle.
    pub vcpu: Option<VcpuKey>,
    /// When to ask again at the latest; `u64::MAX` if nothing competes.
    pub until_ns: u64,
}

/// Which pCPUs take vCPUs.
#[derive(Clone, Copy, Debug)]
struct Online {
    up: CpuMask,
    /// Not all are up.
    some_away: bool,
    cpus: u32,
}

impl Online {
    fn new(cpus: u32) -> Self {
        let mut up = CpuMask::NONE;
        (0..cpus).for_each(|n| up.set(CpuId(n)));
        Online {
            up,
            some_away: false,
            cpus,
        }
    }

    fn set(&mut self, cpu: CpuId, online: bool) {
        if online {
            self.up.set(cpu);
        } else {
            self.up.clear(cpu);
        }
        self.some_away = (0..self.cpus).any(|n| !self.up.contains(CpuId(n)));
    }

    /// Whether a vCPU with this affinity may run on `cpu`.
    #[inline]
    fn allows(&self, hard: &CpuMask, cpu: CpuId) -> bool {
        if !self.some_away {
            return hard.contains(cpu);
        }
        self.up.contains(cpu) && (hard.contains(cpu) || hard.and(&self.up).is_empty())
    }
}

/// A scheduling policy. Times are ns since boot.
pub trait Policy: Send {
    /// Name, as `sched=` and the tools know it.
    fn name(&self) -> &'static str;
    /// Makes a vCPU known; it starts asleep.
    fn insert(&mut self, vcpu: VcpuKey, params: Params);
    /// Forgets a vCPU (which must not be running).
    fn remove(&mut self, vcpu: VcpuKey);
    /// Changes weight or affinity. Returns a pCPU to kick if the vCPU runs where it no longer may.
    fn set_params(&mut self, vcpu: VcpuKey, params: Params) -> Option<CpuId>;
    /// The parameters of a vCPU.
    fn params(&self, vcpu: VcpuKey) -> Option<Params>;
    /// A sleeping vCPU became runnable. Returns the pCPU that should choose again. Harmless if it was runnable already.
    fn wake(&mut self, vcpu: VcpuKey, now_ns: u64) -> Option<CpuId>;
    /// The vCPU that ran on `cpu` stops; it stays runnable or sleeps. Returns a pCPU that should choose again.
    fn put(&mut self, cpu: CpuId, now_ns: u64, runnable: bool) -> Option<CpuId>;
    /// A pCPU takes vCPUs from now on, or none. vCPUs that may run only on pCPUs that are away may run on all others until one
    /// of theirs is back. All pCPUs should choose again.
    fn set_online(&mut self, cpu: CpuId, online: bool);
    /// Whether every vCPU that runs on `cpu` could run somewhere else. Without that, a pCPU that goes would stop it.
    fn spares(&self, _cpu: CpuId) -> bool {
        true
    }
    /// A line for each vCPU, for people.
    fn dump(&self, line: &mut dyn FnMut(String));
    /// Chooses for `cpu`, which runs nothing.
    fn pick(&mut self, cpu: CpuId, now_ns: u64) -> Pick;
}

/// The scheduler: a policy under its lock.
pub struct Scheduler {
    policy: SpinLock<Box<dyn Policy>, { rank::RUNQ }>,
    slice_ns: u64,
}

impl Scheduler {
    /// The scheduler named by `sched=`, for `cpus` pCPUs. `None` if this build has no such policy.
    pub fn by_name(name: &str, cpus: u32, slice_ns: u64) -> Option<Self> {
        let policy: Box<dyn Policy> = match name {
            "credit" | "credit2" if cfg!(CONFIG_SCHED_CREDIT2) => Box::new(Fair::new(
                if name == "credit" {
                    "credit"
                } else {
                    "credit2"
                },
                cpus,
                slice_ns,
            )),
            "null" if cfg!(CONFIG_SCHED_NULL) => Box::new(Null::new(cpus)),
            _ => return None,
        };
        Some(Scheduler {
            policy: SpinLock::new(policy),
            slice_ns,
        })
    }

    /// The policy's number among schedulers (`XEN_SCHEDULER_*`).
    pub fn id(&self) -> u32 {
        match self.with(|p| p.name()) {
            "credit" => scheduler::CREDIT,
            "credit2" => scheduler::CREDIT2,
            _ => scheduler::NULL,
        }
    }

    /// Length of a time slice.
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    /// Runs `f` with the policy locked.
    pub fn with<R>(&self, f: impl FnOnce(&mut dyn Policy) -> R) -> R {
        f(&mut **self.policy.lock())
    }
}
