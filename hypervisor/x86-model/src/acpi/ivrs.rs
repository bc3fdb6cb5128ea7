//! IVRS: the I/O virtualization units of AMD-Vi (AMD IOMMU specification 3.09, chapter 5).
//!
//! Lenient, as [`super::dmar`] is. One IOMMU may be described by several blocks (types 10h, 11h, 40h, each able to say
//! more than the one before); the highest that is well-formed is taken.

use alloc::vec::Vec;
use core::fmt;

use super::{HEADER, u8_at, u16_at, u64_at};

/// Where the first block starts: header, information word, eight reserved bytes.
const FIRST: usize = HEADER + 12;

/// A parsed table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ivrs {
    /// The units, in the table's order, one each.
    pub units: Vec<Unit>,
    /// Blocks and device entries of unknown type.
    pub unknown: u32,
    /// What was left out, and why.
    pub refused: Vec<Refused>,
}

/// One IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Type of the block: 0x10, 0x11 or 0x40.
    pub kind: u8,
    /// Bits 0 to 7: HtTunEn, PassPW, ResPassPW, Isoc, IotlbSup, Coherent, PreFSup, PPRSup.
    pub flags: u8,
    /// Its own PCI function: bus in the high byte, device and function in the low byte.
    pub device: u16,
    /// Offset of its capability in configuration space.
    pub capability: u16,
    /// Address of its registers.
    pub registers: u64,
    /// PCI segment.
    pub segment: u16,
    /// Image of the extended feature register; 0 in blocks of type 10h.
    pub features: u64,
    /// Device ids with settings for their table entries.
    pub settings: Vec<Setting>,
    /// Device ids whose requests carry another id.
    pub aliases: Vec<Alias>,
    /// IO-APICs: ACPI id and the device id of their messages.
    pub ioapics: Vec<(u8, u16)>,
    /// HPETs: number and device id.
    pub hpets: Vec<(u8, u16)>,
}

/// What the firmware wants in the device-table entries of a range: bits 0, 1, 2 pass INIT, ExtINT, NMI; 5:4 system
/// management; 6, 7 pass LINT0, LINT1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// First device id.
    pub first: u16,
    /// Last device id.
    pub last: u16,
    /// The bits.
    pub bits: u8,
}

/// Requests of these devices carry the id `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// First device id.
    pub first: u16,
    /// Last device id.
    pub last: u16,
    /// The id that the IOMMU sees.
    pub to: u16,
}

/// A block or device entry that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its offset in the table, in bytes.
    pub offset: usize,
    /// Its type.
    pub kind: u8,
    /// Why.
    pub why: Why,
}

/// Why a block or entry is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A length below the header's, or past the end: the rest of the table is not read.
    Length(u16),
    /// Shorter than its fixed part.
    Short(u16),
    /// A register base that is 0, not on a page border, or beyond 52 bits.
    Registers(u64),
    /// A second block of this type for the IOMMU, or another IOMMU's register base.
    Duplicate(u64),
    /// A device entry that reaches past its block: the block's later ones are not read.
    EntryLength(usize),
    /// A range that has no end, or an end without a start, or that ends before it starts.
    Range(u16),
    /// A second entry for this IO-APIC or HPET.
    Again(u8),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, at) = match self.why {
            Why::EntryLength(_) | Why::Range(_) | Why::Again(_) => ("device entry", self.offset),
            _ => ("block", self.offset),
        };
        write!(f, "{what} at offset {at:#x} (type {:#x}): ", self.kind)?;
        match self.why {
            Why::Length(n) => write!(f, "length {n} is impossible; the rest is not read"),
            Why::Short(n) => write!(f, "length {n} is too short"),
            Why::Registers(base) => write!(f, "no registers can be at {base:#x}"),
            Why::Duplicate(base) => {
                write!(f, "a second one for the IOMMU with registers at {base:#x}")
            }
            Why::EntryLength(left) => write!(
                f,
                "only {left} bytes of it are there; the block's later ones are not read"
            ),
            Why::Range(id) => write!(f, "the range of device {id:#06x} has no proper end"),
            Why::Again(handle) => write!(f, "a second one for number {handle}"),
        }
    }
}

