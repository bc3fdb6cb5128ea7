//! What a build's choices change for callers. Holds for every configuration: `cargo xtask test kconfig` runs it for each
//! defconfig, and each assertion is met both ways by one of them.

mod common;

use common::System;
use hv_core::hypercall::TABLE;
use hv_core::options::{Build, Options, Scheduler as Name};
use hv_core::sched::{CpuMask, Scheduler};
use hv_hw::config;
use hv_hw::machine::CpuId;

const ARG: u64 = 0x3000;
const EPERM: i64 = -1;
const ENOSYS: i64 = -38;
const EOPNOTSUPP: i64 = -95;

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
    assert_eq!(text.contains("\nCONFIG_AMD=y\n"), cfg!(CONFIG_AMD));
}
