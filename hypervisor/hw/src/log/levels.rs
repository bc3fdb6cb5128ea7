//! `loglvl=` and `guest_loglvl=`: which lines are printed always, and which only within the rate limit.

use super::Level;

/// Lines at or above `always` are printed; those at or above `limited` within the rate limit; others never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Number of levels that are always printed (0 = none, 4 = all).
    pub always: u8,
    /// Number of levels that are printed at all.
    pub limited: u8,
}

impl Threshold {
    /// What becomes of a line.
    pub const fn verdict(self, of: Level) -> Verdict {
        let n = of as u8;
        if n < self.always {
            Verdict::Print
        } else if n < self.limited {
            Verdict::Limit
        } else {
            Verdict::Drop
        }
    }
}

/// See [`Threshold::verdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Print it.
    Print,
    /// Print it if the rate limit allows.
    Limit,
    /// Leave it out.
    Drop,
}

/// A token bucket over nanoseconds: bursts of `BURST` lines, one more every `STEP_NS`.
#[derive(Debug, Default)]
pub struct RateLimit {
    /// Lines let through that have not been paid back by time; at most `BURST`.
    used: u32,
    last: u64,
    /// Lines left out since the last one that was let through.
    pub missed: u32,
}

impl RateLimit {
    const BURST: u32 = 10;
    const STEP_NS: u64 = 500_000_000;

    /// Nothing used.
    pub const fn new() -> Self {
        RateLimit {
            used: 0,
            last: 0,
            missed: 0,
        }
    }

    /// Whether a line may pass at time `now` (nanoseconds).
    pub fn allow(&mut self, now: u64) -> bool {
        let steps = now.saturating_sub(self.last) / Self::STEP_NS;
        if steps > 0 {
            let paid = u32::try_from(steps).unwrap_or(u32::MAX);
            self.used = self.used.saturating_sub(paid);
            self.last += steps * Self::STEP_NS;
        }
        if self.used < Self::BURST {
            self.used += 1;
            true
        } else {
            self.missed = self.missed.saturating_add(1);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_decide() {
        let t = Threshold {
            always: 2,
            limited: 3,
        };
        assert_eq!(t.verdict(Level::Error), Verdict::Print);
        assert_eq!(t.verdict(Level::Warning), Verdict::Print);
        assert_eq!(t.verdict(Level::Info), Verdict::Limit);
        assert_eq!(t.verdict(Level::Debug), Verdict::Drop);
    }

    #[test]
    fn rate_limit_refills() {
        let mut r = RateLimit::new();
        let passed = (0..100).filter(|_| r.allow(1)).count();
        assert_eq!((passed, r.missed), (10, 90));
        assert!(!r.allow(400_000_000));
        assert!(r.allow(600_000_000));
        assert!(!r.allow(600_000_001));
        let later = (0..100).filter(|_| r.allow(u64::MAX)).count();
        assert_eq!(later, 10);
    }
}
