//! A guest that lives and dies as its command line says, and holds what its end must give back.
//!
//! `life=` is `poweroff` (also when there is no such word), `reboot`, `crash`, `triple` (a triple fault), `idle` (blocked
//! for ever) or `spin` (busy for ever), after `wait=` milliseconds. `hold=N` takes N event channels and grants as many pages (at
//! most 200).
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::hypercall::{DOMID_SELF, sched_op, shutdown};
use guest_rt::shared::add_to_physmap;
use guest_rt::time::wait_ms;
use guest_rt::{Page, check, cpu, evtchn, println, start};

guest_rt::entry!("life", run);

/// Whom the pages are granted to and who may bind the event channels.
const DOM0: u16 = 0;
static GRANTED: Page = Page::new();

/// Takes event channels and grants a page as often.
fn hold(count: u32) {
    if count == 0 {
        return;
    }
    for _ in 0..count {
        let port = evtchn::alloc_unbound(DOMID_SELF, DOM0);
        check!(port.is_ok(), "no event channel");
    }
    // Space 1 is the grant table.
    let ret = add_to_physmap(1, 0, HOLE >> 12);
    check!(ret.0 == 0, "the grant table: {ret}");
    let table = Page::at(HOLE);
    // The first 8 entries are the toolstack's.
    for entry in 8..8 + count as usize {
        table
            .u32(entry * 8 + 4)
            .store(GRANTED.gfn() as u32, Ordering::Relaxed);
        table.u16(entry * 8 + 2).store(DOM0, Ordering::Relaxed);
        table.u16(entry * 8).store(1, Ordering::Release);
    }
}

fn run() {
    let number = |key| start::option(key).and_then(|n| n.parse().ok()).unwrap_or(0);
    hold(number("hold").min(200));
    let life = start::option("life").unwrap_or("poweroff");
    println!("LIFE {life}");
    let wait = number("wait");
    if wait > 0 {
        wait_ms(u64::from(wait), || false);
    }
    match life {
        "poweroff" => {}
        "reboot" => shutdown(1),
        "crash" => shutdown(3),
        "triple" => cpu::triple_fault(),
        "idle" => loop {
            // SCHEDOP_block, and nothing is bound that could end it.
            let _ = sched_op(1, &mut 0u32);
        },
        "spin" => loop {
            cpu::pause();
        },
        other => {
            check!(false, "no such life: {other}");
        }
    }
}
