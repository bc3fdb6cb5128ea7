//! What the toolstack does to a running domain: holding it, letting it go on, bringing it back after a shutdown.
//!
//! A vCPU may run while nothing holds it: its `pause` counts the holds. The toolstack's own are counted per domain and
//! weigh as one on each vCPU; a shutdown and the domain's death weigh one each. The counts change under the control lock
//! ([`Hypervisor::control`]), apart from that of a shutdown, which a domain brings about itself.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use xen_abi::Errno;

use super::{Domain, NO_CODE, RUNNING};
use crate::hypervisor::Hypervisor;
use crate::sched::{CpuMask, NORMAL_WEIGHT, Params};
use crate::vcpu::{NO_CPU, Vcpu, VcpuLocal};

/// Most holds of the toolstack on one domain (as Xen).
const MAX_PAUSES: u32 = 255;

/// How far the end of a domain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Life {
    /// In use.
    Alive = 0,
    /// Being taken apart.
    Dying = 1,
    /// Has nothing left.
    Dead = 2,
}

/// The state that only the toolstack changes.
#[derive(Default)]
pub(super) struct State {
    pauses: AtomicU32,
    life: AtomicU8,
    /// The domain was let go at least once: what it is made of is fixed.
    pub(super) started: AtomicBool,
    /// Where the taking apart goes on.
    pub(super) stage: AtomicU8,
    pub(super) cursor: AtomicU64,
}

impl Domain {
    /// How far the end of the domain has come.
    pub fn life(&self) -> Life {
        match self.control.life.load(Ordering::Acquire) {
            0 => Life::Alive,
            1 => Life::Dying,
            _ => Life::Dead,
        }
    }

    pub(super) fn set_life(&self, life: Life) {
        self.control.life.store(life as u8, Ordering::Release);
    }

    /// Whether the toolstack holds the domain.
    pub fn is_paused(&self) -> bool {
        self.control.pauses.load(Ordering::Acquire) != 0
    }

    /// Whether the domain was let go at least once.
    pub fn has_started(&self) -> bool {
        self.control.started.load(Ordering::Acquire)
    }
}

impl Hypervisor {
    /// Holds a domain's vCPUs until each has left its pCPU. Not for the caller's own domain.
    pub fn pause_domain(&self, domain: &Domain) -> Result<(), Errno> {
        let pauses = &domain.control.pauses;
        let before = pauses.load(Ordering::Acquire);
        if before >= MAX_PAUSES {
            return Err(Errno::EOVERFLOW);
        }
        pauses.store(before + 1, Ordering::Release);
        if before == 0 {
            self.hold_vcpus(domain);
        }
        self.wait_until_off(domain);
        Ok(())
    }

    /// Takes one hold of the toolstack back. EINVAL: there is none.
    pub fn unpause_domain(&self, domain: &Domain) -> Result<(), Errno> {
        let pauses = &domain.control.pauses;
        let before = pauses.load(Ordering::Acquire);
        if before == 0 {
            return Err(Errno::EINVAL);
        }
        if before == 1 {
            domain.control.started.store(true, Ordering::Release);
        }
        pauses.store(before - 1, Ordering::Release);
        if before == 1 {
            self.release_vcpus(domain);
        }
        Ok(())
    }

    /// A new domain is held until the toolstack has built it.
    pub fn pause_new(&self, domain: &Domain) {
        domain.control.pauses.store(1, Ordering::Release);
    }

    /// Makes at most `budget` of a domain's vCPUs and hands them to the scheduler when all are there; true then.
    pub fn make_vcpus(&self, domain: &Domain, budget: u32) -> Result<bool, Errno> {
        if !domain.vcpus().is_empty() {
            return Ok(true);
        }
        if !domain.make_vcpus(&self.hw, budget)? {
            return Ok(false);
        }
        let holds = u32::from(domain.is_paused()) + u32::from(domain.shutdown_reason().is_some());
        for v in domain.vcpus() {
            v.pause.store(holds, Ordering::SeqCst);
            let params = Params {
                weight: NORMAL_WEIGHT,
                hard: CpuMask::ALL,
            };
            self.sched.with(|p| p.insert(v.key, params));
        }
        Ok(true)
    }

    /// Holds a domain for the length of an operation; [`Hypervisor::let_go`] ends it.
    pub fn hold(&self, domain: &Domain) {
        self.hold_vcpus(domain);
        self.wait_until_off(domain);
    }

    /// Ends a [`Hypervisor::hold`].
    pub fn let_go(&self, domain: &Domain) {
        self.release_vcpus(domain);
    }

    /// Adds one hold to each vCPU.
    pub(super) fn hold_vcpus(&self, domain: &Domain) {
        for v in domain.vcpus() {
            v.pause.fetch_add(1, Ordering::SeqCst);
            let cpu = v.running_on.load(Ordering::SeqCst);
            if cpu != NO_CPU {
                self.hw.kick(CpuId(cpu));
            }
        }
    }

    fn release_vcpus(&self, domain: &Domain) {
        for v in domain.vcpus() {
            v.pause.fetch_sub(1, Ordering::SeqCst);
            self.make_runnable(v);
        }
    }

    /// Waits until no pCPU runs a vCPU of a domain that is held. Its vCPUs leave guest mode by the kick, and what they do in
    /// the hypervisor is bounded and never waits for the control lock: that is for the control domain.
    pub(super) fn wait_until_off(&self, domain: &Domain) {
        for v in domain.vcpus() {
            while v.running_on.load(Ordering::SeqCst) != NO_CPU {
                core::hint::spin_loop();
            }
        }
    }

    /// The run loop's half of a vCPU that is held and off its pCPU, or down. EBUSY: somebody else has it.
    pub fn with_local<R>(
        &self,
        vcpu: &Vcpu,
        f: impl FnOnce(&mut VcpuLocal) -> R,
    ) -> Result<R, Errno> {
        // A pCPU that just left the vCPU lets go within a few instructions.
        const TRIES: u32 = 100_000;
        for _ in 0..TRIES {
            if let Some(mut local) = vcpu.local.try_lock() {
                return Ok(f(&mut local));
            }
            core::hint::spin_loop();
        }
        Err(Errno::EBUSY)
    }

    /// `XEN_DOMCTL_resumedomain`: undoes a shutdown, after which the domain goes on where it asked for it.
    pub fn resume_domain(&self, domain: &Domain) {
        domain.shutdown_code.store(NO_CODE, Ordering::Release);
        if domain.stopped.swap(RUNNING, Ordering::AcqRel) != RUNNING {
            self.wait_until_off(domain);
            self.release_vcpus(domain);
        }
    }
}
