//! Does the FIFO event channel ABI work: queues, links, masks, priorities, growth, and its error cases?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::boot::HOLE;
use guest_rt::evtchn::{bind_ipi, bind_vcpu, close, reset, send, set_priority, unmask};
use guest_rt::hypercall::{DOMID_SELF, Ret, evtchn_op, set_param};
use guest_rt::{Page, check, cpu, evtchn, fact, shared, smp, time, trap};

guest_rt::entry!("evtchn-fifo", run);

const PENDING: u32 = 1 << 31;
const MASKED: u32 = 1 << 30;
const LINKED: u32 = 1 << 29;
const VECTOR: u8 = 0xf3;

static CONTROL: [Page; 2] = [const { Page::new() }; 2];
static ARRAY: [Page; 2] = [const { Page::new() }; 2];

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct InitControl {
    gfn: u64,
    offset: u32,
    vcpu: u32,
    link_bits: u8,
    pad: [u8; 7],
}

fn init_control(gfn: u64, offset: u32, vcpu: u32) -> (Ret, u8) {
    let mut arg = InitControl {
        gfn,
        offset,
        vcpu,
        ..InitControl::default()
    };
    let ret = evtchn_op(11, &mut arg);
    (ret, arg.link_bits)
}

fn expand(gfn: u64) -> Ret {
    evtchn_op(12, &mut { gfn })
}

fn word(port: u32) -> &'static AtomicU32 {
    ARRAY[port as usize / 1024].u32(4 * (port as usize % 1024))
}

fn ready(vcpu: usize) -> u32 {
    CONTROL[vcpu].u32(0).load(Ordering::Acquire)
}

fn head(vcpu: usize, queue: u32) -> u32 {
    CONTROL[vcpu]
        .u32(8 + 4 * queue as usize)
        .load(Ordering::Acquire)
}

/// Takes the first port of a queue the way the ABI asks for: read the link, clear LINKED and link together.
fn pop(vcpu: usize, queue: u32) -> Option<u32> {
    let port = head(vcpu, queue);
    if port == 0 {
        return None;
    }
    let slot = word(port);
    let next = loop {
        let old = slot.load(Ordering::Acquire);
        let new = old & !(LINKED | 0x1_ffff);
        if slot
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            break old & 0x1_ffff;
        }
    };
    CONTROL[vcpu]
        .u32(8 + 4 * queue as usize)
        .store(next, Ordering::Release);
    Some(port)
}

/// Empties every queue of a vCPU, highest priority first, and calls `each(queue, port)`.
fn drain(vcpu: usize, mut each: impl FnMut(u32, u32)) {
    let _ = evtchn::take_selector(vcpu);
    let mut left = CONTROL[vcpu].u32(0).swap(0, Ordering::AcqRel);
    while left != 0 {
        let queue = left.trailing_zeros();
        left &= !(1 << queue);
        while let Some(port) = pop(vcpu, queue) {
            word(port).fetch_and(!PENDING, Ordering::AcqRel);
            each(queue, port);
        }
    }
}

fn flags(port: u32) -> &'static str {
    let word = word(port).load(Ordering::Acquire);
    match (word & PENDING != 0, word & MASKED != 0, word & LINKED != 0) {
        (false, false, false) => "---",
        (true, false, false) => "P--",
        (false, true, false) => "-M-",
        (true, true, false) => "PM-",
        (false, false, true) => "--L",
        (true, false, true) => "P-L",
        (false, true, true) => "-ML",
        (true, true, true) => "PML",
    }
}

