//! What do yield, block, poll and the other scheduler operations do?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{Ret, ptr, sched_op, set_param, vcpu_op};
use guest_rt::{check, cpu, evtchn, fact, shared, time, trap};

guest_rt::entry!("sched", run);

const VECTOR: u8 = 0xf3;
const MS: u64 = 1_000_000;

#[repr(C)]
struct Poll {
    ports: u64,
    count: u32,
    pad: u32,
    timeout: u64,
}

fn poll(ports: &mut [u32], timeout: u64) -> Ret {
    let count = ports.len() as u32;
    sched_op(
        3,
        &mut Poll {
            ports: ptr(ports),
            count,
            pad: 0,
            timeout,
        },
    )
}

fn upcall(_vector: u8) {
    let _ = evtchn::take_selector(0);
    for port in 1..16 {
        let _ = evtchn::take(port);
    }
}

fn run() {
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    fact!("yield", "{}", sched_op(0, &mut 0u64));
    let ipi = evtchn::bind_ipi(0).unwrap_or(0);
    check!(ipi != 0, "no IPI port");

    // Pending, although masked: returns at once.
    check!(evtchn::send(ipi) == Ret(0), "send failed");
    let start = time::now();
    fact!("poll-pending", "{}", poll(&mut [ipi], start + 5000 * MS));
    check!(
        time::now() - start < 2000 * MS,
        "poll waited for a pending port"
    );
    let _ = evtchn::take(ipi);
    // Time-out.
    let start = time::now();
    let ret = poll(&mut [ipi], start + 20 * MS);
    let waited = time::now() - start;
    fact!("poll-timeout", "{ret}");
    check!(
        waited < 3000 * MS,
        "poll with a time-out of 20 ms took {waited} ns"
    );
    fact!("poll-timeout-past", "{}", poll(&mut [ipi], 1));
    fact!("poll-none", "{}", poll(&mut [], time::now() + 10 * MS));
    fact!("poll-port-0", "{}", poll(&mut [0], time::now() + 10 * MS));
    fact!(
        "poll-free-port",
        "{}",
        poll(&mut [3000], time::now() + 10 * MS)
    );
    fact!(
        "poll-bad-port",
        "{}",
        poll(&mut [1 << 30], time::now() + 10 * MS)
    );
    let mut many = [ipi; 129];
    fact!(
        "poll-128",
        "{}",
        poll(&mut many[..128], time::now() + 10 * MS)
    );
    fact!("poll-129", "{}", poll(&mut many, time::now() + 10 * MS));
    fact!(
        "poll-bad-list",
        "{}",
        sched_op(
            3,
            &mut Poll {
                ports: 0x7f00_0000_0000,
                count: 1,
                pad: 0,
                timeout: 1
            }
        )
    );

    // Block: the timer event wakes it.
    let timer = evtchn::bind_virq(0, 0).unwrap_or(0);
    check!(timer != 0, "no timer VIRQ");
    evtchn::set_mask(timer, false);
    trap::hook(VECTOR, upcall);
    check!(
        set_param(0, 2 << 56 | u64::from(VECTOR)) == Ret(0),
        "callback vector refused"
    );
    let _ = (evtchn::take_selector(0), evtchn::take(timer));
    let start = time::now();
    check!(
        vcpu_op(8, 0, &mut [start + 20 * MS, 0]) == Ret(0),
        "timer refused"
    );
    cpu::sti();
    let ret = sched_op(1, &mut 0u64);
    cpu::cli();
    let waited = time::now() - start;
    fact!("block", "{ret} ticks={}", trap::count(0, VECTOR));
    check!(
        (20 * MS..5000 * MS).contains(&waited),
        "block until a 20 ms timer took {waited} ns"
    );
    // Poll wakes for a port that becomes pending.
    evtchn::set_mask(timer, true);
    let _ = (evtchn::take_selector(0), evtchn::take(timer));
    let start = time::now();
    check!(
        vcpu_op(8, 0, &mut [start + 20 * MS, 0]) == Ret(0),
        "timer refused"
    );
    let ret = poll(&mut [timer], start + 4000 * MS);
    let waited = time::now() - start;
    fact!("poll-event", "{ret} pending={}", evtchn::take(timer));
    check!(
        (20 * MS..3000 * MS).contains(&waited),
        "poll for a 20 ms timer took {waited} ns"
    );

    fact!("shutdown-code", "{}", sched_op(5, &mut 0u32));
    fact!(
        "remote-shutdown-nobody",
        "{}",
        sched_op(4, &mut [1234u32, 0])
    );
    fact!("watchdog-7", "{}", sched_op(6, &mut [7u32, 10]));
    let id = sched_op(6, &mut [0u32, 100]);
    fact!("watchdog-new", "{id}");
    fact!("watchdog-stop", "{}", sched_op(6, &mut [id.0 as u32, 0]));
    fact!("pin-override-0", "{}", sched_op(7, &mut 0i32));
    fact!("pin-override-99", "{}", sched_op(7, &mut 99i32));
    fact!("pin-override-off", "{}", sched_op(7, &mut -1i32));
}
