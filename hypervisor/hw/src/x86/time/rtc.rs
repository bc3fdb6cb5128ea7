//! The CMOS clock, read once at boot.

use x86_model::rtc::{Reading, unix_seconds};

use super::super::asm::{inb, outb, rdtsc};

const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const UPDATING: u8 = 0x80;

fn register(index: u8) -> u8 {
    // SAFETY: reading the clock. Bit 7 of the index stays clear, so NMIs stay enabled.
    unsafe { outb(INDEX, index & 0x7f) };
    inb(DATA)
}

fn reading(century: u8) -> Reading {
    Reading {
        second: register(0),
        minute: register(2),
        hour: register(4),
        day: register(7),
        month: register(8),
        year: register(9),
        century: (century != 0 && century < 0x80).then(|| register(century)),
        status_b: register(STATUS_B),
    }
}

/// Seconds since 1970, from two equal readings outside the update of the registers. `None` if the clock shows nonsense
/// or never settles. `century`: index of the century register, 0 if there is none.
pub(super) fn read(century: u8) -> Option<u64> {
    // An update takes 2 ms; give up after about a second.
    let start = rdtsc();
    while rdtsc().wrapping_sub(start) < 4_000_000_000 {
        if register(STATUS_A) & UPDATING != 0 {
            continue;
        }
        let first = reading(century);
        if register(STATUS_A) & UPDATING == 0 && reading(century) == first {
            return unix_seconds(&first);
        }
    }
    None
}