/// Parses a whole table (header included). `None` if it is shorter than its fixed part.
pub fn parse(table: &[u8]) -> Option<Ivrs> {
    table.get(..FIRST)?;
    let mut ivrs = Ivrs::default();
    let mut offset = FIRST;
    while let (Some(kind), Some(length)) = (u8_at(table, offset), u16_at(table, offset + 2)) {
        let end = offset + usize::from(length);
        let Some(block) = table.get(offset..end).filter(|_| length >= 4) else {
            ivrs.refuse(offset, kind, Why::Length(length));
            break;
        };
        match kind {
            0x10 | 0x11 | 0x40 => ivrs.unit(offset, kind, block),
            // Memory definitions matter for DMA remapping only.
            0x20..=0x22 => {}
            _ => ivrs.unknown += 1,
        }
        offset = end;
    }
    Some(ivrs)
}

impl Ivrs {
    fn refuse(&mut self, offset: usize, kind: u8, why: Why) {
        self.refused.push(Refused { offset, kind, why });
    }

    fn unit(&mut self, offset: usize, kind: u8, b: &[u8]) {
        let fixed = if kind == 0x10 { 24 } else { 40 };
        if b.len() < fixed {
            return self.refuse(offset, kind, Why::Short(b.len() as u16));
        }
        let mut unit = Unit {
            kind,
            flags: b[1],
            device: u16_at(b, 4).unwrap_or(0),
            capability: u16_at(b, 6).unwrap_or(0),
            registers: u64_at(b, 8).unwrap_or(0),
            segment: u16_at(b, 16).unwrap_or(0),
            features: if kind == 0x10 {
                0
            } else {
                u64_at(b, 24).unwrap_or(0)
            },
            ..Unit::default()
        };
        let base = unit.registers;
        if base == 0 || base & 0xfff != 0 || base >> 52 != 0 {
            return self.refuse(offset, kind, Why::Registers(base));
        }
        let same = |u: &Unit| (u.segment, u.device) == (unit.segment, unit.device);
        let old = self.units.iter().position(same);
        if let Some(old) = old {
            if self.units[old].kind == kind {
                return self.refuse(offset, kind, Why::Duplicate(base));
            }
            if self.units[old].kind > kind {
                return;
            }
        }
        if self.units.iter().any(|u| u.registers == base && !same(u)) {
            return self.refuse(offset, kind, Why::Duplicate(base));
        }
        self.entries(offset, fixed, b, &mut unit);
        match old {
            Some(old) => self.units[old] = unit,
            None => self.units.push(unit),
        }
    }

    fn entries(&mut self, block: usize, first: usize, b: &[u8], unit: &mut Unit) {
        // Start of a range that waits for its end: where, type, first device id, setting, alias.
        let mut open: Option<(usize, u8, u16, u8, Option<u16>)> = None;
        let mut at = first;
        while let Some(kind) = u8_at(b, at) {
            let offset = block + at;
            let Some(e) = entry_length(&b[at..]).and_then(|n| b.get(at..at + n)) else {
                self.refuse(offset, kind, Why::EntryLength(b.len() - at));
                break;
            };
            at += e.len();
            let id = u16_at(e, 1).unwrap_or(0);
            let bits = u8_at(e, 3).unwrap_or(0);
            let alias = u16_at(e, 5);
            // Only type 4 may follow an open range, but padding does no harm.
            if kind != 4
                && kind != 0
                && let Some((offset, kind, id, ..)) = open.take()
            {
                self.refuse(offset, kind, Why::Range(id));
            }
            match kind {
                0 => {}
                1 => unit.settings.push(Setting {
                    first: 0,
                    last: u16::MAX,
                    bits,
                }),
                2 | 0x42 | 0x46 => unit.range(id, id, bits, alias.filter(|_| kind == 0x42)),
                3 | 0x43 | 0x47 => {
                    open = Some((offset, kind, id, bits, alias.filter(|_| kind == 0x43)));
                }
                4 => match open.take() {
                    Some((_, _, first, bits, alias)) if first <= id => {
                        unit.range(first, id, bits, alias);
                    }
                    Some((offset, kind, first, ..)) => {
                        self.refuse(offset, kind, Why::Range(first));
                    }
                    None => self.refuse(offset, kind, Why::Range(id)),
                },
                0x48 => self.special(offset, e, bits, unit),
                // Devices of the ACPI name space (UID as number or text): their device id only matters as a setting.
                0xf0 => unit.range(id, id, bits, None),
                _ => self.unknown += 1,
            }
        }
        if let Some((offset, kind, id, ..)) = open {
            self.refuse(offset, kind, Why::Range(id));
        }
    }

