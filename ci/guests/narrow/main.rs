//! What does 32-bit code get from hypercalls, and in which layout are the pages that it shares?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::SeqCst;

use guest_rt::hypercall::{
    self, CONSOLE_IO, EVENT_CHANNEL_OP, GRANT_TABLE_OP, HVM_OP, HYPFS_OP, MEMORY_OP, MULTICALL,
    PHYSDEV_OP, Ret, SCHED_OP, SET_TIMER_OP, VCPU_OP, VM_ASSIST, XEN_VERSION,
};
use guest_rt::shared::SHARED;
use guest_rt::{Page, check, cpu, fact, narrow};
use xen_abi::compat::shared_info::offset;
use xen_abi::shared_info::offset as wide;

guest_rt::entry!("narrow", run);

/// Arguments, lists, and pages to be moved.
static ARG: Page = Page::new();
static LIST: Page = Page::new();
static SPARE: [Page; 4] = [const { Page::new() }; 4];
static CALLS: Page = Page::new();
static INFO: Page = Page::new();

const SELF: u32 = hypercall::DOMID_SELF as u32;
/// Leaf with the number of the MSR that fills a hypercall page.
const LEAF_MSR: u32 = 0x4000_0002;

fn at(page: &Page) -> u32 {
    page.address() as u32
}

fn words(page: &Page, offset: usize, values: &[u32]) {
    for (i, value) in values.iter().enumerate() {
        page.u32(offset + 4 * i).store(*value, SeqCst);
    }
}

fn word(page: &Page, offset: usize) -> u32 {
    page.u32(offset).load(SeqCst)
}

fn call(nr: u64, args: [u32; 5]) -> Ret {
    Ret(narrow::call(nr as u32, args).into())
}

/// A call with a structure of words at [`ARG`].
fn op(nr: u64, sub: u32, arg: &[u32]) -> Ret {
    words(&ARG, 0, arg);
    call(nr, [sub, at(&ARG), 0, 0, 0])
}

fn run() {
    version();
    memory();
    layouts();
    registered();
    events();
    grants();
    vcpus();
    time();
    multicalls();
    others();
}

fn version() {
    let version = hypercall::call(XEN_VERSION, [0; 5]);
    let narrow = call(XEN_VERSION, [0; 5]);
    check!(
        narrow.0 == version,
        "version {narrow}, in 64-bit mode {version}"
    );
    words(&ARG, 0, &[7, 0x1234_5678, 0x1234_5678]);
    let ret = call(XEN_VERSION, [5, at(&ARG), 0, 0, 0]);
    let now = [0, 4, 8].map(|o| word(&ARG, o));
    fact!("platform-parameters", "{ret} {now:x?}");
    let ret = op(XEN_VERSION, 6, &[0, 0, 7]);
    check!(word(&ARG, 4) != 0 && word(&ARG, 8) == 7, "features: {ret}");
    fact!("features", "{ret}");
    fact!(
        "features-bad-pointer",
        "{}",
        call(XEN_VERSION, [6, 0xf800_0000, 0, 0, 0])
    );
    fact!("page-size", "{}", call(XEN_VERSION, [7, 0, 0, 0, 0]));
    fact!("number-63", "{}", call(63, [0; 5]));
    fact!("number-bit-31", "{}", call(1 << 31 | XEN_VERSION, [0; 5]));
}

