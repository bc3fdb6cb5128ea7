//! Entries in the posted format (9.9), and how an entry in use is changed between the formats.
//!
//! An entry is always written whole, by one 128-bit exchange, and invalidated in every unit before anything that the old
//! one named is given back: until then a unit may post into the old descriptor. A message that a unit took up before the
//! change still goes where the old entry said, so the old receiver (a host vector, or a vCPU's descriptor) stays able to
//! take it until the invalidation is complete.

use super::irte::{Irte, source_bits};
use crate::iommu::Requester;

const PRESENT: u64 = 1;
const URGENT: u64 = 1 << 14;
const POSTED: u64 = 1 << 15;
/// Low half of a descriptor's address that stands in the low word, without bits 5:0.
const ADDRESS_LOW: u64 = 0xffff_ffc0_0000_0000;
/// Bits of the low word that must be clear in the posted format: 7:2, 13:12, 31:24, 37:32.
const RESERVED_LOW: u64 = 0x0000_003f_ff00_30fc;
/// Bits of the low word that must be clear in the remapped format: 14:12, 31:24.
const REMAPPED_RESERVED_LOW: u64 = 0xff00_7000;
/// Bits of the high word that must be clear in the posted format: 95:84.
const RESERVED_HIGH: u64 = 0xfff0_0000;

/// Where a posted interrupt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostedTarget {
    /// Physical address of the descriptor, a multiple of 64.
    pub descriptor: u64,
    /// The receiver's vector.
    pub vector: u8,
    /// Notify also a receiver that suppresses notifications.
    pub urgent: bool,
}

impl Irte {
    /// A present entry in the posted format. `None` for an address that is not a multiple of 64.
    pub fn posted(target: &PostedTarget, requester: Requester) -> Option<Self> {
        if !target.descriptor.is_multiple_of(64) {
            return None;
        }
        let low = PRESENT
            | if target.urgent { URGENT } else { 0 }
            | POSTED
            | u64::from(target.vector) << 16
            | target.descriptor << 32 & ADDRESS_LOW;
        let high = source_bits(requester) | target.descriptor & 0xffff_ffff_0000_0000;
        Some(Self([low, high]))
    }

    /// What the entry says, if it is present and in the posted format.
    pub fn posted_target(&self) -> Option<PostedTarget> {
        let [low, high] = self.0;
        (low & (PRESENT | POSTED) == PRESENT | POSTED).then_some(PostedTarget {
            descriptor: (low & ADDRESS_LOW) >> 32 | high & 0xffff_ffff_0000_0000,
            vector: (low >> 16) as u8,
            urgent: low & URGENT != 0,
        })
    }

    /// Whether no reserved bit of a present entry is set. `posting` says that the unit has the posted format.
    pub const fn is_valid(&self, posting: bool) -> bool {
        let [low, high] = self.0;
        if low & POSTED == 0 {
            return low & REMAPPED_RESERVED_LOW == 0 && high >> 20 == 0;
        }
        posting && low & RESERVED_LOW == 0 && high & RESERVED_HIGH == 0
    }

    /// Whether the entry is for requests with this id (9.10: SID, SQ and SVT).
    pub const fn accepts(&self, id: u16) -> bool {
        let high = self.0[1];
        let sid = high as u16;
        match high >> 18 & 3 {
            0 => true,
            1 => {
                let ignored = match high >> 16 & 3 {
                    0 => 0,
                    1 => 0b100,
                    2 => 0b110,
                    _ => 0b111,
                };
                (sid ^ id) & !ignored == 0
            }
            2 => sid >> 8 <= id >> 8 && id >> 8 <= sid & 0xff,
            _ => false,
        }
    }

    /// Whether a unit reports nothing about requests that this entry refuses.
    pub const fn silent(&self) -> bool {
        self.0[0] & 2 != 0
    }
}

