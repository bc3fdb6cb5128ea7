//! What do vcpu_op and vm_assist do: vcpu_info, run states, errors?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::hypercall::{Ret, VM_ASSIST, call, set_param, vcpu_op};
use guest_rt::{Page, check, cpu, evtchn, fact, shared, time, trap};

guest_rt::entry!("vcpu", run);

const VECTOR: u8 = 0xf3;
const MS: u64 = 1_000_000;

static INFO: Page = Page::new();
static STATE: Page = Page::new();
static TIME: Page = Page::new();

#[repr(C)]
struct RegisterInfo {
    gfn: u64,
    offset: u32,
    reserved: u32,
}

fn register_info(vcpu: u64, gfn: u64, offset: u32) -> Ret {
    vcpu_op(
        10,
        vcpu,
        &mut RegisterInfo {
            gfn,
            offset,
            reserved: 0,
        },
    )
}

/// state, entry time, time in each of the four states.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RunState {
    state: u32,
    pad: u32,
    entry: u64,
    time: [u64; 4],
}

fn run() {
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    info();
    run_states();
    errors();
}

fn info() {
    for (name, vcpu, gfn, offset) in [
        ("offset-1", 0, INFO.gfn(), 1),
        ("offset-4", 0, INFO.gfn(), 4),
        ("offset-4064", 0, INFO.gfn(), 4064),
        ("offset-4040", 0, INFO.gfn(), 4040),
        ("offset-huge", 0, INFO.gfn(), 0xffff_fff8),
        ("hole", 0, HOLE >> 12, 0),
        ("gfn-ones", 0, u64::MAX, 0),
        ("vcpu-99", 99, INFO.gfn(), 0),
    ] {
        fact!(("info-{name}"), "{}", register_info(vcpu, gfn, offset));
    }
    let _ = evtchn::take_selector(0);
    let before = shared::SHARED.u32(56).load(Ordering::Acquire);
    let ret = register_info(0, INFO.gfn(), 128);
    fact!("info", "{ret}");
    check!(ret == Ret(0), "vcpu_info refused: {ret}");
    fact!(
        "info-after",
        "pending={} mask={} selector={:#x}",
        INFO.u8(128).load(Ordering::Acquire),
        INFO.u8(129).load(Ordering::Acquire),
        INFO.u64(136).load(Ordering::Acquire)
    );
    let mul = INFO.u32(128 + 56).load(Ordering::Acquire);
    check!(
        mul != 0 && mul == before,
        "clock of the new vcpu_info: multiplier {mul}, was {before}"
    );
    fact!("info-again-same", "{}", register_info(0, INFO.gfn(), 128));
    fact!("info-again-other", "{}", register_info(0, INFO.gfn(), 256));
    // A vCPU that is down can be prepared.
    fact!("info-vcpu-1", "{}", register_info(1, INFO.gfn(), 512));
    fact!(
        "info-vcpu-1-after",
        "pending={} selector={:#x} multiplier={}",
        INFO.u8(512).load(Ordering::Acquire),
        INFO.u64(520).load(Ordering::Acquire),
        INFO.u32(512 + 56).load(Ordering::Acquire) != 0
    );
    // Events now arrive in the new place only.
    INFO.u64(136).store(0, Ordering::Release);
    INFO.u8(128).store(0, Ordering::Release);
    let port = evtchn::bind_ipi(0).unwrap_or(0);
    evtchn::set_mask(port, false);
    let _ = (
        evtchn::take(port),
        evtchn::take_selector(0),
        evtchn::send(port),
    );
    fact!(
        "event-after",
        "new={} old={}",
        INFO.u8(128).load(Ordering::Acquire),
        shared::SHARED.u8(0).load(Ordering::Acquire)
    );
    let _ = evtchn::close(port);
    INFO.u64(136).store(0, Ordering::Release);
    INFO.u8(128).store(0, Ordering::Release);
}

fn upcall(_vector: u8) {
    INFO.u64(136).store(0, Ordering::Release);
    INFO.u8(128).store(0, Ordering::Release);
    for port in 1..16 {
        let _ = evtchn::take(port);
    }
}

