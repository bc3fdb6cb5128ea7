//! Under which id a device's requests arrive at the IOMMU. A PCI Express function uses its own. Conventional PCI has no
//! ids: the bridge between the two puts one on, its own or (PCI Express to PCI) one of its secondary bus.

use crate::pci::{Bdf, STATUS_CAPABILITIES, cfg};

/// Whose requests an entry accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// This requester id (bus, device, function) only.
    Exact(u16),
    /// All functions of this requester's device (the lowest three bits are not compared): HPET blocks.
    Device(u16),
    /// All requesters on these buses: behind a bridge that may replace the id.
    Buses {
        /// First bus.
        first: u8,
        /// Last bus.
        last: u8,
    },
}

impl Requester {
    /// Whether a request with this id is accepted.
    pub const fn accepts(self, id: u16) -> bool {
        match self {
            Self::Exact(own) => own == id,
            Self::Device(own) => own & !7 == id & !7,
            Self::Buses { first, last } => first as u16 <= id >> 8 && id >> 8 <= last as u16,
        }
    }
}

/// Capability id of PCI Express.
const CAP_EXPRESS: u8 = 0x10;
/// More capabilities than fit into configuration space mean a loop.
const MAX_CAPS: usize = 48;
/// Bridges nest at most as deep as there are buses.
const MAX_DEPTH: usize = 256;
/// Port type of a bridge from PCI Express to PCI or PCI-X.
const TO_CONVENTIONAL: u32 = 7;

/// A bridge on the way to a device.
struct Bridge {
    at: Bdf,
    secondary: u8,
    /// Port type, if it is a PCI Express function.
    express: Option<u32>,
}

/// The 16-bit id of a function: bus, device, function.
pub const fn id(bdf: Bdf) -> u16 {
    (bdf.bus as u16) << 8 | bdf.devfn as u16
}

/// Finds out for one function. `read` reads a 32-bit word of configuration space (all ones where nothing answers);
/// buses are looked for below bus 0, so a device that is not found there counts as one of the root's.
pub fn requester(bdf: Bdf, mut read: impl FnMut(Bdf, u16) -> u32) -> Requester {
    let own = Requester::Exact(id(bdf));
    if bdf.bus == 0 || express_type(bdf, &mut read).is_some() {
        return own;
    }
    // Outermost first: the first bridge that leaves PCI Express, or that stands on a conventional root bus, owns what is
    // behind it.
    let mut bus = 0;
    for _ in 0..MAX_DEPTH {
        let Some(bridge) = bridge_towards(bdf, bus, &mut read) else {
            return own;
        };
        match bridge.express {
            Some(TO_CONVENTIONAL) => {
                return Requester::Buses {
                    first: bridge.secondary,
                    last: bdf.bus,
                };
            }
            Some(_) => {}
            None => return Requester::Exact(id(bridge.at)),
        }
        if bridge.secondary == bdf.bus {
            return own;
        }
        bus = bridge.secondary;
    }
    own
}

/// The bridge on `bus` behind which the device is.
fn bridge_towards(target: Bdf, bus: u8, read: &mut impl FnMut(Bdf, u16) -> u32) -> Option<Bridge> {
    for devfn in 0..=u8::MAX {
        let at = Bdf {
            bus,
            devfn,
            ..target
        };
        if read(at, cfg::VENDOR) as u16 == 0xffff {
            continue;
        }
        if read(at, cfg::HEADER_TYPE & !3) >> 16 & 0x7f != 1 {
            continue;
        }
        let numbers = read(at, cfg::SECONDARY_BUS & !3);
        let (secondary, subordinate) = ((numbers >> 8) as u8, (numbers >> 16) as u8);
        // Buses are numbered downwards; anything else is not set up.
        if secondary > bus && (secondary..=subordinate).contains(&target.bus) {
            return Some(Bridge {
                at,
                secondary,
                express: express_type(at, read),
            });
        }
    }
    None
}

