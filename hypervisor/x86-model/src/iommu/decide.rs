//! Whether interrupts are remapped, and how: from the command line, the tables and what the units can do.
//!
//! It is all units or none: an IO-APIC or device behind a unit that does not remap would be lost or could send anything.

use core::fmt;

use super::amd::{self, Format};
use super::vtd::ExtCap;
use crate::interrupt::mode::Remapping;

/// What does not depend on the kind of unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `iommu=`: units are used.
    pub units: bool,
    /// The build has the driver for this kind of unit.
    pub built: bool,
    /// `iommu=intremap`.
    pub intremap: bool,
    /// `iommu=qinval` (Intel).
    pub qinval: bool,
    /// The CPU can exchange 128 bits at a time, as changing an entry in use needs.
    pub wide_exchange: bool,
    /// Local APICs will be in x2APIC mode.
    pub x2apic: bool,
    /// ACPI id of an IO-APIC that no unit's scope names, or that shares its id with another.
    pub stray_ioapic: Option<u8>,
}

/// Why interrupts are not remapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUsed {
    /// `iommu=off`.
    Disabled,
    /// The build's configuration.
    NotBuilt,
    /// `iommu=no-intremap`.
    NoIntremap,
    /// `iommu=no-qinval`; remapping needs the queue.
    NoQinval,
    /// The table has no usable unit.
    NoUnits,
    /// The table's flag says that the platform does not support it.
    Platform,
    /// No CMPXCHG16B.
    NoWideExchange,
    /// The IO-APIC of this id has no scope of its own.
    StrayIoApic(u8),
    /// The unit of this number lacks queued invalidation.
    UnitQueue(usize),
    /// The unit of this number lacks interrupt remapping.
    UnitRemapping(usize),
    /// The unit of this number has no 32-bit destinations, which x2APIC mode needs on Intel's units.
    UnitExtended(usize),
}

impl fmt::Display for NotUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("iommu=off"),
            Self::NotBuilt => f.write_str(
                "the build has no driver for these units (CONFIG_INTEL_IOMMU, CONFIG_AMD_IOMMU)",
            ),
            Self::NoIntremap => f.write_str("iommu=no-intremap"),
            Self::NoQinval => f.write_str("iommu=no-qinval, and it needs queued invalidation"),
            Self::NoUnits => f.write_str("the firmware's table has no usable unit"),
            Self::Platform => f.write_str("the firmware's table says that the platform lacks it"),
            Self::NoWideExchange => f.write_str("the CPU lacks CMPXCHG16B"),
            Self::StrayIoApic(id) => write!(
                f,
                "the firmware's tables name no source of its own for IO-APIC {id}, whose interrupts would be lost"
            ),
            Self::UnitQueue(n) => write!(f, "unit {n} lacks queued invalidation"),
            Self::UnitRemapping(n) => write!(f, "unit {n} lacks it"),
            Self::UnitExtended(n) => write!(
                f,
                "unit {n} lacks the extended mode that x2APIC needs (x2apic=0 lets it be used)"
            ),
        }
    }
}

impl Facts {
    /// Whether the units may be looked at, at all.
    pub fn look(&self) -> Result<(), NotUsed> {
        match self {
            Self { units: false, .. } => Err(NotUsed::Disabled),
            Self { built: false, .. } => Err(NotUsed::NotBuilt),
            _ => Ok(()),
        }
    }

    fn common(&self) -> Result<(), NotUsed> {
        self.look()?;
        match self {
            Self {
                intremap: false, ..
            } => Err(NotUsed::NoIntremap),
            Self {
                wide_exchange: false,
                ..
            } => Err(NotUsed::NoWideExchange),
            _ => Ok(()),
        }
    }

    fn scopes(&self) -> Result<(), NotUsed> {
        self.stray_ioapic
            .map_or(Ok(()), |id| Err(NotUsed::StrayIoApic(id)))
    }
}

/// For VT-d: whether entries have 32-bit destinations. `platform` is the table's flag.
pub fn vtd(facts: &Facts, platform: bool, units: &[ExtCap]) -> Result<bool, NotUsed> {
    facts.common()?;
    if !facts.qinval {
        return Err(NotUsed::NoQinval);
    }
    if units.is_empty() {
        return Err(NotUsed::NoUnits);
    }
    if !platform {
        return Err(NotUsed::Platform);
    }
    facts.scopes()?;
    for (n, unit) in units.iter().enumerate() {
        if !unit.remapping() {
            return Err(NotUsed::UnitRemapping(n));
        }
        if !unit.queue() {
            return Err(NotUsed::UnitQueue(n));
        }
        if facts.x2apic && !unit.extended_ids() {
            return Err(NotUsed::UnitExtended(n));
        }
    }
    // In xAPIC mode the unit must be told so: it would take the wrong eight bits otherwise.
    Ok(facts.x2apic)
}

