//! What a CPU's VMX can do, from its capability MSRs (SDM vol. 3, appendix A), and the control words that guests run with.

use super::control::{Allowed, Conflict, entry, exit, pin, primary, secondary};
use super::ept::EptCapabilities;

/// Revision, region size, memory type.
pub const MSR_BASIC: u32 = 0x480;
/// CR0 bits that must be 1; the next MSR has those that may be 1.
pub const MSR_CR0_FIXED0: u32 = 0x486;
/// CR4 bits that must be 1; the next MSR has those that may be 1.
pub const MSR_CR4_FIXED0: u32 = 0x488;
const MSR_PIN: u32 = 0x481;
const MSR_PRIMARY: u32 = 0x482;
const MSR_EXIT: u32 = 0x483;
const MSR_ENTRY: u32 = 0x484;
const MSR_SECONDARY: u32 = 0x48b;
const MSR_EPT_VPID: u32 = 0x48c;
/// The "true" MSRs of the four words lie this much higher.
const TRUE: u32 = 0x48d - MSR_PIN;

/// BASIC: physical addresses of VMX structures have only 32 bits.
const BASIC_32_BIT: u64 = 1 << 48;
/// BASIC: the "true" MSRs exist.
const BASIC_TRUE: u64 = 1 << 55;
const WRITE_BACK: u64 = 6;

/// The first word of the control structure's page and of the VMXON region's.
pub const fn revision(basic: u64) -> u32 {
    basic as u32 & 0x7fff_ffff
}

/// What guests run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls {
    /// Revision of control structures.
    pub revision: u32,
    /// Pin-based.
    pub pin: u32,
    /// Primary.
    pub primary: u32,
    /// Secondary.
    pub secondary: u32,
    /// Exits.
    pub exit: u32,
    /// Entries; [`entry::LONG_MODE`] comes and goes with the guest.
    pub entry: u32,
    /// Second-stage translation.
    pub ept: EptCapabilities,
    /// The preemption timer exists.
    pub preemption_timer: bool,
    /// APIC features that could be turned on for a vCPU.
    pub apic: ApicFeatures,
}

/// What the CPU could do for the virtual APIC, beyond the task priority in CR8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApicFeatures {
    /// Accesses to the APIC page are recognised as such.
    pub accesses: bool,
    /// x2APIC MSRs reach the virtual APIC.
    pub x2apic: bool,
    /// Reads of most registers do not exit.
    pub registers: bool,
    /// Virtual interrupts are evaluated and delivered by the CPU.
    pub delivery: bool,
    /// Posted interrupts.
    pub posted: bool,
}

impl ApicFeatures {
    /// What both have.
    pub const fn and(self, other: Self) -> Self {
        ApicFeatures {
            accesses: self.accesses && other.accesses,
            x2apic: self.x2apic && other.x2apic,
            registers: self.registers && other.registers,
            delivery: self.delivery && other.delivery,
            posted: self.posted && other.posted,
        }
    }
}

const PIN: u32 = pin::EXTERNAL_INTERRUPT | pin::NMI | pin::VIRTUAL_NMIS;
const PRIMARY: u32 = primary::TSC_OFFSET
    | primary::HLT
    | primary::MWAIT
    | primary::RDPMC
    | primary::TPR_SHADOW
    | primary::IO_BITMAPS
    | primary::MSR_BITMAPS
    | primary::MONITOR
    | primary::SECONDARY;
const PRIMARY_AT_TIMES: u32 = primary::INTERRUPT_WINDOW | primary::NMI_WINDOW;
const SECONDARY: u32 = secondary::EPT | secondary::UNRESTRICTED;
const SECONDARY_WANTED: u32 =
    secondary::VPID | secondary::RDTSCP | secondary::INVPCID | secondary::WBINVD;
const EXIT: u32 = exit::HOST_64
    | exit::SAVE_DEBUG
    | exit::SAVE_PAT
    | exit::LOAD_PAT
    | exit::SAVE_EFER
    | exit::LOAD_EFER;
