//! MADT: CPUs, IO-APICs, interrupt source overrides, NMI pins (ACPI 6.5, 5.2.12).

use alloc::vec::Vec;

use super::{u8_at, u16_at, u32_at, u64_at};
use crate::regs::apic::{X2APIC_BROADCAST, XAPIC_BROADCAST};

/// A CPU that the firmware offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuEntry {
    /// Local APIC ID.
    pub apic_id: u32,
    /// ACPI processor UID.
    pub uid: u32,
}

/// An IO-APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApicEntry {
    /// Identifier.
    pub id: u8,
    /// Register address.
    pub address: u32,
    /// First GSI.
    pub gsi_base: u32,
}

/// An ISA interrupt that is wired differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// ISA interrupt.
    pub isa: u8,
    /// GSI that it reaches.
    pub gsi: u32,
    /// Bits 1:0 polarity, 3:2 trigger (0 bus default, 1 high or edge, 3 low or level).
    pub flags: u16,
}

/// NMI on a local interrupt pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalNmi {
    /// Processor UID; `u32::MAX` means all.
    pub uid: u32,
    /// As in [`Override::flags`].
    pub flags: u16,
    /// LINT pin, 0 or 1.
    pub lint: u8,
}

/// Entries that were left out, for one summary line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Neither enabled nor online-capable, or only online-capable (no CPU hot-plug).
    pub disabled: u32,
    /// A second entry with an APIC ID already seen.
    pub duplicate: u32,
    /// One such APIC ID.
    pub duplicate_id: u32,
    /// Broadcast APIC IDs.
    pub broadcast: u32,
    /// APIC IDs at or above the limit.
    pub unreachable: u32,
    /// The lowest of them.
    pub unreachable_id: u32,
    /// Malformed entries (a length of 0 or past the end stops the parse).
    pub malformed: u32,
}

/// A parsed MADT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Madt {
    /// Local APIC register page.
    pub apic_address: u64,
    /// Two 8259s are present.
    pub has_8259: bool,
    /// Usable CPUs, the boot CPU first if its ID was found, then in ascending order of APIC ID.
    pub cpus: Vec<CpuEntry>,
    /// IO-APICs.
    pub ioapics: Vec<IoApicEntry>,
    /// ISA overrides.
    pub overrides: Vec<Override>,
    /// NMI pins.
    pub nmis: Vec<LocalNmi>,
    /// What was left out.
    pub skipped: Skipped,
}

/// Limits and facts for [`parse`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The boot CPU's APIC ID: listed first, never skipped as unreachable.
    pub boot_apic_id: u32,
    /// APIC IDs from here on cannot be used (255 without interrupt remapping: 8-bit destinations).
    pub first_unreachable: u32,
}

const ENABLED: u32 = 1;

/// Parses a whole table (header included). `None` if it is shorter than its fixed part.
pub fn parse(table: &[u8], limits: Limits) -> Option<Madt> {
    let mut madt = Madt {
        apic_address: u32_at(table, 36)?.into(),
        has_8259: u32_at(table, 40)? & 1 != 0,
        ..Madt::default()
    };
    // (id, uid) of every acceptable entry; duplicates fall out by sorting, so hostile counts cost no quadratic time.
    let mut found: Vec<CpuEntry> = Vec::new();
    let mut rest = &table[44..];
    while rest.len() >= 2 {
        let (kind, length) = (rest[0], usize::from(rest[1]));
        let Some(entry) = rest.get(..length).filter(|_| length >= 2) else {
            madt.skipped.malformed += 1;
            break;
        };
        rest = &rest[length..];
        if madt.entry(kind, entry, limits, &mut found).is_none() {
            madt.skipped.malformed += 1;
        }
    }
    // A stable sort keeps the firmware's first entry of an ID in front of its duplicates.
    found.sort_by_key(|c| (c.apic_id != limits.boot_apic_id, c.apic_id));
    for cpu in found {
        if madt.cpus.last().is_some_and(|l| l.apic_id == cpu.apic_id) {
            madt.skipped.duplicate += 1;
            madt.skipped.duplicate_id = cpu.apic_id;
        } else {
            madt.cpus.push(cpu);
        }
    }
    Some(madt)
}

