//! DMAR: the DMA-remapping units of Intel's VT-d (VT-d specification 4.1, chapter 8).
//!
//! Lenient: what is unknown is skipped, what is malformed is left out and named in [`Dmar::refused`], and only a
//! structure whose length cannot be right ends the parse, because nothing behind it can be found.

use alloc::vec::Vec;
use core::fmt;

use super::{HEADER, u8_at, u16_at, u64_at};
use crate::pci::Bdf;

/// Where the first structure starts: header, address width, flags, ten reserved bytes.
const FIRST: usize = HEADER + 12;

/// A parsed table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dmar {
    /// Bits of DMA address that the platform supports.
    pub address_bits: u8,
    /// The platform supports interrupt remapping.
    pub interrupt_remapping: bool,
    /// The firmware asks not to enable x2APIC mode.
    pub x2apic_opt_out: bool,
    /// Remapping units, in the table's order, each register base once.
    pub units: Vec<Unit>,
    /// Structures of unknown type; newer firmware may have them.
    pub unknown: u32,
    /// What was left out, and why.
    pub refused: Vec<Refused>,
}

/// One remapping hardware unit (DRHD).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Address of its registers.
    pub registers: u64,
    /// Bytes of registers, at least 4096.
    pub size: u64,
    /// PCI segment that it serves.
    pub segment: u16,
    /// It serves all devices of the segment that no other unit names.
    pub include_all: bool,
    /// Devices that it serves.
    pub scopes: Vec<Scope>,
}

/// What a device scope names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// A PCI function.
    Endpoint,
    /// A bridge and everything behind it.
    Bridge,
    /// The IO-APIC of this ACPI id.
    IoApic(u8),
    /// The HPET block of this number.
    Hpet(u8),
    /// A device of the ACPI name space, by its number.
    Namespace(u8),
}

/// A device scope: a bus, then a path of device and function from there through bridges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// What it is.
    pub kind: ScopeKind,
    /// Bus where the path starts.
    pub bus: u8,
    /// Device (7:3) and function (2:0) of each step; never empty.
    pub path: Vec<u8>,
}

impl Scope {
    /// The function that the path ends at. `secondary` tells the bus behind a bridge.
    pub fn resolve(&self, segment: u16, mut secondary: impl FnMut(Bdf) -> u8) -> Bdf {
        let mut bus = self.bus;
        let mut at = Bdf {
            segment,
            bus,
            devfn: 0,
        };
        for (n, &devfn) in self.path.iter().enumerate() {
            if n != 0 {
                bus = secondary(at);
            }
            at = Bdf {
                segment,
                bus,
                devfn,
            };
        }
        at
    }
}

/// A structure that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its offset in the table, in bytes.
    pub offset: usize,
    /// Its type.
    pub kind: u16,
    /// Why.
    pub why: Why,
}

/// Why a structure is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A length below the header's, or past the end: the rest of the table is not read.
    Length(u16),
    /// Shorter than its fixed part.
    Short(u16),
    /// A register base that is 0, all ones or not on a page border.
    Registers(u64),
    /// The same register base as an earlier unit.
    Duplicate(u64),
    /// A device scope whose length cannot be right, at this offset in the table: the unit's later ones are not read.
    ScopeLength(usize, u8),
    /// A device scope of unknown type, at this offset in the table.
    ScopeKind(usize, u8),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "structure at offset {:#x} (type {}): ",
            self.offset, self.kind
        )?;
        match self.why {
            Why::Length(n) => write!(f, "length {n} is impossible; the rest is not read"),
            Why::Short(n) => write!(f, "length {n} is too short"),
            Why::Registers(base) => write!(f, "no registers can be at {base:#x}"),
            Why::Duplicate(base) => write!(f, "a second unit with registers at {base:#x}"),
            Why::ScopeLength(at, n) => write!(
                f,
                "device scope at offset {at:#x}: length {n} is impossible; the unit's later ones are not read"
            ),
            Why::ScopeKind(at, kind) => {
                write!(f, "device scope at offset {at:#x}: unknown type {kind}")
            }
        }
    }
}

