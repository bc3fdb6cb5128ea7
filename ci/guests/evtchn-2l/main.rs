//! Do event channels of the 2-level ABI work, within a vCPU, between vCPUs, and in the error cases?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::evtchn::{self, Status};
use guest_rt::hypercall::{DOMID_SELF, Ret, evtchn_op, set_param};
use guest_rt::{check, cpu, fact, shared, smp, time, trap};

guest_rt::entry!("evtchn-2l", run);

const VECTOR: u8 = 0xf3;
const TIMER: u32 = 0;
const CONSOLE: u32 = 2;

fn show(key: &str, result: Result<u32, Ret>) -> u32 {
    match result {
        Ok(port) => {
            fact!(("{key}"), "port {port}");
            port
        }
        Err(ret) => {
            fact!(("{key}"), "{ret}");
            0
        }
    }
}

fn status(key: &str, dom: u16, port: u32) {
    match evtchn::status(dom, port) {
        Ok(Status {
            status, vcpu, u, ..
        }) => {
            fact!(
                ("{key}"),
                "status={status} vcpu={vcpu} dom={} port={}",
                u[0] & 0xffff,
                u[1]
            )
        }
        Err(ret) => fact!(("{key}"), "{ret}"),
    }
}

fn run() {
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    status("status-0", DOMID_SELF, 0);
    let a = show(
        "alloc-unbound",
        evtchn::alloc_unbound(DOMID_SELF, DOMID_SELF),
    );
    check!(a != 0, "no unbound port");
    status("status-unbound", DOMID_SELF, a);
    show("alloc-for-nobody", evtchn::alloc_unbound(DOMID_SELF, 1234));
    show("alloc-by-nobody", evtchn::alloc_unbound(1234, DOMID_SELF));
    show("alloc-dom0", evtchn::alloc_unbound(0, 0));

    let b = show("bind-interdomain", evtchn::bind_interdomain(DOMID_SELF, a));
    check!(b != 0, "no interdomain port");
    status("status-local", DOMID_SELF, b);
    status("status-remote", DOMID_SELF, a);
    show(
        "bind-interdomain-again",
        evtchn::bind_interdomain(DOMID_SELF, a),
    );
    show(
        "bind-interdomain-0",
        evtchn::bind_interdomain(DOMID_SELF, 0),
    );
    show(
        "bind-interdomain-free",
        evtchn::bind_interdomain(DOMID_SELF, 3000),
    );
    show("bind-interdomain-nobody", evtchn::bind_interdomain(1234, a));
    fact!(
        "pending-after-bind",
        "local={} remote={}",
        evtchn::take(b),
        evtchn::take(a)
    );

    levels(a, b);
    errors(b);
    virqs();
    if smp::start_all() > 1 {
        between_processors();
    } else {
        fact!("between-processors", "skipped");
    }

    fact!("close", "{}", evtchn::close(a));
    fact!("close-again", "{}", evtchn::close(a));
    status("status-closed", DOMID_SELF, a);
    status("status-peer-of-closed", DOMID_SELF, b);
    fact!("send-unbound", "{}", evtchn::send(b));
    fact!("send-closed", "{}", evtchn::send(a));

    let mut count = 0u32;
    let end = loop {
        match evtchn::alloc_unbound(DOMID_SELF, DOMID_SELF) {
            Ok(_) if count < 5000 => count += 1,
            Ok(_) => break Ret(0),
            Err(ret) => break ret,
        }
    };
    fact!("exhausted", "{end} after about {}", count / 64 * 64);
    fact!("reset", "{}", evtchn::reset(DOMID_SELF));
    status("status-after-reset", DOMID_SELF, b);
    show(
        "alloc-after-reset",
        evtchn::alloc_unbound(DOMID_SELF, DOMID_SELF),
    );
    let mut pirq = [5u32, 0, 0];
    fact!("bind-pirq", "{}", evtchn_op(2, &mut pirq));
    fact!("reset-nobody", "{}", evtchn::reset(1234));
}

/// Pending bit, selector and upcall byte, with the port masked and then not.
fn levels(a: u32, b: u32) {
    let _ = (evtchn::take(a), evtchn::take(b), evtchn::take_selector(0));
    check!(evtchn::send(a) == Ret(0), "send failed");
    check!(evtchn::pending(b), "peer not pending after send");
    check!(!evtchn::upcall_pending(0), "upcall for a masked port");
    fact!("unmask-pending", "{}", evtchn::unmask(b));
    check!(evtchn::upcall_pending(0), "no upcall after unmask");
    fact!("selector", "{:#x}", evtchn::take_selector(0));
    check!(evtchn::send(a) == Ret(0), "second send failed");
    fact!(
        "send-while-pending",
        "upcall={} selector={:#x}",
        evtchn::upcall_pending(0),
        evtchn::take_selector(0)
    );
    check!(evtchn::take(b), "pending bit lost");
    check!(evtchn::send(a) == Ret(0), "third send failed");
    check!(
        evtchn::upcall_pending(0) && evtchn::take(b),
        "unmasked send is not visible"
    );
    let _ = evtchn::take_selector(0);
    fact!(
        "unmask-idle",
        "{} upcall={}",
        evtchn::unmask(b),
        evtchn::upcall_pending(0)
    );
    fact!("bind-vcpu", "{}", evtchn::bind_vcpu(b, 0));
}

