//! Conversion between the time stamp counter and nanoseconds, without division.
//!
//! Both factors come from the same whole number of kHz that guests are told, so that a guest's clock and the
//! hypervisor's do not drift apart.

/// Factors in 32.32 fixed point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Nanoseconds per tick.
    pub ns_per_tick: u64,
    /// Ticks per nanosecond.
    pub ticks_per_ns: u64,
}

impl Scale {
    /// Scale for a counter of `khz`; `None` for 0.
    pub const fn from_khz(khz: u32) -> Option<Self> {
        if khz == 0 {
            return None;
        }
        let khz = khz as u64;
        Some(Scale {
            ns_per_tick: ((1_000_000 << 32) + khz / 2) / khz,
            ticks_per_ns: ((khz << 32) + 500_000) / 1_000_000,
        })
    }

    /// Ticks to nanoseconds, rounded down; saturates.
    #[inline(always)]
    pub const fn to_ns(self, ticks: u64) -> u64 {
        let v = (ticks as u128 * self.ns_per_tick as u128) >> 32;
        if v > u64::MAX as u128 {
            u64::MAX
        } else {
            v as u64
        }
    }

    /// Nanoseconds to ticks, rounded up by at most one; saturates.
    #[inline(always)]
    pub const fn to_ticks(self, ns: u64) -> u64 {
        let v = ((ns as u128 * self.ticks_per_ns as u128) >> 32) + 1;
        if v > u64::MAX as u128 {
            u64::MAX
        } else {
            v as u64
        }
    }
}

/// One reading of a reference counter, bracketed by two readings of the TSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// TSC before.
    pub before: u64,
    /// Reference counter.
    pub reference: u64,
    /// TSC after.
    pub after: u64,
}

impl Sample {
    /// How long the reading took, in ticks: its uncertainty.
    pub const fn width(&self) -> u64 {
        self.after.wrapping_sub(self.before)
    }
    /// TSC at which the counter was read, most probably.
    pub const fn middle(&self) -> u64 {
        self.before.wrapping_add(self.width() / 2)
    }
}

/// TSC rate in kHz from two samples of a counter that counts `bits` bits at `period_fs` femtoseconds. `None` if the
/// counter stood still or the result is outside 10 MHz .. 100 GHz.
pub fn khz_from_samples(start: Sample, end: Sample, bits: u32, period_fs: u64) -> Option<u32> {
    let mask = u64::MAX.checked_shr(64 - bits)?;
    let counts = end.reference.wrapping_sub(start.reference) & mask;
    let ticks = end.middle().wrapping_sub(start.middle());
    if counts == 0 {
        return None;
    }
    // ticks / (counts * period_fs) in kHz is ticks * 1e12 / (counts * period_fs).
    let span_fs = u128::from(counts) * u128::from(period_fs);
    let khz = (u128::from(ticks) * 1_000_000_000_000 + span_fs / 2).checked_div(span_fs)?;
    u32::try_from(khz)
        .ok()
        .filter(|k| (10_000..=100_000_000).contains(k))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_figures() {
        let s = Scale::from_khz(2_000_000).unwrap();
        assert_eq!(s.to_ns(2_000_000_000), 1_000_000_000);
        assert_eq!(s.to_ticks(1_000), 2_001);
        assert_eq!(Scale::from_khz(0), None);
        assert_eq!(s.to_ns(u64::MAX), u64::MAX / 2);
        assert_eq!(s.to_ticks(u64::MAX), u64::MAX);
        assert_eq!(Scale::from_khz(100_000).unwrap().to_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn calibration_by_hpet_and_wrapping_pm_timer() {
        let start = Sample {
            before: 1000,
            reference: 5,
            after: 1200,
        };
        // 14.318180 MHz HPET for 143182 counts is about 10 ms; 3 GHz.
        let end = Sample {
            before: 1000 + 30_000_030,
            reference: 5 + 143_182,
            after: 1200 + 30_000_030,
        };
        let khz = khz_from_samples(start, end, 32, 69_841_279).unwrap();
        assert!((2_999_990..=3_000_010).contains(&khz), "{khz}");
        let start = Sample {
            reference: 0xff_ffff,
            ..start
        };
        let end = Sample {
            reference: 35_794,
            ..end
        };
        let khz = khz_from_samples(start, end, 24, 279_365_115).unwrap();
        assert!((2_999_000..=3_001_000).contains(&khz), "{khz}");
        assert_eq!(khz_from_samples(start, start, 24, 279_365_115), None);
        assert_eq!(khz_from_samples(start, end, 24, 0), None);
    }

    proptest! {
        #[test]
        fn there_and_back(khz in 100_000u32..8_000_000, ns in 0u64..1 << 55) {
            let s = Scale::from_khz(khz).unwrap();
            let back = s.to_ns(s.to_ticks(ns));
            // Ten days in 2^-31 relative error, plus one tick.
            let slack = (ns >> 28) + 20;
            prop_assert!(back.abs_diff(ns) <= slack, "{ns} became {back}");
        }

        #[test]
        fn monotone(khz in 10_000u32..100_000_000, a: u64, b: u64) {
            let s = Scale::from_khz(khz).unwrap();
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(s.to_ns(a) <= s.to_ns(b));
            prop_assert!(s.to_ticks(a) <= s.to_ticks(b));
        }
    }
}
