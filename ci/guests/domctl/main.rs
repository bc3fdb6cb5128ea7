//! What do the toolstack's calls answer when their arguments are empty or odd?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{Ret, call, ptr};
use guest_rt::{check, fact};

guest_rt::entry!("domctl", run);

const SYSCTL: u64 = 35;
const DOMCTL: u64 = 36;
/// Interfaces of Xen 4.17.
const VERSION: u32 = 0x15;
/// Word of the argument where an operation's structure begins.
const DOMCTL_BODY: usize = 4;
const SYSCTL_BODY: usize = 2;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Arg([u32; 36]);

fn domctl(version: u32, cmd: u32, domain: u32, values: &[(usize, u32)]) -> (Ret, Arg) {
    let mut arg = Arg([0; 36]);
    (arg.0[0], arg.0[1], arg.0[2]) = (cmd, version, domain);
    for (offset, value) in values {
        arg.0[DOMCTL_BODY + offset / 4] = *value;
    }
    let ret = Ret(call(DOMCTL, [ptr(&mut arg), 0, 0, 0, 0]));
    (ret, arg)
}

fn sysctl(cmd: u32, values: &[(usize, u32)]) -> (Ret, Arg) {
    let mut arg = Arg([0; 36]);
    (arg.0[0], arg.0[1]) = (cmd, VERSION);
    for (offset, value) in values {
        arg.0[SYSCTL_BODY + offset / 4] = *value;
    }
    let ret = Ret(call(SYSCTL, [ptr(&mut arg), 0, 0, 0, 0]));
    (ret, arg)
}

/// What a PVH domain is created with.
const PVH: [(usize, u32); 7] = [
    (20, 3),
    (28, 2),
    (32, 63),
    (36, u32::MAX),
    (40, u32::MAX),
    (44, 1),
    (56, 1),
];

fn create(change: (usize, u32)) -> (Ret, u32) {
    let mut values = [(0, 0); 8];
    values[..7].copy_from_slice(&PVH);
    values[7] = change;
    let (ret, arg) = domctl(VERSION, 1, 0, &values);
    (ret, arg.0[2] & 0xffff)
}

/// Operations that would end the domain or the test.
const SKIPPED: &[u32] = &[1, 2];

fn every_operation(when: &str, id: u32) {
    for cmd in (1..=87).filter(|c| !SKIPPED.contains(c)) {
        let (ret, _) = domctl(VERSION, cmd, id, &[]);
        fact!(("{when}-{cmd}"), "{ret}");
    }
}

