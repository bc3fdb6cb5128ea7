//! Going to sleep without losing a wake-up.

use core::sync::atomic::{Ordering, fence};

use super::{NEVER, Sleep, Vcpu, VcpuLocal};
use crate::domain::Domain;

impl VcpuLocal {
    /// Marks the vCPU asleep, then looks again for work. False if there is some: it stays awake.
    /// `timeout_ns` is an absolute deadline for [`Sleep::Polling`].
    pub fn try_sleep(
        &mut self,
        domain: &Domain,
        vcpu: &Vcpu,
        how: Sleep,
        timeout_ns: Option<u64>,
    ) -> bool {
        let deadline = vcpu
            .next_deadline(self.lapic_deadline())
            .min(timeout_ns.unwrap_or(NEVER));
        vcpu.wake_at.store(deadline, Ordering::SeqCst);
        vcpu.sleep.store(how as u8, Ordering::SeqCst);
        // The looks below must not be made before the mark can be seen (`loom_posted` in x86-model shows what is lost otherwise).
        fence(Ordering::SeqCst);
        self.merge_posted(vcpu);
        // A pCPU that still watches an old deadline may have taken this one for it before the line above.
        let watched = vcpu.wake_at.load(Ordering::SeqCst) == deadline;
        // A port raised before the vCPU was asleep found nobody to wake.
        let raised = how == Sleep::Polling && !domain.evtchn.polls(vcpu.key.vcpu);
        if !watched || raised || self.has_deliverable(domain, vcpu) {
            vcpu.sleep.store(Sleep::Awake as u8, Ordering::SeqCst);
            return false;
        }
        true
    }
}
