//! What a build's choices change for callers. Holds for every configuration: `cargo xtask test kconfig` runs it for each
//! defconfig, and each assertion is met both ways by one of them.

mod common;

use common::System;
use hv_core::hypercall::TABLE;
use hv_core::options::{Build, Options, Scheduler as Name};
use hv_core::sched::{CpuMask, Scheduler};
use hv_core::vcpu::stats::Reason;
use hv_hw::config;
use hv_hw::machine::{CpuId, InterruptCounts};

const ARG: u64 = 0x3000;
const EPERM: i64 = -1;
const ENOENT: i64 = -2;
const EACCES: i64 = -13;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;
const EOPNOTSUPP: i64 = -95;
const ENOBUFS: i64 = -105;

/// A system, with the scheduler that is there.
fn system() -> System {
    System::new(1)
}

#[test]
fn grant_tables() {
    let s = system();
    // GNTTABOP_query_size of oneself.
    s.poke_words(ARG, &[0x7ff0, 0, 0, 0]);
    let ret = s.call(0, 20, [6, ARG, 1, 0, 0]);
    assert_eq!(ret, if cfg!(CONFIG_GRANT_TABLE) { 0 } else { ENOSYS });
    assert_eq!(TABLE[20].name, "grant_table_op");
}

#[test]
fn fifo_event_channels() {
    let s = system();
    // EVTCHNOP_init_control of vCPU 0 with the control block in frame 8.
    s.poke(ARG, &8u64.to_le_bytes());
    s.poke_words(ARG + 8, &[0, 0, 0, 0]);
    let ret = s.call(0, 32, [11, ARG, 0, 0, 0]);
    let expected = if cfg!(CONFIG_EVTCHN_FIFO) {
        0
    } else {
        EOPNOTSUPP
    };
    assert_eq!(ret, expected);
    // EVTCHNOP_expand_array with frame 9.
    s.poke(ARG, &9u64.to_le_bytes());
    assert_eq!(s.call(0, 32, [12, ARG, 0, 0, 0]), expected);
}

#[test]
fn messages_of_other_domains() {
    let s = system();
    let guest = s.add_guest(1, 1);
    let (ret, _) = s.call_from(&guest, 0, 18, [0, 5, ARG, 0, 0]);
    assert_eq!(ret, if cfg!(CONFIG_VERBOSE_DEBUG) { 0 } else { EPERM });
    // Reading is for the control domain in any build.
    assert_eq!(s.call_from(&guest, 0, 18, [1, 5, ARG, 0, 0]).0, EPERM);
}

#[test]
fn schedulers() {
    for (name, built) in [
        ("credit2", cfg!(CONFIG_SCHED_CREDIT2)),
        ("null", cfg!(CONFIG_SCHED_NULL)),
    ] {
        assert_eq!(Scheduler::by_name(name, 1, 1).is_some(), built, "{name}");
        let (options, warnings) = Build::THIS.options(format!("sched={name}").as_bytes());
        assert_eq!(warnings.is_empty(), built, "{name}");
        if !built {
            assert_eq!(options.sched, Build::THIS.sched);
            let text = warnings[0].to_string();
            assert!(
                text.contains("not built in") && text.contains(config::SCHED_DEFAULT),
                "{text}"
            );
        }
    }
    let default = match Build::THIS.sched {
        Name::Credit2 => "credit2",
        Name::Null => "null",
    };
    assert_eq!(default, config::SCHED_DEFAULT);
    assert!(Scheduler::by_name(default, 1, 1).is_some());
}

#[test]
fn the_command_line_starts_from_the_builds() {
    let (options, _) = Build::THIS.options(b"");
    let plain = Options::parse(config::CMDLINE.as_bytes()).0;
    assert_eq!(options.console_timestamps, plain.console_timestamps);
    assert_eq!(options.loglvl != plain.loglvl, cfg!(CONFIG_DEBUG));
}

#[test]
fn sets_of_cpus_have_room_for_all() {
    let last = CpuId(config::NR_CPUS - 1);
    let mut mask = CpuMask::NONE;
    mask.set(last);
    mask.set(CpuId(config::NR_CPUS));
    assert!(mask.contains(last) && !mask.contains(CpuId(config::NR_CPUS)));
    assert_eq!(mask.iter(u32::MAX).count(), 1);
    assert_eq!(
        CpuMask::ALL.iter(u32::MAX).count(),
        config::NR_CPUS as usize
    );
}

