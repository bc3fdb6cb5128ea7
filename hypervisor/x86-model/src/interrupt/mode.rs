//! Which local APIC driver is used: one function over everything that has a say. See [`decide`].

use core::fmt;

use alloc::vec::Vec;

use super::driver::Driver;
use crate::regs::apic::XAPIC_BROADCAST;

/// x2APIC destination mode, as `x2apic-mode=` and the build's default name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum X2apicMode {
    /// One message per target for everything.
    Physical,
    /// One message per cluster for everything.
    Cluster,
    /// One message per cluster between CPUs, by APIC ID for device interrupts.
    Mixed,
}

impl X2apicMode {
    const fn driver(self) -> Driver {
        match self {
            Self::Physical => Driver::X2APIC_PHYSICAL,
            Self::Cluster => Driver::X2APIC_CLUSTER,
            Self::Mixed => Driver::X2APIC_MIXED,
        }
    }
}

/// What the IOMMU does to interrupt messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remapping {
    /// Nothing: a message carries 8 bits of destination.
    #[default]
    Off,
    /// It remaps, but its entries have 8 bits of destination as well (no EIM, no XTSup).
    Restricted,
    /// It remaps to 32-bit destinations.
    Full,
}

/// Everything that has a say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `x2apic=`, true where it is not given.
    pub x2apic: bool,
    /// `x2apic-mode=`.
    pub mode: Option<X2apicMode>,
    /// `x2apic_phys=`, the older spelling.
    pub phys: Option<bool>,
    /// What the build chooses.
    pub default: X2apicMode,
    /// CPUID has x2APIC.
    pub cpu_x2apic: bool,
    /// The firmware has already switched to x2APIC mode. That cannot be undone without a reset of the CPU.
    pub enabled_by_firmware: bool,
    /// The firmware asks to stay in xAPIC mode (VT-d: DMAR flags bit 1, with bit 0).
    pub opt_out: bool,
    /// FADT flags bit 19: physical destinations, please.
    pub fadt_physical: bool,
    /// FADT flags bit 18: the machine is too large for xAPIC's flat model.
    pub fadt_cluster: bool,
    /// Interrupt remapping.
    pub remapping: Remapping,
    /// The highest APIC ID of an enabled CPU.
    pub highest_id: u32,
    /// Number of enabled CPUs.
    pub cpus: u32,
}

/// Why the driver is what it is; shown in the boot line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// CPUID has no x2APIC.
    NoX2apic,
    /// `x2apic=0`.
    CommandLine,
    /// The firmware opted out.
    OptOut,
    /// `x2apic-mode=`.
    Mode,
    /// `x2apic_phys=`.
    Phys,
    /// The FADT's physical flag.
    Fadt,
    /// Nothing else; the build's default.
    Default,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoX2apic => "xAPIC: the CPU has no x2APIC",
            Self::CommandLine => "xAPIC: x2apic=0",
            Self::OptOut => "xAPIC: upon firmware request",
            Self::Mode => "x2apic-mode",
            Self::Phys => "x2apic_phys",
            Self::Fadt => "the ACPI FADT asks for physical mode",
            Self::Default => "default",
        })
    }
}

/// What the administrator should know about the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// `x2apic=0` against the firmware.
    CannotDisable,
    /// The firmware opted out of what it has switched on itself.
    CannotOptOut,
    /// `x2apic_phys` decided.
    PhysIsDeprecated,
    /// `x2apic_phys` lost against `x2apic-mode`.
    PhysIsIgnored,
    /// An x2APIC option without x2APIC.
    ModeHasNoEffect,
    /// Cluster mode needs full remapping: mixed instead.
    ClusterNeedsRemapping(Remapping),
    /// xAPIC cannot name the CPUs from this APIC ID on.
    OutOfReach,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotDisable => f.write_str(
                "x2APIC: already enabled by the firmware; x2apic=0 is ignored (disable x2APIC in the firmware's set-up)",
            ),
            Self::CannotOptOut => f.write_str(
                "x2APIC: the firmware's DMAR table asks not to use x2APIC, but the firmware has enabled it; it stays on",
            ),
            Self::PhysIsDeprecated => f.write_str(
                "x2apic_phys is deprecated: use x2apic-mode=physical or x2apic-mode=mixed",
            ),
            Self::PhysIsIgnored => {
                f.write_str("x2apic_phys is deprecated and ignored: x2apic-mode is given as well")
            }
            Self::ModeHasNoEffect => {
                f.write_str("x2apic-mode and x2apic_phys have no effect: x2APIC is not in use")
            }
            Self::ClusterNeedsRemapping(remapping) => write!(
                f,
                "x2APIC cluster mode needs full interrupt remapping, which is {}; using mixed mode",
                match remapping {
                    Remapping::Off => "off",
                    _ => "restricted to 8-bit destinations",
                }
            ),
            Self::OutOfReach => f.write_str(
                "CPUs with APIC IDs above 254 are left out: they need x2APIC and full interrupt remapping",
            ),
        }
    }
}

