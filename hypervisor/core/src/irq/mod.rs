//! Physical device interrupts: which host vector on which pCPU belongs to which source, and what its arrival means for the
//! domain that owns the device.
//!
//! The table is locked for binding and looked up on each device interrupt. A message-signalled source goes straight to the
//! virtual local APIC that the guest named; a line goes through the domain's virtual IO-APIC.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hv_hw::Machine;
use hv_hw::machine::{CpuId, LineMode};
use hv_hw::sync::{SpinLock, rank};
use xen_abi::DomId;

use crate::domain::Domain;
use crate::hvm::vlapic::Ipi;
use crate::hypervisor::Hypervisor;
use core::sync::atomic::Ordering;

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
    },
}

/// A bound vector.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Whose it is.
    pub domain: DomId,
    /// What raises it.
    pub source: Source,
}

/// A host vector on a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostVector {
    /// pCPU.
    pub cpu: CpuId,
    /// Vector.
    pub vector: u8,
}

/// The table.
pub struct IrqMap {
    bound: SpinLock<BTreeMap<HostVector, Binding>, { rank::IRQ }>,
}

impl Default for IrqMap {
    fn default() -> Self {
        Self::new()
    }
}

impl IrqMap {
    /// An empty table.
    pub const fn new() -> Self {
        IrqMap {
            bound: SpinLock::new(BTreeMap::new()),
        }
    }

    /// The binding of a vector.
    pub fn get(&self, at: HostVector) -> Option<Binding> {
        self.bound.lock().get(&at).copied()
    }

    /// All bindings, by CPU and vector.
    pub fn all(&self) -> Vec<(HostVector, Binding)> {
        self.bound.lock().iter().map(|(a, b)| (*a, *b)).collect()
    }

    /// Sets or replaces the binding of a vector. The number of vectors bounds the table.
    pub fn set(&self, at: HostVector, binding: Binding) {
        self.bound.lock().insert(at, binding);
    }

    /// Drops a binding.
    pub fn clear(&self, at: HostVector) {
        self.bound.lock().remove(&at);
    }

    /// Vectors in use.
    pub fn len(&self) -> usize {
        self.bound.lock().len()
    }

    /// Whether no vector is bound.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Hypervisor {
    /// Reserves a vector for a device of `domain`, on a pCPU near the vCPU that will get the interrupt.
    pub fn bind_vector(
        &self,
        domain: &Domain,
        near_vcpu: u32,
        source: Source,
    ) -> Option<HostVector> {
        let count = self.hw.cpu_count().max(1);
        // Spread over the pCPUs by vCPU number; a full one passes the request on.
        for i in 0..count {
            let cpu = CpuId((near_vcpu + i) % count);
            if let Some(vector) = self.hw.alloc_vector(cpu) {
                let at = HostVector { cpu, vector };
                self.irqs.set(
                    at,
                    Binding {
                        domain: domain.id,
                        source,
                    },
                );
                return Some(at);
            }
        }
        hv_hw::guest_log!(
            Error,
            "{}: no interrupt vector left on any of {count} CPUs for {source:?}; debug key 'i' shows who has them",
            domain.id
        );
        None
    }

    /// Gives a vector back.
    pub fn unbind_vector(&self, at: HostVector) {
        self.irqs.clear(at);
        self.hw.free_vector(at.cpu, at.vector);
    }

    /// A device interrupt arrived on this pCPU and is in service.
    pub fn device_interrupt(&self, cpu: CpuId, vector: u8) {
        let Some(binding) = self.irqs.get(HostVector { cpu, vector }) else {
            self.pcpus[cpu.0 as usize]
                .stray
                .fetch_add(1, Ordering::Relaxed);
            self.hw.eoi();
            return;
        };
        let domain = self.domain(binding.domain);
        match binding.source {
            Source::Msi { guest } => {
                self.hw.eoi();
                if let Some(d) = domain {
                    self.deliver(&d, None, &guest);
                }
            }
            Source::Gsi { gsi, mode } => {
                // A level line stays asserted until the guest has served the device: masked until the guest's EOI.
                if mode.level {
                    self.hw.mask_gsi(gsi, true);
                }
                self.hw.eoi();
                if let Some(d) = domain {
                    self.line_raised(&d, gsi);
                }
            }
        }
    }
}
