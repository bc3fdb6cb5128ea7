//! Answers that micro-guests saw on Xen 4.17 as a PVH dom0 (`ci/micro/reference/xen-4.17`), asked of the fake machine. What
//! differs on purpose is left out here and stands in `docs/abi`.

mod common;

use std::sync::atomic::Ordering::SeqCst;

use common::{PAGES, System};
use hv_core::domain::ShutdownReason;
use hv_core::vcpu::run::{self, PcpuLocal};
use hv_hw::machine::CpuId;

const ARG: u64 = 0x3000;
const SELF: u32 = 0x7ff0;
const HOLE: u64 = PAGES + 4;

const EPERM: i64 = -1;
const ENOENT: i64 = -2;
const ESRCH: i64 = -3;
const ENXIO: i64 = -6;
const E2BIG: i64 = -7;
const EACCES: i64 = -13;
const EFAULT: i64 = -14;
const EEXIST: i64 = -17;
const ENODEV: i64 = -19;
const EINVAL: i64 = -22;
const ENOSPC: i64 = -28;
const ENOSYS: i64 = -38;
const EOPNOTSUPP: i64 = -95;

/// Makes the call with `words` in the structure.
fn op(s: &System, number: u64, sub: u64, words: &[u32]) -> i64 {
    s.poke(ARG, &[0; 136]);
    s.poke_words(ARG, words);
    match number {
        7 => s.call(0, 7, [ARG, 0, 0, 0, 0]),
        20 => s.call(0, 20, [sub, ARG, 1, 0, 0]),
        _ => s.call(0, number, [sub, ARG, 0, 0, 0]),
    }
}

fn vcpu_op(s: &System, sub: u64, vcpu: u64, words: &[u32]) -> i64 {
    s.poke(ARG, &[0; 136]);
    s.poke_words(ARG, words);
    s.call(0, 24, [sub, vcpu, ARG, 0, 0])
}

#[test]
fn event_channels() {
    let s = System::new(2);
    let on_port = |port| {
        [
            op(&s, 32, 4, &[port]),
            op(&s, 32, 3, &[port]),
            op(&s, 32, 9, &[port]),
            op(&s, 32, 8, &[port, 0]),
            op(&s, 32, 13, &[port, 1]),
            op(&s, 32, 5, &[SELF, port]),
        ]
    };
    // Port 0 is there, closed for ever.
    assert_eq!(on_port(0), [EINVAL, EINVAL, 0, EINVAL, ENOSYS, 0]);
    for port in [2999, 4095, 4096, 131_072, 1 << 31, u32::MAX] {
        assert_eq!(on_port(port), [EINVAL; 6], "{port}");
    }
    assert_eq!(op(&s, 32, 6, &[SELF | SELF << 16]), 0);
    assert_eq!(s.peek_u32(ARG + 4), 1);
    assert_eq!(op(&s, 32, 6, &[1234 | SELF << 16]), ESRCH);
    assert_eq!(op(&s, 32, 0, &[SELF, 1]), 0);
    assert_eq!(op(&s, 32, 0, &[SELF, 1]), EINVAL);
    assert_eq!(op(&s, 32, 0, &[1234, 1]), ESRCH);
    assert_eq!(op(&s, 32, 5, &[1234, 1]), ESRCH);
    assert_eq!(op(&s, 32, 5, &[0x7ff2, 1]), ESRCH);
    assert_eq!(op(&s, 32, 8, &[1, 99]), ENOENT);
    assert_eq!(op(&s, 32, 7, &[99]), ENOENT);
    assert_eq!(op(&s, 32, 1, &[0, 99]), ENOENT);
    assert_eq!(op(&s, 32, 1, &[0, 0]), 0);
    assert_eq!(op(&s, 32, 1, &[0, 0]), EEXIST);
    assert_eq!(op(&s, 32, 1, &[24, 0]), EINVAL);
    assert_eq!(op(&s, 32, 1, &[2, 1]), EINVAL);
    assert_eq!(op(&s, 32, 12, &[5]), EOPNOTSUPP);
    assert_eq!(op(&s, 32, 10, &[1234]), ESRCH);
    assert_eq!(op(&s, 32, 14, &[0]), ENOSYS);
}

