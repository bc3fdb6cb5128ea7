//! Intel's VT-d. One remapping table serves all units: an index means the same everywhere, and a device need not be
//! matched to its unit. An entry names whose requests it accepts, so no device can use another's.

mod unit;

use alloc::vec::Vec;

use x86_model::Hpa;
use x86_model::acpi::dmar::Dmar;
use x86_model::iommu::slots::Slots;
use x86_model::iommu::vtd::posted::{self, Entries};
use x86_model::iommu::vtd::{self, ExtCap, Irte, PostedTarget, irte, queue};
use x86_model::iommu::{RemappedMessage, Target};

use super::shared::Shared;
use super::{Handle, Sender};
use crate::machine::PostTo;
use crate::{debug, warn};
use unit::Unit;

/// Units before the table exists.
pub struct Found {
    units: Vec<Unit>,
    /// Not every unit of the firmware's table answers.
    pub missing: bool,
}

impl Found {
    /// Looks at the table's units.
    pub fn probe(dmar: &Dmar) -> Self {
        let mut units = Vec::new();
        for (n, u) in dmar.units.iter().enumerate() {
            units.extend(Unit::probe(n, Hpa(u.registers), u.size));
        }
        for u in &units {
            let (cap, ext) = u.abilities();
            debug!(
                "VT-d unit {} at {:#x}: capabilities {:#x}, extended {:#x}",
                u.number, u.at.0, cap.0, ext.0
            );
        }
        Self {
            missing: units.len() != dmar.units.len(),
            units,
        }
    }

    /// What each can do.
    pub fn abilities(&self) -> Vec<ExtCap> {
        self.units.iter().map(|u| u.abilities().1).collect()
    }

    /// The units are not used: turns off what firmware left on, which nobody would serve.
    pub fn release(&mut self) {
        for u in &mut self.units {
            if let Err(why) = u.quiesce() {
                warn!("VT-d unit {} at {:#x}: {why}", u.number, u.at.0);
            }
        }
    }

    /// Starts interrupt remapping on all units, or on none. The error names the unit.
    pub fn enable(self, entries: u32, extended: bool) -> Result<Vtd, ()> {
        let coherent = self.units.iter().all(|u| u.abilities().1.coherent());
        let Some(table) = Shared::new(entries as usize * 16, !coherent) else {
            warn!("VT-d: no memory for the interrupt remapping table");
            return Err(());
        };
        let mut vtd = Vtd {
            units: self.units,
            table,
            slots: Slots::new(entries),
            extended,
        };
        match vtd.start() {
            Ok(()) => Ok(vtd),
            Err((number, at, why)) => {
                warn!("VT-d unit {number} at {at:#x}: {why}");
                for u in &mut vtd.units {
                    u.stop();
                }
                // A unit that did not obey may still read the table.
                core::mem::forget(vtd);
                Err(())
            }
        }
    }
}

/// The working units.
pub struct Vtd {
    units: Vec<Unit>,
    table: Shared,
    slots: Slots,
    extended: bool,
}

impl Vtd {
    fn start(&mut self) -> Result<(), (usize, u64, &'static str)> {
        let address = vtd::table_address(self.table.hpa().0, self.slots.len(), self.extended);
        // Step by step on all units: the first must not remap while another still has firmware's tables.
        self.each(Unit::quiesce)?;
        self.each(Unit::start_queue)?;
        self.each(|u| u.start_remapping(address))
    }

    fn each(
        &mut self,
        mut step: impl FnMut(&mut Unit) -> Result<(), &'static str>,
    ) -> Result<(), (usize, u64, &'static str)> {
        self.units
            .iter_mut()
            .try_for_each(|u| step(u).map_err(|why| (u.number, u.at.0, why)))
    }

    /// Entries in use and in all.
    pub fn entries(&self) -> (u32, u32) {
        (self.slots.used(), self.slots.len())
    }

    /// Units.
    pub fn count(&self) -> usize {
        self.units.len()
    }

    /// Entries have 32-bit destinations.
    pub fn extended(&self) -> bool {
        self.extended
    }

    pub fn owns(&self, hpa: Hpa) -> bool {
        self.units.iter().any(|u| u.at.mfn() == hpa.mfn())
    }

    /// Takes a free entry.
    pub fn take(&mut self) -> Option<Handle> {
        Some(Handle {
            table: 0,
            index: self.slots.take()? as u16,
        })
    }

    /// Writes an entry, in the posted format with `post`. False if the target does not fit or a unit does not answer.
    pub fn set(
        &mut self,
        handle: Handle,
        sender: &Sender,
        target: &Target,
        post: Option<&PostTo>,
    ) -> bool {
        let entry = match post {
            Some(to) => {
                let target = PostedTarget {
                    descriptor: to.target.hpa().0,
                    vector: to.vector,
                    urgent: to.urgent,
                };
                Irte::posted(&target, sender.requester)
            }
            None => Irte::new(target, sender.requester, self.extended),
        };
        entry.is_some_and(|e| posted::change(self, handle.index, e))
    }

    /// Gives an entry back. If a unit may still use it, it is not given out again, and this is false.
    pub fn give(&mut self, handle: Handle) -> bool {
        let unused = posted::change(self, handle.index, Irte::default());
        if unused {
            self.slots.give(handle.index.into());
        }
        unused
    }

    /// Whether every unit has the posted format.
    pub fn can_post(&self) -> bool {
        self.units.iter().all(|u| u.abilities().0.posted())
    }

    pub fn message(&self, handle: Handle) -> RemappedMessage {
        irte::message(handle.index)
    }

    pub fn redirection(&self, handle: Handle, target: &Target, low: bool) -> u64 {
        irte::redirection(handle.index, target.vector, target.level, low)
    }

    pub fn arm_faults(&mut self, apic_id: u32, vector: u8) {
        for u in &mut self.units {
            u.arm_faults(apic_id, vector);
        }
    }

    pub fn report_faults(&mut self, now_ns: u64) {
        for u in &mut self.units {
            u.report_faults(now_ns);
        }
    }
}

impl Entries for Vtd {
    fn read(&self, index: u16) -> Irte {
        let offset = usize::from(index) * 16;
        Irte([self.table.read(offset), self.table.read(offset + 8)])
    }
    fn replace(&mut self, index: u16, old: Irte, new: Irte) -> bool {
        self.table.replace(usize::from(index) * 16, old.0, new.0)
    }
    fn forget(&mut self, index: u16) -> bool {
        let mut all = true;
        for u in &mut self.units {
            all &= u.invalidate(queue::flush_entries(index, 0));
        }
        all
    }
}