fn run() {
    for (name, version, cmd, domain) in [
        ("old", 0x14, 5, 0),
        ("new", 0x16, 5, 0),
        ("unknown-domain", VERSION, 3, 1234),
        ("unknown-domain-odd-op", VERSION, 999, 1234),
        ("unknown-op", VERSION, 999, 0),
        ("info-above", VERSION, 5, 1234),
        ("info-reserved", VERSION, 5, 0x7ff0),
        ("pause-self", VERSION, 3, 0),
        ("destroy-self", VERSION, 2, 0),
        ("unpause-self", VERSION, 4, 0),
        ("resume-self", VERSION, 27, 0),
        ("max-vcpus-self", VERSION, 15, 0),
        ("assign-io", VERSION, 37, 0x7ff1),
        ("assign-invalid", VERSION, 37, 0x7ff4),
        ("test-assign-invalid", VERSION, 45, 0x7ff4),
    ] {
        fact!(("{name}"), "{}", domctl(version, cmd, domain, &[]).0);
    }
    for (name, change) in [
        ("no-flags", (20, 0)),
        ("hvm-only", (20, 1)),
        ("hap-only", (20, 2)),
        ("unknown-flag", (20, 0x8003)),
        ("iommu", (20, 0x23)),
        ("iommu-options", (24, 1)),
        ("no-vcpus", (28, 0)),
        ("129-vcpus", (28, 129)),
        ("no-grant-frames", (36, 0)),
        ("65-grant-frames", (36, 65)),
        ("many-maptrack", (40, 1025)),
        ("grant-0", (44, 0)),
        ("grant-3", (44, 3)),
        ("grant-bits", (44, 0x11)),
        ("trace", (48, 4096)),
        ("pool", (52, 1)),
        ("no-lapic", (56, 0)),
        ("vpci", (56, 0x401)),
        ("misc", (60, 2)),
    ] {
        let (ret, id) = create(change);
        fact!(("create-{name}"), "{ret}");
        if ret.0 == 0 {
            let ended = domctl(VERSION, 2, id, &[]).0;
            check!(ended.0 == 0, "create-{name}: cannot be ended: {ended}");
        }
    }
    let (ret, id) = create((0, 0));
    check!(ret.0 == 0, "createdomain: {ret}");
    every_operation("bare", id);
    let (ret, _) = domctl(VERSION, 15, id, &[(0, 2)]);
    fact!(("max-vcpus"), "{ret}");
    for (name, cmd, values) in [
        ("vcpu-2", 14, &[(0, 2)][..]),
        ("affinity-none", 9, &[(0, 0)]),
        ("affinity-no-list", 9, &[(4, 1)]),
        ("affinity-vcpu-2", 25, &[(0, 2), (4, 1)]),
        ("sched-wrong", 16, &[(0, 9), (4, 1)]),
        ("sched-get", 16, &[(0, 6), (4, 1)]),
        ("sched-get-vcpu", 16, &[(0, 6), (4, 3)]),
        ("trigger-nmi", 28, &[(0, 0)]),
        ("trigger-reset", 28, &[(0, 1)]),
        ("trigger-init", 28, &[(0, 2)]),
        ("trigger-power", 28, &[(0, 3)]),
        ("trigger-vcpu-2", 28, &[(4, 2)]),
        ("virq-timer", 66, &[(0, 0)]),
        ("virq-24", 66, &[(0, 24)]),
        ("pool-odd", 86, &[(0, 4097)]),
        ("tsc-mode-3", 60, &[(0, 3)]),
        ("frames-1025", 61, &[(0, 1025)]),
        ("shadow-get", 10, &[(0, 30)]),
        ("shadow-peek-odd", 10, &[(0, 12), (4, 2)]),
        ("ports-none", 21, &[(0, 0)]),
        ("ports-many", 21, &[(0, 0xffff), (4, 2)]),
        ("map-ports-none", 40, &[(8, 0)]),
        ("record-unknown", 55, &[(0, 3)]),
        ("record-vcpu-2", 55, &[(0, 14), (4, 2)]),
        ("context-size", 33, &[(0, 0)]),
    ] {
        fact!(("{name}"), "{}", domctl(VERSION, cmd, id, values).0);
    }
    every_operation("vcpus", id);
    let ended = domctl(VERSION, 2, id, &[]).0;
    fact!(("destroy"), "{ended}");

    for cmd in 1..=30 {
        fact!(("sysctl-{cmd}"), "{}", sysctl(cmd, &[]).0);
    }
    for (name, cmd, values) in [
        ("pool-1", 18, &[(0, 3), (4, 1)][..]),
        ("pool-destroy-0", 18, &[(0, 2)]),
        ("pool-destroy-1", 18, &[(0, 2), (4, 1)]),
        ("pool-move-nobody", 18, &[(0, 6), (12, 1234)]),
        ("pool-move-self", 18, &[(0, 6), (12, 0)]),
        ("pool-odd", 18, &[(0, 99)]),
        ("sched-odd", 19, &[(8, 2)]),
        ("sched-pool-1", 19, &[(0, 1), (8, 1)]),
        ("sched-wrong", 19, &[(4, 9), (8, 1)]),
        ("sched-get", 19, &[(4, 6), (8, 1)]),
        ("policy-6", 29, &[(0, 6)]),
        ("features-6", 26, &[(0, 6), (8, 4096), (4, 1)]),
        ("features-size", 26, &[(0, 6)]),
    ] {
        fact!(("sysctl-{name}"), "{}", sysctl(cmd, values).0);
    }
}