/// Parses a whole table (header included). `None` if it is shorter than its fixed part.
pub fn parse(table: &[u8]) -> Option<Dmar> {
    let flags = u8_at(table, HEADER + 1)?;
    let mut dmar = Dmar {
        address_bits: u8_at(table, HEADER)?.saturating_add(1),
        interrupt_remapping: flags & 1 != 0,
        x2apic_opt_out: flags & 2 != 0,
        ..Dmar::default()
    };
    let mut offset = FIRST;
    while let (Some(kind), Some(length)) = (u16_at(table, offset), u16_at(table, offset + 2)) {
        let end = offset + usize::from(length);
        let Some(s) = table.get(offset..end).filter(|_| length >= 4) else {
            dmar.refuse(offset, kind, Why::Length(length));
            break;
        };
        match kind {
            0 => dmar.unit(offset, s),
            // Reserved memory, ATS ports, NUMA affinity, name-space devices, SATC, SIDP: of use for DMA remapping only.
            1..=6 => {}
            _ => dmar.unknown += 1,
        }
        offset = end;
    }
    Some(dmar)
}

impl Dmar {
    fn refuse(&mut self, offset: usize, kind: u16, why: Why) {
        self.refused.push(Refused { offset, kind, why });
    }

    fn unit(&mut self, offset: usize, s: &[u8]) {
        let (Some(flags), Some(size), Some(segment), Some(registers)) =
            (u8_at(s, 4), u8_at(s, 5), u16_at(s, 6), u64_at(s, 8))
        else {
            return self.refuse(offset, 0, Why::Short(s.len() as u16));
        };
        if registers == 0 || registers & 0xfff != 0 || registers >> 52 != 0 {
            return self.refuse(offset, 0, Why::Registers(registers));
        }
        if self.units.iter().any(|u| u.registers == registers) {
            return self.refuse(offset, 0, Why::Duplicate(registers));
        }
        let scopes = self.scopes(offset, s);
        self.units.push(Unit {
            registers,
            // The field is log2 of the number of pages, in four bits.
            size: 4096 << (size & 0xf),
            segment,
            include_all: flags & 1 != 0,
            scopes,
        });
    }

    fn scopes(&mut self, offset: usize, s: &[u8]) -> Vec<Scope> {
        let mut scopes = Vec::new();
        let mut at = 16;
        while let (Some(kind), Some(length)) = (u8_at(s, at), u8_at(s, at + 1)) {
            let end = at + usize::from(length);
            // Header of six bytes and at least one step of two.
            let Some(scope) = s.get(at..end).filter(|_| length >= 8) else {
                self.refuse(offset, 0, Why::ScopeLength(offset + at, length));
                break;
            };
            let id = scope[4];
            let kind = match kind {
                1 => Some(ScopeKind::Endpoint),
                2 => Some(ScopeKind::Bridge),
                3 => Some(ScopeKind::IoApic(id)),
                4 => Some(ScopeKind::Hpet(id)),
                5 => Some(ScopeKind::Namespace(id)),
                _ => {
                    self.refuse(offset, 0, Why::ScopeKind(offset + at, kind));
                    None
                }
            };
            if let Some(kind) = kind {
                scopes.push(Scope {
                    kind,
                    bus: scope[5],
                    path: scope[6..]
                        .chunks_exact(2)
                        .map(|p| p[0] << 3 | p[1] & 7)
                        .collect(),
                });
            }
            at = end;
        }
        scopes
    }

    /// The function that an IO-APIC's interrupts come from, by its ACPI id.
    pub fn ioapic(&self, id: u8, secondary: impl FnMut(Bdf) -> u8) -> Option<Bdf> {
        self.units
            .iter()
            .find_map(|u| {
                let scope = u.scopes.iter().find(|s| s.kind == ScopeKind::IoApic(id))?;
                Some((u.segment, scope))
            })
            .map(|(segment, scope)| scope.resolve(segment, secondary))
    }
}

#[cfg(test)]
#[path = "dmar_tests.rs"]
mod tests;