const ENTRY: u32 = entry::LOAD_DEBUG | entry::LOAD_PAT | entry::LOAD_EFER;

/// What to tell about a bit that is missing, by word.
const REASONS: [&[(u32, &str)]; 5] = [
    &[(pin::VIRTUAL_NMIS, "the CPU has VT-x without virtual NMIs")],
    &[
        (
            primary::SECONDARY,
            "the CPU has VT-x without second-stage translation (EPT)",
        ),
        (
            primary::TPR_SHADOW,
            "the CPU has VT-x without a virtual task priority (TPR shadow)",
        ),
        (primary::MSR_BITMAPS, "the CPU has VT-x without MSR bitmaps"),
    ],
    &[
        (
            secondary::EPT,
            "the CPU has VT-x without second-stage translation (EPT)",
        ),
        (
            secondary::UNRESTRICTED,
            "the CPU has VT-x that cannot run a guest without paging (no unrestricted guest mode)",
        ),
    ],
    &[(
        exit::SAVE_PAT | exit::LOAD_PAT,
        "the CPU has VT-x that does not switch the PAT",
    )],
    &[(
        entry::LOAD_PAT,
        "the CPU has VT-x that does not switch the PAT",
    )],
];
const OTHER: &str = "the CPU has VT-x without a basic control";
const FORCED: &str = "the CPU has VT-x with exits that cannot be turned off";

fn settled(word: usize, result: Result<u32, Conflict>) -> Result<u32, &'static str> {
    result.map_err(|conflict| match conflict {
        Conflict::Missing(bits) => {
            let reason = REASONS[word].iter().find(|(bit, _)| bits & bit != 0);
            reason.map_or(OTHER, |(_, text)| text)
        }
        Conflict::Forced(_) => FORCED,
    })
}

impl Controls {
    /// The control words for guests on a CPU with these MSRs; a sentence for the administrator if it cannot run them.
    /// `rdmsr` is asked for an MSR only when the CPU has it.
    pub fn choose(rdmsr: impl Fn(u32) -> u64) -> Result<Self, &'static str> {
        let basic = rdmsr(MSR_BASIC);
        if basic & BASIC_32_BIT != 0 || basic >> 50 & 15 != WRITE_BACK {
            return Err("the CPU has VT-x that cannot use ordinary memory for its structures");
        }
        let base = if basic & BASIC_TRUE != 0 { TRUE } else { 0 };
        let allowed = |msr: u32| Allowed::new(rdmsr(msr + base));
        let pin_msr = allowed(MSR_PIN);
        let primary_msr = allowed(MSR_PRIMARY);
        let primary = settled(
            1,
            primary_msr.settle(PRIMARY, 0, PRIMARY_AT_TIMES, primary::RESERVED_ONES),
        )?;
        let secondary_msr = Allowed::new(rdmsr(MSR_SECONDARY));
        let mut secondary = settled(2, secondary_msr.settle(SECONDARY, SECONDARY_WANTED, 0, 0))?;
        let ept = EptCapabilities::new(rdmsr(MSR_EPT_VPID));
        ept.usable()?;
        if !ept.flushes_vpids() {
            secondary &= !secondary::VPID;
        }
        let exit = settled(3, allowed(MSR_EXIT).settle(EXIT, 0, 0, exit::RESERVED_ONES))?;
        let has = |bit: u32| secondary_msr.settable & bit != 0;
        let delivery = has(secondary::INTERRUPT_DELIVERY);
        let acknowledge = allowed(MSR_EXIT).settable & exit::ACKNOWLEDGE != 0;
        Ok(Controls {
            revision: revision(basic),
            pin: settled(0, pin_msr.settle(PIN, 0, 0, pin::RESERVED_ONES))?,
            primary,
            secondary,
            exit,
            entry: settled(
                4,
                allowed(MSR_ENTRY).settle(ENTRY, 0, entry::LONG_MODE, entry::RESERVED_ONES),
            )?,
            ept,
            preemption_timer: pin_msr.settable & pin::PREEMPTION_TIMER != 0,
            apic: ApicFeatures {
                accesses: has(secondary::APIC_ACCESSES),
                x2apic: has(secondary::X2APIC),
                registers: has(secondary::APIC_REGISTERS),
                delivery,
                // Needs the two others (SDM vol. 3, 28.2.1.1).
                posted: delivery && acknowledge && pin_msr.settable & pin::POSTED_INTERRUPTS != 0,
            },
        })
    }

    /// Whether translations are tagged.
    pub const fn tagged(&self) -> bool {
        self.secondary & secondary::VPID != 0
    }
}

