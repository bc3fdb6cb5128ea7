//! Which entries of a remapping table are in use.

use alloc::vec::Vec;

/// A set of table indexes in use. Memory is a bit an entry; a search looks at 64 entries at a time and goes on where the
/// last one ended, so that an index is re-used late.
#[derive(Clone, Debug)]
pub struct Slots {
    words: Vec<u64>,
    len: u32,
    used: u32,
    next: usize,
}

impl Slots {
    /// `len` free entries.
    pub fn new(len: u32) -> Self {
        let mut words = alloc::vec![0u64; len.div_ceil(64) as usize];
        // What the last word has beyond the end is in use for ever.
        if let (Some(last), over @ 1..) = (words.last_mut(), len % 64) {
            *last = !0 << over;
        }
        Self {
            words,
            len,
            used: 0,
            next: 0,
        }
    }

    /// Entries in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Entries in all.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Takes any free entry. `None` if all are in use.
    pub fn take(&mut self) -> Option<u32> {
        let count = self.words.len();
        let at = (0..count)
            .map(|i| (self.next + i) % count)
            .find(|&w| self.words[w] != !0)?;
        self.next = at;
        let bit = (!self.words[at]).trailing_zeros();
        self.words[at] |= 1 << bit;
        self.used += 1;
        Some(at as u32 * 64 + bit)
    }

    /// Takes this entry; false if it is in use or does not exist.
    pub fn take_at(&mut self, index: u32) -> bool {
        if index >= self.len {
            return false;
        }
        let word = &mut self.words[index as usize / 64];
        let bit = 1 << (index % 64);
        let free = *word & bit == 0;
        *word |= bit;
        self.used += u32::from(free);
        free
    }

    /// Gives an entry back; false if it was not in use.
    pub fn give(&mut self, index: u32) -> bool {
        if index >= self.len {
            return false;
        }
        let word = &mut self.words[index as usize / 64];
        let bit = 1 << (index % 64);
        let taken = *word & bit != 0;
        *word &= !bit;
        self.used -= u32::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn full_means_none() {
        for len in [0, 1, 63, 64, 65, 512] {
            let mut s = Slots::new(len);
            let taken: BTreeSet<u32> = core::iter::from_fn(|| s.take()).collect();
            assert_eq!(taken, (0..len).collect());
            assert_eq!((s.used(), s.take()), (len, None));
            assert!(!s.take_at(0) && !s.take_at(len) && !s.give(len));
        }
    }

    #[test]
    fn an_index_is_used_again_late() {
        let mut s = Slots::new(256);
        for _ in 0..64 {
            s.take();
        }
        let next = s.take().unwrap();
        assert!(s.give(3) && !s.give(3));
        assert_eq!((next, s.take()), (64, Some(65)));
    }

    proptest! {
        /// Against a set.
        #[test]
        fn agrees_with_a_set(len in 1u32..200, steps in proptest::collection::vec((0u8..3, 0u32..210), 0..300)) {
            let mut s = Slots::new(len);
            let mut model = BTreeSet::new();
            for (what, index) in steps {
                match what {
                    0 => match s.take() {
                        Some(i) => prop_assert!(i < len && model.insert(i)),
                        None => prop_assert_eq!(model.len() as u32, len),
                    },
                    1 => prop_assert_eq!(s.take_at(index), index < len && model.insert(index)),
                    _ => prop_assert_eq!(s.give(index), model.remove(&index)),
                }
                prop_assert_eq!((s.used() as usize, s.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
