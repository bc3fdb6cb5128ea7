//! A vCPU whose interrupts are posted: how its descriptor follows what it does, and who wakes it.
//!
//! Vectors from other CPUs go to the descriptor instead of [`crate::hvm::vlapic::LapicPost`], so that one that reaches a vCPU
//! in guest mode makes no exit there; a unit posts device messages to the same one. NMI, INIT, start-up, level-triggered
//! and illegal vectors keep the other way.
//!
//! A vCPU that goes to sleep is put on its pCPU's list first and arms its descriptor then; what was posted before is taken
//! by the look that every sleeper makes last. Whoever runs it again takes it off.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use hv_hw::machine::{CpuId, Receiver};
use hv_hw::posted::PostTarget;
use hv_hw::{Hw, Machine};
use x86_model::posted::{Post, Sleeper};

use super::run::Turn;
use super::{NO_CPU, Sleep, Vcpu, VcpuLocal, VcpuRef};
use crate::hypervisor::Hypervisor;

/// Times that a vCPU takes what is posted before it gives up its sleep.
const TRIES: u32 = 8;

/// A vCPU's descriptor.
pub struct Posting {
    /// It.
    pub target: Arc<PostTarget>,
    /// The pCPU whose list of sleepers the vCPU is on, or [`NO_CPU`].
    listed: AtomicU32,
}

impl Posting {
    /// For a vCPU that has run nothing yet. `None` if the backend does not post, or a descriptor cannot name every CPU.
    pub fn new(hw: &Hw, target: Option<Arc<PostTarget>>) -> Option<Self> {
        let target = target?;
        let named = |n| hw.post_notice(CpuId(n), Receiver::Running).is_some();
        (0..hw.cpu_count()).all(named).then_some(Self {
            target,
            listed: AtomicU32::new(NO_CPU),
        })
    }
}

/// A vCPU on a list of sleepers.
pub struct Asleep(VcpuRef);

impl Sleeper for Asleep {
    fn is_notified(&self) -> bool {
        let posting = self.0.posting.as_ref();
        posting.is_some_and(|p| p.target.is_notified())
    }
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl VcpuLocal {
    /// Takes what is posted, where there is a descriptor.
    #[inline]
    pub(super) fn take_posted(&mut self, vcpu: &Vcpu) {
        if let Some(p) = &vcpu.posting
            && let Some(words) = p.target.sync()
        {
            self.lapic.accept_posted(words);
        }
    }
}

impl Hypervisor {
    /// Delivers an edge-triggered vector (16 and above) to a vCPU from another CPU, a device or itself.
    #[inline]
    pub fn post_vector(&self, vcpu: &Vcpu, vector: u8) {
        let Some(p) = &vcpu.posting else {
            if vcpu.post.vector(vector, false) {
                self.prod(vcpu);
            }
            return;
        };
        // In every other case somebody else's notification is under way, or the vCPU looks before it runs.
        if let Post::Notify(_) = p.target.post(vector) {
            fence(Ordering::SeqCst);
            if vcpu.sleep.swap(Sleep::Awake as u8, Ordering::SeqCst) != Sleep::Awake as u8 {
                self.make_runnable(vcpu);
                return;
            }
            let cpu = vcpu.running_on.load(Ordering::SeqCst);
            if cpu != NO_CPU && CpuId(cpu) != self.hw.cpu() {
                self.hw.notify(CpuId(cpu));
            }
        }
    }

    /// The vCPU is about to run on this pCPU.
    pub(super) fn posting_runs(&self, vcpu: &VcpuRef, cpu: CpuId) {
        if let Some(p) = &vcpu.posting {
            if let Some(notice) = self.hw.post_notice(cpu, Receiver::Running) {
                p.target.run_on(notice);
            }
            self.unlist(vcpu);
        }
    }

    /// Takes a vCPU off the list of sleepers that it is on.
    pub(crate) fn unlist(&self, vcpu: &VcpuRef) {
        let Some(p) = &vcpu.posting else { return };
        let cpu = p.listed.swap(NO_CPU, Ordering::SeqCst);
        if let Some(pcpu) = self.pcpus.get(cpu as usize) {
            pcpu.sleepers.lock().remove(&Asleep(vcpu.clone()));
        }
    }

    /// The wake-up vector arrived: wakes those sleepers of this pCPU that were posted to.
    pub fn wake_posted(&self, cpu: CpuId) {
        let list = &self.pcpus[cpu.0 as usize].sleepers;
        loop {
            // Not held over the waking.
            let next = list.lock().next_notified();
            let Some(Asleep(vcpu)) = next else { return };
            self.prod(&vcpu);
        }
    }

    /// A pCPU goes away: its sleepers are woken, and find another to sleep on.
    pub fn wake_all_sleepers(&self, cpu: CpuId) {
        let list = &self.pcpus[cpu.0 as usize].sleepers;
        loop {
            let next = list.lock().take_any();
            let Some(Asleep(vcpu)) = next else { return };
            self.prod(&vcpu);
        }
    }
}

impl Turn<'_> {
    /// The vCPU wants to sleep: from here on what is posted wakes it. False if it must not sleep: so much is posted, or
    /// there is no memory for the list.
    pub(super) fn arm_wake(&mut self) -> bool {
        let Some(p) = &self.vcpu.posting else {
            return true;
        };
        let cpu = self.pcpu.cpu;
        let Some(notice) = self.hv.hw.post_notice(cpu, Receiver::Sleeping) else {
            return false;
        };
        let list = &self.hv.pcpus[cpu.0 as usize].sleepers;
        if list.lock().add(Asleep(self.vcpu.clone())).is_err() {
            return false;
        }
        p.listed.store(cpu.0, Ordering::SeqCst);
        for _ in 0..TRIES {
            if p.target.block(notice) {
                return true;
            }
            self.local.take_posted(self.vcpu);
        }
        false
    }

    /// It stays awake after all.
    pub(super) fn disarm_wake(&mut self) {
        self.hv.posting_runs(self.vcpu, self.pcpu.cpu);
    }
}