/// For AMD-Vi: the format of the entries, one for all units, since a device's table serves each of them.
pub fn amd(facts: &Facts, units: &[amd::Features]) -> Result<Format, NotUsed> {
    facts.common()?;
    if units.is_empty() {
        return Err(NotUsed::NoUnits);
    }
    facts.scopes()?;
    let wide = units.iter().all(|u| u.format() == Format::Wide);
    Ok(if wide { Format::Wide } else { Format::Narrow })
}

/// What a decision for VT-d means for the choice of the APIC mode.
pub const fn vtd_reach(extended: bool) -> Remapping {
    if extended {
        Remapping::Full
    } else {
        Remapping::Restricted
    }
}

/// What a decision for AMD-Vi means for the choice of the APIC mode.
pub const fn amd_reach(format: Format) -> Remapping {
    match format {
        Format::Wide => Remapping::Full,
        Format::Narrow => Remapping::Restricted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    const ALL: Facts = Facts {
        units: true,
        built: true,
        intremap: true,
        qinval: true,
        wide_exchange: true,
        x2apic: true,
        stray_ioapic: None,
    };
    const GOOD: ExtCap = ExtCap(0b11010);
    const XT: amd::Features = amd::Features(0x84);

    /// All combinations of the yes-or-no facts, each with one and with two units of every ability.
    #[test]
    fn every_combination_for_vtd() {
        let mut remapped = 0;
        for bits in 0..1u32 << 8 {
            let bit = |n: u32| bits >> n & 1 != 0;
            let facts = Facts {
                units: bit(0),
                intremap: bit(1),
                qinval: bit(2),
                wide_exchange: bit(3),
                x2apic: bit(4),
                stray_ioapic: bit(5).then_some(9),
                built: bit(7),
            };
            for ability in 0..8u64 {
                // Queue, remapping, extended.
                let unit = ExtCap((ability & 1) << 1 | (ability & 6) << 2);
                for list in [&[unit][..], &[GOOD, unit], &[]] {
                    let able = ability & 3 == 3 && (ability == 7 || !facts.x2apic);
                    let rest = bit(0) && bit(1) && bit(2) && bit(3) && !bit(5) && bit(6) && bit(7);
                    let wanted = rest && able && !list.is_empty();
                    let got = vtd(&facts, bit(6), list);
                    assert_eq!(
                        got.ok(),
                        wanted.then_some(facts.x2apic),
                        "{facts:?} {list:?}"
                    );
                    remapped += u32::from(wanted);
                    if let Err(why) = got {
                        assert!(!why.to_string().is_empty());
                    }
                }
            }
        }
        // One set of the other facts: with x2APIC one ability will do, without it two; one or two units.
        assert_eq!(remapped, 2 + 4);
    }

    #[test]
    fn the_unit_that_is_the_reason_is_named() {
        let no_eim = ExtCap(0b01010);
        assert_eq!(
            vtd(&ALL, true, &[GOOD, no_eim]),
            Err(NotUsed::UnitExtended(1))
        );
        let xapic = Facts {
            x2apic: false,
            ..ALL
        };
        assert_eq!(vtd(&xapic, true, &[GOOD, no_eim]), Ok(false));
        assert_eq!(
            vtd(&ALL, true, &[ExtCap(0b00010), GOOD]),
            Err(NotUsed::UnitRemapping(0))
        );
        let stray = Facts {
            stray_ioapic: Some(0x82),
            ..ALL
        };
        assert_eq!(
            vtd(&stray, true, &[GOOD]).map_err(|e| e.to_string()),
            Err("the firmware's tables name no source of its own for IO-APIC 130, whose interrupts would be lost".into())
        );
    }

    #[test]
    fn amd_units_share_the_poorest_format() {
        let plain = amd::Features(0);
        assert_eq!(amd(&ALL, &[XT, XT]), Ok(Format::Wide));
        assert_eq!(amd(&ALL, &[XT, plain]), Ok(Format::Narrow));
        assert_eq!(amd(&ALL, &[]), Err(NotUsed::NoUnits));
        // Intel's option does not matter.
        assert_eq!(
            amd(
                &Facts {
                    qinval: false,
                    x2apic: false,
                    ..ALL
                },
                &[XT]
            ),
            Ok(Format::Wide)
        );
        let refused: Vec<_> = [
            Facts {
                units: false,
                ..ALL
            },
            Facts {
                built: false,
                ..ALL
            },
            Facts {
                intremap: false,
                ..ALL
            },
            Facts {
                wide_exchange: false,
                ..ALL
            },
            Facts {
                stray_ioapic: Some(1),
                ..ALL
            },
        ]
        .map(|f| amd(&f, &[XT]).unwrap_err())
        .into();
        assert_eq!(
            refused,
            [
                NotUsed::Disabled,
                NotUsed::NotBuilt,
                NotUsed::NoIntremap,
                NotUsed::NoWideExchange,
                NotUsed::StrayIoApic(1)
            ]
        );
    }

    #[test]
    fn reach() {
        assert_eq!(
            [vtd_reach(true), vtd_reach(false)],
            [Remapping::Full, Remapping::Restricted]
        );
        assert_eq!(
            [amd_reach(Format::Wide), amd_reach(Format::Narrow)],
            [Remapping::Full, Remapping::Restricted]
        );
    }
}
