//! What goes into the guest at the next entry: NMI, the global event callback, or the local APIC's highest vector, in this
//! order. Called with everything posted already merged.

use core::sync::atomic::Ordering;

use hv_hw::GuestContext;
use hv_hw::machine::{ApicAssist, Event};

use super::{Reset, Vcpu, VcpuLocal};
use crate::domain::Domain;
use crate::hvm::vlapic::Next;

impl VcpuLocal {
    /// Takes over what other CPUs posted. INIT and SIPI are kept for [`super::ipi::take_reset`].
    #[inline]
    pub fn merge_posted(&mut self, vcpu: &Vcpu) {
        self.take_posted(vcpu);
        if self.lapic.needs_merge(&vcpu.post) {
            let merged = self.lapic.merge(&vcpu.post);
            self.nmi_pending |= merged.nmi;
            if merged.init || merged.sipi.is_some() {
                self.reset = Some(Reset {
                    init: merged.init,
                    sipi: merged.sipi,
                });
            }
        }
    }

    /// Whether something could be delivered now: what the interrupt flag holds back does not end a sleep.
    pub fn has_deliverable(&mut self, domain: &Domain, vcpu: &Vcpu) -> bool {
        if self.nmi_pending || !self.ctx.interrupts_enabled() {
            return self.nmi_pending;
        }
        self.ctx.injecting()
            || self.callback_vector(domain, vcpu).is_some()
            || self.deliverable().is_some()
    }

    /// The global callback's vector if the upcall is pending and delivered that way.
    #[inline]
    pub(super) fn callback_vector(&self, domain: &Domain, vcpu: &Vcpu) -> Option<u8> {
        if vcpu.upcall_vector.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let vector = domain.callback_vector.load(Ordering::Relaxed);
        let pending = vector != 0
            && vcpu
                .areas
                .upcall_pending()
                .is_some_and(|p| p.load(Ordering::Acquire) != 0);
        pending.then_some(vector)
    }

    /// Takes over a task priority that the guest set through CR8, which does not exit. Due before anything that depends on
    /// it, and only then.
    #[inline]
    pub fn take_tpr(&mut self) {
        self.lapic.set_tpr(self.ctx.tpr(self.lapic.tpr()));
    }

    /// Lets CR8 show the APIC's task priority, after the APIC may have changed it.
    #[inline]
    pub fn show_tpr(&mut self) {
        self.ctx.set_tpr(self.lapic.tpr());
    }

    /// The local APIC's interrupt that is to be delivered now. One that only the task priority holds back makes an exit as
    /// soon as the guest lowers it.
    #[inline]
    fn deliverable(&mut self) -> Option<u8> {
        if self.lapic.has_requests() {
            self.weigh_requests()
        } else {
            None
        }
    }

    fn weigh_requests(&mut self) -> Option<u8> {
        self.take_tpr();
        match self.lapic.next() {
            Next::Deliver(vector) => Some(vector),
            Next::Held(vector) => {
                self.ctx.watch_tpr(vector >> 4);
                None
            }
            Next::Nothing => None,
        }
    }

    /// Has the processor do for the APIC what it can in its present mode, and gives it what it needs for that. Whether it
    /// delivers interrupts.
    #[inline]
    fn give_apic(&mut self) -> bool {
        self.assistable && self.give_assisted()
    }

    #[cold]
    fn give_assisted(&mut self) -> bool {
        let now = (self.lapic.mode(), self.lapic.enabled());
        if self.assisted_as != Some(now) {
            self.assisted_as = Some(now);
            self.assist = self.ctx.set_apic_mode(now.0, now.1);
            self.show_tpr();
            self.lapic.touch();
        }
        let ApicAssist {
            registers,
            delivery,
        } = self.assist;
        if registers && self.lapic.take_changed() {
            self.ctx.put_registers(&self.lapic.registers());
        }
        if registers || delivery {
            self.ctx.put_vectors(&self.lapic.vectors());
        }
        delivery
    }

    /// Takes over what the processor did with the APIC's interrupts.
    #[inline]
    pub fn take_delivery(&mut self) {
        if self.assist.delivery {
            self.lapic.set_vectors(&self.ctx.vectors());
        }
    }

    /// Queues the most urgent event if the guest can take it now, and asks for a window if more waits.
    #[inline]
    pub fn inject_pending(&mut self, domain: &Domain, vcpu: &Vcpu) {
        if self.nmi_pending && self.ctx.inject(Event::Nmi) {
            self.nmi_pending = false;
            vcpu.stats.injected(2);
        }
        let callback = self.callback_vector(domain, vcpu);
        let delivered = self.give_apic();
        if delivered && callback.is_none() {
            self.ctx.request_window(false);
            return;
        }
        let Some(vector) = callback.or_else(|| self.deliverable()) else {
            self.ctx.request_window(false);
            return;
        };
        if !self.ctx.interruptible() || !self.ctx.inject(Event::Interrupt(vector)) {
            self.ctx.request_window(true);
            return;
        }
        vcpu.stats.injected(vector);
        if callback.is_none() {
            self.lapic.ack(vector);
        }
        let more = !delivered && self.deliverable().is_some();
        self.ctx.request_window(more);
    }
}