#[test]
fn fifo_events() {
    let s = System::new(2);
    let init = |gfn: u32, offset, vcpu| op(&s, 32, 11, &[gfn, 0, offset, vcpu]);
    for offset in [4, 4088, 4032, u32::MAX] {
        assert_eq!(init(8, offset, 0), EINVAL, "{offset}");
    }
    assert_eq!(init(8, 0, 99), ENOENT);
    assert_eq!(init(HOLE as u32, 0, 0), EINVAL);
    assert_eq!(init(8, 0, 0), 0);
    assert_eq!(init(8, 0, 0), EINVAL);
    assert_eq!(op(&s, 32, 12, &[HOLE as u32]), EINVAL);
    assert_eq!(op(&s, 32, 7, &[0]), 0);
    let port = s.peek_u32(ARG + 4);
    assert_eq!(op(&s, 32, 13, &[port, 15]), 0);
    assert_eq!(op(&s, 32, 13, &[port, 16]), EINVAL);
    // That it overlaps the first block's end is the guest's own affair.
    assert_eq!(init(8, 64, 1), 0);
}

#[test]
fn memory() {
    let s = System::new(1);
    let add = |domid, space, idx: u64, gpfn: u64| {
        let [i, g] = [idx, gpfn].map(|v| [v as u32, (v >> 32) as u32]);
        op(&s, 12, 7, &[domid, space, i[0], i[1], g[0], g[1]])
    };
    assert_eq!(add(SELF, 6, 0, HOLE), EINVAL);
    assert_eq!(add(SELF, u32::MAX, 0, HOLE), EINVAL);
    assert_eq!(add(SELF, 5, 0xb8, HOLE), EINVAL);
    assert_eq!(add(SELF, 4, 0, HOLE), ENOSYS);
    assert_eq!(add(1234, 0, 0, HOLE), ESRCH);
    assert_eq!(add(SELF, 2, HOLE, HOLE), EINVAL);
    assert_eq!(add(SELF, 2, 7, u64::MAX), EINVAL);
    assert_eq!(add(SELF, 0, 1, HOLE), EINVAL);
    assert_eq!(add(SELF, 2, 7, HOLE), 0);
    assert_eq!(op(&s, 12, 15, &[SELF, 0, 7, 0]), ENOENT);
    assert_eq!(op(&s, 12, 15, &[1234, 0, 6, 0]), ESRCH);
    assert_eq!(op(&s, 12, 3, &[1234]), ESRCH);
    for (foreign, wants) in [(SELF, ESRCH), (0, EPERM), (1234, ESRCH), (0x7ff2, EINVAL)] {
        s.poke(0x4000, &5u64.to_le_bytes());
        s.poke(0x4008, &HOLE.to_le_bytes());
        let words = [SELF | 4 << 16, 1 | foreign << 16];
        s.poke(ARG, &[0; 136]);
        s.poke_words(ARG, &words);
        for (at, pointer) in [(8, 0x4000u64), (16, 0x4008), (24, 0x4010)] {
            s.poke(ARG + at, &pointer.to_le_bytes());
        }
        assert_eq!(s.call(0, 12, [23, ARG, 0, 0, 0]), 0);
        assert_eq!(i64::from(s.peek_u32(0x4010) as i32), wants, "{foreign:#x}");
    }
    // Changes of the reservation always answer a number of extents.
    for sub in [1, 6] {
        assert_eq!(s.call(0, 12, [sub, 0xffff_ffff_0000, 0, 0, 0]), 0);
    }
    // Its own table is no resource for the caller.
    for (domid, kind) in [(SELF, 1), (SELF, 0), (SELF, 9), (1234, 1)] {
        assert_eq!(op(&s, 12, 28, &[domid | kind << 16]), ESRCH);
    }
    for (sub, wants) in [
        (8, ENOSYS),
        (10, ENOSYS),
        (12, ENOSYS),
        (11, 0),
        (16, 0),
        (17, 0),
        (18, 0),
        (19, 0),
        (20, ENOSYS),
        (22, ENOSYS),
        (25, EOPNOTSUPP),
        (26, EOPNOTSUPP),
        (27, 0),
    ] {
        assert_eq!(op(&s, 12, sub, &[]), wants, "{sub}");
    }
}