/// Port type of a PCI Express function; `None` for a conventional one.
fn express_type(at: Bdf, read: &mut impl FnMut(Bdf, u16) -> u32) -> Option<u32> {
    let status = (read(at, cfg::COMMAND) >> 16) as u16;
    if status & STATUS_CAPABILITIES == 0 {
        return None;
    }
    let mut offset = read(at, cfg::CAPABILITIES) as u16 & 0xfc;
    for _ in 0..MAX_CAPS {
        if offset < 0x40 {
            return None;
        }
        let head = read(at, offset);
        if head as u8 == CAP_EXPRESS {
            return Some(head >> 20 & 0xf);
        }
        offset = (head >> 8) as u16 & 0xfc;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Functions: bus numbers of a bridge, port type of a PCI Express function.
    type Machine = BTreeMap<Bdf, (Option<(u8, u8)>, Option<u32>)>;

    fn read(m: &Machine, at: Bdf, register: u16) -> u32 {
        let Some(&(buses, express)) = m.get(&at) else {
            return u32::MAX;
        };
        match register {
            0 => 0x1234_8086,
            4 if express.is_some() => 1 << 20,
            0xc if buses.is_some() => 1 << 16,
            0x18 => buses.map_or(0, |(s, e)| u32::from(s) << 8 | u32::from(e) << 16),
            0x34 => 0x50,
            0x50 => 0x0000_6005,
            0x60 => express.map_or(0, |t| t << 20) | 0x10,
            _ => 0,
        }
    }

    fn of(m: &Machine, at: Bdf) -> Requester {
        requester(at, |b, r| read(m, b, r))
    }

    /// Root port, switch, then a bridge to PCI with a PCI bridge behind it; a PCI bridge on the root bus.
    fn machine() -> Machine {
        BTreeMap::from([
            (Bdf::new(0, 2, 0), (None, None)),
            (Bdf::new(0, 0x1c, 0), (Some((1, 9)), Some(4))),
            (Bdf::new(1, 0, 0), (Some((2, 9)), Some(5))),
            (Bdf::new(2, 3, 0), (Some((3, 6)), Some(6))),
            (Bdf::new(3, 0, 0), (Some((4, 6)), Some(7))),
            (Bdf::new(4, 1, 0), (None, None)),
            (Bdf::new(4, 2, 0), (Some((5, 5)), None)),
            (Bdf::new(5, 7, 1), (None, None)),
            (Bdf::new(2, 4, 0), (Some((7, 7)), Some(6))),
            (Bdf::new(7, 0, 0), (None, Some(0))),
            (Bdf::new(7, 0, 1), (None, None)),
            (Bdf::new(0, 0x1e, 0), (Some((0x20, 0x21)), None)),
            (Bdf::new(0x20, 0, 0), (None, None)),
            (Bdf::new(0x20, 1, 0), (Some((0x21, 0x21)), None)),
            (Bdf::new(0x21, 1, 0), (None, None)),
        ])
    }

    #[test]
    fn who_sends() {
        let m = machine();
        let exact = |b, d, f| Requester::Exact(id(Bdf::new(b, d, f)));
        for (device, wanted) in [
            (Bdf::new(0, 2, 0), exact(0, 2, 0)),
            (Bdf::new(7, 0, 0), exact(7, 0, 0)),
            (Bdf::new(7, 0, 1), exact(7, 0, 1)),
            (Bdf::new(4, 1, 0), Requester::Buses { first: 4, last: 4 }),
            (Bdf::new(5, 7, 1), Requester::Buses { first: 4, last: 5 }),
            (Bdf::new(0x20, 0, 0), exact(0, 0x1e, 0)),
            (Bdf::new(0x21, 1, 0), exact(0, 0x1e, 0)),
            // No bridge leads there: another root's bus.
            (Bdf::new(0x40, 0, 0), exact(0x40, 0, 0)),
        ] {
            assert_eq!(of(&m, device), wanted, "{device:?}");
        }
    }

    #[test]
    fn bridges_that_are_not_set_up_end_the_search() {
        // A bridge whose secondary bus is its own would be walked for ever.
        let m = BTreeMap::from([
            (Bdf::new(0, 1, 0), (Some((0, 255)), Some(4))),
            (Bdf::new(5, 0, 0), (None, None)),
        ]);
        assert_eq!(of(&m, Bdf::new(5, 0, 0)), Requester::Exact(0x500));
    }

    proptest! {
        #[test]
        fn accepting(own in any::<u16>(), id in any::<u16>()) {
            prop_assert!(Requester::Exact(own).accepts(own) && Requester::Device(own).accepts(own));
            prop_assert_eq!(Requester::Exact(own).accepts(id), own == id);
            let (first, last) = ((own >> 8) as u8, own as u8);
            let inside = (first..=last).contains(&((id >> 8) as u8));
            prop_assert_eq!(Requester::Buses { first, last }.accepts(id), inside);
        }

        /// Whatever configuration space holds, the search ends, and a device's own id or one of its bus is accepted.
        #[test]
        fn any_machine_is_survived(seed in any::<u64>(), bus in any::<u8>(), devfn in any::<u8>()) {
            let bdf = Bdf { segment: 0, bus, devfn };
            let mut reads = 0u32;
            let mut state = seed;
            let found = requester(bdf, |_, _| {
                reads += 1;
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 32) as u32
            });
            prop_assert!(reads < 300_000);
            if let Requester::Buses { first, last } = found {
                prop_assert!(first <= last && last == bus);
            }
        }
    }
}