/// The enabled CPUs of a whole table before any limit is known: how many, and the highest APIC ID. `None` as in
/// [`parse`], or without any.
pub fn population(table: &[u8]) -> Option<(u32, u32)> {
    let all = parse(
        table,
        Limits {
            boot_apic_id: 0,
            first_unreachable: u32::MAX,
        },
    )?;
    let highest = all.cpus.iter().map(|c| c.apic_id).max()?;
    Some((all.cpus.len() as u32, highest))
}

impl Madt {
    /// CPUs that the table mentions in any way: those that can be used, and those that are disabled, out of reach or
    /// without an ID of their own.
    pub fn mentioned(&self) -> u32 {
        let s = &self.skipped;
        self.cpus.len() as u32 + s.disabled + s.unreachable + s.broadcast + s.malformed
    }

    fn entry(
        &mut self,
        kind: u8,
        e: &[u8],
        limits: Limits,
        found: &mut Vec<CpuEntry>,
    ) -> Option<()> {
        match kind {
            0 => {
                let (uid, id, flags) = (u8_at(e, 2)?, u8_at(e, 3)?, u32_at(e, 4)?);
                let cpu = CpuEntry {
                    apic_id: id.into(),
                    uid: uid.into(),
                };
                self.cpu(cpu, flags, u32::from(id) == XAPIC_BROADCAST, limits, found);
            }
            9 => {
                let (id, flags, uid) = (u32_at(e, 4)?, u32_at(e, 8)?, u32_at(e, 12)?);
                let cpu = CpuEntry { apic_id: id, uid };
                self.cpu(cpu, flags, id == X2APIC_BROADCAST, limits, found);
            }
            1 => self.ioapics.push(IoApicEntry {
                id: u8_at(e, 2)?,
                address: u32_at(e, 4)?,
                gsi_base: u32_at(e, 8)?,
            }),
            2 => self.overrides.push(Override {
                isa: u8_at(e, 3)?,
                gsi: u32_at(e, 4)?,
                flags: u16_at(e, 8)?,
            }),
            4 => self.nmis.push(LocalNmi {
                uid: match u8_at(e, 2)? {
                    0xff => u32::MAX,
                    uid => uid.into(),
                },
                flags: u16_at(e, 3)?,
                lint: u8_at(e, 5)?,
            }),
            10 => self.nmis.push(LocalNmi {
                flags: u16_at(e, 2)?,
                uid: u32_at(e, 4)?,
                lint: u8_at(e, 8)?,
            }),
            5 => self.apic_address = u64_at(e, 4)?,
            _ => {}
        }
        Some(())
    }

    fn cpu(
        &mut self,
        cpu: CpuEntry,
        flags: u32,
        broadcast: bool,
        limits: Limits,
        found: &mut Vec<CpuEntry>,
    ) {
        if flags & ENABLED == 0 {
            self.skipped.disabled += 1;
        } else if broadcast {
            self.skipped.broadcast += 1;
        } else if cpu.apic_id >= limits.first_unreachable && cpu.apic_id != limits.boot_apic_id {
            let s = &mut self.skipped;
            if s.unreachable == 0 || cpu.apic_id < s.unreachable_id {
                s.unreachable_id = cpu.apic_id;
            }
            s.unreachable += 1;
        } else {
            found.push(cpu);
        }
    }
}

impl Skipped {
    /// Whether anything but disabled entries was left out (those are ordinary: room for CPUs that are not there).
    pub fn is_notable(&self) -> bool {
        self.duplicate | self.broadcast | self.unreachable | self.malformed != 0
    }
}