#[test]
fn grant_table_of_another_domain() {
    let s = System::new(1);
    s.add_guest(1, 1);
    // domid and type, id, frames, pad, first frame, list.
    let acquire =
        |id, frames, frame, list| op(&s, 12, 28, &[1 | 1 << 16, id, frames, 0, frame, 0, list, 0]);
    assert_eq!(acquire(0, 0, 0, 0), 0);
    assert_eq!(s.peek_u32(ARG + 8), 64);
    assert_eq!(acquire(0, 1, 0, 0), EINVAL);
    assert_eq!(acquire(7, 0, 0, 0), EINVAL);
    assert_eq!(
        acquire(1, 1, 0, 0x4000),
        EINVAL,
        "no status frames in version 1"
    );
    s.poke(0x4000, &HOLE.to_le_bytes());
    s.poke(0x4008, &(HOLE + 1).to_le_bytes());
    assert_eq!(acquire(0, 2, 0, 0x4000), 0);
    assert_eq!(acquire(0, 1, 64, 0x4000), EINVAL);
    assert_eq!(acquire(0, 1, 0, 0x7f00_0000), EFAULT);
    // What is written there is what the other domain has in its table.
    s.poke((HOLE + 1) << 12, b"entry");
    let guest = s.hv.domain(xen_abi::DomId(1)).unwrap();
    let mut bytes = [0; 5];
    guest.grants.frame(1, false).unwrap().read(0, &mut bytes);
    assert_eq!(&bytes, b"entry");
    // A guest has no such right.
    assert_eq!(op(&s, 12, 28, &[1 << 16]), EPERM, "the caller itself");
    let call = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), &bytes).unwrap();
        s.call_from(&guest, 0, 12, [28, ARG, 0, 0, 0]).0
    };
    assert_eq!(call(&[1 << 16, 0, 0, 0, 0, 0, 0, 0]), EPERM);
}

#[test]
fn vcpus() {
    let s = System::new(2);
    for offset in [1, 4, 4064, 4040, u32::MAX] {
        assert_eq!(vcpu_op(&s, 10, 0, &[9, 0, offset]), ENXIO, "{offset}");
    }
    assert_eq!(vcpu_op(&s, 10, 0, &[HOLE as u32]), EINVAL);
    assert_eq!(vcpu_op(&s, 10, 99, &[9]), ENOENT);
    assert_eq!(vcpu_op(&s, 0, 0, &[64]), EEXIST);
    s.dom.vcpu(1).unwrap().initialised.store(false, SeqCst);
    assert_eq!(vcpu_op(&s, 0, 1, &[99]), EINVAL);
    assert_eq!(vcpu_op(&s, 1, 1, &[]), EINVAL);
    for sub in [0, 1, 2, 3, 4, 5, 11] {
        assert_eq!(vcpu_op(&s, sub, 99, &[64]), ENOENT, "{sub}");
    }
    // An area that is mapped nowhere is no error.
    for sub in [5, 13] {
        assert_eq!(vcpu_op(&s, sub, 0, &[0, 0x7f00]), 0);
    }
    assert_eq!(vcpu_op(&s, 11, 0, &[]), EINVAL, "has an argument");
    assert_eq!(s.call(0, 24, [11, 0, 0, 0, 0]), 0);
    assert_eq!(vcpu_op(&s, 12, 0, &[]), EINVAL);
    assert_eq!(vcpu_op(&s, 14, 0, &[]), ENOSYS);
    assert_eq!(vcpu_op(&s, 15, 0, &[]), ENOSYS);
    assert_eq!(vcpu_op(&s, 16, 0, &[]), ENOSYS);
}

#[test]
fn timers_with_odd_deadlines() {
    let s = System::new(1);
    s.hv.hw.clock_ns.store(1_000_000_000, SeqCst);
    let deadline = || s.dom.vcpu(0).unwrap().next_deadline(None);
    // Times are signed: the last one is long past.
    assert_eq!(vcpu_op(&s, 8, 0, &[u32::MAX, u32::MAX]), 0);
    assert!(deadline() <= 1_000_000_000);
    assert_eq!(vcpu_op(&s, 8, 0, &[u32::MAX, i32::MAX as u32]), 0);
    assert_eq!(deadline(), i64::MAX as u64);
    // For this call such numbers are wrapped arithmetic.
    for far in [u64::MAX, i64::MAX as u64, 1 << 63] {
        assert_eq!(s.call(0, 15, [far, 0, 0, 0, 0]), 0);
        assert_eq!(deadline(), 1_100_000_000);
    }
    assert_eq!(s.call(0, 15, [0; 5]), 0);
    assert_eq!(deadline(), u64::MAX);
    assert_eq!(vcpu_op(&s, 6, 0, &[u32::MAX, u32::MAX]), EINVAL);
}