/// A table of entries in memory, and the units that use it.
pub trait Entries {
    /// The entry at an index.
    fn read(&self, index: u16) -> Irte;
    /// Replaces all 128 bits at once; false if the entry was not `old`.
    fn replace(&mut self, index: u16, old: Irte, new: Irte) -> bool;
    /// Has every unit forget the entry, and waits until each has finished what it does with it. False if one does not
    /// answer.
    fn forget(&mut self, index: u16) -> bool;
}

/// Changes an entry, whatever the formats. True if from now on no unit uses the old one; if false, one may do so for ever,
/// and what the old entry names must never be given back.
#[must_use]
pub fn change(entries: &mut impl Entries, index: u16, new: Irte) -> bool {
    let old = entries.read(index);
    // The units only read, and the caller holds the table's lock: nobody else writes.
    (old == new || entries.replace(index, old, new)) && entries.forget(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iommu::Target;
    use proptest::prelude::*;

    #[test]
    fn posted_fields_stand_where_the_manual_has_them() {
        let t = PostedTarget {
            descriptor: 0x0000_0012_3456_7fc0,
            vector: 0x41,
            urgent: true,
        };
        let e = Irte::posted(&t, Requester::Exact(0x00fa)).unwrap();
        assert_eq!(e.0, [0x3456_7fc0_0041_c001, 0x0000_0012_0004_00fa]);
        assert_eq!((e.posted_target(), e.target(true)), (Some(t), None));
        assert!(e.is_valid(true) && !e.is_valid(false) && !e.silent());
        let crooked = PostedTarget {
            descriptor: 0x1020,
            ..t
        };
        assert_eq!(Irte::posted(&crooked, Requester::Exact(0)), None);
        assert_eq!(Irte::default().posted_target(), None);
    }

    #[test]
    fn requesters_are_told_apart() {
        let by = |r| {
            let t = PostedTarget {
                descriptor: 0,
                vector: 0x30,
                urgent: false,
            };
            Irte::posted(&t, r).unwrap()
        };
        let exact = by(Requester::Exact(0x0108));
        assert!(exact.accepts(0x0108) && !exact.accepts(0x0109));
        let device = by(Requester::Device(0x0108));
        assert!(device.accepts(0x010f) && !device.accepts(0x0110));
        let buses = by(Requester::Buses { first: 3, last: 5 });
        assert!(buses.accepts(0x0300) && buses.accepts(0x05ff));
        assert!(!buses.accepts(0x02ff) && !buses.accepts(0x0600));
        assert!(Irte([1, 0]).accepts(0xffff) && !Irte([1, 3 << 18]).accepts(0));
    }

    proptest! {
        #[test]
        fn posted_targets_survive_the_way_there_and_back(page in any::<u64>(), vector in any::<u8>(), urgent in any::<bool>(), id in any::<u16>()) {
            let t = PostedTarget { descriptor: page & !63, vector, urgent };
            let e = Irte::posted(&t, Requester::Exact(id)).unwrap();
            prop_assert_eq!(e.posted_target(), Some(t));
            prop_assert!(e.is_valid(true) && e.accepts(id) && e.present());
        }

        /// Every bit of an entry belongs to a field or is checked, in both formats.
        #[test]
        fn a_stray_bit_is_seen(bit in 0u32..128, posted in any::<bool>()) {
            let good = if posted {
                Irte::posted(&PostedTarget { descriptor: 0, vector: 0, urgent: false }, Requester::Exact(0)).unwrap()
            } else {
                Irte::new(&Target { dest: 0, logical: false, lowest: false, vector: 0, level: false }, Requester::Exact(0), true).unwrap()
            };
            let mut bits = good.0;
            bits[bit as usize / 64] |= 1 << (bit % 64);
            let reserved = if posted {
                matches!(bit, 2..=7 | 12..=13 | 24..=37 | 84..=95)
            } else {
                matches!(bit, 12..=14 | 24..=31 | 84..)
            };
            // The bit that changes the format.
            prop_assume!(posted || bit != 15);
            prop_assert_eq!(Irte(bits).is_valid(true), !reserved);
        }
    }
}
