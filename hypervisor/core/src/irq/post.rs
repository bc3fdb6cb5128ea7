//! From a guest's message to its route: the one place that decides whether a device's message is posted to a vCPU or
//! raises a host vector first. Knows no vendor; what an entry looks like is the machine's affair.

use alloc::vec::Vec;

use hv_hw::Machine;
use hv_hw::machine::{CpuId, MsiMessage, MsiSource, PostTo};
use x86_model::apic::{ApicMode, DeliveryMode};

use super::{IrqId, Source};
use crate::domain::Domain;
use crate::hvm::vlapic::{DestSpec, Ipi};
use crate::hypervisor::Hypervisor;

impl Hypervisor {
    /// The physical message for what the guest programmed, its entry written and in force: posted to a vCPU where the machine
    /// and the vCPU can, else to the host vector of this interrupt. Asked again whenever the guest names another vector or
    /// destination. `None` if there is no entry, or the interrupt is not bound.
    pub fn route_message(
        &self,
        domain: &Domain,
        id: IrqId,
        sender: &MsiSource,
    ) -> Option<MsiMessage> {
        let at = self.irqs.place(id)?;
        let post = match self.irqs.binding(id)?.source {
            Source::Msi { guest, .. } => self.receiver(domain, &guest),
            Source::Gsi { .. } | Source::Pirq { .. } => None,
        };
        self.hw
            .msi_message(sender, CpuId(at.cpu), at.vector, post.as_ref())
    }

    /// The vCPU that a message can be posted to: edge-triggered, with a vector, for one receiver that is known from the
    /// message alone. A destination that a guest can change afterwards without touching the device (logical ids of xAPIC
    /// mode) is looked up at each arrival instead.
    pub fn receiver(&self, domain: &Domain, guest: &Ipi) -> Option<PostTo> {
        let vector_only = matches!(
            guest.mode,
            DeliveryMode::Fixed | DeliveryMode::LowestPriority
        );
        if !self.hw.posts_interrupts() || !vector_only || guest.level || guest.vector < 16 {
            return None;
        }
        let vcpus = domain.vcpus();
        let facts = |v: u32| vcpus[v as usize].post.facts();
        let mut found = Vec::new();
        // Each candidate by itself: lowest priority would otherwise name the first only.
        for v in 0..vcpus.len() as u32 {
            let f = facts(v);
            if guest.dest.matches(&f, false) {
                let fixed =
                    matches!(guest.dest, DestSpec::Physical(_)) || f.mode == ApicMode::X2Apic;
                found.try_reserve(1).ok()?;
                found.push(fixed.then_some(v)?);
            }
        }
        let vcpu = match (guest.mode, found.len()) {
            (_, 0) => return None,
            (_, 1) => found[0],
            // By vector, so that several interrupts of a device spread.
            (DeliveryMode::LowestPriority, n) => found[usize::from(guest.vector) % n],
            _ => return None,
        };
        let posting = vcpus[vcpu as usize].posting.as_ref()?;
        Some(PostTo {
            target: posting.target.clone(),
            vector: guest.vector,
            urgent: false,
        })
    }
}