#[test]
fn scheduling() {
    let s = System::new(1);
    let watchdog = |id, seconds| op(&s, 29, 6, &[id, seconds]);
    assert_eq!(watchdog(7, 10), EINVAL);
    assert_eq!(watchdog(1, 10), EINVAL, "not in use");
    assert_eq!(watchdog(0, 0), EINVAL);
    assert_eq!(watchdog(0, 100), 1);
    assert_eq!(watchdog(0, 100), 2);
    assert_eq!(watchdog(0, 100), ENOSPC);
    assert_eq!(watchdog(1, 50), 0);
    assert_eq!(s.hv.watchdog_at(), 50_000_000_000);
    assert_eq!(watchdog(1, 0), 0);
    assert_eq!(watchdog(1, 0), EINVAL);
    assert_eq!(op(&s, 29, 7, &[0]), 0);
    assert_eq!(op(&s, 29, 7, &[99]), EINVAL);
    assert_eq!(op(&s, 29, 7, &[u32::MAX]), 0);
    // A poll for a port that cannot be.
    for port in [0, 3000, 1 << 30] {
        s.poke_words(0x4000, &[port]);
        assert_eq!(op(&s, 29, 3, &[0x4000, 0, 1, 0, 1]), EINVAL, "{port}");
    }
    assert_eq!(op(&s, 29, 3, &[0x7f00_0000, 0, 1, 0, 1]), EFAULT);
    assert_eq!(op(&s, 29, 4, &[1234, 0]), ESRCH);
    assert_eq!(op(&s, 29, 5, &[0]), 0);
    for sub in [8, 9, 99, 0xffff_ffff] {
        assert_eq!(op(&s, 29, sub, &[]), ENOSYS);
    }
}

#[test]
fn a_watchdog_stops_its_domain_in_time() {
    let s = System::new(1);
    let guest = s.add_guest(1, 1);
    s.poke(ARG, &[0; 8]);
    let bytes = [0u32, 3].map(u32::to_le_bytes).concat();
    hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), &bytes).unwrap();
    assert_eq!(s.call_from(&guest, 0, 29, [6, ARG, 0, 0, 0]).0, 1);
    // A pCPU with nothing to run waits for it, too.
    let mut pcpu = PcpuLocal::new(CpuId(0));
    let mut look_at = |now| {
        s.hv.hw.clock_ns.store(now, SeqCst);
        run::step(&s.hv, &mut pcpu);
        s.hv.hw.seen.lock().unwrap().timer
    };
    assert_eq!(look_at(2_999_999_999), Some(3_000_000_000));
    assert_eq!(guest.shutdown_reason(), None);
    assert_eq!(look_at(3_000_000_000), None);
    assert_eq!(guest.shutdown_reason(), Some(ShutdownReason::Watchdog));
    assert_eq!(s.hv.watchdog_at(), u64::MAX);
    assert_eq!(s.dom.shutdown_reason(), None);
}

#[test]
fn pins_are_undone() {
    let s = System::new(1);
    let key = s.dom.vcpu(0).unwrap().key;
    let may_run_on = |cpu| {
        s.hv.sched
            .with(|p| p.params(key).unwrap().hard.contains(CpuId(cpu)))
    };
    assert_eq!(op(&s, 29, 7, &[1]), 0);
    assert_eq!(op(&s, 29, 7, &[0]), 0);
    assert_eq!([may_run_on(0), may_run_on(1)], [true, false]);
    assert_eq!(op(&s, 29, 7, &[u32::MAX]), 0);
    assert_eq!([may_run_on(0), may_run_on(1)], [true, true]);
}

