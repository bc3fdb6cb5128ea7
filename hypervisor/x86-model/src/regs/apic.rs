//! Local APIC and IO-APIC registers (APM vol. 2 chapter 16, SDM vol. 3 chapter 12; IO-APIC: Intel 82093AA data sheet).

/// Offsets in the xAPIC register page; in x2APIC mode the MSR is [`super::msr::X2APIC_FIRST`] plus the offset over 16.
pub mod reg {
    /// APIC ID (xAPIC: in bits 31:24).
    pub const ID: u32 = 0x20;
    /// Version; bits 23:16 are the highest LVT index, bit 31 AMD's extended space.
    pub const VERSION: u32 = 0x30;
    /// Task priority.
    pub const TPR: u32 = 0x80;
    /// Arbitration priority (not on x2APIC).
    pub const APR: u32 = 0x90;
    /// Processor priority.
    pub const PPR: u32 = 0xa0;
    /// End of interrupt.
    pub const EOI: u32 = 0xb0;
    /// Remote read (not on x2APIC).
    pub const RRD: u32 = 0xc0;
    /// Logical destination.
    pub const LDR: u32 = 0xd0;
    /// Logical destination format (xAPIC only).
    pub const DFR: u32 = 0xe0;
    /// Spurious vector and software enable.
    pub const SVR: u32 = 0xf0;
    /// First of eight in-service words.
    pub const ISR: u32 = 0x100;
    /// First of eight trigger-mode words.
    pub const TMR: u32 = 0x180;
    /// First of eight request words.
    pub const IRR: u32 = 0x200;
    /// Error status.
    pub const ESR: u32 = 0x280;
    /// Corrected machine check.
    pub const LVT_CMCI: u32 = 0x2f0;
    /// Interrupt command, low (x2APIC: the whole 64-bit register).
    pub const ICR_LOW: u32 = 0x300;
    /// Interrupt command, destination (xAPIC only).
    pub const ICR_HIGH: u32 = 0x310;
    /// Timer entry.
    pub const LVT_TIMER: u32 = 0x320;
    /// Thermal entry.
    pub const LVT_THERMAL: u32 = 0x330;
    /// Performance-counter entry.
    pub const LVT_PERF: u32 = 0x340;
    /// LINT0 entry.
    pub const LVT_LINT0: u32 = 0x350;
    /// LINT1 entry.
    pub const LVT_LINT1: u32 = 0x360;
    /// Error entry.
    pub const LVT_ERROR: u32 = 0x370;
    /// Timer start value.
    pub const TIMER_INITIAL: u32 = 0x380;
    /// Timer current value.
    pub const TIMER_CURRENT: u32 = 0x390;
    /// Timer divider.
    pub const TIMER_DIVIDE: u32 = 0x3e0;
    /// Interrupt to this CPU (x2APIC only).
    pub const SELF_IPI: u32 = 0x3f0;
}

/// SVR: the APIC accepts interrupts.
pub const SVR_ENABLE: u32 = 1 << 8;
/// LVT: masked.
pub const LVT_MASKED: u32 = 1 << 16;
/// LVT: delivered as NMI.
pub const LVT_NMI: u32 = 4 << 8;
/// LVT timer: TSC-deadline mode.
pub const TIMER_TSC_DEADLINE: u32 = 2 << 17;
/// Divider register value for "by one".
pub const DIVIDE_BY_1: u32 = 0b1011;
/// DFR for the flat model.
pub const DFR_FLAT: u32 = 0xffff_ffff;

/// ICR: NMI.
pub const ICR_NMI: u32 = 4 << 8;
/// ICR: INIT.
pub const ICR_INIT: u32 = 5 << 8;
/// ICR: start-up; the vector is the page number.
pub const ICR_STARTUP: u32 = 6 << 8;
/// ICR: logical destination.
pub const ICR_LOGICAL: u32 = 1 << 11;
/// ICR: delivery pending (xAPIC only).
pub const ICR_PENDING: u32 = 1 << 12;
/// ICR: assert (needed for all but INIT de-assert).
pub const ICR_ASSERT: u32 = 1 << 14;
/// ICR: level trigger (INIT de-assert).
pub const ICR_LEVEL: u32 = 1 << 15;

