//! Is the paravirtual clock sane: rate, progress, wall clock, and the same on all vCPUs?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use guest_rt::shared::{SHARED, vcpu_info};
use guest_rt::{check, cpu, fact, shared, smp, time};

guest_rt::entry!("pvclock", run);

/// Largest time seen by any processor, and whether anyone saw less after it.
static LATEST: AtomicU64 = AtomicU64::new(0);
static WORST: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicBool = AtomicBool::new(false);
static SAMPLES: AtomicU64 = AtomicU64::new(0);

/// Reads the clock and publishes it; a reading below what was published before it began went backwards.
fn race() {
    while !STOP.load(Ordering::Acquire) {
        let before = LATEST.load(Ordering::Acquire);
        let now = time::now();
        if now < before {
            WORST.fetch_max(before - now, Ordering::AcqRel);
        }
        LATEST.fetch_max(now, Ordering::AcqRel);
        SAMPLES.fetch_add(1, Ordering::AcqRel);
    }
}

fn run() {
    shared::init();
    let first = time::snapshot(&SHARED, 32);
    check!(
        first.mul != 0,
        "multiplier 0 right after shared_info was mapped"
    );
    check!(first.version & 1 == 0, "odd version");
    fact!("flags", "{:#x}", first.flags);
    let khz = first.tsc_khz();
    let leaf = u64::from(cpu::cpuid(0x4000_0003, 0)[2]);
    fact!(
        "rate-matches-cpuid",
        "{}",
        khz.abs_diff(leaf) * 1000 <= leaf.max(1)
    );
    check!((100_000..10_000_000).contains(&khz), "TSC rate {khz} kHz");
    time::calibrate();

    let start = time::now();
    time::spin_ms(50);
    let passed = time::now() - start;
    check!(
        (45_000_000..5_000_000_000).contains(&passed),
        "50 ms of TSC are {passed} ns"
    );
    let mut last = 0;
    for _ in 0..10_000 {
        let now = time::now();
        check!(now >= last, "clock went back from {last} to {now}");
        last = now;
    }

    // Wall clock: version even, nanoseconds below a second, and after this program was written.
    let version = SHARED.u32(3072).load(Ordering::Acquire);
    let sec = u64::from(SHARED.u32(3076).load(Ordering::Acquire))
        | u64::from(SHARED.u32(3084).load(Ordering::Acquire)) << 32;
    let nsec = SHARED.u32(3080).load(Ordering::Acquire);
    check!(
        version & 1 == 0 && nsec < 1_000_000_000,
        "wall clock version {version} ns {nsec}"
    );
    fact!("wall-clock-set", "{}", sec > 1_577_836_800);

    let count = smp::start_all();
    fact!("processors", "{count}");
    for index in 1..count {
        smp::start_on(index, race);
    }
    let until = time::now() + 300_000_000;
    while time::now() < until {
        let before = LATEST.load(Ordering::Acquire);
        let now = time::now();
        if now < before {
            WORST.fetch_max(before - now, Ordering::AcqRel);
        }
        LATEST.fetch_max(now, Ordering::AcqRel);
    }
    STOP.store(true, Ordering::Release);
    for index in 1..count {
        check!(
            time::wait_ms(5000, || smp::idle(index)),
            "processor {index} does not stop"
        );
    }
    let worst = WORST.load(Ordering::Acquire);
    check!(
        count == 1 || SAMPLES.load(Ordering::Acquire) > 0,
        "no samples of other processors"
    );
    // Linux keeps the last value and tolerates small steps unless the clock is declared stable.
    fact!(
        "monotonic-across",
        "{}",
        if worst == 0 {
            "exactly"
        } else if worst < 1_000_000 {
            "within 1 ms"
        } else {
            "no"
        }
    );
    check!(
        worst < 1_000_000,
        "clocks of two vCPUs differ by {worst} ns"
    );
    for index in 0..count {
        let snapshot = time::snapshot(&SHARED, vcpu_info(index) + 32);
        check!(
            snapshot.mul == first.mul && snapshot.shift == first.shift,
            "vCPU {index} has another rate"
        );
    }
}