fn memory() {
    let pages = op(MEMORY_OP, 3, &[SELF]);
    let same = hypercall::memory_op(3, &mut { hypercall::DOMID_SELF });
    check!(pages == same, "{pages} pages, in 64-bit mode {same}");
    words(&LIST, 0, &[0; 64]);
    let ret = op(MEMORY_OP, 9, &[40, at(&LIST), 9]);
    fact!(
        "memory-map",
        "{ret} some={} behind={}",
        (2..=40).contains(&word(&ARG, 0)),
        word(&ARG, 8)
    );
    check!(
        word(&LIST, 0) == 0 && word(&LIST, 16) == 1,
        "the first range is not RAM at 0"
    );
    let first = word(&ARG, 0);
    let ret = op(MEMORY_OP, 9, &[1, at(&LIST)]);
    fact!("memory-map-one", "{ret} count={}", word(&ARG, 0));
    check!(first > 1, "one range only");
    fact!(
        "memory-map-bad-list",
        "{}",
        op(MEMORY_OP, 9, &[8, 0xf800_0000])
    );
    fact!(
        "memory-map-bad-pointer",
        "{}",
        call(MEMORY_OP, [9, 0xf800_0000, 0, 0, 0])
    );
    // Reservations: list, count, order, flags, domain.
    let list = [SPARE[0].gfn() as u32, SPARE[1].gfn() as u32];
    words(&LIST, 0, &list);
    let reservation =
        |sub, count, order, domain| op(MEMORY_OP, sub, &[at(&LIST), count, order, 0, domain]);
    fact!("decrease", "{}", reservation(1, 2, 0, SELF));
    let fewer = op(MEMORY_OP, 3, &[SELF]);
    check!(fewer.0 + 2 == pages.0, "{fewer} pages after {pages}");
    fact!("populate", "{}", reservation(6, 2, 0, SELF));
    SPARE[1].u32(0).store(1, SeqCst);
    check!(word(&SPARE[1], 0) == 1, "the page is not memory again");
    fact!("populate-none", "{}", reservation(6, 0, 0, SELF));
    fact!("populate-too-many", "{}", reservation(6, u32::MAX, 0, SELF));
    fact!("populate-order-40", "{}", reservation(6, 1, 40, SELF));
    fact!("populate-nobody", "{}", reservation(6, 1, 0, 1234));
    fact!(
        "populate-bad-pointer",
        "{}",
        call(MEMORY_OP, [6, 0xf800_0000, 0, 0, 0])
    );
    fact!("claim", "{}", op(MEMORY_OP, 24, &[0, 0, 0, 0, SELF]));
    fact!("machphys-mapping", "{}", op(MEMORY_OP, 12, &[0; 4]));
    fact!("machine-map", "{}", op(MEMORY_OP, 10, &[8, at(&LIST)]));
    fact!("memory-op-63", "{}", op(MEMORY_OP, 63, &[0; 4]));
    // Moves of pages: domain, space, index, frame.
    let (from, to) = (SPARE[2].gfn() as u32, SPARE[3].gfn() as u32);
    words(&SPARE[2], 0, &[0xabcd]);
    fact!("move", "{}", op(MEMORY_OP, 7, &[SELF, 2, from, to]));
    check!(word(&SPARE[3], 0) == 0xabcd, "the page did not move");
    // The batch: domain and space, size, indexes, frames, errors.
    words(&LIST, 0, &[to, 0xffff_fff0, from, from, 0x5a5a, 0x5a5a]);
    let l = at(&LIST);
    let ret = op(MEMORY_OP, 23, &[SELF | 2 << 16, 2, l, l + 8, l + 16]);
    let errors = [word(&LIST, 16), word(&LIST, 20)].map(|e| Ret(e.cast_signed().into()));
    fact!("batch", "{ret} {} {}", errors[0], errors[1]);
    check!(word(&SPARE[2], 0) == 0xabcd, "the page did not move back");
    fact!("remove", "{}", op(MEMORY_OP, 15, &[SELF, from]));
    fact!("remove-again", "{}", op(MEMORY_OP, 15, &[SELF, from]));
    words(&LIST, 0, &[from, to]);
    fact!("populate-both", "{}", reservation(6, 2, 0, SELF));
}

/// Who sets the callback or fills a hypercall page decides.
fn layouts() {
    let ret = op(MEMORY_OP, 7, &[SELF, 0, 0, SHARED.gfn() as u32]);
    check!(ret == Ret(0), "shared_info: {ret}");
    let clock = |seconds: usize| word(&SHARED, seconds) > 1_500_000_000;
    fact!(
        "clock-before",
        "{} {}",
        clock(wide::WC_SEC),
        clock(offset::WC_SEC)
    );
    fact!(
        "set-callback",
        "{}",
        op(HVM_OP, 0, &[SELF, 0, 0x40, 2 << 24])
    );
    fact!(
        "clock-narrow",
        "{} {}",
        clock(offset::WC_SEC),
        word(&SHARED, offset::WC_SEC_HI)
    );
    check!(clock(offset::WC_SEC), "no clock in the 32-bit layout");
    let port = port("narrow");
    send(port);
    fact!(
        "selector-narrow",
        "{:#x}",
        word(&SHARED, offset::PENDING_SEL)
    );
    clear(port);
    let msr = cpu::cpuid(LEAF_MSR, 0)[1];
    cpu::wrmsr(msr, CALLS.address());
    send(port);
    fact!(
        "selector-wide",
        "{:#x} {:#x}",
        word(&SHARED, offset::PENDING_SEL),
        word(&SHARED, wide::PENDING_SEL)
    );
    clear(port);
    narrow::wrmsr(msr, CALLS.address());
    words(&SHARED, offset::EVTCHN_MASK, &[u32::MAX]);
    send(port);
    fact!("masked", "{:#x}", word(&SHARED, offset::PENDING_SEL));
    fact!("unmask", "{}", op(EVENT_CHANNEL_OP, 9, &[port]));
    fact!("unmasked", "{:#x}", word(&SHARED, offset::PENDING_SEL));
    clear(port);
    fact!("close", "{}", op(EVENT_CHANNEL_OP, 3, &[port]));
}

