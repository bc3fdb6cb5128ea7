//! Time: the TSC as the one clock of all CPUs, the wall clock at boot, and each CPU's timer interrupt.
//!
//! Written once at boot by the boot CPU, read-only afterwards, except the armed deadline, which lives in each CPU's
//! block. Reading the clock and arming the timer are on the exit path: a multiplication each, no division, no lock.

mod calibrate;
mod rtc;
mod timer;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use x86_model::clock::Scale;

use super::asm;
use super::cpu::features;
use crate::{info, warn};
pub use calibrate::References;
pub use timer::{
    fired as timer_fired, init_boot as init_timer, init_cpu as init_cpu_timer, set as set_timer,
};

static KHZ: AtomicU32 = AtomicU32::new(0);
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);
static TICKS_PER_NS: AtomicU64 = AtomicU64::new(0);
/// TSC at time 0.
static START: AtomicU64 = AtomicU64::new(0);
static RELIABLE: AtomicBool = AtomicBool::new(false);
static WALL_SECONDS: AtomicU64 = AtomicU64::new(0);
static WALL_NANOS: AtomicU32 = AtomicU32::new(0);

/// What the TSC ran at when nothing at all could be measured: a guess that keeps time moving.
const FALLBACK_KHZ: u32 = 2_000_000;

/// Makes this instant time 0. First thing at boot.
pub fn mark_start() {
    START.store(asm::rdtsc(), Ordering::Relaxed);
}

/// Calibrates the TSC and reads the wall clock. Boot CPU, once. `century` is the CMOS register of that name, 0 if none.
pub fn init(references: &References, century: u8, has_cmos: bool) {
    let (khz, source) = calibrate::tsc_khz(references).unwrap_or_else(|| {
        warn!("No clock to measure the TSC against: assuming {FALLBACK_KHZ} kHz");
        (FALLBACK_KHZ, "a guess")
    });
    // The range check of the measurement excludes 0.
    let scale = Scale::from_khz(khz).unwrap_or(Scale {
        ns_per_tick: 1 << 32,
        ticks_per_ns: 1 << 32,
    });
    NS_PER_TICK.store(scale.ns_per_tick, Ordering::Relaxed);
    TICKS_PER_NS.store(scale.ticks_per_ns, Ordering::Relaxed);
    KHZ.store(khz, Ordering::Release);
    let f = features::get();
    // A hypervisor below us that hides the bit still gives a constant-rate TSC nearly always; emulators do.
    RELIABLE.store(f.invariant_tsc || f.hypervisor, Ordering::Relaxed);
    info!(
        "TSC: {}.{:03} MHz measured against {source}, {}",
        khz / 1000,
        khz % 1000,
        match (f.invariant_tsc, f.hypervisor) {
            (true, _) => "invariant",
            (false, true) => "not marked invariant, but under a hypervisor: taken as constant",
            (false, false) => "not invariant: time may be wrong when the CPU changes its frequency",
        }
    );
    match has_cmos.then(|| rtc::read(century)).flatten() {
        Some(seconds) => {
            let since = now_ns();
            let at_zero = u128::from(seconds) * 1_000_000_000 - u128::from(since);
            WALL_SECONDS.store((at_zero / 1_000_000_000) as u64, Ordering::Relaxed);
            WALL_NANOS.store((at_zero % 1_000_000_000) as u32, Ordering::Relaxed);
        }
        None => warn!("The CMOS clock gives no valid time: wall-clock time starts in 1970"),
    }
}

fn scale() -> Scale {
    Scale {
        ns_per_tick: NS_PER_TICK.load(Ordering::Relaxed),
        ticks_per_ns: TICKS_PER_NS.load(Ordering::Relaxed),
    }
}

/// Nanoseconds since boot; 0 until [`init`]. The same on all CPUs.
#[inline]
pub fn now_ns() -> u64 {
    tsc_to_ns(asm::rdtsc())
}

/// Nanoseconds since boot at a TSC value; values before boot give 0.
#[inline]
pub fn tsc_to_ns(tsc: u64) -> u64 {
    let delta = tsc.saturating_sub(START.load(Ordering::Relaxed));
    scale().to_ns(delta)
}

/// TSC value at a time; at or just after it.
#[inline]
fn ns_to_tsc(ns: u64) -> u64 {
    START
        .load(Ordering::Relaxed)
        .saturating_add(scale().to_ticks(ns))
}

/// TSC rate in kHz; 0 until [`init`].
pub fn tsc_khz() -> u32 {
    KHZ.load(Ordering::Relaxed)
}

/// Whether the TSC is constant and equal on all CPUs.
pub fn tsc_reliable() -> bool {
    RELIABLE.load(Ordering::Relaxed)
}

/// The CPUs' counters were found to disagree.
pub(super) fn mark_unreliable() {
    RELIABLE.store(false, Ordering::Relaxed);
}

/// Seconds since 1970 and nanoseconds at time 0.
pub fn wallclock() -> (u64, u32) {
    (
        WALL_SECONDS.load(Ordering::Relaxed),
        WALL_NANOS.load(Ordering::Relaxed),
    )
}

/// The wall clock now, for the log.
pub fn wall_now() -> (u64, u32) {
    let (seconds, nanos) = wallclock();
    let ns = u64::from(nanos) + now_ns();
    (seconds + ns / 1_000_000_000, (ns % 1_000_000_000) as u32)
}

/// Waits. Only for boot and the end of the machine. Without a clock it counts ticks of a 4 GHz TSC.
pub(super) fn spin_us(us: u64) {
    let ticks = match KHZ.load(Ordering::Acquire) {
        0 => us * 4000,
        khz => us * u64::from(khz) / 1000,
    };
    let start = asm::rdtsc();
    while asm::rdtsc().wrapping_sub(start) < ticks {
        asm::pause();
    }
}