    fn special(&mut self, offset: usize, e: &[u8], bits: u8, unit: &mut Unit) {
        let (Some(handle), Some(id), Some(variety)) = (u8_at(e, 4), u16_at(e, 5), u8_at(e, 7))
        else {
            return;
        };
        let list = match variety {
            1 => &mut unit.ioapics,
            2 => &mut unit.hpets,
            _ => {
                self.unknown += 1;
                return;
            }
        };
        if list.iter().any(|&(h, _)| h == handle) {
            return self.refuse(offset, 0x48, Why::Again(handle));
        }
        list.push((handle, id));
        unit.range(id, id, bits, None);
    }

    /// Sets the source of an IO-APIC's messages, whatever the table says. False if no unit has the segment. The unit is the one
    /// with an entry for the device, else the segment's last, which is for all devices that no other is for.
    pub fn set_ioapic(&mut self, id: u8, segment: u16, device: u16) -> bool {
        let named = |u: &Unit| {
            let one = |s: &Setting| s.first != 0 || s.last != u16::MAX;
            let has = |s: &Setting| (s.first..=s.last).contains(&device);
            u.settings.iter().any(|s| one(s) && has(s))
        };
        let of = |u: &&mut Unit| u.segment == segment;
        let Some(at) = (self.units.iter())
            .position(|u| u.segment == segment && named(u))
            .or_else(|| self.units.iter().rposition(|u| u.segment == segment))
        else {
            return false;
        };
        // A number is one IO-APIC's in its segment, and another may be elsewhere.
        for unit in self.units.iter_mut().filter(of) {
            unit.ioapics.retain(|&(handle, _)| handle != id);
        }
        self.units[at].ioapics.push((id, device));
        true
    }

    /// The segment and device id of an IO-APIC's messages, by its ACPI id.
    pub fn ioapic(&self, id: u8) -> Option<(u16, u16)> {
        self.units.iter().find_map(|u| {
            let &(_, device) = u.ioapics.iter().find(|&&(handle, _)| handle == id)?;
            Some((u.segment, device))
        })
    }
}

impl Unit {
    fn range(&mut self, first: u16, last: u16, bits: u8, alias: Option<u16>) {
        self.settings.push(Setting { first, last, bits });
        if let Some(to) = alias {
            self.aliases.push(Alias { first, last, to });
            // The alias is what the table is indexed by, so the setting is for it as well.
            self.settings.push(Setting {
                first: to,
                last: to,
                bits,
            });
        }
    }

    /// The id that requests of a device carry.
    pub fn alias(&self, device: u16) -> u16 {
        self.aliases
            .iter()
            .find(|a| (a.first..=a.last).contains(&device))
            .map_or(device, |a| a.to)
    }
}

/// Bytes of the device entry at the start of the slice, by its type; `None` if too little of it is there to tell.
fn entry_length(e: &[u8]) -> Option<usize> {
    match e.first()? {
        0..=63 => Some(4),
        64..=127 => Some(8),
        128..=191 => Some(16),
        192..=239 => Some(32),
        // Hardware id, compatible id, then a UID of its own length.
        240..=255 => Some(22 + usize::from(u8_at(e, 21)?)),
    }
}

#[cfg(test)]
#[path = "ivrs_tests.rs"]
mod tests;