fn run_states() {
    let mut state = RunState::default();
    fact!(
        "runstate",
        "{} state={}",
        vcpu_op(4, 0, &mut state),
        state.state
    );
    check!(
        state.state == 0,
        "a running vCPU is in state {}",
        state.state
    );
    let mut other = RunState::default();
    fact!(
        "runstate-vcpu-1",
        "{} state={}",
        vcpu_op(4, 1, &mut other),
        other.state
    );
    fact!("runstate-vcpu-99", "{}", vcpu_op(4, 99, &mut other));
    let area = STATE.address() + 64;
    fact!("area-vcpu-99", "{}", vcpu_op(5, 99, &mut { area }));
    fact!(
        "area-unmapped",
        "{}",
        vcpu_op(5, 0, &mut 0x7f00_0000_0000u64)
    );
    let ret = vcpu_op(5, 0, &mut { area });
    fact!("area", "{ret}");
    check!(ret == Ret(0), "run-state area refused");
    let entry = STATE.u64(64 + 8).load(Ordering::Acquire);
    fact!(
        "area-filled",
        "state={} entry={}",
        STATE.u32(64).load(Ordering::Acquire),
        entry != 0
    );
    fact!(
        "assist-runstate-flag",
        "{}",
        Ret(call(VM_ASSIST, [0, 5, 0, 0, 0]))
    );
    fact!("assist-off", "{}", Ret(call(VM_ASSIST, [1, 5, 0, 0, 0])));
    fact!(
        "assist-on-again",
        "{}",
        Ret(call(VM_ASSIST, [0, 5, 0, 0, 0]))
    );
    for kind in [1u64, 3, 4, 6, 32, 99] {
        fact!(
            ("assist-{kind}"),
            "{}",
            Ret(call(VM_ASSIST, [0, kind, 0, 0, 0]))
        );
    }

    let port = evtchn::bind_virq(0, 0).unwrap_or(0);
    check!(port != 0, "no timer VIRQ");
    evtchn::set_mask(port, false);
    trap::hook(VECTOR, upcall);
    check!(
        set_param(0, 2 << 56 | u64::from(VECTOR)) == Ret(0),
        "callback vector refused"
    );
    // Sleep for 30 ms: a third at least must appear as blocked. On a busy host most of the time may pass before the halt,
    // which says nothing: then once more.
    let counted = (0..10).any(|_| {
        let blocked = STATE.u64(64 + 32).load(Ordering::Acquire);
        let now = time::pvclock(&INFO, 128 + 32);
        check!(
            vcpu_op(8, 0, &mut [now + 30 * MS, 0]) == Ret(0),
            "timer refused"
        );
        cpu::sti_hlt_cli();
        let slept = time::pvclock(&INFO, 128 + 32) - now;
        let gained = STATE.u64(64 + 32).load(Ordering::Acquire) - blocked;
        check!(slept >= 30 * MS, "woken after {slept} ns");
        check!(gained <= slept, "blocked for {gained} ns of {slept}");
        gained >= 10 * MS
    });
    check!(counted, "sleep is not counted as blocked");
    let flag = STATE.u64(64 + 8).load(Ordering::Acquire) >> 63;
    fact!(
        "blocked",
        "counted=true update-flag={flag} state={}",
        STATE.u32(64).load(Ordering::Acquire)
    );
    let mut state = RunState::default();
    check!(vcpu_op(4, 0, &mut state) == Ret(0), "run state refused");
    let sum: u64 = state.time.iter().sum();
    let now = time::pvclock(&INFO, 128 + 32);
    check!(
        sum <= now,
        "run-state times add up to {sum}, the clock says {now}"
    );
}

fn errors() {
    let mut context = [0u64; 20];
    fact!("initialise-self", "{}", vcpu_op(0, 0, &mut context));
    context[0] = 99;
    fact!("initialise-1-bad-mode", "{}", vcpu_op(0, 1, &mut context));
    fact!("initialise-99", "{}", vcpu_op(0, 99, &mut context));
    fact!("up-self", "{}", vcpu_op(1, 0, &mut context));
    fact!("up-1", "{}", vcpu_op(1, 1, &mut context));
    fact!("up-99", "{}", vcpu_op(1, 99, &mut context));
    fact!("down-1", "{}", vcpu_op(2, 1, &mut context));
    fact!("down-99", "{}", vcpu_op(2, 99, &mut context));
    fact!("is-up-99", "{}", vcpu_op(3, 99, &mut context));
    fact!("send-nmi-99", "{}", vcpu_op(11, 99, &mut context));
    fact!("send-nmi", "{}", vcpu_op(11, 0, &mut context));
    time::spin_ms(1);
    fact!("nmis", "{}", trap::count(0, 2));
    fact!("physid", "{}", vcpu_op(12, 0, &mut context));
    fact!("time-area", "{}", vcpu_op(13, 0, &mut { TIME.address() }));
    fact!(
        "time-area-filled",
        "{}",
        TIME.u32(24).load(Ordering::Acquire) != 0
    );
    fact!(
        "time-area-unmapped",
        "{}",
        vcpu_op(13, 0, &mut 0x7f00_0000_0000u64)
    );
    fact!(
        "runstate-phys",
        "{}",
        vcpu_op(14, 0, &mut { STATE.address() })
    );
    fact!("time-phys", "{}", vcpu_op(15, 0, &mut { TIME.address() }));
}
