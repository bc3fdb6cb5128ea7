//! How is the event upcall delivered: by the global callback vector?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::hypercall::{Ret, get_param, set_param};
use guest_rt::{check, cpu, evtchn, fact, lapic, shared, time, trap};

guest_rt::entry!("upcall", run);

const GLOBAL: u8 = 0xf3;

static CALLS: AtomicU32 = AtomicU32::new(0);
static CLEAR_AFTER: AtomicU32 = AtomicU32::new(1);
static IN_SERVICE: AtomicU32 = AtomicU32::new(0);

fn upcall(vector: u8) {
    let calls = CALLS.fetch_add(1, Ordering::AcqRel) + 1;
    IN_SERVICE.store(lapic::bit(lapic::ISR, vector).into(), Ordering::Release);
    if calls >= CLEAR_AFTER.load(Ordering::Acquire) {
        let _ = evtchn::take_selector(0);
    }
}

/// Opens interrupts for a moment and returns how many upcalls came, and the ISR bit seen in the last.
fn window() -> (u32, bool) {
    CALLS.store(0, Ordering::Release);
    IN_SERVICE.store(0, Ordering::Release);
    cpu::sti();
    time::spin_ms(5);
    cpu::cli();
    (
        CALLS.load(Ordering::Acquire),
        IN_SERVICE.load(Ordering::Acquire) != 0,
    )
}

fn run() {
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    trap::hook(GLOBAL, upcall);
    let port = evtchn::bind_ipi(0).unwrap_or(0);
    check!(port != 0, "no IPI port");
    evtchn::set_mask(port, false);

    match get_param(0) {
        Ok(value) => fact!("callback-initial", "{value:#x}"),
        Err(ret) => fact!("callback-initial", "{ret}"),
    }
    // PVH has no interrupt lines: these are accepted and ignored.
    for (name, value) in [
        ("gsi-1", 1u64),
        ("intx", 1 << 56 | 0x300),
        ("type-3", 3 << 56 | 0xf3),
        ("type-ff", 0xff << 56 | 0xf3),
        ("none", 0),
    ] {
        fact!(("callback-{name}"), "{}", set_param(0, value));
    }
    // With no way of delivery an event stays in the page.
    let _ = evtchn::take_selector(0);
    check!(evtchn::send(port) == Ret(0), "send failed");
    let (calls, _) = window();
    fact!(
        "no-callback",
        "calls={calls} pending={}",
        evtchn::upcall_pending(0)
    );

    // Arming the vector with the event still pending delivers it; no local APIC is involved.
    fact!("callback-vector-0f", "{}", set_param(0, 2 << 56 | 0xf));
    fact!(
        "callback-vector",
        "{}",
        set_param(0, 2 << 56 | u64::from(GLOBAL))
    );
    match get_param(0) {
        Ok(value) => fact!("callback-after", "{value:#x}"),
        Err(ret) => fact!("callback-after", "{ret}"),
    }
    let (calls, isr) = window();
    fact!("vector-pending-before", "calls={calls} isr={isr}");
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    check!(evtchn::send(port) == Ret(0), "send failed");
    let (calls, isr) = window();
    fact!("vector-once", "calls={calls} isr={isr}");
    check!(calls == 1, "{calls} upcalls for one event");
    // Level: as long as the byte is set, the upcall comes again.
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    CLEAR_AFTER.store(3, Ordering::Release);
    check!(evtchn::send(port) == Ret(0), "send failed");
    let (calls, _) = window();
    fact!("vector-level", "calls={calls}");
    check!(
        calls == 3,
        "the callback vector is not a level: {calls} calls"
    );
    CLEAR_AFTER.store(1, Ordering::Release);
    // Lines are still ignored: they do not take the vector away.
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    fact!("callback-gsi-after-vector", "{}", set_param(0, 1));
    check!(evtchn::send(port) == Ret(0), "send failed");
    let (calls, _) = window();
    fact!("vector-after-gsi", "calls={calls}");
    let _ = set_param(0, 2 << 56 | u64::from(GLOBAL));
    // HLT must not sleep while the upcall is deliverable.
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    check!(evtchn::send(port) == Ret(0), "send failed");
    CALLS.store(0, Ordering::Release);
    cpu::sti_hlt_cli();
    fact!("vector-hlt", "calls={}", CALLS.load(Ordering::Acquire));
}
