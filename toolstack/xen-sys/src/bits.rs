//! Sets of CPUs or of memory nodes.

use std::fmt;

/// A set of numbers below a bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitSet {
    bytes: Vec<u8>,
    bound: u32,
}

impl BitSet {
    /// The empty set of numbers below `bound`.
    pub fn new(bound: u32) -> BitSet {
        BitSet {
            bytes: vec![0; (bound as usize).div_ceil(64) * 8],
            bound,
        }
    }

    /// All numbers below `bound`.
    pub fn full(bound: u32) -> BitSet {
        let mut set = BitSet::new(bound);
        (0..bound).for_each(|n| set.insert(n));
        set
    }

    /// Which numbers it can hold.
    pub fn bound(&self) -> u32 {
        self.bound
    }

    /// Adds a number; one that the set cannot hold is left out.
    pub fn insert(&mut self, number: u32) {
        if number < self.bound {
            self.bytes[number as usize / 8] |= 1 << (number % 8);
        }
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: u32) {
        if number < self.bound {
            self.bytes[number as usize / 8] &= !(1 << (number % 8));
        }
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u32) -> bool {
        number < self.bound && self.bytes[number as usize / 8] & 1 << (number % 8) != 0
    }

    /// Its numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.bound).filter(|n| self.contains(*n))
    }

    /// How many numbers are in it.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// As the hypervisor takes it: lowest number first, whole 64-bit words.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As the hypervisor writes it. Numbers at and above the bound do not count.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// In words: `none`, `all` if it has every number below `total`, else ranges such as `0-2,5`.
    pub fn describe(&self, total: u32) -> String {
        if self.is_empty() {
            "none".into()
        } else if (0..total).all(|n| self.contains(n)) {
            "all".into()
        } else {
            self.to_string()
        }
    }
}

impl fmt::Display for BitSet {
    /// Ranges such as `0-2,5`; nothing for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for first in self.iter().filter(|n| *n == 0 || !self.contains(n - 1)) {
            let last = (first..).take_while(|n| self.contains(*n)).last();
            match last.filter(|last| *last != first) {
                Some(last) => write!(f, "{separator}{first}-{last}")?,
                None => write!(f, "{separator}{first}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromIterator<u32> for BitSet {
    /// A set that can just hold these numbers.
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> BitSet {
        let numbers: Vec<u32> = numbers.into_iter().collect();
        let bound = numbers.iter().max().map_or(0, |n| n.saturating_add(1));
        let mut set = BitSet::new(bound);
        numbers.into_iter().for_each(|n| set.insert(n));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::BitSet;

    fn set(bound: u32, numbers: &[u32]) -> BitSet {
        let mut set = BitSet::new(bound);
        numbers.iter().for_each(|n| set.insert(*n));
        set
    }

    #[test]
    fn sets_are_described_as_the_tools_print_them() {
        assert_eq!(set(8, &[]).describe(4), "none");
        assert_eq!(set(8, &[0, 1, 2, 3]).describe(4), "all");
        assert_eq!(BitSet::full(64).describe(4), "all");
        assert_eq!(set(8, &[0, 1, 2, 5]).describe(8), "0-2,5");
        assert_eq!(set(8, &[6, 7]).describe(8), "6-7");
        assert_eq!(set(130, &[0, 129]).describe(130), "0,129");
    }

    #[test]
    fn it_holds_what_fits_and_nothing_else() {
        let mut s = set(65, &[3, 64, 65, 900]);
        assert_eq!(s.iter().collect::<Vec<_>>(), [3, 64]);
        assert_eq!(s.bytes().len(), 16);
        s.remove(3);
        s.remove(900);
        assert_eq!(s.len(), 1);
        // What the hypervisor writes above the bound does not count.
        s.bytes_mut().fill(0xff);
        assert_eq!(s.len(), 65);
        assert_eq!([9, 2].into_iter().collect::<BitSet>().bound(), 10);
    }
}