/// The choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The driver.
    pub driver: Driver,
    /// Why.
    pub reason: Reason,
    /// The firmware has already switched on what is used.
    pub by_firmware: bool,
    /// What to warn of, in this order.
    pub warnings: Vec<Warning>,
    /// CPUs with APIC IDs from here on cannot be used, since device interrupts or even messages cannot reach them.
    pub first_unreachable: u32,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.driver.name, self.reason)?;
        if self.by_firmware {
            f.write_str("; x2APIC enabled by the firmware")?;
        }
        f.write_str(")")
    }
}

/// The flat model has a bit for each of 8 CPUs.
pub const FLAT_CPUS: u32 = 8;
/// A logical x2APIC ID has 16 bits of cluster and a bit for each of 16 members, so it names IDs of 20 bits.
const FIRST_WITHOUT_LOGICAL_ID: u32 = 1 << 20;

/// Chooses the driver. The order of say: what the firmware switched on, `x2apic=`, the firmware's opt-out; then
/// `x2apic-mode`, `x2apic_phys`, the FADT, the build. Cluster mode without full remapping becomes mixed.
pub fn decide(facts: &Facts) -> Decision {
    let mut warnings = Vec::new();
    let xapic = if facts.enabled_by_firmware {
        if !facts.x2apic {
            warnings.push(Warning::CannotDisable);
        }
        if facts.opt_out {
            warnings.push(Warning::CannotOptOut);
        }
        None
    } else if !facts.cpu_x2apic {
        Some(Reason::NoX2apic)
    } else if !facts.x2apic {
        Some(Reason::CommandLine)
    } else if facts.opt_out {
        Some(Reason::OptOut)
    } else {
        None
    };
    let (driver, reason) = match xapic {
        Some(reason) => (xapic_driver(facts, &mut warnings), reason),
        None => x2apic_driver(facts, &mut warnings),
    };
    let first_unreachable = match (driver.x2apic(), facts.remapping) {
        (true, Remapping::Full) => FIRST_WITHOUT_LOGICAL_ID,
        _ => XAPIC_BROADCAST,
    };
    if facts.highest_id >= first_unreachable {
        warnings.push(Warning::OutOfReach);
    }
    Decision {
        driver,
        reason,
        by_firmware: facts.enabled_by_firmware,
        warnings,
        first_unreachable,
    }
}

fn xapic_driver(facts: &Facts, warnings: &mut Vec<Warning>) -> Driver {
    if facts.mode.is_some() || facts.phys.is_some() {
        warnings.push(Warning::ModeHasNoEffect);
    }
    if facts.cpus > FLAT_CPUS || facts.fadt_physical || facts.fadt_cluster {
        Driver::XAPIC_PHYSICAL
    } else {
        Driver::XAPIC_FLAT
    }
}

fn x2apic_driver(facts: &Facts, warnings: &mut Vec<Warning>) -> (Driver, Reason) {
    let (mode, reason) = match (facts.mode, facts.phys) {
        (Some(mode), phys) => {
            if phys.is_some() {
                warnings.push(Warning::PhysIsIgnored);
            }
            (mode, Reason::Mode)
        }
        (None, Some(phys)) => {
            warnings.push(Warning::PhysIsDeprecated);
            let mode = if phys {
                X2apicMode::Physical
            } else {
                X2apicMode::Mixed
            };
            (mode, Reason::Phys)
        }
        (None, None) if facts.fadt_physical => (X2apicMode::Physical, Reason::Fadt),
        (None, None) => (facts.default, Reason::Default),
    };
    if mode == X2apicMode::Cluster && facts.remapping != Remapping::Full {
        warnings.push(Warning::ClusterNeedsRemapping(facts.remapping));
        return (Driver::X2APIC_MIXED, reason);
    }
    (mode.driver(), reason)
}

#[cfg(test)]
mod tests;