#[test]
fn the_configuration_is_in_the_image() {
    let text = config::text();
    assert!(text.contains(&format!(
        "\nCONFIG_CONRING_SHIFT={}\n",
        config::CONRING_SHIFT
    )));
    assert_eq!(text.contains("\nCONFIG_HVM=y\n"), cfg!(CONFIG_HVM));
}

/// Reads a path of the hypervisor's file system: what the call answers, the head, the contents.
fn hypfs(s: &System, path: &str, room: u64) -> (i64, [u8; 12], Vec<u8>) {
    const BUFFER: u64 = 0x8000;
    let mut bytes = path.as_bytes().to_vec();
    bytes.push(0);
    s.poke(ARG, &bytes);
    let ret = s.call(0, 42, [1, ARG, bytes.len() as u64, BUFFER, room]);
    let head: [u8; 12] = s.peek(BUFFER);
    let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as u64;
    let len = if ret == 0 { len } else { 0 };
    let contents = (0..len).map(|i| s.peek::<1>(BUFFER + 12 + i)[0]);
    (ret, head, contents.collect())
}

#[test]
fn the_hypervisors_file_system() {
    let s = system();
    let guest = s.add_guest(1, 1);
    if !cfg!(CONFIG_HYPFS) {
        assert_eq!(s.call(0, 42, [0; 5]), ENOSYS);
        return;
    }
    assert_eq!(s.call(0, 42, [0; 5]), 1);
    assert_eq!(s.call(0, 42, [0, 0, 0, 0, 1]), EINVAL);
    assert_eq!(s.call_from(&guest, 0, 42, [0; 5]).0, EPERM);
    let (ret, head, file) = hypfs(&s, "/buildinfo/config", 0x8000);
    if cfg!(CONFIG_HYPFS_CONFIG) {
        // A text, in gzip, read-only.
        assert_eq!(
            (ret, &head[..4], &head[8..]),
            (0, &[2, 1, 0, 0][..], &[0; 4][..])
        );
        assert_eq!(file, config::FILE);
        assert_eq!(&file[15..file.len() - 8], config::text().as_bytes());
        assert_eq!(hypfs(&s, "/buildinfo/config", 12).0, ENOBUFS);
        assert_eq!(hypfs(&s, "/buildinfo/config", 11).0, EINVAL);
    } else {
        assert_eq!(ret, ENOENT);
    }
    let (ret, _, listing) = hypfs(&s, "/buildinfo", 0x1000);
    assert_eq!(ret, 0);
    let shows = |name: &[u8]| listing.windows(name.len()).any(|w| w == name);
    assert!(shows(b"compileinfo\0") && shows(b"version\0"));
    assert_eq!(shows(b"config\0"), cfg!(CONFIG_HYPFS_CONFIG));
    // Entries lie at multiples of two behind each other: 12 bytes of head, 2 of offset, the name in fours.
    assert_eq!(listing[12..14], [14 + 12, 0]);
    assert_eq!(hypfs(&s, "/buildinfo/version/minor", 64).2, [17, 0, 0, 0]);
    assert_eq!(hypfs(&s, "/buildinfo/version/extra", 64).2, b".0-test\0");
    for relative in ["", "buildinfo"] {
        assert_eq!(hypfs(&s, relative, 64).0, EINVAL, "{relative}");
    }
    for missing in ["/x", "//", "/build", "/buildinfo/version/minor/"] {
        assert_eq!(hypfs(&s, missing, 64).0, ENOENT, "{missing}");
    }
    s.poke(ARG, b"/\0/");
    for (cmd, len, ret) in [
        (1, 3, EINVAL),
        (1, 0, EINVAL),
        (1, 1025, EINVAL),
        (2, 2, EACCES),
        (3, 2, EOPNOTSUPP),
    ] {
        assert_eq!(
            s.call(0, 42, [cmd, ARG, len, 0x8000, 64]),
            ret,
            "{cmd} {len}"
        );
    }
    assert_eq!(
        s.call(0, 42, [1, common::PAGES << 12, 2, 0x8000, 64]),
        EFAULT
    );
    assert_eq!(s.call(0, 42, [1, ARG, 2, common::PAGES << 12, 64]), EFAULT);
    assert_eq!(s.call(0, 42, [1, ARG, 2, u64::MAX - 3, 64]), EFAULT);
}

