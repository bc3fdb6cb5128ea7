//! Physical device interrupts: which host vector on which pCPU belongs to which source, and what its arrival means for the
//! domain that owns the device.
//!
//! The table is locked for binding and looked up on each device interrupt. A message-signalled source goes straight to the
//! virtual local APIC that the guest named; a line goes through the domain's virtual IO-APIC. An interrupt moves between
//! pCPUs ([`moves`]), so its owner knows it by a number and not by its vector.

mod moves;
pub mod pirq;
mod pirq_calls;
mod post;
mod table;

use hv_hw::Machine;
use hv_hw::machine::{CpuId, LineMode};
use x86_model::interrupt::moving::{Arrival, Place};
use x86_model::pci::Bdf;
use xen_abi::DomId;

use crate::domain::Domain;
use crate::hvm::vlapic::Ipi;
use crate::hypervisor::Hypervisor;
use core::sync::atomic::Ordering;

pub use table::{Irq, IrqMap, Seen};

/// A bound interrupt's number; never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IrqId(pub u64);

/// What raises a host vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A line of a physical IO-APIC.
    Gsi {
        /// Global system interrupt.
        gsi: u32,
        /// Signalling.
        mode: LineMode,
    },
    /// A device's message.
    Msi {
        /// What the guest programmed.
        guest: Ipi,
        /// The function that sends it.
        device: Bdf,
    },
    /// A device's message that is an event of the domain.
    Pirq {
        /// The domain's number for it ([`pirq::Pirqs`]).
        pirq: u32,
        /// The function that sends it.
        device: Bdf,
    },
}

/// Whose a vector is, and what raises it.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Whose it is.
    pub domain: DomId,
    /// What raises it.
    pub source: Source,
}

impl Hypervisor {
    /// Reserves a vector for a device of `domain`, on this pCPU or the next that has one free.
    pub fn bind_vector(&self, domain: &Domain, near: CpuId, source: Source) -> Option<IrqId> {
        let count = self.hw.cpu_count().max(1);
        let binding = Binding {
            domain: domain.id,
            source,
        };
        for cpu in (0..count).map(|i| CpuId((near.0 + i) % count)) {
            if let Some(id) = self.irqs.bind(&self.hw, cpu, binding) {
                return Some(id);
            }
        }
        hv_hw::guest_log!(
            Error,
            "{}: no interrupt vector left on any of {count} CPUs for {source:?}; debug key 'i' shows who has them",
            domain.id
        );
        None
    }

    /// Gives an interrupt's vectors back.
    pub fn unbind_vector(&self, id: IrqId) {
        self.irqs.unbind(&self.hw, id);
    }

    /// A device interrupt arrived on this pCPU and is in service.
    pub fn device_interrupt(&self, cpu: CpuId, vector: u8) {
        self.dispatch(cpu, vector, || self.hw.eoi());
    }

    /// A device's message was posted to this pCPU; what is in service is ended by whoever found it.
    pub fn posted_interrupt(&self, cpu: CpuId, vector: u8) {
        self.dispatch(cpu, vector, || ());
    }

    #[inline]
    fn dispatch(&self, cpu: CpuId, vector: u8, eoi: impl FnOnce()) {
        let at = Place { cpu: cpu.0, vector };
        let shared = &self.pcpus[cpu.0 as usize];
        let Some(seen) = self.irqs.arrived(at) else {
            shared.stray.fetch_add(1, Ordering::Relaxed);
            eoi();
            return;
        };
        match seen.arrival {
            Arrival::First(old) => self.ask_to_clean(old),
            Arrival::Late => {
                shared.late.fetch_add(1, Ordering::Relaxed);
                shared.clean.store(true, Ordering::Relaxed);
            }
            Arrival::Settled | Arrival::Elsewhere => {}
        }
        let domain = self.domain(seen.binding.domain);
        match seen.binding.source {
            Source::Msi { guest, .. } => {
                eoi();
                if let Some(d) = domain {
                    self.consider_move(&d, &seen, &guest);
                    self.deliver(&d, None, &guest);
                }
            }
            Source::Pirq { pirq, .. } => {
                eoi();
                if let Some(d) = domain {
                    self.raise_pirq(&d, pirq);
                }
            }
            Source::Gsi { gsi, mode } => {
                // A level line stays asserted until the guest has served the device: masked until the guest's EOI.
                if mode.level {
                    self.hw.mask_gsi(gsi, true);
                }
                eoi();
                if let Some(d) = domain {
                    self.line_raised(&d, gsi, &seen);
                }
            }
        }
    }
}
