//! The page `docs/abi/coverage.md` against the code: its rows against the dispatcher's table and the sub-operations that
//! `xen-abi` declares, and each row's state against the answer that a call gets.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::System;
use hv_core::hypercall::TABLE;
use xen_abi::layout::Header;
use xen_abi::{
    Errno, console, domctl, event_channel, grant_table, hvm, hypercall, hypfs, memory, physdev,
    platform, sched, sysctl, vcpu, version,
};

/// A structure of zeroes.
const ARG: u64 = 0x3000;

/// The domain that the toolstack's calls are about.
const GUEST: u16 = 1;

/// The calls with sub-operations: number, name, and the constants that name them.
const FAMILIES: &[(u64, &str, &Header, &str)] = &[
    (7, "platform_op", &platform::HEADER, "op::"),
    (12, "memory_op", &memory::HEADER, "op::"),
    (17, "xen_version", &version::HEADER, "op::"),
    (18, "console_io", &console::HEADER, "io::"),
    (20, "grant_table_op", &grant_table::HEADER, "op::"),
    (21, "vm_assist", &hypercall::HEADER, "vm_assist_type::"),
    (24, "vcpu_op", &vcpu::HEADER, "op::"),
    (29, "sched_op", &sched::HEADER, "op::"),
    (32, "event_channel_op", &event_channel::HEADER, "op::"),
    (33, "physdev_op", &physdev::HEADER, "op::"),
    (34, "hvm_op", &hvm::op::HEADER, "op::"),
    (41, "dm_op", &hvm::dm_op::HEADER, "op::"),
    (42, "hypfs_op", &hypfs::HEADER, "op::"),
    (35, "sysctl", &sysctl::HEADER, "op::"),
    (36, "domctl", &domctl::HEADER, "op::"),
];

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Refused(Errno),
}

/// A row of the page.
#[derive(Debug)]
struct Row {
    nr: u64,
    name: String,
    state: State,
}

fn state(text: &str) -> State {
    match text.split_once(' ') {
        None if text == "done" => State::Done,
        Some(("not", "yet")) => State::Refused(Errno::ENOSYS),
        Some(("refused", name)) => State::Refused(match name {
            "ENOSYS" => Errno::ENOSYS,
            "EINVAL" => Errno::EINVAL,
            "EOPNOTSUPP" => Errno::EOPNOTSUPP,
            "ENODATA" => Errno::ENODATA,
            "ENODEV" => Errno::ENODEV,
            "EPERM" => Errno::EPERM,
            _ => panic!("unknown error {name}"),
        }),
        _ => panic!("unknown state {text}"),
    }
}

/// The rows below the heading `title`.
fn rows(title: &str) -> Vec<Row> {
    let page = include_str!("../../../docs/abi/coverage.md");
    let section = page
        .split("\n## ")
        .find_map(|s| s.strip_prefix(title)?.strip_prefix('\n'))
        .unwrap_or_else(|| panic!("no section {title}"));
    section
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
            let nr = cells[0].parse().ok()?;
            assert_eq!(cells.len(), 5, "{line}");
            Some(Row {
                nr,
                name: cells[1].into(),
                state: state(cells[2]),
            })
        })
        .collect()
}

