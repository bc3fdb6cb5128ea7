//! Who an interrupt is for: destination matching over all local APICs of a domain. Pure functions over
//! [`ApicFacts`]; used for IPIs, IO-APIC entries and MSIs alike.

use x86_model::apic::{ApicMode, DeliveryMode, Icr, Shorthand};
use x86_model::msi::Message;

use super::post::ApicFacts;

/// A destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestSpec {
    /// The sender.
    SelfOnly,
    /// Everyone.
    All,
    /// Everyone but the sender.
    AllButSelf,
    /// The APIC with this id.
    Physical(u32),
    /// APICs by logical id: eight bits against xAPIC logical ids.
    Logical(u32),
}

/// An interrupt on its way: from the ICR, an IO-APIC pin or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipi {
    /// For whom.
    pub dest: DestSpec,
    /// How.
    pub mode: DeliveryMode,
    /// Vector.
    pub vector: u8,
    /// Level-triggered (its EOI matters).
    pub level: bool,
}

impl DestSpec {
    /// The destination of an 8-bit field (xAPIC ICR, IO-APIC entry). All ones address everyone, in either mode.
    pub fn of8(dest: u8, logical: bool) -> Self {
        match (dest, logical) {
            (0xff, _) => Self::All,
            (d, true) => Self::Logical(u32::from(d)),
            (d, false) => Self::Physical(u32::from(d)),
        }
    }

    /// The destination of an x2APIC ICR.
    pub fn of32(dest: u32, logical: bool) -> Self {
        match (dest, logical) {
            (u32::MAX, _) => Self::All,
            (d, true) => Self::Logical(d),
            (d, false) => Self::Physical(d),
        }
    }

    /// Whether an APIC with these facts is addressed; `is_sender` says whether it is the sender itself.
    pub fn matches(self, apic: &ApicFacts, is_sender: bool) -> bool {
        if apic.mode == ApicMode::Disabled {
            return false;
        }
        match self {
            Self::SelfOnly => is_sender,
            Self::All => true,
            Self::AllButSelf => !is_sender,
            Self::Physical(id) => id == apic.id,
            Self::Logical(d) => match apic.mode {
                ApicMode::X2Apic => d >> 16 == apic.ldr >> 16 && d & apic.ldr & 0xffff != 0,
                _ if d > 0xff => false,
                _ if apic.cluster => d >> 4 == apic.ldr >> 4 && d & apic.ldr & 0xf != 0,
                _ => d & apic.ldr != 0,
            },
        }
    }
}

impl Ipi {
    /// What an ICR write asks for. `None` for INIT level de-assert, which virtual APICs ignore.
    pub fn from_icr(icr: Icr, x2apic: bool) -> Option<Self> {
        if icr.mode() == DeliveryMode::Init && icr.level() && !icr.assert() {
            return None;
        }
        let dest = match icr.shorthand() {
            Shorthand::SelfOnly => DestSpec::SelfOnly,
            Shorthand::All => DestSpec::All,
            Shorthand::AllButSelf => DestSpec::AllButSelf,
            Shorthand::None if x2apic => DestSpec::of32(icr.dest32(), icr.logical()),
            Shorthand::None => DestSpec::of8(icr.dest8(), icr.logical()),
        };
        // The trigger mode of an IPI has no meaning but for INIT: IPIs are edge.
        Some(Self {
            dest,
            mode: icr.mode(),
            vector: icr.vector(),
            level: false,
        })
    }

    /// A message that names a pirq; without pirqs it does nothing.
    pub fn of_pirq(pirq: u32) -> Self {
        Self {
            dest: DestSpec::Physical(pirq),
            mode: DeliveryMode::ExtInt,
            vector: 0,
            level: false,
        }
    }

    /// The pirq of such a message.
    pub fn pirq(&self) -> Option<u32> {
        match (self.mode, self.vector, self.dest) {
            (DeliveryMode::ExtInt, 0, DestSpec::Physical(pirq)) => Some(pirq),
            _ => None,
        }
    }

    /// What a message of a device asks for.
    pub fn from_message(m: &Message) -> Self {
        let dest = match u8::try_from(m.dest) {
            Ok(d) => DestSpec::of8(d, m.logical),
            Err(_) => DestSpec::of32(m.dest, m.logical),
        };
        // The hint asks for one of the addressed CPUs.
        let mode = if m.hint && m.logical && m.mode == DeliveryMode::Fixed {
            DeliveryMode::LowestPriority
        } else {
            m.mode
        };
        Self {
            dest,
            mode,
            vector: m.vector,
            level: m.level,
        }
    }