fn run() {
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    fact!("expand-before-init", "{}", expand(ARRAY[0].gfn()));
    // Pending in the old ABI: it must be carried over.
    let early = bind_ipi(0).unwrap_or(0);
    check!(early != 0, "no IPI port");
    check!(send(early) == Ret(0), "send failed");
    let _ = evtchn::take_selector(0);

    for (name, gfn, offset, vcpu) in [
        ("offset-4", CONTROL[0].gfn(), 4, 0),
        ("offset-4088", CONTROL[0].gfn(), 4088, 0),
        ("offset-4032", CONTROL[0].gfn(), 4032, 0),
        ("offset-huge", CONTROL[0].gfn(), u32::MAX - 7, 0),
        ("vcpu-99", CONTROL[0].gfn(), 0, 99),
        ("hole", HOLE >> 12, 0, 0),
        ("gfn-ones", u64::MAX, 0, 0),
    ] {
        fact!(("init-{name}"), "{}", init_control(gfn, offset, vcpu).0);
    }
    let (ret, bits) = init_control(CONTROL[0].gfn(), 0, 0);
    fact!("init", "{ret} link-bits={bits}");
    if ret != Ret(0) {
        guest_rt::report::skip(format_args!("no FIFO events: {ret}"));
        return;
    }
    fact!("init-again", "{}", init_control(CONTROL[0].gfn(), 0, 0).0);
    fact!("expand-hole", "{}", expand(HOLE >> 12));
    fact!("expand-gfn-ones", "{}", expand(u64::MAX));
    check!(expand(ARRAY[0].gfn()) == Ret(0), "first array page refused");
    fact!(
        "carried-over",
        "{} ready={:#x} upcall={}",
        flags(early),
        ready(0),
        evtchn::upcall_pending(0)
    );
    drain(0, |_, _| ());
    // Still pending in the old ABI's bitmap: a second init must not find it there.
    let _ = evtchn::take(early);
    check!(close(early) == Ret(0), "close failed");

    let ports: [u32; 4] = core::array::from_fn(|_| bind_ipi(0).unwrap_or(0));
    check!(ports.iter().all(|&p| p != 0), "no IPI ports");
    fact!("ports", "{ports:?}");
    masks(ports[0]);
    order(&ports);
    priorities(&ports);
    growth();
    if smp::start_all() > 1 {
        between_processors(&ports);
    }
    fact!("reset", "{}", reset(DOMID_SELF));
    fact!("expand-after-reset", "{}", expand(ARRAY[0].gfn()));
    let port = bind_ipi(0).unwrap_or(0);
    let _ = (evtchn::take_selector(0), evtchn::take(port), send(port));
    fact!("after-reset-2-level", "{}", evtchn::pending(port));
}

fn masks(port: u32) {
    word(port).store(MASKED, Ordering::Release);
    check!(send(port) == Ret(0), "send failed");
    fact!(
        "masked",
        "{} ready={:#x} upcall={}",
        flags(port),
        ready(0),
        evtchn::upcall_pending(0)
    );
    check!(flags(port) == "PM-", "a masked event is {}", flags(port));
    fact!(
        "unmask",
        "{} {} ready={:#x} head={}",
        unmask(port),
        flags(port),
        ready(0),
        head(0, 7) == port
    );
    check!(evtchn::upcall_pending(0), "no upcall after unmask");
    check!(send(port) == Ret(0), "send failed");
    fact!("send-linked", "{} ready={:#x}", flags(port), ready(0));
    drain(0, |_, _| ());
    fact!("drained", "{} ready={:#x}", flags(port), ready(0));
    fact!(
        "unmask-idle",
        "{} {} upcall={}",
        unmask(port),
        flags(port),
        evtchn::upcall_pending(0)
    );
    // Masked after it was linked: the link stays.
    check!(send(port) == Ret(0), "send failed");
    word(port).fetch_or(MASKED, Ordering::AcqRel);
    fact!("masked-while-linked", "{}", flags(port));
    check!(send(port) == Ret(0), "send failed");
    word(port).fetch_and(!MASKED, Ordering::AcqRel);
    drain(0, |_, _| ());
}

fn order(ports: &[u32; 4]) {
    for &port in ports {
        word(port).store(0, Ordering::Release);
        check!(send(port) == Ret(0), "send failed");
    }
    let mut seen = [0u32; 4];
    let mut n = 0;
    drain(0, |_, port| {
        if n < 4 {
            seen[n] = port;
        }
        n += 1;
    });
    check!(
        n == 4 && seen == *ports,
        "events of one queue come as {seen:?}, {n} of them"
    );
    fact!("order", "n={n} first-in-first-out={}", seen == *ports);
}

fn priorities(ports: &[u32; 4]) {
    for (name, priority) in [("16", 16), ("max", u32::MAX)] {
        fact!(("priority-{name}"), "{}", set_priority(ports[0], priority));
    }
    fact!("priority-bad-port", "{}", set_priority(4000, 1));
    for (&port, priority) in ports.iter().zip([15, 0, 7, 3]) {
        check!(
            set_priority(port, priority) == Ret(0),
            "priority {priority} refused"
        );
        check!(send(port) == Ret(0), "send failed");
    }
    fact!("priority-ready", "{:#x}", ready(0));
    let mut queues = [99u32; 4];
    let mut n = 0;
    drain(0, |queue, _| {
        if n < 4 {
            queues[n] = queue;
        }
        n += 1;
    });
    fact!("priority-order", "{queues:?}");
    check!(queues == [0, 3, 7, 15], "queues are served as {queues:?}");
    // Changed while it is linked: the old queue keeps the link.
    check!(send(ports[0]) == Ret(0), "send failed");
    check!(set_priority(ports[0], 1) == Ret(0), "priority refused");
    fact!("priority-while-linked", "ready={:#x}", ready(0));
    drain(0, |_, _| ());
    check!(send(ports[0]) == Ret(0), "send failed");
    fact!("priority-moved", "ready={:#x}", ready(0));
    drain(0, |_, _| ());
    for &port in ports {
        let _ = set_priority(port, 7);
    }
}

