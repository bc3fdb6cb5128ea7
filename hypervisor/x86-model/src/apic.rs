//! Local APIC and IO-APIC registers as data: offsets, and the fields of ICR, LVT entries, redirection entries and the
//! APIC base MSR. Reserved bits are kept out of the typed values; what to do about them is the device model's business.

/// IA32_APIC_BASE.
pub const MSR_APIC_BASE: u32 = 0x1b;
/// IA32_TSC_DEADLINE.
pub const MSR_TSC_DEADLINE: u32 = 0x6e0;
/// First x2APIC MSR; the register at MMIO offset `o` is MSR `0x800 + o / 16`.
pub const MSR_X2APIC_FIRST: u32 = 0x800;
/// Last MSR of the x2APIC range.
pub const MSR_X2APIC_LAST: u32 = 0x8ff;
/// Default address of the register page.
pub const DEFAULT_BASE: u64 = 0xfee0_0000;

pub use crate::regs::apic::{SVR_ENABLE, reg, x2apic_ldr};

/// ESR: an IPI with a vector below 16 was to be sent.
pub const ESR_SEND_ILLEGAL: u32 = 1 << 5;
/// ESR: an interrupt with a vector below 16 arrived.
pub const ESR_RECEIVE_ILLEGAL: u32 = 1 << 6;
/// ESR: a reserved register was accessed (xAPIC).
pub const ESR_ILLEGAL_REGISTER: u32 = 1 << 7;

/// Delivery mode of ICR, LVT, redirection entries and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeliveryMode {
    /// To every addressed APIC, with the vector.
    Fixed = 0,
    /// To the addressed APIC of lowest priority.
    LowestPriority = 1,
    /// System management interrupt.
    Smi = 2,
    /// Reserved (remote read on old APICs).
    Reserved = 3,
    /// Non-maskable interrupt.
    Nmi = 4,
    /// INIT.
    Init = 5,
    /// Start-up IPI; reserved in LVT and redirection entries.
    Startup = 6,
    /// 8259-compatible.
    ExtInt = 7,
}

impl DeliveryMode {
    /// From the low three bits.
    pub const fn from_bits(v: u32) -> Self {
        match v & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::Smi,
            3 => Self::Reserved,
            4 => Self::Nmi,
            5 => Self::Init,
            6 => Self::Startup,
            _ => Self::ExtInt,
        }
    }
    /// Uses the vector, and the vector must be 16 or more.
    pub const fn has_vector(self) -> bool {
        matches!(self, Self::Fixed | Self::LowestPriority)
    }
}

/// Destination shorthand of the ICR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shorthand {
    /// The destination field counts.
    None,
    /// The sender.
    SelfOnly,
    /// Everyone.
    All,
    /// Everyone but the sender.
    AllButSelf,
}

/// Interrupt command register (64 bits; the destination is in the high half, in x2APIC or xAPIC form).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Icr(pub u64);

impl Icr {
    /// Bits of the low half that have a meaning to software; delivery status (bit 12) reads as zero.
    pub const LOW_MASK: u32 = 0x000c_cfff;