impl core::fmt::Display for Skipped {
    /// "2 duplicate (APIC ID 0x5), 1 malformed"; empty if only disabled entries were left out, which is ordinary.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut sep = "";
        if self.duplicate != 0 {
            write!(
                f,
                "{} duplicate (APIC ID {:#x})",
                self.duplicate, self.duplicate_id
            )?;
            sep = ", ";
        }
        if self.broadcast != 0 {
            write!(f, "{sep}{} with the broadcast APIC ID", self.broadcast)?;
            sep = ", ";
        }
        if self.unreachable != 0 {
            write!(
                f,
                "{sep}{} out of reach without interrupt remapping (from APIC ID {:#x})",
                self.unreachable, self.unreachable_id
            )?;
            sep = ", ";
        }
        if self.malformed != 0 {
            write!(f, "{sep}{} malformed", self.malformed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec;

    const LIMITS: Limits = Limits {
        boot_apic_id: 0,
        first_unreachable: 255,
    };

    fn table(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut t = vec![0u8; 44];
        t[36..40].copy_from_slice(&0xfee0_0000u32.to_le_bytes());
        t[40] = 1;
        for e in entries {
            t.extend_from_slice(e);
        }
        t
    }
    fn local(id: u8, uid: u8, flags: u8) -> Vec<u8> {
        vec![0, 8, uid, id, flags, 0, 0, 0]
    }
    fn x2(id: u32, uid: u32, flags: u32) -> Vec<u8> {
        let mut e = vec![9, 16, 0, 0];
        for v in [id, flags, uid] {
            e.extend_from_slice(&v.to_le_bytes());
        }
        e
    }

    #[test]
    fn population_counts_enabled_cpus_once() {
        let t = table(&[local(3, 0, 1), x2(300, 1, 1), local(3, 2, 1), x2(900, 3, 0)]);
        assert_eq!(population(&t), Some((2, 300)));
        assert_eq!(population(&table(&[local(1, 0, 0)])), None);
        assert_eq!(population(&[0; 20]), None);
    }

    #[test]
    fn boot_cpu_first_then_by_id() {
        let t = table(&[
            local(6, 3, 1),
            local(2, 1, 1),
            local(4, 2, 1),
            local(0, 0, 1),
        ]);
        let m = parse(
            &t,
            Limits {
                boot_apic_id: 4,
                ..LIMITS
            },
        )
        .unwrap();
        let ids: Vec<_> = m.cpus.iter().map(|c| (c.apic_id, c.uid)).collect();
        assert_eq!(ids, [(4, 2), (0, 0), (2, 1), (6, 3)]);
        assert!(m.has_8259);
        assert_eq!(m.apic_address, 0xfee0_0000);
    }

    #[test]
    fn impossible_shared_id_counts_once_and_is_named() {
        // Sixteen sane CPUs and eight entries that share one ID, with an ID in reach and one beyond it.
        for (id, text) in [
            (0x50, "7 duplicate (APIC ID 0x50)"),
            (
                0x1716_1514,
                "8 out of reach without interrupt remapping (from APIC ID 0x17161514)",
            ),
        ] {
            let mut entries: Vec<_> = (0..16).map(|i| local(i, i, 1)).collect();
            entries.extend((0x10..0x18).map(|uid| x2(id, uid, 1)));
            let m = parse(&table(&entries), LIMITS).unwrap();
            assert_eq!(m.cpus.len(), if id == 0x50 { 17 } else { 16 });
            assert_eq!(m.skipped.to_string(), text);
        }
        // With remapping, the shared ID is a duplicate all the same.
        let mut entries: Vec<_> = (0..16).map(|i| local(i, i, 1)).collect();
        entries.extend((0x10..0x18).map(|uid| x2(0x1716_1514, uid, 1)));
        let m = parse(
            &table(&entries),
            Limits {
                first_unreachable: u32::MAX,
                ..LIMITS
            },
        )
        .unwrap();
        assert_eq!(m.cpus.len(), 17);
        assert_eq!(m.skipped.duplicate, 7);
    }

    #[test]
    fn mixed_types_and_ids_above_255() {
        let mut entries: Vec<_> = (0..255).map(|i| local(i, i, 1)).collect();
        entries.extend((255..288).map(|i| x2(i, i, 1)));
        let m = parse(&table(&entries), LIMITS).unwrap();
        assert_eq!(m.cpus.len(), 255);
        assert_eq!((m.skipped.unreachable, m.skipped.unreachable_id), (33, 255));
        let all = Limits {
            first_unreachable: u32::MAX,
            ..LIMITS
        };
        assert_eq!(parse(&table(&entries), all).unwrap().cpus.len(), 288);
    }

    #[test]
    fn both_entry_types_for_one_cpu_are_one_cpu() {
        let m = parse(
            &table(&[local(1, 7, 1), x2(1, 7, 1), local(0, 6, 1)]),
            LIMITS,
        )
        .unwrap();
        assert_eq!(m.cpus.len(), 2);
        assert_eq!(m.skipped.duplicate, 1);
    }

    #[test]
    fn disabled_online_capable_and_broadcast_are_left_out() {
        let t = table(&[
            local(0, 0, 1),
            local(1, 1, 0),
            local(2, 2, 2),
            local(0xff, 3, 1),
            x2(u32::MAX, 4, 1),
        ]);
        let m = parse(&t, LIMITS).unwrap();
        assert_eq!(m.cpus.len(), 1);
        assert_eq!(m.skipped.disabled, 2);
        assert_eq!(m.skipped.to_string(), "2 with the broadcast APIC ID");
    }

    #[test]
    fn other_entries() {
        let t = table(&[
            vec![1, 12, 8, 0, 0, 0, 0xc0, 0xfe, 24, 0, 0, 0],
            vec![2, 10, 0, 9, 20, 0, 0, 0, 0x0d, 0],
            vec![4, 6, 0xff, 5, 0, 1],
            vec![10, 12, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0],
            vec![5, 12, 0, 0, 0, 0, 0xe0, 0xfe, 1, 0, 0, 0],
            vec![0x7f, 3, 0],
        ]);
        let m = parse(&t, LIMITS).unwrap();
        assert_eq!(
            m.ioapics,
            [IoApicEntry {
                id: 8,
                address: 0xfec0_0000,
                gsi_base: 24
            }]
        );
        assert_eq!(
            m.overrides,
            [Override {
                isa: 9,
                gsi: 20,
                flags: 0xd
            }]
        );
        assert_eq!(m.nmis.len(), 2);
        assert_eq!((m.nmis[0].uid, m.nmis[0].lint), (u32::MAX, 1));
        assert_eq!(m.apic_address, 0x1_fee0_0000);
        assert_eq!(m.skipped, Skipped::default());
    }

    #[test]
    fn zero_length_and_cut_entries_end_the_parse() {
        for bad in [
            vec![0u8, 0],
            vec![0, 1, 0, 0],
            vec![0, 8, 1, 1],
            vec![1, 4, 0, 0],
        ] {
            let mut entries = vec![local(0, 0, 1), bad];
            let m = parse(&table(&entries), LIMITS).unwrap();
            assert_eq!((m.cpus.len(), m.skipped.malformed), (1, 1));
            entries.pop();
        }
        assert_eq!(parse(&[0; 43], LIMITS), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600), boot in any::<u32>()) {
            let limits = Limits { boot_apic_id: boot, first_unreachable: 255 };
            if let Some(m) = parse(&bytes, limits) {
                let mut ids: Vec<_> = m.cpus.iter().map(|c| c.apic_id).collect();
                ids.sort_unstable();
                ids.dedup();
                prop_assert_eq!(ids.len(), m.cpus.len());
                prop_assert!(m.cpus.iter().all(|c| c.apic_id < 255 || c.apic_id == boot));
            }
        }
    }
}
