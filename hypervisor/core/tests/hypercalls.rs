//! Hypercalls of one control domain on the fake machine: values, errors, effects.

mod common;

use std::sync::atomic::Ordering;

use common::{PAGES, System};
use hv_core::vcpu::Sleep;
use hv_core::vcpu::exits::Next;
use x86_model::Gfn;

const ARG: u64 = 0x3000;
const EPERM: i64 = -1;
const ENOENT: i64 = -2;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;
const EACCES: i64 = -13;
const ENOBUFS: i64 = -105;

#[test]
fn versions_and_unknown_numbers() {
    let s = System::new(1);
    assert_eq!(s.call(0, 17, [0, 0, 0, 0, 0]), 4 << 16 | 17);
    assert_eq!(s.call(0, 17, [7, 0, 0, 0, 0]), 4096);
    assert_eq!(s.call(0, 17, [1, ARG, 0, 0, 0]), 0);
    assert_eq!(&s.peek::<8>(ARG), b".0-test\0");
    s.poke_words(ARG, &[0, 0]);
    assert_eq!(s.call(0, 17, [6, ARG, 0, 0, 0]), 0);
    // Bits 0, 2, 8, 9, 11, 13 as Xen 4.17 gives dom0, and "direct mapped" instead of "not direct mapped".
    assert_eq!(s.peek_u32(ARG + 4), 0x2b05 | 1 << 17);
    s.poke_words(ARG, &[1, 0]);
    assert_eq!(s.call(0, 17, [6, ARG, 0, 0, 0]), EINVAL);
    assert_eq!(s.call(0, 17, [99, ARG, 0, 0, 0]), ENOSYS);
    for sub in 11..=14 {
        assert_eq!(s.call(0, 17, [sub, 0, 0, 0, 0]), ENOSYS);
    }
    assert_eq!(s.call(0, 17, [1, PAGES * 4096, 0, 0, 0]), EFAULT);
    for number in [37, 48, 27, 63, 64, 1 << 31, u64::MAX] {
        assert_eq!(s.call(0, number, [0; 5]), ENOSYS);
    }
}

#[test]
fn texts_of_any_length_since_4_18() {
    let mut s = System::new(1);
    s.hv.identity.minor = 18;
    // How long, too long for the room, written without an end.
    assert_eq!(s.call(0, 17, [11, 0, 0, 0, 0]), 7);
    s.poke(ARG, b"\x06\0\0\0........");
    assert_eq!(s.call(0, 17, [11, ARG, 0, 0, 0]), ENOBUFS);
    s.poke(ARG, b"\x07\0\0\0........");
    assert_eq!(s.call(0, 17, [11, ARG, 0, 0, 0]), 7);
    assert_eq!(&s.peek::<12>(ARG), b"\x07\0\0\0.0-test.");
    assert_eq!(s.call(0, 17, [14, 0, 0, 0, 0]), 12);
    assert_eq!(s.call(0, 17, [11, PAGES * 4096, 0, 0, 0]), EFAULT);
    assert_eq!(s.call(0, 17, [11, u64::MAX, 0, 0, 0]), EFAULT);
}

#[test]
fn the_build_is_identified() {
    const BUILD_ID: u64 = 10;
    const ENODATA: i64 = -61;
    let mut s = System::new(1);
    let ask = |s: &System, at: u64| s.call(0, 17, [BUILD_ID, at, 0, 0, 0]);
    assert_eq!(ask(&s, 0), 3);
    for (room, answer) in [(0, EINVAL), (2, ENOBUFS), (3, 3), (1016, 3)] {
        s.poke(ARG, &u32::to_le_bytes(room));
        s.poke(ARG + 4, b"......");
        assert_eq!(ask(&s, ARG), answer);
        let told: &[u8] = if answer == 3 {
            b"\xab\xcd\xef..."
        } else {
            b"......"
        };
        assert_eq!(&s.peek::<6>(ARG + 4), told);
    }
    assert_eq!(ask(&s, PAGES * 4096), EFAULT);
    s.hv.identity.build_id.clear();
    assert_eq!(ask(&s, 0), ENODATA);
    s.poke(ARG, &[0; 4]);
    assert_eq!(ask(&s, ARG), EINVAL);
}

