//! Who sleeps on a CPU and is woken by its wake-up vector.
//!
//! The hardware tells only that some sleeper of this CPU was posted to; which one is found by looking at the descriptors.
//! The list is behind a lock of its owner's. A receiver that goes to sleep is put on the list first and arms its descriptor
//! then ([`super::Descriptor::block`]), so that the vector finds it. It is taken off by the wake-up or by itself when it
//! runs again, whichever is first.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

/// Something that sleeps with a descriptor.
pub trait Sleeper {
    /// Whether it was posted to since it armed its descriptor.
    fn is_notified(&self) -> bool;
    /// Whether this is the same one.
    fn is(&self, other: &Self) -> bool;
}

/// The sleepers of one CPU.
#[derive(Debug)]
pub struct WakeList<S>(Vec<S>);

impl<S> Default for WakeList<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> WakeList<S> {
    /// Nobody.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// Sleepers.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether nobody sleeps here.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<S: Sleeper> WakeList<S> {
    /// Adds one, which is not on any list. The error is for no memory.
    pub fn add(&mut self, sleeper: S) -> Result<(), TryReserveError> {
        self.0.try_reserve(1)?;
        self.0.push(sleeper);
        Ok(())
    }

    /// Takes one off; false if it is not here (any more).
    pub fn remove(&mut self, sleeper: &S) -> bool {
        let found = self.0.iter().position(|s| s.is(sleeper));
        found.map(|at| self.0.swap_remove(at)).is_some()
    }

    /// Takes off one that was posted to. The wake-up vector's handler asks until there is none.
    pub fn next_notified(&mut self) -> Option<S> {
        let found = self.0.iter().position(S::is_notified)?;
        Some(self.0.swap_remove(found))
    }

    /// Takes off any, for a CPU that goes away.
    pub fn take_any(&mut self) -> Option<S> {
        self.0.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct S(u32, bool);
    impl Sleeper for S {
        fn is_notified(&self) -> bool {
            self.1
        }
        fn is(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    #[test]
    fn those_posted_to_leave_and_the_rest_stay() {
        let mut list = WakeList::new();
        for n in 0..6 {
            list.add(S(n, n % 2 == 0)).unwrap();
        }
        assert!(list.remove(&S(0, false)) && !list.remove(&S(0, false)));
        let mut woken: Vec<u32> =
            core::iter::from_fn(|| list.next_notified().map(|s| s.0)).collect();
        woken.sort();
        assert_eq!((woken, list.len()), (alloc::vec![2, 4], 3));
        while list.take_any().is_some() {}
        assert!(list.is_empty());
    }
}
