//! Moving interrupts to the pCPU where their target is at home.
//!
//! An interrupt moves when the guest names another vCPU, when its target has stayed on another pCPU for a while, and when its
//! pCPU goes away. The first two wait for an arrival where the source cannot be told in one step: what the source sends while
//! it is told is covered by the delivery that follows. The rules for the old vector are in [`x86_model::interrupt::moving`].

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use x86_model::interrupt::moving::Wish;

use super::{Irq, IrqId, Seen, Source};
use crate::domain::Domain;
use crate::hvm::vlapic::Ipi;
use crate::hypervisor::Hypervisor;
use crate::vcpu::NO_CPU;

/// A message that a device sent before it answered a question has arrived after this time.
const SETTLE_NS: u64 = 1_000_000;

impl Hypervisor {
    /// The pCPU that an interrupt for this target should arrive on: where its first vCPU runs or last ran. `None` if nobody
    /// is addressed.
    pub fn home_of(&self, domain: &Domain, target: &Ipi) -> Option<CpuId> {
        let vcpus = domain.vcpus();
        let mut first = None;
        target.resolve(
            None,
            vcpus.len() as u32,
            |v| vcpus[v as usize].post.facts(),
            |v| first = first.or(Some(v)),
        );
        let vcpu = &vcpus[first? as usize];
        let home = vcpu.home.load(Ordering::Relaxed);
        // One that has not run yet: spread by number.
        let cpu = if home == NO_CPU {
            vcpu.key.vcpu % self.hw.online_cpus().max(1)
        } else {
            home
        };
        Some(CpuId(cpu)).filter(|&c| self.hw.is_online(c))
    }

    /// Makes a pCPU look whether its old vectors are quiet.
    pub(super) fn ask_to_clean(&self, cpu: u32) {
        if let Some(p) = self.pcpus.get(cpu as usize) {
            p.clean.store(true, Ordering::SeqCst);
            self.hw.kick(CpuId(cpu));
        }
    }

    /// This pCPU was asked to look at its old vectors.
    #[cold]
    pub fn clean_vectors(&self, cpu: CpuId) {
        if self.irqs.clean(&self.hw, cpu) {
            self.pcpus[cpu.0 as usize]
                .clean
                .store(true, Ordering::Relaxed);
        }
    }

    /// An interrupt for `target` has arrived, and will be delivered next: moves it if it should be elsewhere.
    #[inline]
    pub(crate) fn consider_move(&self, domain: &Domain, seen: &Seen, target: &Ipi) {
        let home = self.home_of(domain, target);
        let to = match (seen.wish, home) {
            (Some(wish), _) => CpuId(wish),
            (None, Some(home)) if home.0 != seen.at.cpu && self.irqs.follow(seen.id, home.0) => {
                home
            }
            _ => return,
        };
        self.move_irq(domain, seen.id, &seen.binding.source, to);
    }

    /// The guest has named another target for a message, whose registers the caller holds and writes next: moves it, or notes
    /// the wish.
    pub(crate) fn retarget_message(&self, domain: &Domain, id: IrqId, target: &Ipi) {
        let Some(home) = self.home_of(domain, target) else {
            return;
        };
        match self.irqs.want(id, home.0) {
            Wish::There => {}
            Wish::Later(old) => self.ask_to_clean(old),
            // If the entry cannot be written it is gone, and the caller is given a new one with the message.
            Wish::Now => drop(self.begin_message(id, home)),
        }
    }

    /// Allots the vector of a message that moves, and changes its remapping entry if it has one. `Some(false)` if that cannot
    /// be written; `None` if it stays.
    pub(crate) fn begin_message(&self, id: IrqId, to: CpuId) -> Option<bool> {
        let remapped = self.hw.remaps_interrupts();
        let m = self.irqs.begin(&self.hw, id, to, !remapped)?;
        Some(
            !remapped
                || self.hw.move_message(
                    (CpuId(m.from.cpu), m.from.vector),
                    (CpuId(m.to.cpu), m.to.vector),
                ),
        )
    }

    /// Moves an interrupt; false if it stays for now.
    fn move_irq(&self, domain: &Domain, id: IrqId, source: &Source, to: CpuId) -> bool {
        let Some(p) = &domain.platform else {
            return false;
        };
        match *source {
            Source::Msi { device, .. } | Source::Pirq { device, .. } => {
                p.move_message(self, domain, device, id, to)
            }
            Source::Gsi { gsi, .. } => p.move_line(self, gsi, id, to),
        }
    }

    /// A pCPU takes no new interrupts any more: moves those that it has. True when it has none left, old vectors included;
    /// otherwise to be called again soon. Hold no lock.
    pub fn evacuate(&self, cpu: CpuId) -> bool {
        let (movable, lookers) = self.irqs.left_on(cpu, self.hw.now_ns(), SETTLE_NS);
        let done = movable.is_empty() && lookers.is_empty();
        for (id, irq) in movable {
            self.evacuate_one(cpu, id, &irq);
        }
        for looker in lookers {
            self.ask_to_clean(looker);
        }
        done
    }

    fn evacuate_one(&self, from: CpuId, id: IrqId, irq: &Irq) {
        let source = &irq.binding.source;
        let Some(domain) = self.domain(irq.binding.domain) else {
            return;
        };
        let home = match source {
            Source::Msi { guest, .. } => self.home_of(&domain, guest),
            Source::Gsi { .. } | Source::Pirq { .. } => None,
        };
        let count = self.hw.cpu_count();
        let others = (0..count).map(CpuId).filter(|&c| c != from);
        let moved = home
            .into_iter()
            .chain(others)
            .any(|to| self.move_irq(&domain, id, source, to));
        if moved
            && let Source::Gsi { gsi, mode } = *source
            && !mode.level
        {
            // An edge may have come while the pin was masked; one too many does no harm.
            self.raise_line(&domain, gsi);
        }
    }
}