#[test]
fn only_privilege_level_zero_may_call() {
    let s = System::new(1);
    s.dom.vcpu(0).unwrap().local.try_lock().unwrap().ctx.cpl = 3;
    assert_eq!(s.call(0, 17, [0; 5]), EPERM);
}

#[test]
fn shared_info_moves_and_shows_events() {
    let s = System::new(2);
    let map_at = |gfn: u64| {
        s.poke(ARG, &[0xf0, 0x7f, 0, 0]);
        s.poke_words(ARG + 4, &[0]);
        s.poke(ARG + 8, &0u64.to_le_bytes());
        s.poke(ARG + 16, &gfn.to_le_bytes());
        s.call(0, 12, [7, ARG, 0, 0, 0])
    };
    assert_eq!(map_at(5), 0);
    assert_eq!(map_at(6), 0);
    // It has one place only.
    assert!(s.dom.p2m.frame(Gfn(5)).is_none());
    assert_eq!(map_at(1 << 40), EINVAL);
    // An IPI port from vCPU 0 to vCPU 1: its pending bit and upcall show up in the page.
    s.poke_words(ARG, &[1, 0]);
    assert_eq!(s.call(0, 32, [7, ARG, 0, 0, 0]), 0);
    let port = s.peek_u32(ARG + 4);
    s.poke_words(ARG, &[port]);
    assert_eq!(s.call(0, 32, [4, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek::<1>(6 * 4096 + 64), [1]);
    assert_eq!(s.peek_u32(6 * 4096 + 2048), 1 << port);
    assert_eq!(s.call(0, 32, [99, ARG, 0, 0, 0]), ENOSYS);
    s.poke_words(ARG, &[500]);
    assert_eq!(s.call(0, 32, [4, ARG, 0, 0, 0]), EINVAL);
}

#[test]
fn vcpu_info_is_registered_once_and_raises_the_upcall() {
    let s = System::new(2);
    s.poke(ARG, &9u64.to_le_bytes());
    s.poke_words(ARG + 8, &[128, 0]);
    assert_eq!(s.call(0, 24, [10, 0, ARG, 0, 0]), 0);
    assert_eq!(s.peek::<1>(9 * 4096 + 128), [1]);
    assert_eq!(s.peek::<8>(9 * 4096 + 136), [0xff; 8]);
    assert_ne!(s.peek_u32(9 * 4096 + 128 + 56), 0, "clock multiplier");
    assert_eq!(s.call(0, 24, [10, 0, ARG, 0, 0]), EINVAL);
    s.poke_words(ARG + 8, &[4096 - 32, 0]);
    assert_eq!(s.call(0, 24, [10, 1, ARG, 0, 0]), -6);
    assert_eq!(s.call(0, 24, [10, 7, ARG, 0, 0]), ENOENT);
}

#[test]
fn timers() {
    let s = System::new(2);
    s.poke(ARG, &5000u64.to_le_bytes());
    s.poke_words(ARG + 8, &[1, 0]);
    // A past deadline is accepted and due at once.
    s.hv.hw.clock_ns.store(10_000, Ordering::Relaxed);
    assert_eq!(s.call(0, 24, [8, 0, ARG, 0, 0]), 0);
    assert_eq!(s.dom.vcpu(0).unwrap().next_deadline(None), 5000);
    assert_eq!(
        s.call(0, 24, [8, 1, ARG, 0, 0]),
        EINVAL,
        "another vCPU's timer"
    );
    // VIRQ_TIMER fires once.
    s.poke_words(ARG, &[0, 0, 0]);
    assert_eq!(s.call(0, 32, [1, ARG, 0, 0, 0]), 0);
    let v = s.dom.vcpu(0).unwrap();
    s.hv.fire_timers(&s.dom, v, &mut v.local.try_lock().unwrap());
    let mut pending = [0; 1];
    s.dom.shared_info.read(0, &mut pending);
    assert_eq!(pending, [1]);
    assert_eq!(v.next_deadline(None), u64::MAX);
    assert_eq!(s.call(0, 15, [0; 5]), 0);
    // Too short a period.
    s.poke(ARG, &999_999u64.to_le_bytes());
    assert_eq!(s.call(0, 24, [6, 0, ARG, 0, 0]), EINVAL);
}

#[test]
fn poll_sleeps_until_the_port_is_raised() {
    let s = System::new(1);
    s.poke_words(ARG, &[0, 0]);
    assert_eq!(s.call(0, 32, [7, ARG, 0, 0, 0]), 0);
    let port = s.peek_u32(ARG + 4);
    s.poke_words(0x4000, &[port]);
    s.poke(ARG, &0x4000u64.to_le_bytes());
    s.poke_words(ARG + 8, &[1, 0, 0, 0]);
    assert_eq!(
        s.call_next(0, 29, [3, ARG, 0, 0, 0]),
        (0, Next::Sleep(Sleep::Polling, None))
    );
    s.poke_words(0x5000, &[port]);
    assert_eq!(s.call(0, 32, [4, 0x5000, 0, 0, 0]), 0);
    assert_eq!(s.call_next(0, 29, [3, ARG, 0, 0, 0]), (0, Next::Continue));
    s.poke_words(ARG + 8, &[129]);
    assert_eq!(s.call(0, 29, [3, ARG, 0, 0, 0]), EINVAL);
}

#[test]
fn a_port_raised_while_its_poller_falls_asleep_keeps_it_awake() {
    let s = System::new(2);
    let mut ports = [0; 2];
    for port in &mut ports {
        s.poke_words(ARG, &[0, 0]);
        assert_eq!(s.call(0, 32, [7, ARG, 0, 0, 0]), 0);
        *port = s.peek_u32(ARG + 4);
    }
    let asleep = Next::Sleep(Sleep::Polling, None);
    let raise = |port| {
        s.poke_words(0x5000, &[port]);
        assert_eq!(s.call(1, 32, [4, 0x5000, 0, 0, 0]), 0);
    };
    let falls_asleep = || {
        let v = s.dom.vcpu(0).unwrap();
        let mut local = v.local.try_lock().unwrap();
        let asleep = local.try_sleep(&s.dom, v, Sleep::Polling, None);
        v.sleep.store(Sleep::Awake as u8, Ordering::SeqCst);
        asleep
    };
    s.poke_words(0x4000, &ports);
    s.poke(ARG, &0x4000u64.to_le_bytes());
    // One port, several, none in particular.
    for count in [1, 2, 0] {
        s.poke_words(ARG + 8, &[count, 0, 0, 0]);
        assert_eq!(s.call_next(0, 29, [3, ARG, 0, 0, 0]), (0, asleep));
        assert!(falls_asleep(), "{count} ports, nothing raised");
        assert_eq!(s.call_next(0, 29, [3, ARG, 0, 0, 0]), (0, asleep));
        // The ports are masked, so that the upcall is no reason to wake up.
        raise(ports[0]);
        assert!(!falls_asleep(), "{count} ports, one raised");
        // Taken, as the guest would.
        s.dom.shared_info.write(2048, &[0; 8]);
    }
}

#[test]
fn balloon_gives_back_exactly_what_was_asked() {
    let s = System::new(1);
    let before = hv_hw::mem::free_frames();
    for i in 0..8u64 {
        s.poke(0x8000 + i * 8, &(40 + i).to_le_bytes());
    }
    let reservation = |n: u64| {
        s.poke(ARG, &0x8000u64.to_le_bytes());
        s.poke(ARG + 8, &n.to_le_bytes());
        s.poke_words(ARG + 16, &[0, 0, 0x7ff0, 0]);
    };
    reservation(8);
    assert_eq!(s.call(0, 12, [1, ARG, 0, 0, 0]), 8);
    assert_eq!(s.dom.p2m.pages() as u64, PAGES - 8);
    // A hole cannot be given back again.
    assert_eq!(s.call(0, 12, [1, ARG, 0, 0, 0]), 0);
    assert_eq!(s.call(0, 12, [6, ARG, 0, 0, 0]), 8);
    assert_eq!(s.dom.p2m.pages() as u64, PAGES);
    let _ = before;
    reservation(u64::MAX);
    assert_eq!(s.call(0, 12, [6, ARG, 0, 0, 0]), 0);
}

#[test]
fn params_have_owners() {
    let s = System::new(1);
    let param = |index: u32, value: u64| {
        s.poke_words(ARG, &[0x7ff0, index]);
        s.poke(ARG + 8, &value.to_le_bytes());
    };
    param(0, 2 << 56 | 0xf3);
    assert_eq!(s.call(0, 34, [0, ARG, 0, 0, 0]), 0);
    assert_eq!(s.dom.callback_vector.load(Ordering::Relaxed), 0xf3);
    param(12, 1);
    assert_eq!(s.call(0, 34, [0, ARG, 0, 0, 0]), EPERM);
    param(4, 1);
    assert_eq!(s.call(0, 34, [0, ARG, 0, 0, 0]), EINVAL);
    param(39, 1);
    assert_eq!(s.call(0, 34, [1, ARG, 0, 0, 0]), EINVAL);
    param(2, 99);
    assert_eq!(s.call(0, 34, [1, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek::<8>(ARG + 8), [0; 8]);
    s.poke_words(ARG, &[0, 0x0f]);
    assert_eq!(s.call(0, 34, [23, ARG, 0, 0, 0]), EINVAL);
    assert_eq!(s.call(0, 34, [9, ARG, 0, 0, 0]), EINVAL);
}

#[test]
fn platform_op_checks_its_version() {
    let s = System::new(1);
    s.poke_words(ARG, &[55, 0x0300_0000]);
    assert_eq!(s.call(0, 7, [ARG, 0, 0, 0, 0]), EACCES);
    s.poke_words(ARG, &[55, 0x0300_0001, 1]);
    assert_eq!(s.call(0, 7, [ARG, 0, 0, 0, 0]), 0);
    assert_eq!([s.peek_u32(ARG + 12), s.peek_u32(ARG + 16)], [1, 1]);
    s.poke_words(ARG, &[12345, 0x0300_0001]);
    assert_eq!(s.call(0, 7, [ARG, 0, 0, 0, 0]), ENOSYS);
}

#[test]
fn console_writes_reach_the_console() {
    let s = System::new(1);
    s.poke(0x6ffe, b"hello");
    assert_eq!(s.call(0, 18, [0, 5, 0x6ffe, 0, 0]), 0);
    assert_eq!(s.hv.hw.seen.lock().unwrap().console, b"hello");
    // As on Xen, the log is the hypervisor's own.
    assert!(s.hv.hw.seen.lock().unwrap().log.is_empty());
    let mut kept = System::new(1);
    kept.hv.console_to_ring = true;
    kept.poke(0x6000, b"hello");
    assert_eq!(kept.call(0, 18, [0, 5, 0x6000, 0, 0]), 0);
    assert_eq!(kept.hv.hw.seen.lock().unwrap().log, b"hello");
    s.hv.hw.seen.lock().unwrap().console_in.extend(b"xy");
    assert_eq!(s.call(0, 18, [1, 16, 0x7000, 0, 0]), 2);
    assert_eq!(&s.peek::<2>(0x7000), b"xy");
}

#[test]
fn multicall_runs_each_and_stores_results() {
    let s = System::new(1);
    let entry = |i: u64, op: u64, args: [u64; 2]| {
        let at = 0x9000 + i * 64;
        s.poke(at, &op.to_le_bytes());
        s.poke(at + 16, &args[0].to_le_bytes());
        s.poke(at + 24, &args[1].to_le_bytes());
    };
    entry(0, 17, [0, 0]);
    entry(1, 13, [0x9000, 3]);
    entry(2, 61, [0, 0]);
    assert_eq!(s.call(0, 13, [0x9000, 3, 0, 0, 0]), 0);
    let result = |i: u64| i64::from_le_bytes(s.peek(0x9000 + i * 64 + 8));
    assert_eq!(
        [result(0), result(1), result(2)],
        [4 << 16 | 17, EINVAL, ENOSYS]
    );
    // The list runs into the end of memory.
    assert_eq!(s.call(0, 13, [PAGES * 4096 - 64, 2, 0, 0, 0]), EFAULT);
}

#[test]
fn a_vcpu_cannot_start_with_registers_that_the_processor_refuses() {
    let s = System::new(2);
    // 64-bit start: mode 1, then rax..rdi, rip, rflags, cr0, cr3, cr4, efer from offset 8.
    let start = |cr4: u64, efer: u64| {
        s.poke(0xa000, &[0; 128]);
        s.poke_words(0xa000, &[1, 0]);
        s.poke(0xa008 + 80, &0x8000_0001u64.to_le_bytes());
        s.poke(0xa008 + 96, &cr4.to_le_bytes());
        s.poke(0xa008 + 104, &efer.to_le_bytes());
        s.call(0, 24, [0, 1, 0xa000, 0, 0])
    };
    let second = s.dom.vcpu(1).unwrap();
    second.up.store(false, Ordering::SeqCst);
    second.initialised.store(false, Ordering::SeqCst);
    assert_eq!(
        start(1 << 5 | 1 << 63, 0x500),
        EINVAL,
        "a CR4 bit that does not exist"
    );
    assert_eq!(start(1 << 5, 0x500 | 1 << 12), EINVAL, "EFER.SVME");
    // 32-bit start with flat segments: nothing to refuse, once.
    let flat = || {
        s.poke(0xa000, &[0; 128]);
        s.poke_words(0xa008 + 40, &[1]);
        for (n, access) in [0xc9b_u16, 0xc93, 0xc93, 0xc93, 0x8b].iter().enumerate() {
            s.poke(0xa008 + 104 + 2 * n as u64, &access.to_le_bytes());
        }
        s.call(0, 24, [0, 1, 0xa000, 0, 0])
    };
    assert_eq!(flat(), 0);
    assert_eq!(flat(), -17);
}

#[test]
fn a_stale_watcher_takes_no_new_deadline() {
    let s = System::new(1);
    let v = s.dom.vcpu(0).unwrap();
    let mut local = v.local.try_lock().unwrap();
    v.singleshot.store(5_000, Ordering::SeqCst);
    assert!(local.try_sleep(&s.dom, v, Sleep::Halted, None));
    // Not due: neither the deadline nor the sleep changes.
    s.hv.expire_sleeper(v, 4_999);
    assert_eq!(v.wake_at.load(Ordering::SeqCst), 5_000);
    assert_eq!(v.sleep.load(Ordering::SeqCst), Sleep::Halted as u8);
    // Due: awake, and the deadline is taken once.
    s.hv.expire_sleeper(v, 5_000);
    assert_eq!(v.wake_at.load(Ordering::SeqCst), u64::MAX);
    assert_eq!(v.sleep.load(Ordering::SeqCst), Sleep::Awake as u8);
}

#[test]
fn console_input_is_switched_between_dom0_and_debug_keys() {
    let s = System::new(1);
    let type_in = |text: &[u8]| {
        s.hv.hw.seen.lock().unwrap().console_in.extend(text);
        s.hv.console_input();
        let mut seen = s.hv.hw.seen.lock().unwrap();
        String::from_utf8(std::mem::take(&mut seen.console)).unwrap()
    };
    let read = || {
        let n = s.call(0, 18, [1, 16, ARG, 0, 0]);
        s.peek::<16>(ARG)[..n as usize].to_vec()
    };
    // VIRQ_CONSOLE tells dom0.
    s.poke_words(ARG, &[2, 0, 0]);
    assert_eq!(s.call(0, 32, [1, ARG, 0, 0, 0]), 0);
    assert_eq!(type_in(b"ls"), "");
    let mut pending = [0; 1];
    s.dom.shared_info.read(0, &mut pending);
    assert_eq!(pending, [1]);
    assert_eq!(read(), b"ls");
    assert_eq!(
        type_in(b"\x01\x01\x01"),
        "(XEN) *** Serial input to Xen (type 'CTRL-a' three times to switch input)\n"
    );
    assert!(type_in(b"h").contains("(XEN)  key 'q' => domains and their vCPUs\n"));
    assert_eq!(read(), b"", "dom0 gets none of it");
    assert!(type_in(b"\x01\x01\x01").contains("DOM0"));
    // What no interrupt has announced is found by reading, too.
    s.hv.hw.seen.lock().unwrap().console_in.extend(b"x");
    assert_eq!(read(), b"x");
}

#[test]
fn debug_keys_show_what_is_there() {
    let s = System::new(2);
    s.add_guest(3, 1);
    s.poke_words(ARG, &[2, 0, 0]);
    assert_eq!(s.call(0, 32, [1, ARG, 0, 0, 0]), 0);
    let line = hv_core::irq::Source::Gsi {
        gsi: 9,
        mode: hv_hw::machine::LineMode {
            level: true,
            low: true,
        },
    };
    let binding = hv_core::irq::Binding {
        domain: xen_abi::DomId::DOM0,
        source: line,
    };
    let cpu = hv_hw::machine::CpuId(1);
    assert!(s.hv.irqs.bind(&s.hv.hw, cpu, binding).is_some());
    // Hypercalls are counted as exits, which nothing here makes.
    let exit = hv_core::vcpu::stats::Reason::Hypercall;
    s.dom.vcpu(0).unwrap().stats.count(exit);
    let press = |key: u8| {
        s.hv.debug_key(key);
        let mut seen = s.hv.hw.seen.lock().unwrap();
        String::from_utf8(std::mem::take(&mut seen.console)).unwrap()
    };
    let cases: &[(u8, &[&str])] = &[
        (
            b'q',
            &[
                "d0: Alive, 64 of 80 pages, 2 of 2 vCPUs, control domain",
                "d0v1: up, not running",
                "hypercalls 1",
                "d3: Alive, 64 of 80 pages",
            ],
        ),
        (b'r', &["run queues of", "d0v0: asleep", "d3v0: asleep"]),
        (
            b'e',
            &[
                "domain 0: 1 ports in use",
                "Virq(2), vCPU 0",
                "domain 3: 0 ports in use",
            ],
        ),
        (b'i', &["CPU 1 vector 0x30", "gsi: 9"]),
        (b'm', &["KiB of RAM"]),
        (b'k', &["\n(XEN) CONFIG_NR_CPUS=", "CONFIG_HVM"]),
        (b'h', &["key 'R' => reboot the machine", "key '*' =>"]),
        (b'?', &["'?' is no debug key; 'h' lists them"]),
    ];
    for (key, parts) in cases {
        let text = press(*key);
        for part in *parts {
            assert!(
                text.contains(part),
                "{}: {part} is not in\n{text}",
                char::from(*key)
            );
        }
        assert!(text.lines().all(|l| l.starts_with("(XEN) ")), "{text}");
    }
    assert_eq!(press(b'\r'), "");
    let all = press(b'*');
    assert!(all.contains("run queues") && all.contains("CONFIG_HVM") && !all.contains("rebooting"));
    let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.hv.debug_key(b'R')));
    let why = end.unwrap_err();
    assert_eq!(
        why.downcast_ref::<String>().unwrap(),
        "power action: Reboot"
    );
}
