//! Which device vectors of a CPU are in use. In physical mode a vector is taken on one CPU; in cluster mode on every CPU of
//! the cluster, so that the interrupt can move inside it without a new vector.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sync::Word;

/// First device vector.
pub const FIRST: u8 = 0x30;
/// Last device vector.
pub const LAST: u8 = 0xdf;
/// Device vectors of a CPU.
pub const COUNT: u32 = (LAST - FIRST) as u32 + 1;

/// A CPU's vectors, a bit each; changed by any CPU at any time.
pub struct VectorMap<W>([W; 8]);

impl VectorMap<AtomicU32> {
    /// Nothing in use.
    pub const fn empty() -> Self {
        Self([const { AtomicU32::new(0) }; 8])
    }
}

impl<W> VectorMap<W> {
    /// From cells that hold 0.
    pub const fn new(words: [W; 8]) -> Self {
        Self(words)
    }
}

const fn place(vector: u8) -> (usize, u32) {
    (vector as usize / 32, 1 << (vector % 32))
}

impl<W: Word> VectorMap<W> {
    /// Vectors in use, 0 to [`COUNT`].
    pub fn used(&self) -> u32 {
        self.0
            .iter()
            .map(|w| w.load(Ordering::Relaxed).count_ones())
            .sum()
    }

    /// Whether a vector is in use.
    pub fn is_used(&self, vector: u8) -> bool {
        let (word, bit) = place(vector);
        self.0[word].load(Ordering::Acquire) & bit != 0
    }

    /// Forgets all: of a CPU that shares no vectors any more.
    pub fn clear(&self) {
        self.0.iter().for_each(|w| w.store(0, Ordering::Release));
    }

    /// What is in use on another CPU is in use here as well.
    pub fn inherit(&self, other: &Self) {
        for (mine, theirs) in self.0.iter().zip(&other.0) {
            mine.fetch_or(theirs.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    fn take(&self, vector: u8) -> bool {
        let (word, bit) = place(vector);
        self.0[word].fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    fn give(&self, vector: u8) {
        let (word, bit) = place(vector);
        self.0[word].fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Takes a device vector that is free on all CPUs of the set, on all of them; `None` if there is none. The search starts at
/// a different priority class each time, so that no class of sixteen fills up first. Several CPUs may search at once: each
/// vector has one winner, and a loser leaves nothing behind.
pub fn take<'a, W: Word + 'a>(cpus: impl Iterator<Item = &'a VectorMap<W>> + Clone) -> Option<u8> {
    let used = cpus.clone().next()?.used();
    let start = used * 16 + used / (COUNT / 16);
    (0..COUNT)
        .map(|i| FIRST + ((start + i) % COUNT) as u8)
        .find(|&vector| take_on_all(cpus.clone(), vector))
}

/// Takes this vector on all CPUs of the set; false, and nothing is taken, if it is in use on one of them or is no device
/// vector.
pub fn take_on_all<'a, W: Word + 'a>(
    cpus: impl Iterator<Item = &'a VectorMap<W>> + Clone,
    vector: u8,
) -> bool {
    if !(FIRST..=LAST).contains(&vector) {
        return false;
    }
    for (n, map) in cpus.clone().enumerate() {
        if !map.take(vector) {
            cpus.take(n).for_each(|map| map.give(vector));
            return false;
        }
    }
    true
}

/// Gives a vector back on all CPUs of the set that it was taken on. One that is no device vector is ignored.
pub fn give<'a, W: Word + 'a>(cpus: impl Iterator<Item = &'a VectorMap<W>>, vector: u8) {
    if (FIRST..=LAST).contains(&vector) {
        cpus.for_each(|map| map.give(vector));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn a_full_cpu_refuses_and_classes_fill_evenly() {
        let map = VectorMap::empty();
        let one = || [&map].into_iter();
        let first: BTreeSet<u8> = (0..11).map(|_| take(one()).unwrap() >> 4).collect();
        assert_eq!(first.len(), 11, "eleven vectors, eleven classes");
        let all: BTreeSet<u8> = (11..COUNT).map(|_| take(one()).unwrap()).collect();
        assert_eq!((all.len() as u32, map.used()), (COUNT - 11, COUNT));
        assert_eq!(take(one()), None);
        give(one(), 0x20);
        assert_eq!(map.used(), COUNT);
        give(one(), 0x41);
        assert_eq!(take(one()), Some(0x41));
        assert_eq!(take::<AtomicU32>([].into_iter()), None);
        give(one(), 0x42);
        assert!(take_on_all(one(), 0x42) && !take_on_all(one(), 0x42));
        assert!(!take_on_all(one(), 0x20));
    }

    #[test]
    fn a_cpu_that_joins_a_cluster_inherits_its_vectors() {
        let [old, new] = [VectorMap::empty(), VectorMap::empty()];
        let taken: Vec<u8> = (0..40).map(|_| take([&old].into_iter()).unwrap()).collect();
        new.inherit(&old);
        assert!(taken.iter().all(|&v| new.is_used(v)) && new.used() == 40);
        let next = take([&old, &new].into_iter()).unwrap();
        assert!(!taken.contains(&next));
        give([&old, &new].into_iter(), taken[7]);
        assert!(!new.is_used(taken[7]));
        new.clear();
        assert_eq!((new.used(), old.used()), (0, 40));
    }

    proptest! {
        /// Whatever sets of CPUs ask and give back: no vector has two owners on any CPU, refusal means that no vector is
        /// free on all of the set, and what was given back is free.
        #[test]
        fn no_vector_has_two_owners(steps in proptest::collection::vec((any::<bool>(), 1u8..16, any::<prop::sample::Index>()), 0..900)) {
            let maps: [VectorMap<AtomicU32>; 4] = core::array::from_fn(|_| VectorMap::empty());
            let set = |bits: u8| maps.iter().enumerate().filter(move |(n, _)| bits >> n & 1 != 0).map(|(_, m)| m);
            let mut owned: Vec<(u8, u8)> = Vec::new();
            for (ask, bits, which) in steps {
                if ask {
                    let taken = |v: u8| owned.iter().any(|&(b, o)| b & bits != 0 && o == v);
                    match take(set(bits)) {
                        Some(v) => {
                            prop_assert!((FIRST..=LAST).contains(&v) && !taken(v));
                            owned.push((bits, v));
                        }
                        None => prop_assert!((FIRST..=LAST).all(taken)),
                    }
                } else if !owned.is_empty() {
                    let (bits, v) = owned.swap_remove(which.index(owned.len()));
                    give(set(bits), v);
                }
                for (n, map) in maps.iter().enumerate() {
                    prop_assert_eq!(map.used() as usize, owned.iter().filter(|(b, _)| b >> n & 1 != 0).count());
                }
            }
        }
    }
}
