//! AMD-Vi. A segment has one device table, used by all of its units; each device that sends interrupts has a remapping
//! table of its own. DMA passes untranslated.

mod config;
mod unit;

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use x86_model::Hpa;
use x86_model::acpi::ivrs::{self, Ivrs};
use x86_model::iommu::amd::irte::{self, TABLE_ENTRIES, TABLE_LOG2};
use x86_model::iommu::amd::{DeviceEntry, Features, Format, command, device};
use x86_model::iommu::slots::Slots;
use x86_model::iommu::{RemappedMessage, Requester, Target};
use x86_model::pci::Bdf;

use super::shared::Shared;
use super::{Handle, Sender};
use crate::{debug, warn};
use unit::Unit;

/// Units before the tables exist.
pub struct Found {
    units: Vec<Unit>,
    /// Not every unit of the firmware's table answers.
    pub missing: bool,
}

impl Found {
    /// Looks at the table's units.
    pub fn probe(table: &Ivrs) -> Self {
        let units: Vec<Unit> = (0..)
            .zip(&table.units)
            .filter_map(|(n, u)| Unit::probe(n, u))
            .collect();
        for u in &units {
            debug!(
                "AMD-Vi unit {} at {:#x}: features {:#x}",
                u.number,
                u.at.0,
                u.features().0
            );
        }
        Self {
            missing: units.len() != table.units.len(),
            units,
        }
    }

    /// What each can do.
    pub fn features(&self) -> Vec<Features> {
        self.units.iter().map(Unit::features).collect()
    }

    /// Starts interrupt remapping on all units, or on none. Says which unit is the reason.
    pub fn enable(self, table: &Ivrs, format: Format) -> Result<AmdVi, ()> {
        let mut segments = BTreeMap::new();
        for u in &table.units {
            let Entry::Vacant(free) = segments.entry(u.segment) else {
                continue;
            };
            let Some(segment) = Segment::new(u.segment, table) else {
                warn!(
                    "AMD-Vi: no memory for the device table of segment {}",
                    u.segment
                );
                return Err(());
            };
            free.insert(segment);
        }
        let mut this = AmdVi {
            units: self.units,
            segments,
            format,
        };
        let mut started = Ok(());
        for u in &mut this.units {
            let Some(segment) = this.segments.get(&u.segment) else {
                continue;
            };
            if let Err(why) = u.start(
                segment.devices.hpa(),
                TABLE_BYTES as u64,
                format == Format::Wide,
            ) {
                warn!("AMD-Vi unit {} at {:#x}: {why}", u.number, u.at.0);
                started = Err(());
                break;
            }
        }
        if started.is_err() {
            for u in &mut this.units {
                u.stop();
            }
            // A unit that did not obey may still read the tables.
            core::mem::forget(this);
            return Err(());
        }
        Ok(this)
    }
}

/// Bytes of a device table.
const TABLE_BYTES: usize = device::ENTRIES * device::BYTES;

/// What all units of a segment share.
struct Segment {
    devices: Shared,
    aliases: Vec<ivrs::Alias>,
    tables: BTreeMap<u16, DeviceTable>,
}

/// A device's remapping table.
struct DeviceTable {
    memory: Shared,
    slots: Slots,
}

impl Segment {
    fn new(number: u16, table: &Ivrs) -> Option<Self> {
        // The units are told to see the CPUs' caches, so nothing is flushed.
        let devices = Shared::new(TABLE_BYTES, false)?;
        let plain = DeviceEntry::pass_dma(0);
        for id in 0..device::ENTRIES {
            put(&devices, id, plain);
        }
        let mut aliases = Vec::new();
        for u in table.units.iter().filter(|u| u.segment == number) {
            aliases.extend_from_slice(&u.aliases);
            for s in u.settings.iter().filter(|s| s.bits != 0) {
                for id in usize::from(s.first)..=usize::from(s.last) {
                    let mut entry = get(&devices, id);
                    entry.add_settings(s.bits);
                    put(&devices, id, entry);
                }
            }
        }
        Some(Self {
            devices,
            aliases,
            tables: BTreeMap::new(),
        })
    }
}

fn get(devices: &Shared, id: usize) -> DeviceEntry {
    DeviceEntry([0, 8, 16, 24].map(|o| devices.read(id * device::BYTES + o)))
}

fn put(devices: &Shared, id: usize, entry: DeviceEntry) {
    for (n, word) in entry.0.into_iter().enumerate() {
        devices.write(id * device::BYTES + n * 8, word);
    }
}

/// The working units.
pub struct AmdVi {
    units: Vec<Unit>,
    segments: BTreeMap<u16, Segment>,
    format: Format,
}

const fn key(segment: u16, device: u16) -> u32 {
    (segment as u32) << 16 | device as u32
}

impl AmdVi {
    /// Entries in use and in all tables.
    pub fn entries(&self) -> (u32, u32) {
        self.segments
            .values()
            .flat_map(|s| s.tables.values())
            .fold((0, 0), |(used, all), t| {
                (used + t.slots.used(), all + t.slots.len())
            })
    }

