//! Intel's VT-d (specification 4.1): registers, interrupt-remapping entries, invalidation queue, fault records.

pub mod fault;
pub mod irte;
pub mod posted;
pub mod queue;

pub use fault::FaultRecord;
pub use irte::Irte;
pub use posted::PostedTarget;

/// Register offsets (chapter 11).
pub mod reg {
    /// Version: major in bits 7:4.
    pub const VERSION: usize = 0x00;
    /// Capabilities, 64 bits.
    pub const CAP: usize = 0x08;
    /// Extended capabilities, 64 bits.
    pub const ECAP: usize = 0x10;
    /// Global command.
    pub const GCMD: usize = 0x18;
    /// Global status.
    pub const GSTS: usize = 0x1c;
    /// Fault status.
    pub const FSTS: usize = 0x34;
    /// Fault event control.
    pub const FECTL: usize = 0x38;
    /// Fault event data.
    pub const FEDATA: usize = 0x3c;
    /// Fault event address.
    pub const FEADDR: usize = 0x40;
    /// Fault event upper address.
    pub const FEUADDR: usize = 0x44;
    /// Protected memory enable.
    pub const PMEN: usize = 0x64;
    /// Invalidation queue head, 64 bits.
    pub const IQH: usize = 0x80;
    /// Invalidation queue tail, 64 bits.
    pub const IQT: usize = 0x88;
    /// Invalidation queue address, 64 bits.
    pub const IQA: usize = 0x90;
    /// Interrupt-remapping table address, 64 bits.
    pub const IRTA: usize = 0xb8;
}

/// Global command and status: DMA remapping.
pub const TRANSLATION: u32 = 1 << 31;
/// Global command and status: queued invalidation.
pub const QUEUE: u32 = 1 << 26;
/// Global command and status: interrupt remapping.
pub const REMAPPING: u32 = 1 << 25;
/// Global command: take over the interrupt-remapping table address. Status: taken over.
pub const SET_TABLE: u32 = 1 << 24;
/// Global command and status: let messages of the old format pass.
pub const COMPATIBILITY: u32 = 1 << 23;
/// What a command must repeat from the status: the switches, without the one-time requests (bits 30, 29, 27, 24).
pub const SWITCHES: u32 = 0x96ff_ffff;

/// Fault status bits that are cleared by writing ones: overflow, advanced faults, queue error, completion error and
/// time-out.
pub const FSTS_CLEAR: u32 = 0x75;
/// Fault status: a recording register holds a fault.
pub const FSTS_PENDING: u32 = 1 << 1;
/// Fault status: the queue stopped at a bad descriptor, a device did not answer, or a completion was wrong.
pub const FSTS_QUEUE: u32 = 7 << 4;
/// Fault event control: no interrupts.
pub const FECTL_MASK: u32 = 1 << 31;
/// Protected memory enable: enable, and status.
pub const PMEN_ENABLE: u32 = 1 << 31;
/// Protected memory: in force.
pub const PMEN_STATUS: u32 = 1;

/// Capability register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// Offset of the first fault recording register in bytes.
    pub const fn fault_offset(self) -> usize {
        (self.0 >> 24 & 0x3ff) as usize * 16
    }
    /// Fault recording registers (1 to 256).
    pub const fn fault_count(self) -> usize {
        (self.0 >> 40 & 0xff) as usize + 1
    }
    /// Protected memory regions, low or high, exist.
    pub const fn protected_memory(self) -> bool {
        self.0 >> 5 & 3 != 0
    }
    /// Posted interrupts.
    pub const fn posted(self) -> bool {
        self.0 >> 59 & 1 != 0
    }
}

/// Extended capability register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtCap(pub u64);

impl ExtCap {
    /// The unit sees the CPUs' caches when it reads its tables.
    pub const fn coherent(self) -> bool {
        self.0 & 1 != 0
    }
    /// Queued invalidation.
    pub const fn queue(self) -> bool {
        self.0 >> 1 & 1 != 0
    }
    /// Interrupt remapping.
    pub const fn remapping(self) -> bool {
        self.0 >> 3 & 1 != 0
    }
    /// 32-bit APIC IDs.
    pub const fn extended_ids(self) -> bool {
        self.0 >> 4 & 1 != 0
    }
}

/// Value of the interrupt-remapping table address register: table (page-aligned), entries (a power of two from 2 to
/// 65536), 32-bit destinations.
pub const fn table_address(table: u64, entries: u32, extended: bool) -> u64 {
    table | (extended as u64) << 11 | (entries.ilog2() as u64 - 1) & 0xf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_of_an_emulated_unit() {
        // QEMU 10, intremap and eim on.
        let (cap, ecap) = (Cap(0x00d2_0080_2226_0686), ExtCap(0xf0_0f5a));
        assert_eq!((cap.fault_offset(), cap.fault_count()), (0x220, 1));
        assert!(!cap.posted() && !cap.protected_memory());
        assert!(!ecap.coherent() && ecap.queue() && ecap.remapping() && ecap.extended_ids());
        // A desktop part: protected memory low and high, posted interrupts.
        let cap = Cap(0x8d2_078c_106f_0466);
        assert_eq!((cap.fault_offset(), cap.fault_count()), (0x100, 8));
        assert!(cap.posted() && cap.protected_memory());
    }

    #[test]
    fn table_address_fields() {
        assert_eq!(table_address(0x1234_5000, 65536, true), 0x1234_580f);
        assert_eq!(table_address(0x1234_5000, 1024, false), 0x1234_5009);
        assert_eq!(table_address(0, 2, false), 0);
    }

    #[test]
    fn a_command_repeats_no_request() {
        assert_eq!(SWITCHES & (1 << 30 | 1 << 29 | 1 << 27 | SET_TABLE), 0);
        for switch in [TRANSLATION, QUEUE, REMAPPING, COMPATIBILITY] {
            assert_eq!(SWITCHES & switch, switch);
        }
    }
}
