//! Which CPUs can take logical messages, by cluster.
//!
//! A logical ID names a cluster (upper half) and a set of up to 16 members (lower half). The table has a slot for each
//! cluster that ever had a member. CPUs join and leave at any time, several at once, while others send: nothing waits and
//! nothing is locked. Slots are taken from the front and kept for ever, so a cluster never has two.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sync::Word;

/// A cluster's slot.
pub struct Slot<W> {
    /// Cluster number plus 1; 0 while free.
    cluster: W,
    /// Members that are up, a bit each.
    members: W,
}

impl<W> Slot<W> {
    /// A free slot from two cells that hold 0.
    pub const fn new(cluster: W, members: W) -> Self {
        Self { cluster, members }
    }
}

/// The table, with room for `N` clusters.
pub struct Clusters<W, const N: usize> {
    slots: [Slot<W>; N],
}

/// A CPU's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Slot of its cluster.
    pub slot: u16,
    /// Its bit among the members.
    pub bit: u16,
}

impl Place {
    /// Packed into a word that is never 0.
    pub const fn pack(self) -> u32 {
        (self.slot as u32) << 16 | self.bit as u32
    }
    /// Reverse of [`Place::pack`]; `None` for a word without a member's bit.
    pub const fn unpack(word: u32) -> Option<Self> {
        if word as u16 == 0 {
            return None;
        }
        Some(Self {
            slot: (word >> 16) as u16,
            bit: word as u16,
        })
    }
}

impl<const N: usize> Clusters<AtomicU32, N> {
    /// Without members.
    pub const fn empty() -> Self {
        Self::new([const { Slot::new(AtomicU32::new(0), AtomicU32::new(0)) }; N])
    }
}

impl<W: Word, const N: usize> Clusters<W, N> {
    /// Adds the CPU with this logical ID (one member's bit). From when this has returned, and a sender knows that it has,
    /// the sender's messages reach the CPU. `None` if the table is full or the ID has no member.
    pub fn join(&self, logical_id: u32) -> Option<Place> {
        let (tag, bit) = ((logical_id >> 16) + 1, logical_id as u16);
        if bit == 0 {
            return None;
        }
        for (slot, s) in (0..).zip(&self.slots) {
            // Everyone searches from the front and a tag never changes: two CPUs of one cluster meet at the same slot.
            let found = match s.cluster.load(Ordering::Acquire) {
                0 => s.cluster.exchange(0, tag).map_or_else(|now| now, |()| tag),
                now => now,
            };
            if found == tag {
                s.members.fetch_or(bit.into(), Ordering::AcqRel);
                return Some(Place { slot, bit });
            }
        }
        None
    }

    /// Removes a CPU: messages that are begun afterwards do not name it.
    pub fn leave(&self, place: Place) {
        if let Some(s) = self.slots.get(usize::from(place.slot)) {
            s.members.fetch_and(!u32::from(place.bit), Ordering::AcqRel);
        }
    }

    /// The logical ID of those members of a cluster that are up; `None` if none of them is.
    #[inline]
    pub fn logical_id(&self, slot: u16, members: u16) -> Option<u32> {
        let s = self.slots.get(usize::from(slot))?;
        let up = s.members.load(Ordering::Acquire) & u32::from(members);
        let tag = s.cluster.load(Ordering::Acquire);
        (up != 0 && tag != 0).then(|| (tag - 1) << 16 | up)
    }

    /// Whether a slot, and so every one behind it, never had a member.
    #[inline]
    pub fn is_free(&self, slot: u16) -> bool {
        match self.slots.get(usize::from(slot)) {
            Some(s) => s.cluster.load(Ordering::Acquire) == 0,
            None => true,
        }
    }

    /// Number of slots in use, those of emptied clusters included.
    pub fn len(&self) -> usize {
        self.slots
            .iter()
            .take_while(|s| s.cluster.load(Ordering::Acquire) != 0)
            .count()
    }

    /// Whether nobody has ever joined.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<W, const N: usize> Clusters<W, N> {
    /// From free slots.
    pub const fn new(slots: [Slot<W>; N]) -> Self {
        Self { slots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::apic::x2apic_ldr;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    #[test]
    fn a_full_table_refuses_and_an_empty_id_is_nobody() {
        let table = Clusters::<AtomicU32, 2>::empty();
        assert!(table.is_empty());
        assert!(table.join(x2apic_ldr(0)).is_some());
        assert!(table.join(x2apic_ldr(16)).is_some());
        assert_eq!(table.join(x2apic_ldr(32)), None);
        assert_eq!(table.join(x2apic_ldr(17)), Some(Place { slot: 1, bit: 2 }));
        assert_eq!(table.join(0x0003_0000), None);
        assert_eq!(table.len(), 2);
    }

    proptest! {
        /// Any order of coming and going leaves exactly the CPUs that are up, one slot per cluster.
        #[test]
        fn joining_and_leaving_agrees_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..80), 0..200)) {
            let table = Clusters::<AtomicU32, 8>::empty();
            let mut up: BTreeMap<u32, Place> = BTreeMap::new();
            for (join, id) in steps {
                if join {
                    let place = table.join(x2apic_ldr(id)).unwrap();
                    prop_assert_eq!(Place::unpack(place.pack()), Some(place));
                    up.insert(id, place);
                } else if let Some(place) = up.remove(&id) {
                    table.leave(place);
                }
                let mut found = Vec::new();
                for slot in 0..table.len() as u16 {
                    if let Some(id) = table.logical_id(slot, u16::MAX) {
                        found.extend((0..16).filter(|b| id >> b & 1 != 0).map(|b| (id >> 16) * 16 + b));
                    }
                }
                found.sort();
                prop_assert_eq!(&found, &up.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
