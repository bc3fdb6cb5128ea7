//! AMD-Vi (AMD IOMMU specification 3.09): registers, device table, interrupt-remapping entries, commands, events.

pub mod command;
pub mod device;
pub mod event;
pub mod irte;

pub use device::DeviceEntry;
pub use event::Event;
pub use irte::Format;

/// Register offsets (3.4).
pub mod reg {
    /// Device table base and size.
    pub const DEVICE_TABLE: usize = 0x00;
    /// Command buffer base and size.
    pub const COMMAND_BASE: usize = 0x08;
    /// Event log base and size.
    pub const EVENT_BASE: usize = 0x10;
    /// Control.
    pub const CONTROL: usize = 0x18;
    /// Extended features.
    pub const FEATURES: usize = 0x30;
    /// The unit's own interrupt, where destinations have 32 bits ([`super::own_interrupt`]).
    pub const OWN_INTERRUPT: usize = 0x170;
    /// Command buffer head.
    pub const COMMAND_HEAD: usize = 0x2000;
    /// Command buffer tail.
    pub const COMMAND_TAIL: usize = 0x2008;
    /// Event log head.
    pub const EVENT_HEAD: usize = 0x2010;
    /// Event log tail.
    pub const EVENT_TAIL: usize = 0x2018;
    /// Status.
    pub const STATUS: usize = 0x2020;
    /// Bytes of registers up to and with the last of these.
    pub const SIZE: usize = 0x4000;
}

/// Control: the IOMMU works on requests.
pub const ENABLE: u64 = 1 << 0;
/// Control: event log.
pub const EVENT_LOG: u64 = 1 << 2;
/// Control: interrupt when an event is logged.
pub const EVENT_INTERRUPT: u64 = 1 << 3;
/// Control: the unit sees the CPUs' caches when it reads the device table.
pub const COHERENT: u64 = 1 << 10;
/// Control: command buffer.
pub const COMMANDS: u64 = 1 << 12;
/// Control: 128-bit interrupt-remapping entries.
pub const GUEST_APIC: u64 = 1 << 17;
/// Control: 32-bit destinations.
pub const EXTENDED_IDS: u64 = 1 << 50;

/// Control: the unit's own interrupts are those of its registers, not the message of its PCI function.
pub const OWN_INTERRUPTS: u64 = 1 << 51;

/// Status: the event log was full; it stops. Cleared by writing 1.
pub const EVENT_OVERFLOW: u64 = 1 << 0;
/// Status: an event was logged. Cleared by writing 1.
pub const EVENT_LOGGED: u64 = 1 << 1;
/// Status: the event log works.
pub const EVENT_RUNNING: u64 = 1 << 3;
/// Status: commands are being fetched.
pub const COMMANDS_RUNNING: u64 = 1 << 4;

/// Control bits that the firmware's block asks for, from its flags: HT tunnel, PassPW, ResPassPW, isochronous.
pub const fn control_from_flags(flags: u8) -> u64 {
    let f = flags as u64;
    (f & 1) << 1 | (f >> 1 & 1) << 8 | (f >> 2 & 1) << 9 | (f >> 3 & 1) << 11
}

/// Value of [`reg::OWN_INTERRUPT`] for a vector of one CPU, fixed and physical.
pub const fn own_interrupt(apic_id: u32, vector: u8) -> u64 {
    let id = apic_id as u64;
    (id & 0xff_ffff) << 8 | (vector as u64) << 32 | (id >> 24) << 56
}

/// Extended feature register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// 32-bit destinations.
    pub const fn extended_ids(self) -> bool {
        self.0 >> 2 & 1 != 0
    }
    /// The command that drops everything cached exists.
    pub const fn invalidate_all(self) -> bool {
        self.0 >> 6 & 1 != 0
    }
    /// 128-bit interrupt-remapping entries.
    pub const fn guest_apic(self) -> bool {
        self.0 >> 7 & 1 != 0
    }
    /// What the entries can be: 32-bit destinations need both.
    pub const fn format(self) -> Format {
        if self.extended_ids() && self.guest_apic() {
            Format::Wide
        } else {
            Format::Narrow
        }
    }
}

/// Ring of 256 entries of 16 bytes in one page: value of its base register (the length field is log2 of the number).
pub const fn ring_base(page: u64) -> u64 {
    page | 8 << 56
}

/// Bytes of such a ring; heads and tails wrap there.
pub const RING_BYTES: u64 = 4096;

/// Offset after this one.
pub const fn ring_next(offset: u64) -> u64 {
    (offset + 16) % RING_BYTES
}

/// Value of the device table base register for a table of `bytes` (a multiple of 4096, at most 2 MiB).
pub const fn device_table_base(table: u64, bytes: u64) -> u64 {
    table | (bytes / 4096 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_as_in_the_manual() {
        assert_eq!(ring_base(0x1000), 0x0800_0000_0000_1000);
        assert_eq!(device_table_base(0x20_0000, 2 << 20), 0x20_01ff);
        assert_eq!((ring_next(0), ring_next(4080)), (16, 0));
        assert_eq!(control_from_flags(0), 0);
        assert_eq!(control_from_flags(0xff), 0b1011_0000_0010);
    }

    #[test]
    fn an_own_interrupt_names_32_bits_of_apic_id() {
        assert_eq!(own_interrupt(0x12b, 0xe1), 0x0000_00e1_0001_2b00);
        assert_eq!(own_interrupt(0xff00_0001, 0x31), 0xff00_0031_0000_0100);
    }

    #[test]
    fn wide_entries_need_both_features() {
        for (bits, format) in [
            (0, Format::Narrow),
            (1 << 2, Format::Narrow),
            (1 << 7, Format::Narrow),
            (1 << 2 | 1 << 7, Format::Wide),
        ] {
            assert_eq!(Features(bits).format(), format);
        }
        assert!(Features(0x40).invalidate_all());
    }
}