    /// Units.
    pub fn count(&self) -> usize {
        self.units.len()
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn owns(&self, hpa: Hpa) -> bool {
        let registers = |u: &Unit| u.at.mfn().0..u.at.mfn().0 + 4;
        self.units
            .iter()
            .any(|u| registers(u).contains(&hpa.mfn().0))
    }

    /// The units' own PCI functions.
    pub fn functions(&self) -> impl Iterator<Item = Bdf> {
        self.units.iter().map(|u| Bdf {
            segment: u.segment,
            bus: (u.device >> 8) as u8,
            devfn: u.device as u8,
        })
    }

    /// The id that a device's messages carry.
    fn id(&self, sender: &Sender) -> u16 {
        let alias = self.segments.get(&sender.segment).and_then(|s| {
            s.aliases
                .iter()
                .find(|a| (a.first..=a.last).contains(&sender.device))
        });
        match (alias, sender.requester) {
            (Some(a), _) => a.to,
            (None, Requester::Exact(id) | Requester::Device(id)) => id,
            (None, Requester::Buses { first, .. }) => u16::from(first) << 8,
        }
    }

    /// Takes a free entry of the sender's table, which is made if it is the first. For a pin, one that its vector finds.
    pub fn take(&mut self, sender: &Sender, pin_vector: Option<u8>) -> Option<Handle> {
        let id = self.id(sender);
        let segment = self.segments.get_mut(&sender.segment)?;
        if !segment.tables.contains_key(&id) {
            let memory = Shared::new(TABLE_ENTRIES as usize * self.format.bytes(), false)?;
            let at = usize::from(id) * device::BYTES + device::INTERRUPT_WORD * 8;
            let bits = device::pass_bits(segment.devices.read(at));
            let word = device::interrupt_word(Some((memory.hpa().0, TABLE_LOG2)), bits);
            // One word holds the whole interrupt half, so the units see the old one or the new one.
            segment.devices.write(at, word);
            segment.tables.insert(
                id,
                DeviceTable {
                    memory,
                    slots: Slots::new(TABLE_ENTRIES),
                },
            );
            if !self.run(
                sender.segment,
                &[
                    command::invalidate_device(id),
                    command::invalidate_interrupts(id),
                ],
            ) {
                return None;
            }
        }
        let slots = &mut self
            .segments
            .get_mut(&sender.segment)?
            .tables
            .get_mut(&id)?
            .slots;
        let index = match pin_vector {
            Some(v) => irte::pin_indexes(v).find(|&i| slots.take_at(i)),
            None => slots.take(),
        }?;
        Some(Handle {
            table: key(sender.segment, id),
            index: index as u16,
        })
    }

    /// Writes an entry. False if the target does not fit or a unit does not answer.
    pub fn set(&mut self, handle: Handle, target: &Target) -> bool {
        self.format
            .entry(target)
            .is_some_and(|entry| self.write(handle, entry))
    }

    /// Gives an entry back. If a unit may still use it, it is not given out again.
    pub fn give(&mut self, handle: Handle) {
        if self.write(handle, [0, 0])
            && let Some(t) = self.table(handle)
        {
            t.slots.give(handle.index.into());
        }
    }

    fn table(&mut self, handle: Handle) -> Option<&mut DeviceTable> {
        self.segments
            .get_mut(&((handle.table >> 16) as u16))?
            .tables
            .get_mut(&(handle.table as u16))
    }

    fn write(&mut self, handle: Handle, entry: [u64; 2]) -> bool {
        let format = self.format;
        let Some(table) = self.table(handle) else {
            return false;
        };
        let offset = usize::from(handle.index) * format.bytes();
        match format {
            Format::Narrow => table.memory.write_half(offset, entry[0] as u32),
            Format::Wide => {
                let old = [table.memory.read(offset), table.memory.read(offset + 8)];
                // Nobody else writes: the units only read entries of this kind, and the lock is held.
                if !table.memory.replace(offset, old, entry) {
                    return false;
                }
            }
        }
        let (segment, id) = ((handle.table >> 16) as u16, handle.table as u16);
        self.run(segment, &[command::invalidate_interrupts(id)])
    }

    /// Has all units of a segment carry out commands.
    fn run(&mut self, segment: u16, commands: &[command::Command]) -> bool {
        let mut all = true;
        for u in self.units.iter_mut().filter(|u| u.segment == segment) {
            all &= u.run(commands);
        }
        all
    }

    /// Whether a pin with this vector may keep the entry: otherwise a better one may be free by now.
    pub fn suits_pin(&self, handle: Handle, vector: u8) -> bool {
        handle.index as u8 == vector
    }

    pub fn message(&self, handle: Handle) -> RemappedMessage {
        irte::message(handle.index)
    }

    pub fn redirection(&self, handle: Handle, target: &Target, low: bool) -> u64 {
        irte::redirection(handle.index, target.level, low)
    }

    /// The units' own messages go through their device's table as any other's; the entry has the vector for its index, so
    /// that the message means the same to a unit that does not remap its own.
    pub fn arm_faults(&mut self, apic_id: u32, vector: u8) {
        for n in 0..self.units.len() {
            let (segment, device) = (self.units[n].segment, self.units[n].device);
            let sender = Sender {
                segment,
                device,
                requester: Requester::Exact(device),
            };
            let target = Target {
                dest: apic_id,
                logical: false,
                lowest: false,
                vector,
                level: false,
            };
            let routed = self
                .take(&sender, Some(vector))
                .is_some_and(|h| self.set(h, &target));
            let wide = self.format == Format::Wide;
            let u = &mut self.units[n];
            if !routed || !u.arm_events(apic_id, vector, wide) {
                warn!(
                    "AMD-Vi unit {} at {:#x}: no interrupt for its events, which are not reported",
                    u.number, u.at.0
                );
            }
        }
    }

    pub fn report_faults(&mut self, now_ns: u64) {
        for u in &mut self.units {
            u.report_events(now_ns);
        }
    }
}
