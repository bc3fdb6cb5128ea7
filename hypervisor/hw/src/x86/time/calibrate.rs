//! Rate of the TSC by comparison with a clock of known rate: HPET, else PM timer, else PIT.

use x86_model::acpi::GenericAddress;
use x86_model::clock::{Sample, khz_from_samples};

use super::super::asm::{inb, inl, outb, pause, rdtsc, rdtsc_ordered};
use crate::warn;

/// The clocks that the firmware describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct References {
    /// Mapped registers of the HPET.
    pub hpet: Option<*mut u8>,
    /// PM timer, and whether it has 32 bits.
    pub pm_timer: Option<(GenericAddress, bool)>,
}

/// How long to compare. The uncertainty of one reading is about a microsecond on hardware and in emulators.
const SPAN_NS: u64 = 20_000_000;
const FS_PER_NS: u64 = 1_000_000;
/// Readings of which the tightest counts: the first run through cold caches, or translated code not made yet.
const TRIES: u32 = 30;
/// 3.579545 MHz.
const PM_PERIOD_FS: u64 = 279_365_115;
/// 1.193182 MHz.
const PIT_PERIOD_FS: u64 = 838_095_345;

/// kHz and the name of the clock that was used.
pub(super) fn tsc_khz(references: &References) -> Option<(u32, &'static str)> {
    if let Some(base) = references.hpet {
        match hpet(base) {
            Some(khz) => return Some((khz, "HPET")),
            None => warn!("HPET: its counter does not run, not used"),
        }
    }
    if let Some((register, wide)) = references.pm_timer
        && register.space == GenericAddress::IO
        && let Ok(port) = u16::try_from(register.address)
    {
        let bits = if wide { 32 } else { 24 };
        match compare(|| u64::from(inl(port)), bits, PM_PERIOD_FS) {
            Some(khz) => return Some((khz, "PM timer")),
            None => warn!("PM timer at port {port:#x}: does not run, not used"),
        }
    }
    pit().map(|khz| (khz, "PIT"))
}

fn hpet(base: *mut u8) -> Option<u32> {
    const CAPABILITIES: usize = 0;
    const CONFIG: usize = 0x10;
    const COUNTER: usize = 0xf0;
    // 32-bit accesses: some chipsets and emulators split or refuse wider ones.
    let read = |at: usize| {
        // SAFETY: `base` is a mapped HPET register block, by the caller, and `at` one of its registers.
        unsafe { base.add(at).cast::<u32>().read_volatile() }
    };
    let period = u64::from(read(CAPABILITIES + 4));
    // The specification allows at most 100 ns.
    if period == 0 || period > 100_000_000 {
        return None;
    }
    let config = read(CONFIG);
    // SAFETY: see above; starting the counter disturbs nobody, since its comparators stay as they are.
    unsafe { base.add(CONFIG).cast::<u32>().write_volatile(config | 1) };
    compare(|| u64::from(read(COUNTER)), 32, period)
}

/// Reads `reference` between two readings of the TSC, keeping the tightest of a few tries.
pub(super) fn sample(reference: &mut impl FnMut() -> u64) -> Sample {
    let mut best: Option<Sample> = None;
    for _ in 0..TRIES {
        let before = rdtsc_ordered();
        let value = reference();
        let after = rdtsc_ordered();
        let s = Sample {
            before,
            reference: value,
            after,
        };
        if best.is_none_or(|b| s.width() < b.width()) {
            best = Some(s);
        }
    }
    best.unwrap_or(Sample {
        before: 0,
        reference: 0,
        after: 0,
    })
}

fn compare(mut reference: impl FnMut() -> u64, bits: u32, period_fs: u64) -> Option<u32> {
    let mask = u64::MAX >> (64 - bits);
    let span = SPAN_NS * FS_PER_NS / period_fs;
    let start = sample(&mut reference);
    // Bounded by TSC ticks too, for a counter that stands still: 20 ms are 200 M ticks at 10 GHz.
    let limit = rdtsc().wrapping_add(400_000_000);
    loop {
        let now = reference();
        if now.wrapping_sub(start.reference) & mask >= span {
            break;
        }
        if (rdtsc().wrapping_sub(limit) as i64) > 0 {
            return None;
        }
        pause();
    }
    let end = sample(&mut reference);
    khz_from_samples(start, end, bits, period_fs)
}

/// Lets channel 2 of the PIT run round its 16 bits and reads it by latching. Polling its output pin for one run instead
/// would take every delay of the poll for time of the PIT.
fn pit() -> Option<u32> {
    const GATE: u16 = 0x61;
    const COMMAND: u16 = 0x43;
    const CHANNEL2: u16 = 0x42;
    let gate = inb(GATE);
    // SAFETY: channel 2 raises no interrupt; the speaker stays off.
    unsafe {
        outb(GATE, gate & !2 | 1);
        // Channel 2, low then high byte, mode 2, binary; 0 stands for 65536.
        outb(COMMAND, 0xb4);
        outb(CHANNEL2, 0);
        outb(CHANNEL2, 0);
    }
    let reference = || {
        // SAFETY: latches the count of channel 2.
        unsafe { outb(COMMAND, 0x80) };
        let low = inb(CHANNEL2);
        // It counts down.
        u64::from(!u16::from_le_bytes([low, inb(CHANNEL2)]))
    };
    let khz = compare(reference, 16, PIT_PERIOD_FS);
    // SAFETY: see above; the former state comes back.
    unsafe { outb(GATE, gate) };
    khz
}