    /// Calls `deliver` for each addressed APIC: vCPU numbers 0 to `count - 1`, whose APIC ids are twice the number.
    /// `sender` is the sending vCPU, if one is. Returns the number delivered to. Lowest priority picks the first
    /// addressed APIC that is software-enabled.
    pub fn resolve(
        &self,
        sender: Option<u32>,
        count: u32,
        facts: impl Fn(u32) -> ApicFacts,
        mut deliver: impl FnMut(u32),
    ) -> u32 {
        if let DestSpec::Physical(id) = self.dest {
            let vcpu = id / 2;
            if id % 2 == 0 && vcpu < count && self.dest.matches(&facts(vcpu), false) {
                deliver(vcpu);
                return 1;
            }
            return 0;
        }
        let mut n = 0;
        for vcpu in 0..count {
            let f = facts(vcpu);
            if !self.dest.matches(&f, sender == Some(vcpu)) {
                continue;
            }
            if self.mode == DeliveryMode::LowestPriority {
                if f.software_enabled {
                    deliver(vcpu);
                    return 1;
                }
                continue;
            }
            deliver(vcpu);
            n += 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86_model::apic::x2apic_ldr;
    use x86_model::policy::topology::apic_id;

    fn xapic(vcpu: u32, ldr: u32, cluster: bool) -> ApicFacts {
        ApicFacts {
            id: apic_id(vcpu),
            mode: ApicMode::XApic,
            software_enabled: true,
            ldr,
            cluster,
        }
    }
    fn x2apic(vcpu: u32) -> ApicFacts {
        let id = apic_id(vcpu);
        ApicFacts {
            id,
            mode: ApicMode::X2Apic,
            software_enabled: true,
            ldr: x2apic_ldr(id),
            cluster: false,
        }
    }
    fn targets(ipi: Ipi, sender: u32, apics: &[ApicFacts]) -> Vec<u32> {
        let mut out = Vec::new();
        let n = ipi.resolve(
            Some(sender),
            apics.len() as u32,
            |v| apics[v as usize],
            |v| out.push(v),
        );
        assert_eq!(n as usize, out.len());
        out
    }
    fn fixed(dest: DestSpec) -> Ipi {
        Ipi {
            dest,
            mode: DeliveryMode::Fixed,
            vector: 0x40,
            level: false,
        }
    }

    #[test]
    fn all_ones_reach_everyone_in_both_widths() {
        let apics = [xapic(0, 1, false), xapic(1, 2, false), x2apic(2)];
        for logical in [false, true] {
            assert_eq!(
                targets(fixed(DestSpec::of8(0xff, logical)), 0, &apics),
                [0, 1, 2]
            );
            assert_eq!(
                targets(fixed(DestSpec::of32(u32::MAX, logical)), 0, &apics),
                [0, 1, 2]
            );
        }
        // 0xff is an ordinary destination for an x2APIC sender.
        assert_eq!(targets(fixed(DestSpec::of32(0xff, false)), 0, &apics), []);
    }

    #[test]
    fn physical_ids_are_even() {
        let apics: Vec<_> = (0..200).map(x2apic).collect();
        assert_eq!(targets(fixed(DestSpec::Physical(6)), 0, &apics), [3]);
        assert_eq!(targets(fixed(DestSpec::Physical(7)), 0, &apics), []);
        assert_eq!(targets(fixed(DestSpec::Physical(398)), 0, &apics), [199]);
        assert_eq!(targets(fixed(DestSpec::Physical(400)), 0, &apics), []);
    }

    #[test]
    fn logical_models() {
        let flat = [xapic(0, 1, false), xapic(1, 2, false), xapic(2, 4, false)];
        assert_eq!(targets(fixed(DestSpec::of8(0b101, true)), 1, &flat), [0, 2]);
        let cluster = [
            xapic(0, 0x11, true),
            xapic(1, 0x12, true),
            xapic(2, 0x21, true),
        ];
        assert_eq!(
            targets(fixed(DestSpec::of8(0x13, true)), 1, &cluster),
            [0, 1]
        );
        let x2: Vec<_> = (0..20).map(x2apic).collect();
        // ids 0, 2, 4 are bits 0, 2, 4 of cluster 0; id 34 (vCPU 17) is bit 2 of cluster 2.
        assert_eq!(
            targets(fixed(DestSpec::of32(0b10101, true)), 1, &x2),
            [0, 1, 2]
        );
        assert_eq!(
            targets(fixed(DestSpec::of32(2 << 16 | 4, true)), 1, &x2),
            [17]
        );
    }

    #[test]
    fn lowest_priority_picks_one_enabled() {
        let mut apics = [xapic(0, 1, false), xapic(1, 2, false), xapic(2, 4, false)];
        apics[0].software_enabled = false;
        let ipi = Ipi {
            mode: DeliveryMode::LowestPriority,
            ..fixed(DestSpec::of8(7, true))
        };
        assert_eq!(targets(ipi, 2, &apics), [1]);
    }

    #[test]
    fn shorthands_and_disabled() {
        let mut apics: Vec<_> = (0..3).map(x2apic).collect();
        apics[2].mode = ApicMode::Disabled;
        assert_eq!(targets(fixed(DestSpec::SelfOnly), 1, &apics), [1]);
        assert_eq!(targets(fixed(DestSpec::AllButSelf), 1, &apics), [0]);
        assert_eq!(targets(fixed(DestSpec::All), 1, &apics), [0, 1]);
        assert_eq!(targets(fixed(DestSpec::Physical(4)), 1, &apics), []);
    }

    #[test]
    fn icr_forms() {
        let deassert = Icr(5 << 8 | 1 << 15);
        assert_eq!(Ipi::from_icr(deassert, false), None);
        let i = Ipi::from_icr(Icr(0x0400_0000_0000_4500), false).unwrap();
        assert_eq!(
            (i.dest, i.mode),
            (DestSpec::Physical(4), DeliveryMode::Init)
        );
        let i = Ipi::from_icr(Icr(0x0000_0004_0000_0831), true).unwrap();
        assert_eq!(i.dest, DestSpec::Logical(4));
    }
}
