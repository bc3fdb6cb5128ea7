//! Do the per-vCPU timers fire, when, and with what errors?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::hypercall::{Ret, SET_TIMER_OP, call, set_param, vcpu_op};
use guest_rt::{check, cpu, evtchn, fact, shared, time, trap};

guest_rt::entry!("timer", run);

const VECTOR: u8 = 0xf3;
const MS: u64 = 1_000_000;

static PORT: AtomicU32 = AtomicU32::new(0);
static TICKS: AtomicU32 = AtomicU32::new(0);

fn upcall(_vector: u8) {
    let _ = evtchn::take_selector(0);
    if evtchn::take(PORT.load(Ordering::Acquire)) {
        TICKS.fetch_add(1, Ordering::AcqRel);
    }
}

#[repr(C)]
struct Singleshot {
    deadline: u64,
    flags: u32,
}

fn singleshot(vcpu: u64, deadline: u64, flags: u32) -> Ret {
    vcpu_op(8, vcpu, &mut Singleshot { deadline, flags })
}

fn set_timer(deadline: u64) -> Ret {
    Ret(call(SET_TIMER_OP, [deadline, 0, 0, 0, 0]))
}

/// Waits up to `ms` for `ticks` ticks; returns how many came.
fn ticks_within(ms: u64, ticks: u32) -> u32 {
    cpu::sti();
    time::wait_ms(ms, || TICKS.load(Ordering::Acquire) >= ticks);
    cpu::cli();
    TICKS.swap(0, Ordering::AcqRel)
}

/// Arms by `arm(deadline)` for 20 ms from now and checks that the tick is neither early nor missing.
fn in_future(name: &str, arm: impl Fn(u64) -> Ret) {
    let deadline = time::now() + 20 * MS;
    let ret = arm(deadline);
    fact!(("{name}-ret"), "{ret}");
    let ticks = ticks_within(3000, 1);
    let at = time::now();
    check!(ticks == 1, "{name}: no tick within 3 s");
    check!(
        at >= deadline,
        "{name}: early by {} ns",
        deadline.saturating_sub(at)
    );
    fact!(("{name}-ticks"), "{ticks} early={}", at < deadline);
}

fn run() {
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    let port = evtchn::bind_virq(0, 0).unwrap_or(0);
    check!(port != 0, "no timer VIRQ");
    PORT.store(port, Ordering::Release);
    evtchn::set_mask(port, false);
    trap::hook(VECTOR, upcall);
    check!(
        set_param(0, 2 << 56 | u64::from(VECTOR)) == Ret(0),
        "callback vector refused"
    );

    let mut none = 0u64;
    fact!("stop-periodic-idle", "{}", vcpu_op(7, 0, &mut none));
    fact!("stop-singleshot-idle", "{}", vcpu_op(9, 0, &mut none));
    fact!("stop-periodic-99", "{}", vcpu_op(7, 99, &mut none));
    fact!("idle-ticks", "{}", ticks_within(50, 1));

    in_future("singleshot", |at| singleshot(0, at, 0));
    in_future("singleshot-future-flag", |at| singleshot(0, at, 1));
    in_future("set-timer", set_timer);
    for (name, flags) in [("past", 0), ("past-future-flag", 1)] {
        let ret = singleshot(0, time::now().saturating_sub(MS), flags);
        fact!(
            ("singleshot-{name}"),
            "{ret} ticks={}",
            ticks_within(500, 1)
        );
    }
    fact!(
        "singleshot-0",
        "{} ticks={}",
        singleshot(0, 0, 0),
        ticks_within(500, 1)
    );
    fact!(
        "singleshot-1",
        "{} ticks={}",
        singleshot(0, 1, 0),
        ticks_within(500, 1)
    );
    fact!(
        "singleshot-other-flags",
        "{}",
        singleshot(0, time::now() + 10_000 * MS, 0xffff_fffe)
    );
    fact!("singleshot-other-flags-ticks", "{}", ticks_within(50, 1));
    fact!(
        "singleshot-never",
        "{} ticks={}",
        singleshot(0, u64::MAX, 0),
        ticks_within(50, 1)
    );
    fact!(
        "singleshot-signed-max",
        "{} ticks={}",
        singleshot(0, i64::MAX as u64, 0),
        ticks_within(50, 1)
    );
    fact!(
        "singleshot-vcpu-1",
        "{}",
        singleshot(1, time::now() + MS, 0)
    );
    fact!(
        "singleshot-vcpu-99",
        "{}",
        singleshot(99, time::now() + MS, 0)
    );
    fact!("singleshot-stopped", "{}", {
        let armed = singleshot(0, time::now() + 20 * MS, 0);
        check!(armed == Ret(0), "arming failed: {armed}");
        let ret = vcpu_op(9, 0, &mut none);
        check!(ret == Ret(0), "stop failed: {ret}");
        ticks_within(100, 1)
    });
    fact!("stop-singleshot-vcpu-1", "{}", vcpu_op(9, 1, &mut none));

    fact!(
        "set-timer-past",
        "{} ticks={}",
        set_timer(1),
        ticks_within(500, 1)
    );
    fact!(
        "set-timer-0",
        "{} ticks={}",
        set_timer(0),
        ticks_within(50, 1)
    );
    fact!("set-timer-stopped", "{}", {
        let armed = set_timer(time::now() + 20 * MS);
        check!(armed == Ret(0), "arming failed: {armed}");
        let ret = set_timer(0);
        check!(ret == Ret(0), "stop failed: {ret}");
        ticks_within(100, 1)
    });
    fact!(
        "set-timer-never",
        "{} ticks={}",
        set_timer(u64::MAX),
        ticks_within(50, 1)
    );
    fact!(
        "set-timer-negative",
        "{} ticks={}",
        set_timer(1 << 63),
        ticks_within(50, 1)
    );
    let _ = set_timer(0);
    let _ = ticks_within(20, 1);

    fact!("periodic-0", "{}", vcpu_op(6, 0, &mut 0u64));
    fact!("periodic-too-quick", "{}", vcpu_op(6, 0, &mut 999_999u64));
    fact!("periodic-too-slow", "{}", vcpu_op(6, 0, &mut { u64::MAX }));
    fact!("periodic", "{}", vcpu_op(6, 0, &mut (10 * MS)));
    let ticks = ticks_within(5000, 5);
    check!(ticks >= 5, "{ticks} periodic ticks in 5 s");
    fact!("periodic-stop", "{}", vcpu_op(7, 0, &mut none));
    let _ = ticks_within(30, 1000);
    fact!("periodic-after-stop", "{}", ticks_within(50, 1));

    // A halted processor is woken by its timer.
    let deadline = time::now() + 20 * MS;
    check!(singleshot(0, deadline, 0) == Ret(0), "arming failed");
    cpu::sti_hlt_cli();
    fact!(
        "hlt-woken",
        "ticks={} early={}",
        TICKS.swap(0, Ordering::AcqRel),
        time::now() < deadline
    );
}
