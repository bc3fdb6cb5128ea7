//! What does an interrupt from one vCPU cost another: exits of one that runs, and is one that sleeps woken each time?
//!
//! Command line: `expect=none` (posted: no exit) or `expect=each` (an exit for each), `rounds=` wake-ups of the sleeper.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use guest_rt::hypercall::{Ret, hvm_op};
use guest_rt::{check, cpu, evtchn, fact, lapic, shared, smp, start, time, trap};

guest_rt::entry!("posted", run);

const IPI: u8 = 0x51;
const UPCALL: u8 = 0x61;
/// Interrupts of each kind that the running vCPU is sent.
const SENT: u32 = 2000;
/// Wake-ups if the command line does not say how many.
const ROUNDS: u32 = 2000;
/// How long one interrupt may take, in milliseconds.
const PATIENCE: u64 = 5000;
const TARGET: usize = 1;

static STOP: AtomicBool = AtomicBool::new(false);
static HALTS: AtomicU32 = AtomicU32::new(0);
static PORT: AtomicU32 = AtomicU32::new(0);
/// Interrupts that the target has dealt with.
static TAKEN: AtomicU32 = AtomicU32::new(0);

fn set_up() {
    if lapic::enable_x2apic().is_ok() {
        lapic::enable();
    }
}

/// Runs without an instruction that exits.
fn spin() {
    cpu::sti();
    while !STOP.load(Ordering::Acquire) {
        cpu::pause();
    }
    cpu::cli();
}

/// Sleeps again after each interrupt.
fn sleep() {
    while !STOP.load(Ordering::Acquire) {
        HALTS.fetch_add(1, Ordering::AcqRel);
        cpu::sti_hlt_cli();
    }
}

/// Ends the interrupt without a look at the APIC's mode, which would exit.
fn end(_: u8) {
    TAKEN.fetch_add(1, Ordering::AcqRel);
    cpu::wrmsr(0x800 + lapic::EOI, 0);
}

/// Counted when nothing is pending any more: an event that is sent before would be taken with the one before it.
fn upcall(vector: u8) {
    let _ = evtchn::take_selector(TARGET);
    let _ = evtchn::take(PORT.load(Ordering::Acquire));
    end(vector);
}

/// Exits of the target so far, by the hypervisor's count.
fn exits() -> Option<u64> {
    guest_rt::exits::of(0, TARGET as u8)
}

/// Sends one and waits until the target has taken it.
fn round(send: fn()) -> bool {
    let before = TAKEN.load(Ordering::Acquire);
    send();
    time::wait_ms(PATIENCE, || TAKEN.load(Ordering::Acquire) != before)
}

fn send_ipi() {
    lapic::send(smp::apic_id(TARGET), u32::from(IPI));
}

fn send_event() {
    let _ = evtchn::send(PORT.load(Ordering::Acquire));
}

/// Exits of the running target while it takes `SENT` interrupts; `None` if one does not arrive.
fn cost(vector: u8, send: fn()) -> Option<u64> {
    let before = exits()?;
    for n in 0..SENT {
        if !round(send) {
            check!(false, "interrupt {n} of {vector:#x} does not arrive");
            return None;
        }
    }
    Some(exits()? - before)
}

fn running() {
    STOP.store(false, Ordering::Release);
    smp::start_on(TARGET, spin);
    // It is in its loop, and has left guest mode for the last time.
    time::spin_ms(20);
    for (name, vector, send) in [
        ("running-ipi", IPI, send_ipi as fn()),
        ("running-event", UPCALL, send_event),
    ] {
        // Now and then the hypervisor's own timer adds one: the best of three counts.
        let mut least = cost(vector, send);
        for _ in 1..3 {
            if least == Some(0) {
                break;
            }
            least = least.min(cost(vector, send));
        }
        let Some(exits) = least else {
            break;
        };
        fact!(("{name}"), "sent={SENT} exits={exits}");
        match start::option("expect") {
            Some("none") => {
                check!(exits == 0, "{name}: {exits} exits");
            }
            Some("each") => {
                check!(exits >= SENT.into(), "{name}: {exits} exits only");
            }
            _ => {}
        }
    }
    STOP.store(true, Ordering::Release);
    check!(
        time::wait_ms(PATIENCE, || smp::idle(TARGET)),
        "the target does not stop"
    );
}

fn sleeping(rounds: u32) {
    STOP.store(false, Ordering::Release);
    HALTS.store(0, Ordering::Release);
    smp::start_on(TARGET, sleep);
    let mut done = 0;
    while done < rounds {
        // The next one finds it in its handler, on its way to sleep, or asleep.
        for _ in 0..done * 7 % 1500 {
            cpu::pause();
        }
        if !round(send_ipi) {
            break;
        }
        done += 1;
    }
    let halts = HALTS.load(Ordering::Acquire);
    fact!("sleeping", "rounds={done} halts={halts}");
    check!(done == rounds, "wake-up {done} is lost");
    check!(halts >= rounds / 2, "it did not sleep: {halts} times");
    STOP.store(true, Ordering::Release);
    send_ipi();
    check!(
        time::wait_ms(PATIENCE, || smp::idle(TARGET)),
        "the target does not stop"
    );
}

fn run() {
    let rounds = start::option("rounds").and_then(|r| r.parse().ok());
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    if smp::start_all() < 2 || exits().is_none() {
        guest_rt::report::skip(format_args!("one processor only, or no count of its exits"));
        return;
    }
    set_up();
    check!(smp::run_on(TARGET, set_up), "the target does not start");
    trap::hook(IPI, end);
    trap::hook(UPCALL, upcall);
    let vector = hvm_op(23, &mut [TARGET as u32, u32::from(UPCALL)]);
    let port = evtchn::bind_ipi(TARGET as u32).unwrap_or(0);
    check!(
        vector == Ret(0) && port != 0,
        "no event channel: {vector}, port {port}"
    );
    PORT.store(port, Ordering::Release);
    evtchn::set_mask(port, false);
    running();
    sleeping(rounds.unwrap_or(ROUNDS));
}
