//! The CMOS clock's registers decoded to seconds since 1970 (MC146818 data sheet).

/// One consistent reading of registers 0, 2, 4, 7, 8, 9, the century register and status B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub struct Reading {
    pub second: u8,
    pub minute: u8,
    pub hour: u8,
    pub day: u8,
    pub month: u8,
    pub year: u8,
    /// `None` if the firmware names no register for it.
    pub century: Option<u8>,
    pub status_b: u8,
}

/// Status B: hours count to 24.
const HOURS_24: u8 = 1 << 1;
/// Status B: binary, not BCD.
const BINARY: u8 = 1 << 2;
/// Hour register: afternoon, in 12-hour mode.
const PM: u8 = 0x80;

/// Seconds since 1970-01-01, taking the clock as UTC. `None` if a field is out of range.
pub fn unix_seconds(r: &Reading) -> Option<u64> {
    let field = |v: u8| {
        if r.status_b & BINARY != 0 {
            Some(u64::from(v))
        } else {
            (v & 15 < 10 && v >> 4 < 10).then(|| u64::from(v >> 4) * 10 + u64::from(v & 15))
        }
    };
    let mut hour = field(if r.status_b & HOURS_24 != 0 {
        r.hour
    } else {
        r.hour & !PM
    })?;
    if r.status_b & HOURS_24 == 0 {
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour %= 12;
        if r.hour & PM != 0 {
            hour += 12;
        }
    }
    let year = field(r.year)?;
    let century = match r.century.and_then(field) {
        Some(c @ 19..=29) => c,
        _ if year < 70 => 20,
        _ => 19,
    };
    let (second, minute) = (field(r.second)?, field(r.minute)?);
    let (day, month) = (field(r.day)?, field(r.month)?);
    let valid = second < 60
        && minute < 60
        && hour < 24
        && (1..=31).contains(&day)
        && (1..=12).contains(&month)
        && year < 100;
    if !valid {
        return None;
    }
    let days = days_from_civil(century * 100 + year, month, day)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, from 1970 on.
fn days_from_civil(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years that start in March put the leap day last.
    let y = if month <= 2 { year - 1 } else { year };
    let m = (month + 9) % 12;
    let to_date = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    to_date.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BCD: Reading = Reading {
        second: 0x56,
        minute: 0x34,
        hour: 0x12,
        day: 0x29,
        month: 0x02,
        year: 0x24,
        century: Some(0x20),
        status_b: HOURS_24,
    };

    #[test]
    fn forms_of_the_same_instant() {
        assert_eq!(unix_seconds(&BCD), Some(1_709_210_096));
        let binary = Reading {
            second: 56,
            minute: 34,
            hour: 12 | PM,
            day: 29,
            month: 2,
            year: 24,
            century: None,
            status_b: BINARY,
        };
        assert_eq!(unix_seconds(&binary), Some(1_709_210_096));
        assert_eq!(
            unix_seconds(&Reading {
                century: Some(0xff),
                ..BCD
            }),
            Some(1_709_210_096)
        );
    }

    #[test]
    fn edges() {
        let epoch = Reading {
            second: 0,
            minute: 0,
            hour: 0,
            day: 1,
            month: 1,
            year: 0x70,
            century: Some(0x19),
            status_b: HOURS_24,
        };
        assert_eq!(unix_seconds(&epoch), Some(0));
        let midnight = Reading {
            hour: 0x12,
            status_b: 0,
            ..epoch
        };
        assert_eq!(unix_seconds(&midnight), Some(0));
        assert_eq!(
            unix_seconds(&Reading {
                year: 0x00,
                month: 3,
                century: Some(0x21),
                ..epoch
            }),
            Some(4_107_542_400)
        );
        for bad in [
            Reading {
                second: 0x60,
                ..BCD
            },
            Reading {
                minute: 0x1a,
                ..BCD
            },
            Reading { month: 0, ..BCD },
            Reading { day: 0x32, ..BCD },
            Reading { hour: 0x24, ..BCD },
            Reading {
                hour: 0x13,
                status_b: 0,
                ..BCD
            },
        ] {
            assert_eq!(unix_seconds(&bad), None, "{bad:?}");
        }
    }
}
