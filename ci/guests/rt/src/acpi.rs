//! Just enough ACPI to list processors and IO-APICs: RSDP from the start info, XSDT, MADT.

use crate::start::{read_phys, start_info_u64};

/// One processor of the MADT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// ACPI processor UID.
    pub uid: u32,
    /// Local APIC ID.
    pub apic_id: u32,
    /// Flags: bit 0 enabled, bit 1 online capable.
    pub flags: u32,
    /// True for a type 9 (x2APIC) entry.
    pub x2apic: bool,
}

/// What the MADT says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Madt {
    /// Table revision.
    pub revision: u8,
    /// Physical address of the local APICs.
    pub lapic_address: u32,
    /// Bit 0: PCAT_COMPAT.
    pub flags: u32,
    /// Processors in table order; the first `count` are valid.
    pub processors: [Processor; 32],
    /// Number of processors.
    pub count: usize,
    /// IO-APICs: id, address, first GSI.
    pub ioapics: [(u8, u32, u32); 4],
    /// Number of IO-APICs.
    pub ioapic_count: usize,
    /// Interrupt source overrides: bus, source, GSI, flags.
    pub overrides: [(u8, u8, u32, u16); 16],
    /// Number of overrides.
    pub override_count: usize,
    /// Number of entries of any other type.
    pub others: usize,
}

/// Sum of all bytes of a table, 0 if the checksum is right.
pub fn checksum(address: u64, len: u32) -> u8 {
    (0..u64::from(len)).fold(0u8, |sum, i| sum.wrapping_add(read_phys::<u8>(address + i)))
}

/// Calls `f(signature, address, length)` for each table of the XSDT. Returns false if there is no sound XSDT.
pub fn for_each_table(mut f: impl FnMut([u8; 4], u64, u32)) -> bool {
    let rsdp = start_info_u64(32);
    if rsdp == 0 || read_phys::<[u8; 8]>(rsdp) != *b"RSD PTR " {
        return false;
    }
    let xsdt = read_phys::<u64>(rsdp + 24);
    let len = read_phys::<u32>(xsdt + 4);
    // The signature is not checked, as Linux does not check it: on firmware without an XSDT, Xen 4.17 copies the
    // header from address 0.
    if len < 36 || checksum(xsdt, len) != 0 {
        return false;
    }
    for i in 0..u64::from((len - 36) / 8) {
        let at = read_phys::<u64>(xsdt + 36 + 8 * i);
        f(read_phys(at), at, read_phys(at + 4));
    }
    true
}

/// Reads the MADT.
pub fn madt() -> Option<Madt> {
    let mut found = None;
    for_each_table(|signature, at, len| {
        if signature == *b"APIC" {
            found = Some((at, len));
        }
    });
    let (at, len) = found?;
    if checksum(at, len) != 0 {
        return None;
    }
    let mut madt = Madt {
        revision: read_phys(at + 8),
        lapic_address: read_phys(at + 36),
        flags: read_phys(at + 40),
        ..Madt::default()
    };
    let mut offset = at + 44;
    while offset + 2 <= at + u64::from(len) {
        let size = u64::from(read_phys::<u8>(offset + 1));
        if size < 2 {
            return None;
        }
        match read_phys::<u8>(offset) {
            0 if madt.count < 32 => {
                madt.processors[madt.count] = Processor {
                    uid: read_phys::<u8>(offset + 2).into(),
                    apic_id: read_phys::<u8>(offset + 3).into(),
                    flags: read_phys(offset + 4),
                    x2apic: false,
                };
                madt.count += 1;
            }
            9 if madt.count < 32 => {
                madt.processors[madt.count] = Processor {
                    uid: read_phys(offset + 12),
                    apic_id: read_phys(offset + 4),
                    flags: read_phys(offset + 8),
                    x2apic: true,
                };
                madt.count += 1;
            }
            1 if madt.ioapic_count < 4 => {
                madt.ioapics[madt.ioapic_count] = (
                    read_phys(offset + 2),
                    read_phys(offset + 4),
                    read_phys(offset + 8),
                );
                madt.ioapic_count += 1;
            }
            2 if madt.override_count < 16 => {
                madt.overrides[madt.override_count] = (
                    read_phys(offset + 2),
                    read_phys(offset + 3),
                    read_phys(offset + 4),
                    read_phys(offset + 8),
                );
                madt.override_count += 1;
            }
            _ => madt.others += 1,
        }
        offset += size;
    }
    Some(madt)
}
