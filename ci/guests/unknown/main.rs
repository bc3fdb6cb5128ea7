//! What do unknown hypercalls, unknown sub-operations and bad pointers return?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::boot::HOLE;
use guest_rt::hypercall::*;
use guest_rt::{check, fact, shared};

guest_rt::entry!("unknown", run);

/// Linear addresses that no hypercall may accept: not canonical, not mapped, mapped to nothing, wrapping.
const BAD: [(&str, u64); 4] = [
    ("noncanonical", 0x8000_7f00_0000_0000),
    ("unmapped", 0x7f00_0000_0000),
    ("hole", HOLE),
    ("top", u64::MAX - 7),
];

fn run() {
    // Number by number with zero arguments: none of these commands has a lasting effect.
    for nr in 0..64 {
        // 13, 19, 26: empty lists succeed; 24: see the vcpu guest; 29: yields.
        fact!(("number-{nr}"), "{}", Ret(call(nr, [0; 5])));
    }
    for nr in [64u64, 127, 128, 1000, 0x4000_0000] {
        let ret = Ret(call(nr, [0; 5]));
        fact!(("number-{nr}"), "{ret}");
        check!(ret == Ret(-38), "hypercall {nr} returned {ret}");
    }
    shared::init();
    let subs = [
        ("memory_op", MEMORY_OP, [63, 40, 30, 29]),
        ("xen_version", XEN_VERSION, [99, 20, 11, 15]),
        (
            "event_channel_op",
            EVENT_CHANNEL_OP,
            [14, 15, 99, 0xffff_ffff],
        ),
        ("hvm_op", HVM_OP, [2, 99, 26, 27]),
        ("sched_op", SCHED_OP, [8, 9, 99, 0xffff_ffff]),
        ("grant_table_op", GRANT_TABLE_OP, [13, 14, 99, 0x800]),
        ("console_io", CONSOLE_IO, [2, 3, 99, 0xffff_ffff]),
        ("physdev_op", PHYSDEV_OP, [0, 33, 99, 0xffff_ffff]),
        ("vm_assist", VM_ASSIST, [2, 3, 99, 0xffff_ffff]),
    ];
    for (name, nr, list) in subs {
        for sub in list {
            let mut buffer = [0u64; 32];
            fact!(("{name}-sub-{sub:#x}"), "{}", op(nr, sub, &mut buffer));
        }
    }
    let mut buffer = [0u64; 32];
    for sub in [16u64, 99] {
        fact!(("vcpu_op-sub-{sub}"), "{}", vcpu_op(sub, 0, &mut buffer));
    }

    for (kind, address) in BAD {
        let plain = |name: &str, nr: u64, sub: u64| {
            let ret = Ret(call(nr, [sub, address, 1, 0, 0]));
            fact!(("{name}-{kind}"), "{ret}");
            check!(ret.0 < 0, "{name} accepted a {kind} pointer: {ret}");
        };
        plain("version-extraversion", XEN_VERSION, 1);
        plain("version-features", XEN_VERSION, 6);
        plain("evtchn-send", EVENT_CHANNEL_OP, 4);
        plain("evtchn-alloc", EVENT_CHANNEL_OP, 6);
        plain("evtchn-status", EVENT_CHANNEL_OP, 5);
        plain("memory-add", MEMORY_OP, 7);
        // A bad list is reported by the number of extents done: none.
        let ret = Ret(call(MEMORY_OP, [1, address, 0, 0, 0]));
        fact!(("memory-decrease-{kind}"), "{ret}");
        check!(
            ret.0 <= 0,
            "decrease_reservation accepted a {kind} pointer: {ret}"
        );
        plain("memory-map", MEMORY_OP, 9);
        plain("hvm-set-param", HVM_OP, 0);
        plain("hvm-get-param", HVM_OP, 1);
        plain("sched-shutdown", SCHED_OP, 2);
        plain("sched-poll", SCHED_OP, 3);
        plain("grant-query", GRANT_TABLE_OP, 6);
        plain("grant-map", GRANT_TABLE_OP, 0);
        plain("physdev-device-add", PHYSDEV_OP, 25);
        for (name, nr) in [("platform", PLATFORM_OP), ("sysctl", 35), ("domctl", 36)] {
            let ret = Ret(call(nr, [address, 0, 0, 0, 0]));
            fact!(("{name}-{kind}"), "{ret}");
            check!(ret.0 < 0, "{name} accepted a {kind} pointer: {ret}");
        }
        let ret = Ret(call(CONSOLE_IO, [0, 8, address, 0, 0]));
        fact!(("console-write-{kind}"), "{ret}");
        check!(ret.0 < 0, "console_io accepted a {kind} pointer");
        let ret = Ret(call(VCPU_OP, [10, 0, address, 0, 0]));
        fact!(("vcpu-register-info-{kind}"), "{ret}");
        let ret = Ret(call(VCPU_OP, [8, 0, address, 0, 0]));
        fact!(("vcpu-singleshot-{kind}"), "{ret}");
        let ret = Ret(call(VCPU_OP, [4, 0, address, 0, 0]));
        fact!(("vcpu-runstate-{kind}"), "{ret}");
        let ret = Ret(call(MULTICALL, [address, 1, 0, 0, 0]));
        fact!(("multicall-{kind}"), "{ret}");
        check!(ret.0 < 0, "multicall accepted a {kind} pointer");
    }
}
