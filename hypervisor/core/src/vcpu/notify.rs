//! Telling a vCPU that something waits for it: post first, then wake it if it sleeps or kick it if it runs elsewhere.
//! A vCPU that goes to sleep marks itself asleep first and looks for posted work afterwards, so nothing is lost.

use core::sync::atomic::{Ordering, fence};

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use hv_hw::mem::FrameRef;
use xen_abi::DomId;

use super::{NO_CPU, Sleep, Vcpu};
use crate::domain::Domain;
use crate::evtchn::{Evtchn, Notify, PortOwner, VcpuPages};
use crate::hypervisor::Hypervisor;

impl Vcpu {
    /// Whether the vCPU wants a pCPU.
    pub fn wants_cpu(&self) -> bool {
        self.up.load(Ordering::SeqCst)
            && self.pause.load(Ordering::SeqCst) == 0
            && self.sleep.load(Ordering::SeqCst) == Sleep::Awake as u8
    }
}

impl Hypervisor {
    /// Makes `vcpu` notice what was posted to it.
    pub fn prod(&self, vcpu: &Vcpu) {
        fence(Ordering::SeqCst);
        if vcpu.sleep.swap(Sleep::Awake as u8, Ordering::SeqCst) != Sleep::Awake as u8 {
            self.make_runnable(vcpu);
            return;
        }
        let cpu = vcpu.running_on.load(Ordering::SeqCst);
        if cpu != NO_CPU && CpuId(cpu) != self.hw.cpu() {
            self.hw.kick(CpuId(cpu));
        }
    }

    /// Hands a vCPU that may have become runnable to the scheduler.
    pub fn make_runnable(&self, vcpu: &Vcpu) {
        if !vcpu.wants_cpu() {
            return;
        }
        let now = self.hw.now_ns();
        if let Some(cpu) = self.sched.with(|p| p.wake(vcpu.key, now)) {
            self.resched(cpu);
        }
    }

    /// An event channel made the upcall of `vcpu` pending.
    pub fn upcall(&self, _domain: &Domain, vcpu: &Vcpu) {
        let vector = vcpu.upcall_vector.load(Ordering::Acquire);
        match vector {
            0 => self.prod(vcpu),
            16.. if vcpu.posting.is_some() => self.post_vector(vcpu, vector),
            _ => {
                vcpu.post.vector(vector, false);
                self.prod(vcpu);
            }
        }
    }

    /// Wakes a vCPU out of SCHEDOP_poll (and only out of that).
    pub fn wake_poller(&self, vcpu: &Vcpu) {
        let polling = Sleep::Polling as u8;
        if vcpu
            .sleep
            .compare_exchange(
                polling,
                Sleep::Awake as u8,
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
        {
            self.make_runnable(vcpu);
        }
    }

    /// Takes a vCPU down (HLT with interrupts off, INIT, VCPUOP_down). It leaves its pCPU at the next opportunity.
    pub fn take_down(&self, vcpu: &Vcpu) {
        vcpu.up.store(false, Ordering::SeqCst);
        self.prod(vcpu);
    }
}

impl VcpuPages for Domain {
    fn vcpu_info(&self, vcpu: u32) -> Option<(&FrameRef, usize)> {
        self.vcpu(vcpu)?
            .areas
            .info()
            .map(|at| (&at.frame, at.offset))
    }
}

impl PortOwner for Domain {
    fn id(&self) -> DomId {
        self.id
    }
    fn evtchn(&self) -> &Evtchn {
        &self.evtchn
    }
}

impl Hypervisor {
    /// Tells the vCPUs of `domain` what an event-channel operation said.
    #[inline]
    pub fn notified(&self, domain: &Domain, notify: Notify) {
        for v in notify.upcalls.iter() {
            if let Some(vcpu) = domain.vcpu(v) {
                self.upcall(domain, vcpu);
            }
        }
        for v in notify.pollers.iter() {
            if let Some(vcpu) = domain.vcpu(v) {
                self.wake_poller(vcpu);
            }
        }
    }

    /// Raises a per-vCPU virtual interrupt.
    pub fn raise_vcpu_virq(&self, domain: &Domain, vcpu: &Vcpu, virq: u32) {
        let notify = domain.evtchn.raise_virq(domain, vcpu.key.vcpu, virq);
        self.notified(domain, notify);
    }

    /// Raises a global virtual interrupt in the domain that handles it.
    pub fn raise_global_virq(&self, virq: u32) {
        if let Some(d) = self.domain(self.virq_handler(virq)) {
            let notify = d.evtchn.raise_global_virq(&*d, virq);
            self.notified(&d, notify);
        }
    }

    /// Makes every running vCPU of a domain leave guest mode.
    pub fn kick_domain(&self, domain: &Domain) {
        for v in domain.vcpus() {
            let cpu = v.running_on.load(Ordering::SeqCst);
            if cpu != NO_CPU && CpuId(cpu) != self.hw.cpu() {
                self.hw.kick(CpuId(cpu));
            }
        }
    }
}
