//! Inter-processor interrupts and messages on their way to virtual local APICs; INIT and SIPI at the receiver.

use core::sync::atomic::{Ordering, fence};

use x86_model::apic::DeliveryMode;

use super::run::Turn;
use super::{Reset, Sleep, Vcpu, boot_state};
use crate::domain::Domain;
use crate::hvm::vlapic::{Effect, Ipi};
use crate::hypervisor::Hypervisor;

impl Hypervisor {
    /// Delivers an interrupt to the vCPUs of `domain` that it addresses; how many did. `sender` is the index of the sending
    /// vCPU.
    pub fn deliver(&self, domain: &Domain, sender: Option<u32>, ipi: &Ipi) -> u32 {
        let vcpus = domain.vcpus();
        ipi.resolve(
            sender,
            vcpus.len() as u32,
            |v| vcpus[v as usize].post.facts(),
            |v| self.deliver_to(&vcpus[v as usize], ipi.mode, ipi.vector, ipi.level),
        )
    }

    /// Delivers an interrupt to one vCPU.
    pub fn deliver_to(&self, vcpu: &Vcpu, mode: DeliveryMode, vector: u8, level: bool) {
        let plain = matches!(mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority);
        if plain && !level && vector >= 16 && vcpu.posting.is_some() {
            self.post_vector(vcpu, vector);
            return;
        }
        let first = vcpu.post.deliver(mode, vector, level);
        // Whoever goes down marks itself first and looks for INIT afterwards.
        fence(Ordering::SeqCst);
        match mode {
            DeliveryMode::Startup => self.start_if_waiting(vcpu),
            // A vCPU that is down takes INIT without running.
            DeliveryMode::Init if !vcpu.up.load(Ordering::SeqCst) => {
                vcpu.initialised.store(true, Ordering::SeqCst);
                vcpu.waits_for_sipi.store(true, Ordering::SeqCst);
            }
            _ if first => self.prod(vcpu),
            _ => {}
        }
    }

    fn start_if_waiting(&self, vcpu: &Vcpu) {
        fence(Ordering::SeqCst);
        if vcpu.waits_for_sipi.swap(false, Ordering::SeqCst) {
            vcpu.sleep.store(Sleep::Awake as u8, Ordering::SeqCst);
            vcpu.up.store(true, Ordering::SeqCst);
            self.make_runnable(vcpu);
        }
    }
}

/// Acts on INIT and SIPI that were posted to the running vCPU.
#[cold]
pub fn take_reset(turn: &mut Turn<'_>) {
    let Some(Reset { init, sipi }) = turn.local.reset.take() else {
        return;
    };
    let vcpu = turn.vcpu;
    if init {
        turn.local.lapic.reset();
        turn.local.show_tpr();
        turn.local.nmi_pending = false;
        vcpu.stop_timers();
    }
    // Without INIT a SIPI only counts if the vCPU was waiting for it, and then `start_if_waiting` has set it up.
    match sipi {
        Some(vector) if init || !turn.local.started => {
            boot_state::sipi(turn.local, vector);
            turn.local.started = true;
            vcpu.waits_for_sipi.store(false, Ordering::SeqCst);
            vcpu.up.store(true, Ordering::SeqCst);
        }
        Some(_) => {}
        None => {
            turn.local.started = false;
            vcpu.up.store(false, Ordering::SeqCst);
            vcpu.waits_for_sipi.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // The SIPI may have come between the merge and the line above.
            turn.local.merge_posted(vcpu);
            if let Some(Reset {
                sipi: Some(vector), ..
            }) = turn.local.reset.take()
                && vcpu.waits_for_sipi.swap(false, Ordering::SeqCst)
            {
                boot_state::sipi(turn.local, vector);
                turn.local.started = true;
                vcpu.up.store(true, Ordering::SeqCst);
            }
        }
    }
}

impl Turn<'_> {
    /// Does what a local APIC access asked for.
    pub fn lapic_effect(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Timer => self.pcpu.check_clock(),
            Effect::SoftwareEnabled => {
                let pending = self
                    .vcpu
                    .areas
                    .upcall_pending()
                    .is_some_and(|p| p.load(Ordering::Acquire) != 0);
                let vector = self.vcpu.upcall_vector.load(Ordering::Acquire);
                if pending && vector != 0 {
                    self.local.lapic.raise(vector);
                }
                self.pcpu.check_clock();
            }
            Effect::Ipi(ipi) => {
                self.hv.deliver(self.domain, Some(self.vcpu.key.vcpu), &ipi);
            }
            Effect::Eoi(vector) => self.hv.guest_eoi(self.domain, vector),
        }
    }
}