#[test]
fn platform_and_devices() {
    let s = System::new(1);
    let platform = |cmd, kind| op(&s, 7, 0, &[cmd, 0x0300_0001, kind]);
    for version in [0, 0x0300_0000, 0x0300_0002] {
        assert_eq!(op(&s, 7, 0, &[99, version]), EACCES);
    }
    for cmd in [65, 66, 67, 99, 1000] {
        assert_eq!(platform(cmd, 0), ENOSYS);
    }
    for (kind, wants) in [(1, ESRCH), (2, ESRCH), (4, ENOSYS), (9, EINVAL)] {
        assert_eq!(platform(50, kind), wants);
    }
    assert_eq!(op(&s, 7, 0, &[62, 0x0300_0001, 0, 0, 0, 1]), EINVAL);
    for (cpu, flags) in [(0, 1), (1, 1), (2, 2)] {
        assert_eq!(platform(55, cpu), 0);
        assert_eq!([s.peek_u32(ARG + 12), s.peek_u32(ARG + 16)], [1, flags]);
        let id = if flags == 1 { cpu } else { 0 };
        assert_eq!([s.peek_u32(ARG + 20), s.peek_u32(ARG + 24)], [id, id]);
    }
    assert_eq!(op(&s, 33, 29, &[]), 0);
    assert_eq!(op(&s, 33, 24, &[0x1234_5000, 0, 7 | 3 << 24, 1]), ENODEV);
    assert_eq!(op(&s, 33, 26, &[0x00a0_0000]), ENODEV);
    assert_eq!(op(&s, 33, 33, &[]), ENOSYS);
}

#[test]
fn parameters() {
    let s = System::new(1);
    let set = |index, value| op(&s, 34, 0, &[SELF, index, value]);
    for (index, wants) in [
        (1, EPERM),
        (2, 0),
        (5, EPERM),
        (12, EPERM),
        (15, 0),
        (17, EPERM),
        (18, 0),
        (19, ENODEV),
        (31, EPERM),
        (34, 0),
        (38, EPERM),
        (39, EINVAL),
        (1000, EINVAL),
        (u32::MAX, EINVAL),
    ] {
        assert_eq!(set(index, 0), wants, "{index}");
    }
    assert_eq!(op(&s, 34, 1, &[1234, 0]), ESRCH);
    for sub in [2, 3, 4, 6, 7, 8, 12, 13, 14, 16, 22, 26, 27, 99] {
        assert_eq!(op(&s, 34, sub, &[]), ENOSYS, "{sub}");
    }
    assert_eq!(op(&s, 34, 11, &[0x1000]), EINVAL);
    assert_eq!(op(&s, 34, 24, &[]), EINVAL, "has an argument");
    assert_eq!(op(&s, 34, 25, &[]), EOPNOTSUPP);
    assert_eq!(op(&s, 34, 23, &[99, 0x40]), ENOENT);
}

#[test]
fn console() {
    let s = System::new(1);
    for count in [u64::MAX, 1 << 31] {
        assert_eq!(s.call(0, 18, [0, count, 0x7000, 0, 0]), EFAULT);
        assert_eq!(s.call(0, 18, [1, count, 0x7000, 0, 0]), E2BIG);
    }
    assert_eq!(s.call(0, 18, [0, 1 << 32, 0x7000, 0, 0]), 0);
    assert_eq!(s.call(0, 18, [0, 0, u64::MAX, 0, 0]), 0);
    assert_eq!(s.call(0, 18, [2, 0, 0, 0, 0]), ENOSYS);
    assert_eq!(s.call(0, 40, [0; 5]), EOPNOTSUPP);
}

#[test]
fn what_only_the_control_domain_is_told() {
    let s = System::new(1);
    let guest = s.add_guest(1, 1);
    let ask = |number, args| s.call_from(&guest, 0, number, args).0;
    assert_eq!(ask(17, [9, ARG, 0, 0, 0]), 0);
    let mut text = [0; 9];
    guest
        .p2m
        .frame(x86_model::Gfn(ARG >> 12))
        .unwrap()
        .0
        .read(0, &mut text);
    assert_eq!(&text, b"<denied>\0");
    assert_eq!(ask(17, [10, ARG, 0, 0, 0]), EPERM);
    assert_eq!(ask(18, [0, 1, ARG, 0, 0]), EPERM);
    assert_eq!(ask(7, [ARG, 0, 0, 0, 0]), EPERM);
    assert_eq!(ask(29, [7, ARG, 0, 0, 0]), EPERM);
    assert_eq!(ask(33, [25, ARG, 0, 0, 0]), ENOSYS);
    assert_eq!(ask(12, [13, ARG, 0, 0, 0]), EPERM);
    // A claim's argument is looked at first: this one is for the guest itself.
    let mut claim = [0; 32];
    claim[24] = 1;
    hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), &claim).unwrap();
    assert_eq!(ask(12, [24, ARG, 0, 0, 0]), EPERM);
}
