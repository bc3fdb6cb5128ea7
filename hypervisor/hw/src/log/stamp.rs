//! `console_timestamps=`: what stands before each line.

use core::fmt::{self, Write};

/// Kind of time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stamps {
    /// Nothing.
    None = 0,
    /// Date and time, seconds.
    Date,
    /// Date and time, milliseconds.
    DateMs,
    /// Seconds since boot, microseconds.
    Boot,
    /// The time stamp counter, hexadecimal.
    Raw,
}

impl Stamps {
    /// Writes the stamp. `boot_ns`: time since boot, if the clock runs yet; `wall`: seconds since 1970 and nanoseconds, if
    /// known. Falls back from date to boot time to the counter.
    pub fn write(
        self,
        to: &mut impl Write,
        tsc: u64,
        boot_ns: Option<u64>,
        wall: Option<(u64, u32)>,
    ) -> fmt::Result {
        match (self, wall, boot_ns) {
            (Stamps::None, ..) => Ok(()),
            (Stamps::Date | Stamps::DateMs, Some((secs, ns)), _) => {
                let (y, mo, d) = civil(secs / 86_400);
                let s = secs % 86_400;
                write!(
                    to,
                    "[{y:04}-{mo:02}-{d:02} {:02}:{:02}:{:02}",
                    s / 3600,
                    s / 60 % 60,
                    s % 60
                )?;
                if self == Stamps::DateMs {
                    write!(to, ".{:03}", ns / 1_000_000)?;
                }
                to.write_str("] ")
            }
            (Stamps::Raw, ..) | (_, _, None) => write!(to, "[{tsc:016x}] "),
            (_, _, Some(ns)) => write!(
                to,
                "[{:5}.{:06}] ",
                ns / 1_000_000_000,
                ns / 1000 % 1_000_000
            ),
        }
    }
}

/// Days since 1970-01-01 as year, month, day of the Gregorian calendar. Counts in years that start on 1 March, so that
/// the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01; an era is 400 years.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let m = (5 * of_year + 2) / 153;
    let day = of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn text(s: Stamps, boot: Option<u64>, wall: Option<(u64, u32)>) -> String {
        let mut t = String::new();
        s.write(&mut t, 0xabc, boot, wall).unwrap();
        t
    }

    #[test]
    fn writes_each_kind() {
        let wall = Some((1_709_210_096, 7_000_000));
        assert_eq!(text(Stamps::Date, Some(1), wall), "[2024-02-29 12:34:56] ");
        assert_eq!(
            text(Stamps::DateMs, Some(1), wall),
            "[2024-02-29 12:34:56.007] "
        );
        assert_eq!(
            text(Stamps::Boot, Some(1_234_567_890), wall),
            "[    1.234567] "
        );
        assert_eq!(text(Stamps::Raw, Some(1), wall), "[0000000000000abc] ");
        assert_eq!(text(Stamps::None, Some(1), wall), "");
        assert_eq!(text(Stamps::Date, None, None), "[0000000000000abc] ");
        assert_eq!(text(Stamps::Date, Some(0), None), "[    0.000000] ");
    }

    #[test]
    fn calendar_corners() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(47_541), (2100, 3, 1));
    }
}
