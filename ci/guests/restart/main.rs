//! Does a processor come back every time it gets INIT and a start-up IPI, whatever it was doing? It runs, idles, or is in the
//! middle of an earlier start; the sender takes timer interrupts meanwhile.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

use guest_rt::lapic::{self, LVT_TIMER, TIMER_DIVIDE, TIMER_INIT};
use guest_rt::{check, cpu, fact, println, shared, smp, time, trap};

guest_rt::entry!("restart", run);

const TIMER: u8 = 0x62;
/// How long it goes on.
const SECONDS: u64 = 5;
const PERIODIC: u32 = 1 << 17;

static HALT: AtomicBool = AtomicBool::new(false);

/// Spins or halts until INIT comes.
fn wait_for_init() {
    loop {
        if HALT.load(Ordering::Acquire) {
            cpu::hlt();
        }
        core::hint::spin_loop();
    }
}

fn run() {
    shared::init();
    time::calibrate();
    trap::acknowledge(TIMER, true);
    if smp::start_all() < 2 {
        guest_rt::report::skip(format_args!("one processor"));
        return;
    }
    lapic::enable();
    lapic::write(TIMER_DIVIDE, 0xb);
    lapic::write(LVT_TIMER, PERIODIC | u32::from(TIMER));
    lapic::write(TIMER_INIT, 50_000);
    cpu::sti();
    let start = time::now();
    let mut rounds = 0u32;
    while time::now() - start < SECONDS * 1_000_000_000 {
        HALT.store(rounds % 3 == 1, Ordering::Release);
        if !rounds.is_multiple_of(3) {
            smp::start_on(1, wait_for_init);
        }
        for _ in 0..rounds % 7 * 100 {
            core::hint::spin_loop();
        }
        if !check!(smp::restart(1), "no start in round {rounds}") {
            break;
        }
        rounds += 1;
    }
    cpu::cli();
    lapic::write(TIMER_INIT, 0);
    println!("{rounds} starts");
    check!(
        trap::count(0, TIMER) > 0,
        "no timer interrupt came meanwhile"
    );
    fact!("ran", "{}", rounds > 0);
}
