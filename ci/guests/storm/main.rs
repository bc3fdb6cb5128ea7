//! Does every interrupt come, once, and only while the interrupt flag is set? IPIs in a ring and timers, for some seconds, on
//! all processors at once, with stretches of code that has interrupts off.
//!
//! Split locks make an emulator stop all its processors at odd moments, which brings out interrupts that are delivered twice.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use guest_rt::boot::MAX_CPUS;
use guest_rt::lapic::{self, LVT_TIMER, TIMER_DIVIDE, TIMER_INIT};
use guest_rt::{check, cpu, fact, shared, smp, time, trap};

guest_rt::entry!("storm", run);

const TOKEN: u8 = 0x51;
const TIMER: u8 = 0x62;
/// How long it storms.
const SECONDS: u64 = 5;
/// A token that has not come after this long is lost. The host of an emulator may be busy.
const PATIENCE_MS: u64 = 3000;
/// 100 to 612 microseconds of Xen's virtual bus.
const TIMER_TICKS: u32 = 10_000;

static READY: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);
static DONE: AtomicBool = AtomicBool::new(false);
static SENT: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static TAKEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static ARMED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static FIRED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static LOST_TOKENS: AtomicU64 = AtomicU64::new(0);
static LOST_TIMERS: AtomicU64 = AtomicU64::new(0);

fn on_token(_: u8) {
    TAKEN[cpu::index()].fetch_add(1, Ordering::AcqRel);
}

fn on_timer(_: u8) {
    FIRED[cpu::index()].fetch_add(1, Ordering::AcqRel);
}

fn run() {
    shared::init();
    time::calibrate();
    trap::hook(TOKEN, on_token);
    trap::hook(TIMER, on_timer);
    trap::acknowledge(TOKEN, true);
    trap::acknowledge(TIMER, true);
    let count = smp::start_all();
    fact!("processors", "{count}");
    for index in 1..count {
        smp::start_on(index, storm);
    }
    let mut seed = prepare();
    let start = time::now();
    while time::now() - start < SECONDS * 1_000_000_000 {
        round(0, &mut seed);
    }
    DONE.store(true, Ordering::Release);
    leave();
    let sum = |of: &[AtomicU64]| of.iter().map(|n| n.load(Ordering::Acquire)).sum::<u64>();
    guest_rt::println!(
        "tokens {} of {}, timers {} of {}",
        sum(&TAKEN),
        sum(&SENT),
        sum(&FIRED),
        sum(&ARMED)
    );
    let (tokens, timers) = (
        LOST_TOKENS.load(Ordering::Relaxed),
        LOST_TIMERS.load(Ordering::Relaxed),
    );
    check!(tokens == 0, "{tokens} IPIs did not come");
    check!(timers == 0, "{timers} timer interrupts did not come");
    check!(
        sum(&TAKEN) == sum(&SENT),
        "{} IPIs sent, {} taken",
        sum(&SENT),
        sum(&TAKEN)
    );
    check!(
        sum(&FIRED) == sum(&ARMED),
        "{} timers set, {} fired",
        sum(&ARMED),
        sum(&FIRED)
    );
}

fn prepare() -> u64 {
    if lapic::enable_x2apic().is_err() {
        check!(false, "x2APIC mode is refused");
    }
    lapic::enable();
    lapic::write(TIMER_DIVIDE, 0xb);
    lapic::write(LVT_TIMER, u32::from(TIMER));
    // A token to an APIC that is off would be lost.
    READY.fetch_add(1, Ordering::AcqRel);
    let all = || READY.load(Ordering::Acquire) == smp::count();
    check!(
        time::wait_ms(PATIENCE_MS, all),
        "not all processors come to the start"
    );
    cpu::index() as u64 * 0x9e37_79b9 + 1
}

fn storm() {
    let mut seed = prepare();
    while !DONE.load(Ordering::Acquire) {
        round(cpu::index(), &mut seed);
    }
    leave();
}

/// Takes tokens until every processor has sent its last.
fn leave() {
    LEFT.fetch_add(1, Ordering::AcqRel);
    cpu::sti();
    let all = || LEFT.load(Ordering::Acquire) == smp::count();
    let all = time::wait_ms(3 * PATIENCE_MS, all);
    time::spin_ms(10);
    cpu::cli();
    check!(all, "not all processors end their last round");
}

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % below
}

/// Sets the timer, sends a token to the next processor and waits for both, now with interrupts on, now off for a while.
fn round(own: usize, seed: &mut u64) {
    let timers = FIRED[own].load(Ordering::Acquire);
    ARMED[own].fetch_add(1, Ordering::AcqRel);
    lapic::write(TIMER_INIT, TIMER_TICKS + random(seed, 51_200) as u32);
    let next = (own + 1) % smp::count();
    // One token at a time: a second of the same vector would merge with the first.
    if SENT[next].load(Ordering::Acquire) == TAKEN[next].load(Ordering::Acquire) {
        SENT[next].fetch_add(1, Ordering::AcqRel);
        lapic::send(smp::apic_id(next), u32::from(TOKEN));
    }
    off_for(random(seed, 2000));
    let waits_on = random(seed, 2) == 0;
    let came = || {
        if !waits_on {
            cpu::sti();
            off_for(20);
            cpu::cli();
            off_for(300);
        }
        FIRED[own].load(Ordering::Acquire) != timers
    };
    if waits_on {
        cpu::sti();
    }
    if !time::wait_ms(PATIENCE_MS, came) {
        LOST_TIMERS.fetch_add(1, Ordering::Relaxed);
    }
    let all = || TAKEN[next].load(Ordering::Acquire) == SENT[next].load(Ordering::Acquire);
    cpu::sti();
    if !time::wait_ms(PATIENCE_MS, all) {
        LOST_TOKENS.fetch_add(1, Ordering::Relaxed);
    }
    cpu::cli();
}

/// Some instructions.
fn off_for(loops: u64) {
    for _ in 0..loops {
        core::hint::spin_loop();
    }
    cpu::split_lock();
}