/// Counters of exits: a folder of domains, in each a folder of vCPUs, in that a text.
#[test]
fn exits_are_told_to_the_control_domain() {
    if !cfg!(CONFIG_HYPFS) {
        return;
    }
    let s = system();
    s.add_guest(7, 2);
    let top = hypfs(&s, "/", 0x1000).2;
    assert!(top.windows(6).any(|w| w == b"exits\0"));
    for path in ["/exits", "/exits/"] {
        let (ret, head, listing) = hypfs(&s, path, 0x1000);
        assert_eq!((ret, head[0]), (0, 0), "{path}");
        assert_eq!(
            (&listing[14..16], &listing[32..34]),
            (&b"0\0"[..], &b"7\0"[..])
        );
        // Offset of the next entry; 0 at the last.
        assert_eq!((listing[12], listing[30]), (18, 0));
    }
    assert_eq!(hypfs(&s, "/exits/7", 0x1000).2.len(), 36);
    let vcpu =
        s.hv.domain(xen_abi::DomId(7))
            .unwrap()
            .vcpu(1)
            .unwrap()
            .clone();
    vcpu.stats.count(Reason::MsrWrite);
    vcpu.stats.time(Reason::MsrWrite, 700);
    vcpu.stats.injected(0x41);
    let (ret, _, text) = hypfs(&s, "/exits/7/1", 0x1000);
    let times = if cfg!(CONFIG_EXIT_TIMES) {
        "700 9:1"
    } else {
        "0"
    };
    let wanted = format!("format 1\ntsc_khz 1000000\nexit msr-write 1 {times}\ninject 0x41 1\n\0");
    assert_eq!((ret, String::from_utf8(text).unwrap()), (0, wanted));
    assert_eq!(hypfs(&s, "/exits/7/1", 20).0, ENOBUFS);
    for nobody in [
        "/exits/8",
        "/exits/7/2",
        "/exits/07",
        "/exits/+7",
        "/exits/7/0/0",
        "/exits/x",
        "/exitsx",
        "/exits/99999",
    ] {
        assert_eq!(hypfs(&s, nobody, 0x1000).0, ENOENT, "{nobody}");
    }
    assert_eq!(s.call(0, 42, [9, 0, 0, 0, 0]), EINVAL);
}

/// Counters of CPUs' interrupts: a folder of CPUs, in each a text.
#[test]
fn interrupts_are_told_to_the_control_domain() {
    if !cfg!(CONFIG_HYPFS) {
        return;
    }
    let s = system();
    let (ret, head, listing) = hypfs(&s, "/interrupts", 0x1000);
    assert_eq!((ret, head[0], &listing[14..16]), (0, 0, &b"0\0"[..]));
    s.hv.hw.seen.lock().unwrap().posts = InterruptCounts {
        notifications: 2,
        posted_turns: 6,
        posted: 40,
        exits_settled: 9,
        exits_repaired: 1,
        ..InterruptCounts::default()
    };
    let (ret, _, text) = hypfs(&s, "/interrupts/0", 0x1000);
    let text = String::from_utf8(text).unwrap();
    assert_eq!(ret, 0);
    assert!(
        text.starts_with("format 1\nvectors_used 0\nvectors 176\n"),
        "{text}"
    );
    let posted = "posted_notifications 2\nposted_turns 6\nposted_interrupts 40\nposted_stray 0\n";
    let below = "exits_settled 9\nexits_repaired 1\n\0";
    assert!(text.ends_with(&format!("{posted}{below}")), "{text}");
    for nobody in ["/interrupts/2", "/interrupts/0/0", "/interrupts/x"] {
        assert_eq!(hypfs(&s, nobody, 0x1000).0, ENOENT, "{nobody}");
    }
}
