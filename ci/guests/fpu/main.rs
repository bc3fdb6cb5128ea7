//! Do exits go on as they should while other processors restore their FPU state? Processor 0 makes exits for some seconds; the
//! others do nothing but FXRSTOR.
//!
//! On hardware nobody would ask. QEMU's emulation writes a word of its first processor at each FXRSTOR of any, unlocked, and that
//! word also says whether the processor is in a guest (see the guide to testing).
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guest_rt::{check, cpu, fact, shared, smp, time};

guest_rt::entry!("fpu", run);

/// How long it takes.
const SECONDS: u64 = 5;
/// Restorations between two looks at the flag.
const BATCH: u32 = 1000;

static DONE: AtomicBool = AtomicBool::new(false);
static RESTORED: AtomicU64 = AtomicU64::new(0);

fn run() {
    shared::init();
    time::calibrate();
    let count = smp::start_all();
    fact!("processors", "{count}");
    for index in 1..count {
        smp::start_on(index, restore);
    }
    let expected = cpu::cpuid(0, 0);
    let mut exits = 0u64;
    let mut wrong = 0u64;
    let start = time::now();
    while time::now() - start < SECONDS * 1_000_000_000 {
        for _ in 0..100 {
            wrong += u64::from(cpu::cpuid(0, 0) != expected);
            exits += 1;
        }
    }
    DONE.store(true, Ordering::Release);
    let all = || (1..count).all(smp::idle);
    check!(time::wait_ms(5000, all), "a processor does not come back");
    let restored = RESTORED.load(Ordering::Relaxed);
    guest_rt::println!("{exits} exits, {restored} restorations");
    check!(wrong == 0, "{wrong} answers of CPUID differ");
    check!(
        count == 1 || restored > 0,
        "nothing was restored: the test tests nothing"
    );
}

fn restore() {
    while !DONE.load(Ordering::Acquire) {
        cpu::restore_fpu(BATCH);
        RESTORED.fetch_add(u64::from(BATCH), Ordering::Relaxed);
    }
}