fn port(what: &str) -> u32 {
    let ret = op(EVENT_CHANNEL_OP, 7, &[0, 0]);
    check!(ret == Ret(0), "IPI port {what}: {ret}");
    word(&ARG, 4)
}

fn send(port: u32) {
    let ret = op(EVENT_CHANNEL_OP, 4, &[port]);
    let pending = word(&SHARED, wide::EVTCHN_PENDING) >> port & 1;
    check!(
        ret == Ret(0) && pending == 1,
        "send: {ret}, pending {pending}"
    );
}

/// Nothing is pending, nothing masked, in either layout.
fn clear(port: u32) {
    words(&SHARED, wide::EVTCHN_PENDING, &[0; 256]);
    words(&SHARED, 0, &[0; 8]);
    check!(port < 32, "a port of the first word: {port}");
}

/// A vcpu_info may stand at any word.
fn registered() {
    let frame = INFO.gfn() as u32;
    let register = |offset: u32| {
        words(&ARG, 0, &[frame, 0, offset, 0]);
        call(VCPU_OP, [10, 0, at(&ARG), 0, 0])
    };
    fact!("vcpu-info-at-2", "{}", register(2));
    fact!("vcpu-info-at-end", "{}", register(4096 - 60));
    fact!("vcpu-info-at-4", "{}", register(0x104));
    fact!(
        "vcpu-info-marked",
        "{} {:#x}",
        INFO.u8(0x104).load(SeqCst),
        word(&INFO, 0x104 + offset::PENDING_SEL)
    );
    fact!("vcpu-info-twice", "{}", register(0x104));
    // Behind a change of layout, an odd place must do.
    words(&INFO, 0x104, &[0; 8]);
    let ret = hypercall::set_param(0, 2 << 56 | 0x40);
    let port = port("at an odd place");
    send(port);
    fact!(
        "vcpu-info-wide-at-4",
        "{ret} {} {:#x} {:#x}",
        INFO.u8(0x104).load(SeqCst),
        word(&INFO, 0x104 + offset::PENDING_SEL),
        word(&INFO, 0x104 + wide::PENDING_SEL)
    );
    clear(port);
    let ret = op(EVENT_CHANNEL_OP, 3, &[port]);
    check!(ret == Ret(0), "close: {ret}");
    let ret = op(HVM_OP, 0, &[SELF, 0, 0x40, 2 << 24]);
    check!(ret == Ret(0), "callback: {ret}");
}

fn events() {
    let mut last = 0;
    let mut ret = Ret(0);
    let mut ports = 0;
    while ret == Ret(0) && ports < 5000 {
        ret = op(EVENT_CHANNEL_OP, 7, &[0, 0]);
        if ret == Ret(0) {
            ports += 1;
            last = word(&ARG, 4);
        }
    }
    fact!("ports", "{ret} last={last}");
    for port in (1..=last).rev().take(ports) {
        let _ = op(EVENT_CHANNEL_OP, 3, &[port]);
    }
    fact!(
        "alloc-unbound",
        "{}",
        op(EVENT_CHANNEL_OP, 6, &[SELF | SELF << 16, 0])
    );
    fact!(
        "status",
        "{}",
        op(EVENT_CHANNEL_OP, 5, &[SELF, word(&ARG, 4), 0, 0, 0, 0])
    );
    fact!(
        "event-channel-op-99",
        "{}",
        op(EVENT_CHANNEL_OP, 99, &[0; 4])
    );
    fact!(
        "event-bad-pointer",
        "{}",
        call(EVENT_CHANNEL_OP, [6, 0xf800_0000, 0, 0, 0])
    );
}

