//! FADT: power management registers and the reset register (ACPI 6.5, 5.2.9).

use super::{u8_at, u16_at, u32_at, u64_at};

/// A register's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenericAddress {
    /// 0 memory, 1 ports, 2 PCI configuration.
    pub space: u8,
    /// Width of the register in bits, 0 if not told.
    pub bits: u8,
    /// Address in that space.
    pub address: u64,
}

impl GenericAddress {
    /// Memory.
    pub const MEMORY: u8 = 0;
    /// Ports.
    pub const IO: u8 = 1;
    /// Configuration space of a device on bus 0: device in bits 47:32, function 31:16, offset 15:0.
    pub const PCI: u8 = 2;

    fn at(b: &[u8], at: usize) -> Option<Self> {
        let address = u64_at(b, at + 4)?;
        (address != 0).then_some(GenericAddress {
            space: u8_at(b, at)?,
            bits: u8_at(b, at + 1)?,
            address,
        })
    }

    fn port(port: u32, bits: u8) -> Option<Self> {
        (port != 0 && port <= 0xffff).then_some(GenericAddress {
            space: Self::IO,
            bits,
            address: port.into(),
        })
    }
}

/// The fields that the hypervisor uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fadt {
    /// FACS.
    pub facs: u64,
    /// DSDT.
    pub dsdt: u64,
    /// SCI interrupt (a GSI, or an ISA interrupt where two 8259s exist).
    pub sci: u16,
    /// Port for commands to the firmware; 0 if there are none.
    pub smi_command: u16,
    /// Command that hands the registers to the operating system; 0 if it always has them.
    pub acpi_enable: u8,
    /// PM1a status and enable.
    pub pm1a_event: Option<GenericAddress>,
    /// PM1a control.
    pub pm1a_control: Option<GenericAddress>,
    /// PM1b control.
    pub pm1b_control: Option<GenericAddress>,
    /// PM timer.
    pub pm_timer: Option<GenericAddress>,
    /// The PM timer has 32 bits (else 24).
    pub pm_timer_32: bool,
    /// Reset register and the value to write.
    pub reset: Option<(GenericAddress, u8)>,
    /// Sleep control register of hardware-reduced platforms.
    pub sleep_control: Option<GenericAddress>,
    /// CMOS index of the century; 0 if none.
    pub century: u8,
    /// Local APICs should be addressed in physical mode.
    pub apic_physical: bool,
    /// Local APICs should be addressed in cluster mode (xAPIC: the flat model does not reach all).
    pub apic_cluster: bool,
    /// Hardware-reduced ACPI: no PM1 registers.
    pub hw_reduced: bool,
    /// There is no CMOS clock.
    pub no_cmos: bool,
}

const FLAG_TIMER_32: u32 = 1 << 8;
const FLAG_RESET: u32 = 1 << 10;
const FLAG_APIC_CLUSTER: u32 = 1 << 18;
const FLAG_APIC_PHYSICAL: u32 = 1 << 19;
const FLAG_HW_REDUCED: u32 = 1 << 20;
const BOOT_NO_CMOS: u16 = 1 << 5;

/// Parses a whole table. Fields beyond its end read as absent. `None` if it has not even the first version's fields.
pub fn parse(t: &[u8]) -> Option<Fadt> {
    let flags = u32_at(t, 112)?;
    // Extended fields win if they are there and not zero.
    let either = |extended: usize, old: usize, bits: u8| {
        GenericAddress::at(t, extended)
            .or_else(|| u32_at(t, old).and_then(|p| GenericAddress::port(p, bits)))
    };
    let address = |extended: usize, old: usize| {
        u64_at(t, extended)
            .filter(|&a| a != 0)
            .or_else(|| u32_at(t, old).map(u64::from))
            .unwrap_or(0)
    };
    Some(Fadt {
        facs: address(132, 36),
        dsdt: address(140, 40),
        sci: u16_at(t, 46)?,
        smi_command: u32_at(t, 48)? as u16,
        acpi_enable: u8_at(t, 52)?,
        pm1a_event: either(148, 56, 32),
        pm1a_control: either(172, 64, 16),
        pm1b_control: either(184, 68, 16),
        pm_timer: either(208, 76, 32),
        pm_timer_32: flags & FLAG_TIMER_32 != 0,
        reset: (flags & FLAG_RESET != 0)
            .then(|| Some((GenericAddress::at(t, 116)?, u8_at(t, 128)?)))
            .flatten(),
        sleep_control: GenericAddress::at(t, 244),
        century: u8_at(t, 108)?,
        apic_physical: flags & FLAG_APIC_PHYSICAL != 0,
        apic_cluster: flags & FLAG_APIC_CLUSTER != 0,
        hw_reduced: flags & FLAG_HW_REDUCED != 0,
        no_cmos: u16_at(t, 109)? & BOOT_NO_CMOS != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn first_version_uses_port_fields() {
        let mut t = vec![0u8; 116];
        t[40..44].copy_from_slice(&0x7fe0_0000u32.to_le_bytes());
        t[46] = 9;
        t[48..52].copy_from_slice(&0xb2u32.to_le_bytes());
        t[52] = 2;
        t[64..68].copy_from_slice(&0x604u32.to_le_bytes());
        t[76..80].copy_from_slice(&0x608u32.to_le_bytes());
        t[108] = 0x32;
        t[112..116].copy_from_slice(&(FLAG_TIMER_32 | FLAG_RESET).to_le_bytes());
        let f = parse(&t).unwrap();
        assert_eq!(f.dsdt, 0x7fe0_0000);
        assert_eq!(
            f.pm1a_control,
            Some(GenericAddress {
                space: 1,
                bits: 16,
                address: 0x604
            })
        );
        assert_eq!(f.pm_timer.unwrap().address, 0x608);
        assert!(f.pm_timer_32);
        // The flag promises a register that the short table does not have.
        assert_eq!(f.reset, None);
        assert_eq!((f.century, f.smi_command, f.acpi_enable), (0x32, 0xb2, 2));
    }

    #[test]
    fn extended_fields_win() {
        let mut t = vec![0u8; 276];
        t[64..68].copy_from_slice(&0x604u32.to_le_bytes());
        t[172] = 0;
        t[173] = 16;
        t[176..184].copy_from_slice(&0xfed8_0804u64.to_le_bytes());
        t[112..116].copy_from_slice(&FLAG_RESET.to_le_bytes());
        t[116] = 1;
        t[117] = 8;
        t[120..128].copy_from_slice(&0xcf9u64.to_le_bytes());
        t[128] = 0xf;
        t[140..148].copy_from_slice(&0x1_0000_0000u64.to_le_bytes());
        let f = parse(&t).unwrap();
        assert_eq!(f.pm1a_control.unwrap().address, 0xfed8_0804);
        assert_eq!(f.reset.unwrap().0.address, 0xcf9);
        assert_eq!(f.reset.unwrap().1, 0xf);
        assert_eq!(f.dsdt, 0x1_0000_0000);
        assert_eq!(f.pm1b_control, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(parse(&bytes).is_some(), bytes.len() >= 116);
        }
    }
}