fn errors(b: u32) {
    for port in [0u32, 2999, 4095, 4096, 131_072, 0x8000_0000, 0xffff_ffff] {
        fact!(
            ("port-{port:#x}"),
            "send={} close={} unmask={} bind-vcpu={} priority={}",
            evtchn::send(port),
            evtchn::close(port),
            evtchn::unmask(port),
            evtchn::bind_vcpu(port, 0),
            evtchn::set_priority(port, 1)
        );
        status("status-bad-port", DOMID_SELF, port);
    }
    status("status-nobody", 1234, b);
    status("status-domid-xen", 0x7ff2, b);
    fact!("bind-vcpu-99", "{}", evtchn::bind_vcpu(b, 99));
    fact!("set-priority-2l", "{}", evtchn::set_priority(b, 1));
    fact!("set-priority-16", "{}", evtchn::set_priority(b, 16));
    fact!("expand-array-2l", "{}", evtchn_op(12, &mut 0x200u64));
    let ipi = show("bind-ipi", evtchn::bind_ipi(0));
    show("bind-ipi-99", evtchn::bind_ipi(99));
    status("status-ipi", DOMID_SELF, ipi);
    fact!("bind-vcpu-ipi", "{}", evtchn::bind_vcpu(ipi, 0));
    check!(
        evtchn::send(ipi) == Ret(0) && evtchn::take(ipi),
        "IPI to self not pending"
    );
    check!(evtchn::close(ipi) == Ret(0), "IPI port not closed");
}

fn virqs() {
    let timer = show("virq-timer", evtchn::bind_virq(TIMER, 0));
    status("status-virq", DOMID_SELF, timer);
    show("virq-timer-again", evtchn::bind_virq(TIMER, 0));
    show("virq-timer-vcpu-99", evtchn::bind_virq(TIMER, 99));
    show("virq-23", evtchn::bind_virq(23, 0));
    show("virq-24", evtchn::bind_virq(24, 0));
    show("virq-huge", evtchn::bind_virq(u32::MAX, 0));
    show("virq-console-vcpu-1", evtchn::bind_virq(CONSOLE, 1));
    let console = show("virq-console", evtchn::bind_virq(CONSOLE, 0));
    fact!("virq-send", "{}", evtchn::send(timer));
    fact!("virq-bind-vcpu", "{}", evtchn::bind_vcpu(timer, 0));
    fact!("virq-global-bind-vcpu", "{}", evtchn::bind_vcpu(console, 0));
    check!(
        evtchn::close(timer) == Ret(0) && evtchn::close(console) == Ret(0),
        "VIRQ ports not closed"
    );
    show("virq-timer-reopened", evtchn::bind_virq(TIMER, 0));
}

static TO_ONE: AtomicU32 = AtomicU32::new(0);
static TO_ZERO: AtomicU32 = AtomicU32::new(0);
static ROUNDS: AtomicU32 = AtomicU32::new(0);
static ONE_VCPU: AtomicU32 = AtomicU32::new(0);
const PINGS: u32 = 100;

/// Upcall handler of both vCPUs: vCPU 1 answers, vCPU 0 counts.
fn upcall(_vector: u8) {
    let me = shared::vcpu_id();
    let _ = evtchn::take_selector(me);
    if evtchn::take(TO_ONE.load(Ordering::Acquire)) && me != 0 {
        let _ = evtchn::send(TO_ZERO.load(Ordering::Acquire));
    }
    if me == 0 && evtchn::take(TO_ZERO.load(Ordering::Acquire)) {
        ROUNDS.fetch_add(1, Ordering::AcqRel);
    }
}

fn serve() {
    ONE_VCPU.store(shared::vcpu_id() as u32, Ordering::Release);
    while ROUNDS.load(Ordering::Acquire) < PINGS {
        cpu::sti_hlt_cli();
    }
}

fn between_processors() {
    let _ = (evtchn::take_selector(0), evtchn::take_selector(1));
    let one = evtchn::bind_ipi(1).unwrap_or(0);
    let zero = evtchn::bind_ipi(0).unwrap_or(0);
    check!(one != 0 && zero != 0, "no IPI ports for two vCPUs");
    TO_ONE.store(one, Ordering::Release);
    TO_ZERO.store(zero, Ordering::Release);
    evtchn::set_mask(one, false);
    evtchn::set_mask(zero, false);
    trap::hook(VECTOR, upcall);
    check!(
        set_param(0, 2 << 56 | u64::from(VECTOR)) == Ret(0),
        "callback vector refused"
    );
    smp::start_on(1, serve);
    let mut lost = 0;
    for round in 0..PINGS {
        check!(evtchn::send(one) == Ret(0), "send to vCPU 1 failed");
        cpu::sti();
        let answered = time::wait_ms(2000, || ROUNDS.load(Ordering::Acquire) > round);
        cpu::cli();
        if !answered {
            lost += 1;
            ROUNDS.fetch_add(1, Ordering::AcqRel);
        }
    }
    check!(lost == 0, "{lost} of {PINGS} events between vCPUs lost");
    // The last answer let vCPU 1 go only if it is awake.
    let _ = evtchn::send(one);
    check!(time::wait_ms(2000, || smp::idle(1)), "vCPU 1 does not wake");
    fact!(
        "between-processors",
        "vcpu={} rounds={PINGS} lost={lost}",
        ONE_VCPU.load(Ordering::Acquire)
    );
}
