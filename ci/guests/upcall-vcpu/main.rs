//! How is the event upcall delivered by the per-vCPU vector, through the local APIC?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::hypercall::{Ret, hvm_op, set_param};
use guest_rt::{check, cpu, evtchn, fact, lapic, shared, time, trap};

guest_rt::entry!("upcall-vcpu", run);

const OWN: u8 = 0xa2;

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

fn set_vector(vcpu: u32, vector: u8) -> Ret {
    hvm_op(23, &mut [vcpu, vector.into()])
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
    if cpu::cpuid(0x4000_0004, 0)[0] & 1 << 6 == 0 {
        guest_rt::report::skip(format_args!("CPUID does not offer the per-vCPU vector"));
        return;
    }
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    trap::hook(OWN, upcall);
    let port = evtchn::bind_ipi(0).unwrap_or(0);
    check!(port != 0, "no IPI port");
    evtchn::set_mask(port, false);

    fact!("own-vector-0f", "{}", set_vector(0, 0x0f));
    fact!("own-vector-00", "{}", set_vector(0, 0));
    fact!("own-vector-vcpu-99", "{}", set_vector(99, OWN));
    let ret = set_vector(0, OWN);
    fact!("own-vector", "{ret}");
    if ret != Ret(0) {
        return;
    }
    // The local APIC is still disabled by software: nothing may be accepted.
    fact!("own-svr", "{:#x}", lapic::read(lapic::SVR));
    check!(evtchn::send(port) == Ret(0), "send failed");
    fact!("own-disabled-irr", "{}", lapic::bit(lapic::IRR, OWN));
    let (calls, _) = window();
    fact!("own-disabled", "calls={calls}");
    lapic::enable();
    fact!("own-enabled-irr", "{}", lapic::bit(lapic::IRR, OWN));
    let (calls, isr) = window();
    fact!("own-enabled", "calls={calls} isr={isr}");
    check!(
        calls == 1,
        "the upcall is not raised again when the APIC is enabled"
    );
    lapic::eoi();

    // Edge: one interrupt per 0 to 1 of the byte.
    trap::acknowledge(OWN, true);
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    CLEAR_AFTER.store(100, Ordering::Release);
    check!(evtchn::send(port) == Ret(0), "send failed");
    let (calls, isr) = window();
    fact!("own-edge", "calls={calls} isr={isr}");
    check!(calls == 1, "the own vector is not an edge: {calls} calls");
    CLEAR_AFTER.store(1, Ordering::Release);

    // Task priority holds it back.
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    lapic::write(lapic::TPR, 0xb0);
    check!(evtchn::send(port) == Ret(0), "send failed");
    let (calls, _) = window();
    fact!(
        "own-tpr-b0",
        "calls={calls} irr={}",
        lapic::bit(lapic::IRR, OWN)
    );
    lapic::write(lapic::TPR, 0);
    let (calls, _) = window();
    fact!("own-tpr-00", "calls={calls}");
    // Setting the vector again while the byte is set.
    let _ = (evtchn::take(port), evtchn::take_selector(0));
    CLEAR_AFTER.store(100, Ordering::Release);
    check!(evtchn::send(port) == Ret(0), "send failed");
    let _ = window();
    fact!("own-vector-again", "{}", set_vector(0, OWN));
    let (calls, _) = window();
    fact!("own-again", "calls={calls}");
    // Linux announces after the vectors that it has them.
    fact!("callback-1", "{}", set_param(0, 1));
}
