//! Which of an IOMMU's faults are worth a line. A device that is wrong is usually wrong thousands of times a second: the
//! first fault of a source is told, later ones as a count that grows tenfold from line to line, and a source of
//! interrupts that only reports faults is switched off.

/// Faults that are told apart; the oldest makes room.
const KNOWN: usize = 16;
/// Fault interrupts within [`WINDOW_NS`] that are too many.
const STORM: u32 = 1000;
/// Nanoseconds over which a storm is counted.
const WINDOW_NS: u64 = 1_000_000_000;

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Tell it; the number of times that it was seen so far.
    Tell(u64),
    /// Say nothing.
    Hush,
}

/// Memory of the faults of one unit.
#[derive(Clone, Debug, Default)]
pub struct Reporter {
    known: [(u64, u64); KNOWN],
    oldest: usize,
    total: u64,
    window_start: u64,
    in_window: u32,
}

impl Reporter {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Self {
            known: [(0, 0); KNOWN],
            oldest: 0,
            total: 0,
            window_start: 0,
            in_window: 0,
        }
    }

    /// Faults seen.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A fault with this key (source and reason).
    pub fn fault(&mut self, key: u64) -> Verdict {
        self.total += 1;
        let known = self.known.iter_mut().find(|(k, n)| *n != 0 && *k == key);
        let Some((_, count)) = known else {
            self.known[self.oldest] = (key, 1);
            self.oldest = (self.oldest + 1) % KNOWN;
            return Verdict::Tell(1);
        };
        *count += 1;
        if is_power_of_ten(*count) {
            Verdict::Tell(*count)
        } else {
            Verdict::Hush
        }
    }

    /// An interrupt that reports faults came at this time; true if it is one too many and the source should be switched
    /// off.
    pub fn interrupt(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.window_start) > WINDOW_NS {
            self.window_start = now_ns;
            self.in_window = 0;
        }
        self.in_window = self.in_window.saturating_add(1);
        self.in_window > STORM
    }
}

fn is_power_of_ten(mut n: u64) -> bool {
    while n >= 10 && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn a_repeated_fault_is_told_at_powers_of_ten() {
        let mut r = Reporter::new();
        let told: Vec<_> = (0..2000)
            .filter_map(|_| match r.fault(7) {
                Verdict::Tell(n) => Some(n),
                Verdict::Hush => None,
            })
            .collect();
        assert_eq!(told, [1, 10, 100, 1000]);
        assert_eq!(r.total(), 2000);
        assert_eq!(r.fault(0), Verdict::Tell(1));
    }

    #[test]
    fn more_kinds_than_are_remembered_are_told_again() {
        let mut r = Reporter::new();
        for key in 0..KNOWN as u64 {
            assert_eq!(r.fault(key), Verdict::Tell(1));
            assert_eq!(r.fault(key), Verdict::Hush);
        }
        assert_eq!(r.fault(99), Verdict::Tell(1));
        assert_eq!(r.fault(0), Verdict::Tell(1));
        assert_eq!(r.fault(15), Verdict::Hush);
    }

    #[test]
    fn a_storm_is_a_thousand_in_a_second() {
        let mut r = Reporter::new();
        assert!(!(0..STORM).any(|i| r.interrupt(u64::from(i) * 1000)));
        assert!(r.interrupt(2_000_000));
        // A second later the count starts anew.
        assert!(!r.interrupt(1_000_000_001));
        // Slow ones never are one.
        let mut r = Reporter::new();
        assert!(!(0..5 * STORM).any(|i| r.interrupt(u64::from(i) * 1_100_000)));
    }

    proptest! {
        /// However the keys come, each is told the first time since it was last forgotten, and lines are far fewer than
        /// faults when few sources make them.
        #[test]
        fn few_sources_make_few_lines(keys in proptest::collection::vec(0u64..8, 1..3000)) {
            let mut r = Reporter::new();
            let lines = keys.iter().filter(|&&k| r.fault(k) != Verdict::Hush).count();
            prop_assert!(lines <= 8 * 4);
        }
    }
}