fn grants() {
    let grant = |sub: u32, arg: &[u32], count: u32| {
        words(&ARG, 0, arg);
        call(GRANT_TABLE_OP, [sub, at(&ARG), count, 0, 0])
    };
    let status = |at: usize| ARG.u16(at).load(SeqCst).cast_signed();
    fact!(
        "grant-size",
        "{} {}",
        grant(6, &[SELF, 0, 0, 0], 1),
        status(12)
    );
    fact!(
        "grant-version",
        "{} {}",
        grant(10, &[SELF, 0], 1),
        word(&ARG, 4)
    );
    words(&LIST, 0, &[7, 7]);
    let ret = grant(2, &[SELF, 1, 0x5a5a, at(&LIST)], 1);
    fact!(
        "grant-setup",
        "{ret} {} {:#x} {}",
        status(8),
        word(&LIST, 0),
        word(&LIST, 4)
    );
    let frame = SPARE[0].gfn() as u32;
    fact!("grant-place", "{}", op(MEMORY_OP, 7, &[SELF, 1, 0, frame]));
    let ret = grant(2, &[SELF, 1, 0x5a5a, at(&LIST)], 1);
    fact!(
        "grant-setup-placed",
        "{ret} {} {}",
        status(8),
        word(&LIST, 0) == frame
    );
    fact!(
        "grant-setup-two",
        "{}",
        grant(2, &[SELF, 1, 0, at(&LIST)], 2)
    );
    fact!(
        "grant-setup-bad-list",
        "{} {}",
        grant(2, &[SELF, 1, 0, 0xf800_0000], 1),
        status(8)
    );
    // Copies: frame, domain and offset; the same; length and flags; status.
    let (from, to) = (SPARE[1].gfn() as u32, SPARE[2].gfn() as u32);
    words(&SPARE[1], 0, &[0x1234_5678]);
    let copy = [from, SELF, to, SELF | 8 << 16, 4, 0x5a5a];
    fact!("grant-copy", "{} {}", grant(5, &copy, 1), status(20));
    fact!("grant-copied", "{:#x}", word(&SPARE[2], 8));
    let long = [from, SELF, to, SELF | 8 << 16, 4096, 0x5a5a];
    fact!(
        "grant-copy-too-long",
        "{} {}",
        grant(5, &long, 1),
        status(20)
    );
    fact!(
        "grant-copy-bad-pointer",
        "{}",
        call(GRANT_TABLE_OP, [5, 0xf800_0000, 1, 0, 0])
    );
    fact!("grant-copy-negative", "{}", grant(5, &copy, 1 << 31));
    fact!(
        "grant-map-no-such",
        "{} {}",
        grant(0, &[0, 1, 2, 9999, SELF, 0, 0, 0], 1),
        status(18)
    );
    fact!("grant-transfer", "{}", grant(4, &[0; 6], 1));
    fact!("grant-dump", "{}", grant(3, &[SELF], 1));
    fact!(
        "grant-status-frames",
        "{}",
        grant(9, &[1, SELF, at(&LIST)], 1)
    );
    fact!("grant-op-99", "{}", grant(99, &[0; 6], 1));
}

fn vcpus() {
    let vcpu = |sub: u32, id: u32, arg: &[u32]| {
        words(&ARG, 0, arg);
        call(VCPU_OP, [sub, id, at(&ARG), 0, 0])
    };
    fact!("is-up", "{}", vcpu(3, 0, &[]));
    fact!("is-up-nobody", "{}", vcpu(3, 99, &[]));
    let ret = vcpu(4, 0, &[0x5a5a; 13]);
    fact!(
        "runstate",
        "{ret} {} behind={:#x}",
        word(&ARG, 0),
        word(&ARG, 44)
    );
    // The area takes a pointer of four bytes.
    words(&LIST, 0, &[0x5a5a; 16]);
    fact!("runstate-area", "{}", vcpu(5, 0, &[at(&LIST), 0xffff_ffff]));
    fact!(
        "runstate-area-written",
        "{} behind={:#x}",
        word(&LIST, 0),
        word(&LIST, 44)
    );
    fact!(
        "runstate-area-bad-pointer",
        "{}",
        call(VCPU_OP, [5, 0, 0xf800_0000, 0, 0])
    );
    words(&LIST, 256, &[0x5a5a; 10]);
    fact!(
        "time-area",
        "{}",
        vcpu(13, 0, &[at(&LIST) + 256, 0xffff_ffff])
    );
    check!(word(&LIST, 256 + 24) != 0, "no multiplier in the time area");
    fact!("time-area-behind", "{:#x}", word(&LIST, 256 + 32));
    fact!("singleshot-flags", "{}", vcpu(8, 0, &[1, 0, 1]));
    fact!("singleshot-other", "{}", vcpu(8, 99, &[0, 0, 0]));
    fact!("stop-singleshot", "{}", vcpu(9, 0, &[]));
    fact!("periodic-short", "{}", vcpu(6, 0, &[10, 0]));
    fact!("periodic", "{}", vcpu(6, 0, &[0, 1]));
    fact!("stop-periodic", "{}", vcpu(7, 0, &[]));
    fact!("vcpu-op-99", "{}", vcpu(99, 0, &[]));
}

