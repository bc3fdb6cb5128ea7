//! Does a multicall run its calls in order and report each result?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::evtchn::{self, bind_ipi};
use guest_rt::hypercall::{
    EVENT_CHANNEL_OP, MULTICALL, Ret, SCHED_OP, VCPU_OP, XEN_VERSION, call, ptr,
};
use guest_rt::{check, fact, shared};

guest_rt::entry!("multicall", run);

/// One entry: number, result, six arguments.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    op: u64,
    result: i64,
    args: [u64; 6],
}

fn entry(op: u64, args: &[u64]) -> Entry {
    let mut entry = Entry {
        op,
        result: 0x5a5a,
        args: [0; 6],
    };
    entry.args[..args.len()].copy_from_slice(args);
    entry
}

fn multicall(list: &mut [Entry]) -> Ret {
    let count = list.len() as u64;
    Ret(call(MULTICALL, [ptr(list), count, 0, 0, 0]))
}

fn run() {
    shared::init();
    evtchn::mask_all();
    let version = call(XEN_VERSION, [0; 5]);
    let port = bind_ipi(0).unwrap_or(0);
    check!(port != 0, "no IPI port");
    let mut arg = port;
    let send = entry(EVENT_CHANNEL_OP, &[4, ptr(&mut arg)]);

    let mut list = [
        entry(XEN_VERSION, &[0]),
        send,
        entry(63, &[]),
        entry(XEN_VERSION, &[99]),
        entry(XEN_VERSION, &[6, 0x7f00_0000_0000]),
        entry(SCHED_OP, &[0]),
        entry(VCPU_OP, &[3, 0]),
        entry(u64::MAX, &[]),
        entry(XEN_VERSION, &[7]),
    ];
    let ret = multicall(&mut list);
    fact!("ret", "{ret}");
    for (i, entry) in list.iter().enumerate() {
        fact!(("result-{i}"), "{}", Ret(entry.result));
    }
    check!(
        list[0].result == version,
        "first result is {}",
        list[0].result
    );
    check!(
        evtchn::take(port),
        "the event of the second call is missing"
    );
    check!(
        list[8].result == 4096,
        "the last call did not run: {}",
        list[8].result
    );

    let mut inner = [entry(XEN_VERSION, &[7])];
    let mut nested = [
        entry(MULTICALL, &[ptr(&mut inner), 1]),
        entry(XEN_VERSION, &[7]),
    ];
    fact!(
        "nested",
        "{} {} {}",
        multicall(&mut nested),
        Ret(nested[0].result),
        Ret(nested[1].result)
    );
    fact!("nested-inner", "{}", Ret(inner[0].result));
    fact!("empty", "{}", multicall(&mut []));
    fact!(
        "empty-bad-pointer",
        "{}",
        Ret(call(MULTICALL, [0x7f00_0000_0000, 0, 0, 0, 0]))
    );
    fact!(
        "bad-pointer",
        "{}",
        Ret(call(MULTICALL, [0x7f00_0000_0000, 1, 0, 0, 0]))
    );
    fact!(
        "count-huge",
        "{}",
        Ret(call(
            MULTICALL,
            [0x7f00_0000_0000, u64::from(u32::MAX), 0, 0, 0]
        ))
    );
    // Many entries: long enough that a hypervisor may interrupt itself.
    let mut many = [entry(XEN_VERSION, &[7]); 600];
    let ret = multicall(&mut many);
    let done = many.iter().filter(|entry| entry.result == 4096).count();
    fact!("many", "{ret} done={done}");
    check!(done == 600, "{done} of 600 calls ran");
}
