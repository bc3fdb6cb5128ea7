//! Does the task priority in CR8 hold interrupts back, and does lowering it let them go? In both modes of the local APIC.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::lapic::{self, LVT_TIMER, PPR, TIMER_DIVIDE, TIMER_INIT, TPR};
use guest_rt::{check, cpu, fact, shared, time, trap};

guest_rt::entry!("cr8", run);

const LOW: u8 = 0x41;
const HIGH: u8 = 0x61;
const TIMER: u8 = 0x52;
const SELF: u32 = 1 << 18;
const MASKED: u32 = 1 << 16;

fn run() {
    shared::init();
    time::calibrate();
    for vector in [LOW, HIGH, TIMER] {
        trap::acknowledge(vector, true);
    }
    lapic::enable();
    fact!("first", "{}", cr8());
    both_modes("xapic");
    if lapic::enable_x2apic().is_ok() {
        both_modes("x2apic");
    }
    for value in [16u64, 1 << 32] {
        let fault = cpu::set_cr8_safe(value).is_err();
        fact!(
            ("write-{value:x}"),
            "{}",
            if fault { "fault" } else { "accepted" }
        );
    }
    cpu::set_cr8(0);
}

/// What CR8 reads as.
struct Cr8(Result<u64, cpu::Fault>);

fn cr8() -> Cr8 {
    Cr8(cpu::cr8_safe())
}

impl core::fmt::Display for Cr8 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.0 {
            Ok(class) => write!(f, "{class}"),
            Err(fault) => write!(f, "{fault}"),
        }
    }
}

fn took(vector: u8) -> u32 {
    trap::count(0, vector)
}

/// With interrupts on: how many of `vector` came up to now, and after a while.
fn gained(vector: u8, act: impl FnOnce()) -> (u32, u32) {
    let before = took(vector);
    act();
    let at_once = took(vector) - before;
    time::wait_ms(200, || took(vector) != before);
    time::spin_ms(3);
    (at_once, took(vector) - before)
}

fn both_modes(mode: &str) {
    // One register with two names.
    cpu::set_cr8(6);
    fact!(("{mode}-tpr-from-cr8"), "{:#x}", lapic::read(TPR));
    fact!(("{mode}-ppr-from-cr8"), "{:#x}", lapic::read(PPR));
    lapic::write(TPR, 0x93);
    fact!(("{mode}-cr8-from-tpr"), "{}", cr8());
    cpu::set_cr8(0);
    let tpr = lapic::read(TPR);
    check!(tpr >> 4 == 0, "{mode}: CR8 = 0 leaves TPR {tpr:#x}");
    fact!(("{mode}-tpr-after-cr8"), "{tpr:#x}");

    cpu::sti();
    // Held back by its own class and by a higher one; let go by the class below, with no other exit in between.
    for class in [4u64, 15] {
        cpu::set_cr8(class);
        let (_, came) = gained(LOW, || lapic::send(0, SELF | u32::from(LOW)));
        check!(
            came == 0,
            "{mode}: CR8 = {class} lets {came} of class 4 pass"
        );
        fact!(
            ("{mode}-requested-under-{class}"),
            "{}",
            lapic::bit(lapic::IRR, LOW)
        );
        let (_, came) = gained(LOW, || cpu::set_cr8(4));
        check!(came == 0, "{mode}: CR8 = 4 lets {came} of class 4 pass");
        let (at_once, came) = gained(LOW, || cpu::set_cr8(3));
        check!(came == 1, "{mode}: CR8 = 3 lets {came} of class 4 pass");
        fact!(
            ("{mode}-let-go-from-{class}"),
            "at-once={at_once} in-all={came}"
        );
    }
    // The higher of two passes, the lower waits.
    cpu::set_cr8(5);
    let low = took(LOW);
    let (_, high) = gained(HIGH, || {
        lapic::send(0, SELF | u32::from(LOW));
        lapic::send(0, SELF | u32::from(HIGH));
    });
    check!(
        high == 1 && took(LOW) == low,
        "{mode}: of two classes around CR8 = 5, {high} of the higher and {} of the lower passed",
        took(LOW) - low
    );
    let (_, came) = gained(LOW, || cpu::set_cr8(0));
    check!(came == 1, "{mode}: the lower class is lost ({came})");

    // Held back twice, by the flag and by CR8, and let go in either order.
    cpu::cli();
    cpu::set_cr8(8);
    lapic::send(0, SELF | u32::from(LOW));
    let (_, came) = gained(LOW, cpu::sti);
    check!(came == 0, "{mode}: the flag alone lets {came} pass");
    let (_, came) = gained(LOW, || cpu::set_cr8(0));
    check!(came == 1, "{mode}: CR8 after the flag lets {came} pass");
    cpu::cli();
    cpu::set_cr8(8);
    lapic::send(0, SELF | u32::from(LOW));
    let (_, came) = gained(LOW, || cpu::set_cr8(0));
    check!(came == 0, "{mode}: CR8 alone lets {came} pass");
    let (_, came) = gained(LOW, cpu::sti);
    check!(came == 1, "{mode}: the flag after CR8 lets {came} pass");

    // Let go by the register instead.
    cpu::set_cr8(9);
    let (_, held) = gained(LOW, || lapic::send(0, SELF | u32::from(LOW)));
    let (_, came) = gained(LOW, || lapic::write(TPR, 0));
    check!(
        held == 0 && came == 1 && matches!(cr8().0, Ok(0) | Err(_)),
        "{mode}: TPR after CR8 holds {held} and lets {came} pass"
    );

    // The timer, which comes while CR8 is up.
    lapic::write(TIMER_DIVIDE, 0xb);
    lapic::write(LVT_TIMER, u32::from(TIMER));
    cpu::set_cr8(5);
    let before = took(TIMER);
    lapic::write(TIMER_INIT, 100_000);
    time::spin_ms(20);
    check!(took(TIMER) == before, "{mode}: CR8 does not hold the timer");
    let (_, came) = gained(TIMER, || cpu::set_cr8(4));
    check!(came == 1, "{mode}: the timer fires {came} times");
    lapic::write(LVT_TIMER, MASKED | u32::from(TIMER));

    // Raised and lowered often, around an interrupt each time: none lost, none early.
    let before = took(LOW);
    let mut early = 0;
    for _ in 0..200 {
        cpu::set_cr8(4);
        let held = took(LOW);
        lapic::send(0, SELF | u32::from(LOW));
        early += took(LOW) - held;
        cpu::set_cr8(0);
        time::wait_ms(200, || took(LOW) != held);
    }
    let came = took(LOW) - before;
    check!(
        came == 200 && early == 0,
        "{mode}: {came} of 200 arrived, {early} too early"
    );
    cpu::cli();
    cpu::set_cr8(0);
}
