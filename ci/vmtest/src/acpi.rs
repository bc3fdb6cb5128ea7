//! Firmware tables in the place of the machine's own: GRUB's command `acpi` copies all others and loads these. They describe
//! QEMU's q35, and differ from QEMU's own tables in one thing each.

/// A table.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    /// The MADT, with these CPUs in this order.
    Madt(&'static [Cpu]),
    /// The FADT, asking for physical destinations of local APICs (flag 19).
    PhysicalFadt,
}

/// A CPU's entry in the MADT.
#[derive(Clone, Copy, Debug)]
pub enum Cpu {
    /// Type 0: UID, APIC ID, whether it is enabled.
    Local(u8, u8, bool),
    /// Type 9: UID, APIC ID, whether it is enabled.
    X2apic(u32, u32, bool),
}

impl Table {
    /// What GRUB calls the table: also the name of its file.
    pub fn signature(&self) -> &'static str {
        match self {
            Self::Madt(_) => "APIC",
            Self::PhysicalFadt => "FACP",
        }
    }

    /// The whole table. GRUB fills in the FADT's addresses of DSDT and FACS.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Madt(cpus) => madt(cpus),
            Self::PhysicalFadt => fadt(),
        }
    }
}

/// Header, body, length and sum.
fn finish(signature: &str, revision: u8, body: &[u8]) -> Vec<u8> {
    let mut t = Vec::from(signature.as_bytes());
    t.extend((36 + body.len() as u32).to_le_bytes());
    t.extend([revision, 0]);
    t.extend(b"VMTESTTABLE   ");
    t.extend(1u32.to_le_bytes());
    t.extend(b"TEST");
    t.extend(1u32.to_le_bytes());
    t.extend(body);
    let sum = t.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    t[9] = sum.wrapping_neg();
    t
}

/// ACPI 6.5, 5.2.12.
fn madt(cpus: &[Cpu]) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(0xfee0_0000u32.to_le_bytes());
    b.extend(1u32.to_le_bytes());
    for cpu in cpus {
        match *cpu {
            Cpu::Local(uid, id, on) => {
                b.extend([0, 8, uid, id]);
                b.extend(u32::from(on).to_le_bytes());
            }
            Cpu::X2apic(uid, id, on) => {
                b.extend([9, 16, 0, 0]);
                b.extend(
                    [id, u32::from(on), uid]
                        .iter()
                        .flat_map(|n| n.to_le_bytes()),
                );
            }
        }
    }
    b.extend([1, 12, 0, 0]);
    b.extend(0xfec0_0000u32.to_le_bytes());
    b.extend(0u32.to_le_bytes());
    // The timer is on pin 2; PCI's lines are active high and level.
    for (isa, gsi, flags) in [
        (0, 2, 0u16),
        (5, 5, 13),
        (9, 9, 13),
        (10, 10, 13),
        (11, 11, 13),
    ] {
        b.extend([2, 10, 0, isa, gsi, 0, 0, 0]);
        b.extend(flags.to_le_bytes());
    }
    b.extend([4, 6, 0xff, 0, 0, 1]);
    finish("APIC", 3, &b)
}

/// ACPI 6.5, 5.2.9: revision 3, 244 bytes. The ports are those that SeaBIOS gives the ICH9.
fn fadt() -> Vec<u8> {
    const PM: u32 = 0x600;
    /// WBINVD, C1, sleep button, RTC wakes from S4, reset register, platform clock; physical destinations.
    const FLAGS: u32 = 1 | 1 << 2 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 15 | 1 << 19;
    let mut t = vec![0u8; 244];
    let mut put = |at: usize, bytes: &[u8]| t[at..at + bytes.len()].copy_from_slice(bytes);
    put(44, &[1, 0]);
    put(46, &9u16.to_le_bytes());
    // Port of commands, and the commands to switch ACPI on and off.
    put(48, &[0xb2, 0, 0, 0, 2, 3]);
    let blocks = [
        (56, 148, 0, 4),
        (64, 172, 4, 2),
        (76, 208, 8, 4),
        (80, 220, 0x20, 16),
    ];
    for (old, extended, offset, bytes) in blocks {
        put(old, &(PM + offset).to_le_bytes());
        put(extended, &[1, bytes * 8, 0, 0]);
        put(extended + 4, &(PM + offset).to_le_bytes());
    }
    put(88, &[4, 2, 0, 4, 16]);
    // No C2, no C3; the century's place in the CMOS.
    put(96, &[0xff, 0xf, 0xff, 0xf]);
    put(108, &[0x32]);
    put(112, &FLAGS.to_le_bytes());
    put(116, &[1, 8, 0, 0, 0xf9, 0xc]);
    put(128, &[0xf]);
    finish("FACP", 3, &t[36..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sums_are_right() {
        for table in [
            Table::Madt(&[Cpu::Local(1, 2, true), Cpu::X2apic(3, 4, false)]),
            Table::PhysicalFadt,
        ] {
            let t = table.bytes();
            assert_eq!(&t[..4], table.signature().as_bytes());
            assert_eq!(t[4..8], (t.len() as u32).to_le_bytes());
            assert_eq!(t.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)), 0);
        }
        assert_eq!(Table::PhysicalFadt.bytes().len(), 244);
        let t = Table::Madt(&[Cpu::Local(1, 2, true), Cpu::X2apic(3, 4, false)]).bytes();
        assert_eq!(t[44..52], [0, 8, 1, 2, 1, 0, 0, 0]);
        assert_eq!(t[52..68], [9, 16, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    }
}