/// Makes the call; `None` if the machine was switched off.
fn answer(system: &System, call: u64, sub: u64) -> Option<i64> {
    let args = match call {
        // The sub-operation and the interface version stand in the structure.
        7 => {
            system.poke_words(ARG, &[sub as u32, 0x0300_0001]);
            [ARG, 0, 0, 0, 0]
        }
        // The domain, too.
        35 => {
            // A pool operation that there is.
            let pool_info = if sub == 18 { 3 } else { 0 };
            system.poke_words(ARG, &[sub as u32, 0x15, pool_info]);
            [ARG, 0, 0, 0, 0]
        }
        36 => {
            system.poke_words(ARG, &[sub as u32, 0x15, GUEST.into()]);
            [ARG, 0, 0, 0, 0]
        }
        // A buffer with the operation, which says so itself.
        41 => {
            let buffer = [(ARG + 16) as u32, 0, 64, 0];
            system.poke_words(ARG, &buffer);
            system.poke_words(ARG + 16, &[sub as u32, 0]);
            [GUEST.into(), 1, ARG, 0, 0]
        }
        18 => [sub, 0, ARG, 0, 0],
        20 => [sub, ARG, 1, 0, 0],
        21 => [0, sub, 0, 0, 0],
        24 => [sub, 0, ARG, 0, 0],
        _ => [sub, ARG, 0, 0, 0],
    };
    match catch_unwind(AssertUnwindSafe(|| system.call(0, call, args))) {
        Ok(answer) => Some(answer),
        Err(why) => {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(
                why.starts_with("power action"),
                "{call} {sub} panicked: {why}"
            );
            None
        }
    }
}

fn check(row: &Row, answer: Option<i64>) {
    match row.state {
        State::Done => assert_ne!(answer, Some(Errno::ENOSYS.to_ret()), "{row:?}"),
        State::Refused(errno) => assert_eq!(answer, Some(errno.to_ret()), "{row:?}"),
    }
}

#[test]
fn every_hypercall_has_its_row() {
    let rows = rows("Hypercalls");
    let listed: Vec<(u64, &str)> = rows.iter().map(|r| (r.nr, r.name.as_str())).collect();
    let table: Vec<(u64, &str)> = (0..)
        .zip(&TABLE)
        .filter(|(_, row)| !row.name.is_empty())
        .map(|(nr, row)| (nr, row.name))
        .collect();
    assert_eq!(listed, table);
    let s = System::new(1);
    for row in rows.iter().filter(|r| r.state != State::Done) {
        check(row, Some(s.call(0, row.nr, [0, ARG, 0, 0, 0])));
    }
    for nr in (0..80).filter(|nr| !rows.iter().any(|r| r.nr == *nr)) {
        assert_eq!(
            s.call(0, nr, [0, ARG, 0, 0, 0]),
            Errno::ENOSYS.to_ret(),
            "{nr}"
        );
    }
    // The calls of which every sub-operation has a row, and those that have none.
    for row in rows.iter().filter(|r| r.state == State::Done) {
        let whole = ["multicall", "set_timer_op"].contains(&row.name.as_str());
        let family = FAMILIES
            .iter()
            .any(|(nr, name, ..)| (*nr, *name) == (row.nr, row.name.as_str()));
        assert!(whole != family, "{row:?}");
    }
}

#[test]
fn every_sub_operation_has_its_row() {
    for (_, name, header, module) in FAMILIES {
        let listed: Vec<(u64, String)> = rows(name).into_iter().map(|r| (r.nr, r.name)).collect();
        let mut declared: Vec<(u64, String)> = header
            .constants
            .iter()
            .filter(|c| c.name.starts_with(module))
            .map(|c| (c.value as u64, c.c_name.to_owned()))
            .collect();
        declared.sort();
        assert_eq!(listed, declared, "{name}");
    }
}

#[test]
fn each_row_says_what_a_call_answers() {
    for (call, name, ..) in FAMILIES {
        for row in rows(name) {
            // A system of its own, since some calls end it.
            let s = System::new(2);
            s.add_guest(GUEST, 1);
            if (*call, row.nr) == (32, 13) {
                // Priorities are of the other event channel format.
                s.poke(ARG, &0x10u64.to_le_bytes());
                assert_eq!(s.call(0, 32, [11, ARG, 0, 0, 0]), 0);
                s.poke(ARG, &[0; 24]);
            }
            check(&row, answer(&s, *call, row.nr));
        }
    }
}

#[test]
fn states_are_told_apart() {
    assert_eq!(state("done"), State::Done);
    assert_eq!(state("not yet"), State::Refused(Errno::ENOSYS));
    assert_eq!(state("refused EINVAL"), State::Refused(Errno::EINVAL));
    assert!(catch_unwind(|| state("perhaps")).is_err());
}