/// A control register's value with the bits that VMX operation fixes.
pub const fn fix(value: u64, fixed0: u64, fixed1: u64) -> u64 {
    (value | fixed0) & fixed1
}

#[cfg(test)]
mod tests {
    use super::super::dumps::{Dump, MACHINES};
    use super::*;

    fn choose(dump: &Dump) -> Result<Controls, &'static str> {
        Controls::choose(|index| dump.read(index))
    }

    #[test]
    fn every_known_cpu() {
        for (name, dump, expected) in MACHINES {
            match (choose(dump), expected) {
                (Ok(c), Ok(e)) => {
                    assert_eq!((c.pin, c.primary), (0x3f, 0xb620_6dfa), "{name}");
                    assert_eq!((c.exit, c.entry), (0x003f_6fff, 0xd1ff), "{name}");
                    assert_eq!(c.secondary, e.secondary, "{name}");
                    assert_eq!(c.apic, e.apic, "{name}");
                    assert_eq!(c.ept.largest_order(), e.largest_order, "{name}");
                    assert!(c.tagged() && c.preemption_timer, "{name}");
                }
                (Err(text), Err(part)) => assert!(text.contains(part), "{name}: {text}"),
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }

    #[test]
    fn each_missing_or_forced_bit_is_noticed() {
        let (_, good, _) = MACHINES[0];
        assert!(choose(good).is_ok());
        // Taking any needed bit away must be refused, in every word; the wanted ones may go.
        let words: [(u32, u32); 5] = [
            (MSR_PIN + TRUE, PIN),
            (MSR_PRIMARY + TRUE, PRIMARY | PRIMARY_AT_TIMES),
            (MSR_SECONDARY, SECONDARY),
            (MSR_EXIT + TRUE, EXIT),
            (MSR_ENTRY + TRUE, ENTRY | entry::LONG_MODE),
        ];
        for (msr, needed) in words {
            for bit in (0..32).filter(|b| needed >> b & 1 != 0) {
                let without = |index: u32| {
                    let value = good.read(index);
                    if index == msr {
                        value & !(1 << (32 + bit))
                    } else {
                        value
                    }
                };
                assert!(Controls::choose(without).is_err(), "{msr:#x} bit {bit}");
            }
        }
        let forced = |index: u32| {
            let bit = u64::from(index == MSR_PRIMARY + TRUE) * u64::from(primary::CR3_LOAD);
            good.read(index) | bit
        };
        assert_eq!(Controls::choose(forced), Err(FORCED));
        let plain = |index: u32| match index {
            MSR_BASIC => good.read(index) & !BASIC_TRUE,
            i if i > MSR_EPT_VPID => panic!("asked for MSR {i:#x}, which such a CPU lacks"),
            _ => good.read(index),
        };
        // Without the "true" MSRs the CR3 exits cannot be turned off.
        assert_eq!(Controls::choose(plain), Err(FORCED));
        let untagged = |index: u32| {
            let value = good.read(index);
            if index == MSR_EPT_VPID {
                value & 0xffff_ffff
            } else {
                value
            }
        };
        assert!(!Controls::choose(untagged).unwrap().tagged());
    }

    #[test]
    fn fixed_bits() {
        assert_eq!(fix(0x11, 0x8000_0021, 0xffff_ffff), 0x8000_0031);
        assert_eq!(fix(0x40_0000, 0x2000, 0x2027ff), 0x2000);
    }
}