    /// Vector.
    pub const fn vector(self) -> u8 {
        self.0 as u8
    }
    /// Delivery mode.
    pub const fn mode(self) -> DeliveryMode {
        DeliveryMode::from_bits((self.0 >> 8) as u32)
    }
    /// Logical destination mode.
    pub const fn logical(self) -> bool {
        self.0 & 1 << 11 != 0
    }
    /// Level is assert.
    pub const fn assert(self) -> bool {
        self.0 & 1 << 14 != 0
    }
    /// Trigger mode is level.
    pub const fn level(self) -> bool {
        self.0 & 1 << 15 != 0
    }
    /// Shorthand.
    pub const fn shorthand(self) -> Shorthand {
        match (self.0 >> 18) & 3 {
            0 => Shorthand::None,
            1 => Shorthand::SelfOnly,
            2 => Shorthand::All,
            _ => Shorthand::AllButSelf,
        }
    }
    /// Destination in x2APIC form.
    pub const fn dest32(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// Destination in xAPIC form.
    pub const fn dest8(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

/// Local vector table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lvt(pub u32);

impl Lvt {
    /// The mask bit.
    pub const MASKED: u32 = 1 << 16;
    /// Vector.
    pub const fn vector(self) -> u8 {
        self.0 as u8
    }
    /// Delivery mode.
    pub const fn mode(self) -> DeliveryMode {
        DeliveryMode::from_bits(self.0 >> 8)
    }
    /// Masked.
    pub const fn masked(self) -> bool {
        self.0 & Self::MASKED != 0
    }
    /// Timer mode (timer entry only).
    pub const fn timer_mode(self) -> TimerMode {
        match (self.0 >> 17) & 3 {
            0 => TimerMode::OneShot,
            1 => TimerMode::Periodic,
            2 => TimerMode::TscDeadline,
            _ => TimerMode::Reserved,
        }
    }
}

/// Mode of the local APIC timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the manual's")]
pub enum TimerMode {
    OneShot,
    Periodic,
    TscDeadline,
    Reserved,
}

/// Divisor that the divide-configuration register selects (1 to 128).
pub const fn timer_divisor(divide: u32) -> u32 {
    let code = (divide & 3) | (divide >> 1 & 4);
    if code == 7 { 1 } else { 2 << code }
}

/// IA32_APIC_BASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApicBase(pub u64);

impl ApicBase {
    /// Boot processor.
    pub const BSP: u64 = 1 << 8;
    /// x2APIC mode.
    pub const EXTD: u64 = 1 << 10;
    /// Enabled.
    pub const EN: u64 = 1 << 11;

    /// The mode; `None` for EXTD without EN.
    pub const fn mode(self) -> Option<ApicMode> {
        match (self.0 & Self::EN != 0, self.0 & Self::EXTD != 0) {
            (false, false) => Some(ApicMode::Disabled),
            (true, false) => Some(ApicMode::XApic),
            (true, true) => Some(ApicMode::X2Apic),
            (false, true) => None,
        }
    }
    /// Address of the register page; bits 11:0 clear.
    pub const fn address(self) -> u64 {
        self.0 & !0xfff
    }
}

/// Mode of a local APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ApicMode {
    /// Off by the MSR.
    Disabled = 0,
    /// Register page.
    XApic = 1,
    /// MSRs.
    X2Apic = 2,
}

/// IO-APIC: offset of the index register.
pub const IOAPIC_INDEX: u64 = 0x00;
/// IO-APIC: offset of the window.
pub const IOAPIC_WINDOW: u64 = 0x10;
/// IO-APIC: offset of the EOI register (version 0x20 and up).
pub const IOAPIC_EOI: u64 = 0x40;
/// IO-APIC register: id.
pub const IOAPIC_REG_ID: u8 = 0;
/// IO-APIC register: version and highest pin.
pub const IOAPIC_REG_VERSION: u8 = 1;
/// IO-APIC register: arbitration id.
pub const IOAPIC_REG_ARB: u8 = 2;
/// IO-APIC register: low half of the first redirection entry; entry `n` is at `0x10 + 2n`.
pub const IOAPIC_REG_RTE: u8 = 0x10;

/// IO-APIC redirection entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rte(pub u64);

impl Rte {
    /// Delivery status (read-only).
    pub const STATUS: u64 = 1 << 12;
    /// Remote IRR (read-only).
    pub const REMOTE_IRR: u64 = 1 << 14;
    /// Mask.
    pub const MASKED: u64 = 1 << 16;
    /// Bits that software may write.
    pub const WRITABLE: u64 = 0xff00_0000_0001_afff;

    /// Vector.
    pub const fn vector(self) -> u8 {
        self.0 as u8
    }
    /// Delivery mode.
    pub const fn mode(self) -> DeliveryMode {
        DeliveryMode::from_bits((self.0 >> 8) as u32)
    }
    /// Logical destination.
    pub const fn logical(self) -> bool {
        self.0 & 1 << 11 != 0
    }
    /// Active low.
    pub const fn low(self) -> bool {
        self.0 & 1 << 13 != 0
    }
    /// Waiting for the EOI of a level interrupt.
    pub const fn remote_irr(self) -> bool {
        self.0 & Self::REMOTE_IRR != 0
    }
    /// Level-triggered.
    pub const fn level(self) -> bool {
        self.0 & 1 << 15 != 0
    }
    /// Masked.
    pub const fn masked(self) -> bool {
        self.0 & Self::MASKED != 0
    }
    /// Destination.
    pub const fn dest(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors() {
        let all: [u32; 8] = [0, 1, 2, 3, 8, 9, 10, 11].map(timer_divisor);
        assert_eq!(all, [2, 4, 8, 16, 32, 64, 128, 1]);
    }

    #[test]
    fn logical_ids() {
        assert_eq!(x2apic_ldr(0), 1);
        assert_eq!(x2apic_ldr(0x12), 0x1_0004);
        assert_eq!(x2apic_ldr(0x1ff), 0x1f_8000);
    }

    #[test]
    fn icr_fields() {
        let icr = Icr(0x0500_0000_000c_4620);
        assert_eq!(
            (icr.vector(), icr.mode(), icr.shorthand()),
            (0x20, DeliveryMode::Startup, Shorthand::AllButSelf)
        );
        assert!(icr.assert() && !icr.level() && !icr.logical());
        assert_eq!((icr.dest8(), icr.dest32()), (5, 0x0500_0000));
    }

    #[test]
    fn base_modes() {
        assert_eq!(ApicBase(0xfee0_0900).mode(), Some(ApicMode::XApic));
        assert_eq!(ApicBase(0xfee0_0c00).mode(), Some(ApicMode::X2Apic));
        assert_eq!(ApicBase(0xfee0_0400).mode(), None);
    }
}