/// Ports beyond the first array page.
fn growth() {
    let mut last = 0;
    while last < 1100 {
        match bind_ipi(0) {
            Ok(port) => last = port,
            Err(ret) => {
                fact!("growth-end", "{ret} at {last}");
                check!(false, "ports end at {last}: {ret}");
                return;
            }
        }
    }
    // No page yet: remembered, raised when the page comes.
    check!(send(last) == Ret(0), "send beyond the array failed");
    fact!(
        "beyond-array",
        "upcall={} ready={:#x}",
        evtchn::upcall_pending(0),
        ready(0)
    );
    check!(
        expand(ARRAY[1].gfn()) == Ret(0),
        "second array page refused"
    );
    fact!("after-expand", "{} ready={:#x}", flags(last), ready(0));
    drain(0, |_, _| ());
    for port in 10..=last {
        let _ = close(port);
    }
}

static ECHO: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
static ROUNDS: AtomicU32 = AtomicU32::new(0);
const PINGS: u32 = 100;

fn upcall(_vector: u8) {
    let me = shared::vcpu_id();
    drain(me, |_, port| {
        if me == 1 && port == ECHO[1].load(Ordering::Acquire) {
            let _ = send(ECHO[0].load(Ordering::Acquire));
        }
        if me == 0 && port == ECHO[0].load(Ordering::Acquire) {
            ROUNDS.fetch_add(1, Ordering::AcqRel);
        }
    });
}

fn serve() {
    while ROUNDS.load(Ordering::Acquire) < PINGS {
        cpu::sti_hlt_cli();
    }
}

fn between_processors(ports: &[u32; 4]) {
    let one = bind_ipi(1).unwrap_or(0);
    check!(one != 0, "no IPI port for vCPU 1");
    word(one).store(0, Ordering::Release);
    // vCPU 1 has no control block yet: the event is dropped.
    fact!("no-block", "{} {}", send(one), flags(one));
    let (ret, _) = init_control(CONTROL[1].gfn(), 64, 1);
    fact!("init-vcpu-1-offset-64", "{ret}");
    fact!(
        "no-block-after-init",
        "{} ready={:#x}",
        flags(one),
        CONTROL[1].u32(64).load(Ordering::Acquire)
    );
    fact!("bind-vcpu-ipi", "{}", bind_vcpu(ports[0], 1));
    // The block of vCPU 1 lies at offset 64 and our helpers read offset 0, so start over with a fresh layout.
    check!(reset(DOMID_SELF) == Ret(0), "reset failed");
    for page in CONTROL.iter().chain(&ARRAY) {
        for at in 0..512 {
            page.u64(8 * at).store(0, Ordering::Release);
        }
    }
    check!(
        init_control(CONTROL[0].gfn(), 0, 0).0 == Ret(0),
        "init after reset failed"
    );
    check!(
        init_control(CONTROL[1].gfn(), 0, 1).0 == Ret(0),
        "init of vCPU 1 after reset failed"
    );
    check!(
        expand(ARRAY[0].gfn()) == Ret(0),
        "array after reset refused"
    );
    let (zero, one) = (bind_ipi(0).unwrap_or(0), bind_ipi(1).unwrap_or(0));
    ECHO[0].store(zero, Ordering::Release);
    ECHO[1].store(one, Ordering::Release);
    drain(0, |_, _| ());
    drain(1, |_, _| ());
    trap::hook(VECTOR, upcall);
    check!(
        set_param(0, 2 << 56 | u64::from(VECTOR)) == Ret(0),
        "callback vector refused"
    );
    smp::start_on(1, serve);
    let mut lost = 0;
    for round in 0..PINGS {
        check!(send(one) == Ret(0), "send to vCPU 1 failed");
        cpu::sti();
        let answered = time::wait_ms(2000, || ROUNDS.load(Ordering::Acquire) > round);
        cpu::cli();
        if !answered {
            lost += 1;
            break;
        }
    }
    check!(lost == 0, "{lost} of {PINGS} events between vCPUs lost");
    fact!("between-processors", "rounds={PINGS} lost={lost}");
    let _ = send(one);
    check!(time::wait_ms(2000, || smp::idle(1)), "vCPU 1 does not wake");
}
