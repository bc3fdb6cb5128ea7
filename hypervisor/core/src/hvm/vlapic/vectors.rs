//! A set of the 256 interrupt vectors.

/// Bit set by vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vectors(pub [u64; 4]);

impl Vectors {
    /// Adds a vector.
    pub fn insert(&mut self, v: u8) {
        self.0[usize::from(v >> 6)] |= 1 << (v & 63);
    }
    /// Removes a vector.
    pub fn remove(&mut self, v: u8) {
        self.0[usize::from(v >> 6)] &= !(1 << (v & 63));
    }
    /// Whether it is in the set.
    pub fn contains(&self, v: u8) -> bool {
        self.0[usize::from(v >> 6)] & 1 << (v & 63) != 0
    }
    /// The highest vector.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        for i in (0..4).rev() {
            if self.0[i] != 0 {
                return Some((i as u8) << 6 | (63 - self.0[i].leading_zeros() as u8));
            }
        }
        None
    }
    /// No vector at all. Asked before each entry: comparing arrays would call a function that goes byte by byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }
    /// The 32-bit word `i` (0 to 7), as the APIC's register pages show it.
    pub fn word(&self, i: u32) -> u32 {
        (self.0[(i as usize >> 1) & 3] >> ((i & 1) * 32)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_set(ops in prop::collection::vec((any::<u8>(), any::<bool>()), 0..64)) {
            let mut ours = Vectors::default();
            let mut model = std::collections::BTreeSet::new();
            for (v, add) in ops {
                if add {
                    ours.insert(v);
                    model.insert(v);
                } else {
                    ours.remove(v);
                    model.remove(&v);
                }
                prop_assert_eq!(ours.highest(), model.last().copied());
                prop_assert_eq!(ours.contains(v), add);
                prop_assert_eq!(ours.is_empty(), model.is_empty());
                prop_assert_eq!(ours.word(u32::from(v) / 32) >> (v % 32) & 1, u32::from(add));
            }
        }
    }
}
