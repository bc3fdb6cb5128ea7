//! This CPU's timer interrupt: TSC-deadline mode where the APIC has it, else one-shot with a measured rate.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use x86_model::regs::apic::{self, reg};
use x86_model::regs::msr;

use super::super::apic::{self as lapic, vectors};
use super::super::asm;
use super::super::cpu::features;
use super::super::cpu::percpu::{self, NO_DEADLINE};
use super::{calibrate, now_ns, ns_to_tsc, tsc_khz};
use crate::info;

static DEADLINE_MODE: AtomicBool = AtomicBool::new(false);
/// One-shot mode: APIC timer counts per nanosecond, 32.32.
static COUNTS_PER_NS: AtomicU64 = AtomicU64::new(0);

/// Chooses the mode and measures the one-shot rate. Boot CPU, after the clock and the APIC run.
pub fn init_boot() {
    let deadline = features::get().tsc_deadline;
    DEADLINE_MODE.store(deadline, Ordering::Release);
    if deadline {
        info!("Timer: TSC deadline");
    } else {
        let khz = measure();
        COUNTS_PER_NS.store((khz << 32) / 1_000_000, Ordering::Release);
        info!(
            "Timer: one-shot local APIC timer, {}.{:03} MHz",
            khz / 1000,
            khz % 1000
        );
    }
    init_cpu();
}

/// Readies this CPU's timer, unarmed.
pub fn init_cpu() {
    let vector = u32::from(vectors::TIMER);
    if DEADLINE_MODE.load(Ordering::Acquire) {
        lapic::write(reg::LVT_TIMER, vector | apic::TIMER_TSC_DEADLINE);
        // The mode must be in force before the first deadline (SDM vol. 3, 12.5.4.1).
        asm::mfence();
        set_msr(0);
    } else {
        lapic::write(reg::TIMER_DIVIDE, apic::DIVIDE_BY_1);
        lapic::write(reg::LVT_TIMER, vector);
        lapic::write(reg::TIMER_INITIAL, 0);
    }
    percpu::this()
        .deadline
        .store(NO_DEADLINE, Ordering::Relaxed);
}

/// kHz of the APIC timer, against the TSC over 10 ms.
fn measure() -> u64 {
    const SPAN_NS: u64 = 10_000_000;
    lapic::write(reg::TIMER_DIVIDE, apic::DIVIDE_BY_1);
    lapic::write(reg::LVT_TIMER, apic::LVT_MASKED);
    lapic::write(reg::TIMER_INITIAL, u32::MAX);
    let mut elapsed = || u64::from(!lapic::read(reg::TIMER_CURRENT));
    let start = calibrate::sample(&mut elapsed);
    let until = now_ns() + SPAN_NS;
    while now_ns() < until {
        asm::pause();
    }
    let end = calibrate::sample(&mut elapsed);
    lapic::write(reg::TIMER_INITIAL, 0);
    let counts = u128::from(end.reference.saturating_sub(start.reference));
    let ticks = u128::from(end.middle().wrapping_sub(start.middle())).max(1);
    // At least 1 kHz, so that a stopped counter cannot make the rate zero.
    ((counts * u128::from(tsc_khz()) + ticks / 2) / ticks).max(1) as u64
}

fn set_msr(tsc: u64) {
    // SAFETY: arms or stops a timer whose vector has a stub.
    unsafe { asm::wrmsr(msr::TSC_DEADLINE, tsc) };
}

/// Arms this CPU's timer for an absolute time, or stops it. An unchanged deadline costs one comparison.
#[inline]
pub fn set(deadline_ns: Option<u64>) {
    let cpu = percpu::this();
    let wanted = deadline_ns.unwrap_or(NO_DEADLINE);
    if cpu.deadline.load(Ordering::Relaxed) == wanted {
        return;
    }
    cpu.deadline.store(wanted, Ordering::Relaxed);
    program(wanted);
}

fn program(deadline: u64) {
    if DEADLINE_MODE.load(Ordering::Relaxed) {
        // 0 stops; a time in the past fires at once.
        set_msr(if deadline == NO_DEADLINE {
            0
        } else {
            ns_to_tsc(deadline).max(1)
        });
        return;
    }
    let count = if deadline == NO_DEADLINE {
        0
    } else {
        let wait = deadline.saturating_sub(now_ns());
        let counts = (u128::from(wait) * u128::from(COUNTS_PER_NS.load(Ordering::Relaxed))) >> 32;
        // Beyond the counter's range it fires early, and `fired` arms it again.
        u32::try_from(counts).unwrap_or(u32::MAX).max(1)
    };
    lapic::write(reg::TIMER_INITIAL, count);
}

/// Called for each timer vector. True if the deadline has come (it is then forgotten); false if the interrupt was early,
/// late after a stop, or the range was too short, in which case the timer is armed again as needed.
pub fn fired() -> bool {
    let cpu = percpu::this();
    let deadline = cpu.deadline.load(Ordering::Relaxed);
    if deadline == NO_DEADLINE {
        return false;
    }
    if deadline > now_ns() {
        program(deadline);
        return false;
    }
    cpu.deadline.store(NO_DEADLINE, Ordering::Relaxed);
    true
}