fn time() {
    fact!(
        "set-timer-far",
        "{}",
        call(SET_TIMER_OP, [0, 0x1000, 0, 0, 0])
    );
    fact!("set-timer-stop", "{}", call(SET_TIMER_OP, [0; 5]));
    // Polls: list, count, 64-bit time.
    let port = port("to poll");
    words(&LIST, 512, &[port]);
    let list = at(&LIST) + 512;
    fact!("poll-past", "{}", op(SCHED_OP, 3, &[list, 1, 1, 0]));
    send_any(port);
    fact!("poll-pending", "{}", op(SCHED_OP, 3, &[list, 1, 0, 0]));
    fact!("poll-many", "{}", op(SCHED_OP, 3, &[list, 1000, 0, 0]));
    fact!(
        "poll-bad-list",
        "{}",
        op(SCHED_OP, 3, &[0xf800_0000, 1, 1, 0])
    );
    words(&LIST, 512, &[0x7fff_ffff]);
    fact!("poll-no-port", "{}", op(SCHED_OP, 3, &[list, 1, 1, 0]));
    fact!("yield", "{}", call(SCHED_OP, [0; 5]));
    fact!("sched-op-99", "{}", call(SCHED_OP, [99, 0, 0, 0, 0]));
}

fn send_any(port: u32) {
    let ret = op(EVENT_CHANNEL_OP, 4, &[port]);
    check!(ret == Ret(0), "send: {ret}");
}

fn multicalls() {
    let entry = |op: u64, a: u32, b: u32| [op as u32, 0x5a5a, a, b, 0, 0, 0, 0];
    let list = [
        entry(XEN_VERSION, 7, 0),
        entry(63, 0, 0),
        entry(MEMORY_OP, 3, at(&ARG)),
        entry(MULTICALL, at(&LIST), 1),
        entry(XEN_VERSION, 6, 0xf800_0000),
    ];
    words(&ARG, 0, &[1234]);
    words(&LIST, 0, list.as_flattened());
    let ret = call(MULTICALL, [at(&LIST), 5, 0, 0, 0]);
    let result = |i: usize| Ret(word(&LIST, 32 * i + 4).cast_signed().into());
    fact!(
        "multicall",
        "{ret} {} {} {} {} {}",
        result(0),
        result(1),
        result(2),
        result(3),
        result(4)
    );
    fact!(
        "multicall-bad-list",
        "{}",
        call(MULTICALL, [0xf800_0000, 1, 0, 0, 0])
    );
    let many = [entry(XEN_VERSION, 7, 0); 128];
    words(&LIST, 0, many.as_flattened());
    let ret = call(MULTICALL, [at(&LIST), 128, 0, 0, 0]);
    let done = (0..128).filter(|i| result(*i) == Ret(4096)).count();
    fact!("multicall-many", "{ret} done={done}");
}

fn others() {
    fact!("get-param", "{}", op(HVM_OP, 1, &[SELF, 0, 0, 0]));
    fact!(
        "get-param-value",
        "{:#x} {:#x}",
        word(&ARG, 8),
        word(&ARG, 12)
    );
    fact!("get-param-99", "{}", op(HVM_OP, 1, &[SELF, 99, 0, 0]));
    fact!("hvm-op-99", "{}", op(HVM_OP, 99, &[0; 4]));
    fact!("vm-assist-5", "{}", call(VM_ASSIST, [0, 5, 0, 0, 0]));
    fact!("vm-assist-9", "{}", call(VM_ASSIST, [0, 9, 0, 0, 0]));
    words(&LIST, 0, &[u32::from_le_bytes(*b"\nhi\n")]);
    fact!(
        "console-write",
        "{}",
        call(CONSOLE_IO, [0, 4, at(&LIST), 0, 0])
    );
    fact!(
        "console-bad-pointer",
        "{}",
        call(CONSOLE_IO, [0, 4, 0xf800_0000, 0, 0])
    );
    fact!("physdev-op-99", "{}", op(PHYSDEV_OP, 99, &[0; 4]));
    words(&LIST, 0, &[u32::from(b'/')]);
    fact!("hypfs", "{}", call(HYPFS_OP, [1, at(&LIST), 2, 0, 0]).0 > 0);
}