/// ICR shorthand: every APIC but the sender's.
pub const ICR_ALL_BUT_SELF: u32 = 3 << 18;

/// Destination that addresses every xAPIC.
pub const XAPIC_BROADCAST: u32 = 0xff;
/// Destination that addresses every x2APIC.
pub const X2APIC_BROADCAST: u32 = 0xffff_ffff;

/// Logical destination of an x2APIC ID: cluster in bits 31:16, one bit of sixteen below.
pub const fn x2apic_ldr(id: u32) -> u32 {
    (id >> 4) << 16 | 1 << (id & 15)
}

/// One bit per vector of a 256-bit APIC register, as word index and mask.
pub const fn vector_bit(vector: u8) -> (usize, u32) {
    (vector as usize / 32, 1 << (vector % 32))
}

/// IO-APIC register numbers.
pub mod io {
    /// Identification.
    pub const ID: u32 = 0;
    /// Version; bits 23:16 are the last pin.
    pub const VERSION: u32 = 1;
    /// Low half of the first redirection entry; two registers a pin.
    pub const REDIRECTION: u32 = 0x10;
    /// Offset of the select register.
    pub const SELECT: usize = 0;
    /// Offset of the data window.
    pub const WINDOW: usize = 0x10;
    /// Offset of the end-of-interrupt register, which takes a vector.
    pub const EOI: usize = 0x40;
    /// First version that has it.
    pub const VERSION_WITH_EOI: u8 = 0x20;
}

/// Redirection entry: masked.
pub const RTE_MASKED: u64 = 1 << 16;
/// Redirection entry: level trigger.
pub const RTE_LEVEL: u64 = 1 << 15;
/// Redirection entry: an EOI is awaited.
pub const RTE_REMOTE_IRR: u64 = 1 << 14;
/// Redirection entry: active low.
pub const RTE_LOW: u64 = 1 << 13;
/// Redirection entry: logical destination.
pub const RTE_LOGICAL: u64 = 1 << 11;

/// Redirection entry for a fixed interrupt to one APIC in physical mode. `None` if the ID does not fit in the entry's
/// eight bits (interrupt remapping is needed then).
pub const fn redirection(apic_id: u32, vector: u8, level: bool, low: bool) -> Option<u64> {
    if apic_id >= XAPIC_BROADCAST {
        return None;
    }
    let mut entry = (apic_id as u64) << 56 | vector as u64;
    if level {
        entry |= RTE_LEVEL;
    }
    if low {
        entry |= RTE_LOW;
    }
    Some(entry)
}

/// Address of a message-signalled interrupt to one APIC in physical mode; `None` if the ID does not fit.
pub const fn msi_address(apic_id: u32) -> Option<u64> {
    if apic_id >= XAPIC_BROADCAST {
        None
    } else {
        Some(0xfee0_0000 | (apic_id as u64) << 12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2apic_logical_ids_name_cluster_and_member() {
        assert_eq!(x2apic_ldr(0), 0x0000_0001);
        assert_eq!(x2apic_ldr(0x1f), 0x0001_8000);
        assert_eq!(x2apic_ldr(0x123), 0x0012_0008);
    }

    #[test]
    fn eight_bit_destinations_end_before_broadcast() {
        assert_eq!(msi_address(3), Some(0xfee0_3000));
        assert_eq!(msi_address(254), Some(0xfeef_e000));
        assert_eq!(msi_address(255), None);
        assert_eq!(redirection(0x101, 0x30, false, false), None);
        assert_eq!(
            redirection(2, 0x31, true, true),
            Some(0x0200_0000_0000_a031)
        );
    }
}
