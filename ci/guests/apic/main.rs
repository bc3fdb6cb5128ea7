//! Does the local APIC work in both modes: registers, timer, IPIs of every kind, errors?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

use guest_rt::lapic::{
    self, ICR, LVT_ERROR, LVT_TIMER, SVR, TIMER_CURRENT, TIMER_DIVIDE, TIMER_INIT, TPR,
};
use guest_rt::{check, cpu, fact, shared, smp, time, trap};

guest_rt::entry!("apic", run);

const PLAIN: u8 = 0x41;
const TIMER: u8 = 0x52;
const ERROR: u8 = 0x63;
const TO_ALL: u8 = 0x74;

/// Shorthands of the interrupt command.
const SELF: u32 = 1 << 18;
const ALL: u32 = 2 << 18;
const OTHERS: u32 = 3 << 18;
const LOGICAL: u32 = 1 << 11;
const MASKED: u32 = 1 << 16;

fn open(ms: u64) {
    cpu::sti();
    time::spin_ms(ms);
    cpu::cli();
}

/// Runs `act`, opens interrupts, and returns how many of `vector` came to processor `cpu`.
fn gained(cpu: usize, vector: u8, act: impl FnOnce()) -> u32 {
    let before = trap::count(cpu, vector);
    act();
    cpu::sti();
    time::wait_ms(200, || trap::count(cpu, vector) != before);
    time::spin_ms(3);
    cpu::cli();
    trap::count(cpu, vector) - before
}

fn run() {
    shared::init();
    time::calibrate();
    for vector in [PLAIN, TIMER, ERROR, TO_ALL, 0x45, 0x46, 0x80] {
        trap::acknowledge(vector, true);
    }
    fact!("xapic-base", "{:#x}", cpu::rdmsr(lapic::APIC_BASE));
    reset_values("xapic");
    both_modes("xapic");
    xapic_only();
    let count = smp::start_all();
    if count > 1 {
        smp::start_on(1, sleeper);
        check!(
            time::wait_ms(2000, ready),
            "processor 1 does not enable its APIC"
        );
        others("xapic", 0xff);
    }

    // SVR and LVTs are kept over the switch.
    match lapic::enable_x2apic() {
        Ok(()) => fact!("x2apic", "enabled"),
        Err(fault) => {
            fact!("x2apic", "{fault}");
            return;
        }
    }
    check!(lapic::x2apic(), "x2APIC mode does not stay on");
    reset_values("x2apic");
    both_modes("x2apic");
    x2apic_only();
    if count > 1 {
        // Still in xAPIC mode: reached by ID, whatever the mode of the sender.
        let target = smp::apic_id(1);
        let n = gained(1, PLAIN, || lapic::send(target, u32::from(PLAIN)));
        check!(n == 1, "{n} interrupts for one IPI from x2APIC to xAPIC");
        READY.store(false, Ordering::Release);
        SWITCH.store(true, Ordering::Release);
        lapic::send(target, u32::from(PLAIN));
        check!(
            time::wait_ms(2000, ready),
            "processor 1 does not switch to x2APIC"
        );
        others("x2apic", 0xffff_ffff);
    }
    fact!(
        "leave-x2apic-directly",
        "{}",
        result(cpu::wrmsr_safe(lapic::APIC_BASE, 0xfee0_0900))
    );
    fact!(
        "x2apic-to-invalid",
        "{}",
        result(cpu::wrmsr_safe(lapic::APIC_BASE, 0xfee0_0500))
    );
    fact!(
        "disable",
        "{}",
        result(cpu::wrmsr_safe(lapic::APIC_BASE, 0xfee0_0100))
    );
    fact!("disabled-base", "{:#x}", cpu::rdmsr(lapic::APIC_BASE));
    fact!(
        "disabled-x2apic-from-off",
        "{}",
        result(cpu::wrmsr_safe(lapic::APIC_BASE, 0xfee0_0d00))
    );
    fact!(
        "enable-again",
        "{}",
        result(cpu::wrmsr_safe(lapic::APIC_BASE, 0xfee0_0900))
    );
    fact!("svr-after", "{:#x}", lapic::read(SVR));
}

fn result<T>(result: Result<T, cpu::Fault>) -> &'static str {
    if result.is_ok() { "accepted" } else { "fault" }
}

fn reset_values(mode: &str) {
    for (name, register) in [
        ("id", lapic::ID),
        ("version", lapic::VERSION),
        ("tpr", TPR),
        ("ppr", lapic::PPR),
        ("ldr", lapic::LDR),
        ("svr", SVR),
        ("esr", lapic::ESR),
        ("icr", ICR),
        ("lvt-timer", LVT_TIMER),
        ("lvt-thermal", 0x33),
        ("lvt-pmc", 0x34),
        ("lvt-lint0", lapic::LVT_LINT0),
        ("lvt-lint1", lapic::LVT_LINT1),
        ("lvt-error", LVT_ERROR),
        ("timer-init", TIMER_INIT),
        ("timer-current", TIMER_CURRENT),
        ("timer-divide", TIMER_DIVIDE),
    ] {
        fact!(("{mode}-{name}"), "{:#x}", lapic::read(register));
    }
}

fn both_modes(mode: &str) {
    // Disabled by software: LVTs stay masked, IPIs to self are not accepted.
    lapic::write(SVR, 0xff);
    lapic::write(LVT_TIMER, u32::from(TIMER));
    fact!(
        ("{mode}-lvt-while-disabled"),
        "{:#x}",
        lapic::read(LVT_TIMER)
    );
    let n = gained(0, PLAIN, || lapic::send(0, SELF | u32::from(PLAIN)));
    fact!(("{mode}-self-while-disabled"), "{n}");
    let before = trap::count(0, PLAIN);
    lapic::enable();
    fact!(("{mode}-svr"), "{:#x}", lapic::read(SVR));
    // An IPI sent while disabled must not be remembered, or it is; either way it is a fact.
    open(3);
    fact!(
        ("{mode}-self-after-enable"),
        "{}",
        trap::count(0, PLAIN) - before
    );

    let n = gained(0, PLAIN, || lapic::send(0, SELF | u32::from(PLAIN)));
    check!(n == 1, "{mode}: {n} interrupts for one IPI to self");
    let id = lapic::id();
    let n = gained(0, PLAIN, || lapic::send(id, u32::from(PLAIN)));
    check!(n == 1, "{mode}: {n} interrupts for one IPI to the own ID");
    let n = gained(0, PLAIN, || lapic::send(0, ALL | u32::from(PLAIN)));
    check!(n == 1, "{mode}: {n} interrupts for one IPI to all");
    let n = gained(0, PLAIN, || lapic::send(0x33, u32::from(PLAIN)));
    fact!(
        ("{mode}-ipi-to-nobody"),
        "{n} esr={:#x}",
        lapic::take_errors()
    );
    // Requests wait in order of priority, and two requests of one vector are one.
    lapic::send(0, SELF | u32::from(PLAIN));
    lapic::send(0, SELF | u32::from(PLAIN));
    lapic::send(0, SELF | 0x80);
    fact!(
        ("{mode}-irr"),
        "{} {}",
        lapic::bit(lapic::IRR, PLAIN),
        lapic::bit(lapic::IRR, 0x80)
    );
    let n = gained(0, 0x80, || ());
    fact!(("{mode}-merged"), "high={n}");
    // Task priority.
    lapic::write(TPR, 0x50);
    fact!(("{mode}-ppr-with-tpr-50"), "{:#x}", lapic::read(lapic::PPR));
    let held = gained(0, PLAIN, || lapic::send(0, SELF | u32::from(PLAIN)));
    let came = gained(0, PLAIN, || lapic::write(TPR, 0));
    check!(
        held == 0 && came == 1,
        "{mode}: TPR holds back {held} and lets go {came}"
    );
    lapic::write(TPR, 0xff);
    fact!(("{mode}-tpr-ff"), "{:#x}", lapic::read(TPR));
    lapic::write(TPR, 0);

    timer(mode);
    errors(mode);
    for (name, register, value) in [
        ("lvt-lint0-all-ones", lapic::LVT_LINT0, 0x1_f7ff),
        ("lvt-error-all-ones", LVT_ERROR, 0x1_10ff),
        ("divide-all-ones", TIMER_DIVIDE, 0xb),
    ] {
        let before = lapic::read(register);
        lapic::write(register, value);
        fact!(("{mode}-{name}"), "{:#x}", lapic::read(register));
        lapic::write(register, before);
    }
    let nmis = trap::count(0, 2);
    lapic::send(id, 0x400);
    time::spin_ms(3);
    fact!(("{mode}-nmi-to-self"), "{}", trap::count(0, 2) - nmis);
}

fn timer(mode: &str) {
    lapic::write(TIMER_DIVIDE, 0xb);
    lapic::write(LVT_TIMER, MASKED | u32::from(TIMER));
    lapic::write(TIMER_INIT, u32::MAX);
    let start = lapic::read(TIMER_CURRENT);
    let ns = time::now();
    time::spin_ms(20);
    let ticks = u64::from(start - lapic::read(TIMER_CURRENT));
    let ns = time::now() - ns;
    // 10 for Xen's virtual bus. The clock is read a little before and after the timer, so a neighbour passes.
    let period = (ns + ticks / 2) / ticks.max(1);
    fact!(
        ("{mode}-timer-period-ns"),
        "{}",
        if period.abs_diff(10) <= 2 { 10 } else { period }
    );
    lapic::write(TIMER_INIT, 0);
    fact!(("{mode}-timer-stopped"), "{}", lapic::read(TIMER_CURRENT));

    lapic::write(LVT_TIMER, u32::from(TIMER));
    let n = gained(0, TIMER, || lapic::write(TIMER_INIT, 1_000_000));
    check!(n == 1, "{mode}: one-shot timer fires {n} times");
    fact!(("{mode}-oneshot-current"), "{}", lapic::read(TIMER_CURRENT));
    lapic::write(LVT_TIMER, 1 << 17 | u32::from(TIMER));
    let before = trap::count(0, TIMER);
    lapic::write(TIMER_INIT, 1_000_000);
    cpu::sti();
    let enough = time::wait_ms(5000, || trap::count(0, TIMER) >= before + 5);
    cpu::cli();
    check!(enough, "{mode}: periodic timer stops");
    lapic::write(LVT_TIMER, MASKED | u32::from(TIMER));
    lapic::write(TIMER_INIT, 0);
    open(5);
    let before = trap::count(0, TIMER);
    open(30);
    check!(
        trap::count(0, TIMER) == before,
        "{mode}: a masked timer fires"
    );
    // TSC deadline, if there is one.
    if cpu::cpuid(1, 0)[2] & 1 << 24 != 0 {
        lapic::write(LVT_TIMER, 2 << 17 | u32::from(TIMER));
        let n = gained(0, TIMER, || cpu::wrmsr(0x6e0, cpu::rdtsc() + 1_000_000));
        fact!(("{mode}-deadline"), "{n} msr={}", cpu::rdmsr(0x6e0));
        lapic::write(LVT_TIMER, MASKED | u32::from(TIMER));
    } else {
        fact!(("{mode}-deadline"), "not offered");
    }
}

/// Illegal vectors are recorded, never delivered, and an illegal error vector does not make an error of its own.
fn errors(mode: &str) {
    let _ = lapic::take_errors();
    lapic::write(LVT_ERROR, u32::from(ERROR));
    let n = gained(0, ERROR, || lapic::send(0, SELF | 0x05));
    fact!(
        ("{mode}-illegal-send"),
        "error-interrupts={n} esr={:#x}",
        lapic::take_errors()
    );
    fact!(("{mode}-esr-cleared"), "{:#x}", lapic::take_errors());
    for vector in [0u32, 5, 15] {
        lapic::write(LVT_ERROR, vector);
        fact!(
            ("{mode}-error-vector-{vector}"),
            "{:#x}",
            lapic::read(LVT_ERROR)
        );
        lapic::send(0, SELF | 0x03);
        open(3);
        fact!(
            ("{mode}-error-vector-{vector}-esr"),
            "{:#x}",
            lapic::take_errors()
        );
    }
    lapic::write(LVT_ERROR, MASKED | u32::from(ERROR));
    // An illegal vector in the timer entry.
    lapic::write(LVT_TIMER, 7);
    lapic::write(TIMER_INIT, 1000);
    open(5);
    fact!(("{mode}-timer-vector-7"), "esr={:#x}", lapic::take_errors());
    lapic::write(LVT_TIMER, MASKED | u32::from(TIMER));
    lapic::write(TIMER_INIT, 0);
}

fn xapic_only() {
    lapic::write(lapic::ID, 0x4200_0000);
    fact!("xapic-id-write", "{:#x}", lapic::read(lapic::ID));
    lapic::write(lapic::ID, 0);
    lapic::write(lapic::DFR, 0xffff_ffff);
    lapic::write(lapic::LDR, 0x0100_0000);
    fact!(
        "xapic-ldr",
        "{:#x} dfr={:#x}",
        lapic::read(lapic::LDR),
        lapic::read(lapic::DFR)
    );
    let n = gained(0, PLAIN, || lapic::send(1, LOGICAL | u32::from(PLAIN)));
    check!(n == 1, "xapic: {n} interrupts for a logical IPI");
    let n = gained(0, PLAIN, || {
        lapic::send(1, LOGICAL | 1 << 8 | u32::from(PLAIN))
    });
    fact!("xapic-lowest-priority", "{n}");
    let n = gained(0, PLAIN, || lapic::send(2, LOGICAL | u32::from(PLAIN)));
    fact!("xapic-logical-other", "{n}");
    fact!("xapic-icr-high", "{:#x}", lapic::read(ICR + 1));
    fact!("xapic-msr-in-xapic", "{}", result(cpu::rdmsr_safe(0x802)));
    fact!("xapic-unaligned-register", "{:#x}", lapic::read_mmio(0x01));
    fact!("xapic-register-3f", "{:#x}", lapic::read_mmio(0x3f));
}

fn x2apic_only() {
    let n = gained(0, PLAIN, || cpu::wrmsr(0x83f, PLAIN.into()));
    check!(n == 1, "x2apic: {n} interrupts for SELF_IPI");
    let ldr = lapic::read(lapic::LDR);
    let id = lapic::id();
    check!(
        ldr == (id >> 4) << 16 | 1 << (id & 15),
        "x2apic: LDR {ldr:#x} does not follow from ID {id}"
    );
    let n = gained(0, PLAIN, || lapic::send(ldr, LOGICAL | u32::from(PLAIN)));
    check!(n == 1, "x2apic: {n} interrupts for a logical IPI");
    for (name, msr, value) in [
        ("id", 0x802, 0u64),
        ("version", 0x803, 0),
        ("ldr", 0x80d, 0),
        ("dfr", 0x80e, !0u32 as u64),
        ("eoi-0", 0x80b, 0),
        ("eoi-1", 0x80b, 1),
        ("tpr-wide", 0x808, 1 << 32),
        ("tpr-100", 0x808, 0x100),
        ("svr-reserved", 0x80f, 0x1_0000 | 0x1ff),
        ("esr-0", 0x828, 0),
        ("esr-1", 0x828, 1),
        ("icr-reserved", 0x830, 1 << 20),
        ("icr-high-31", 0x831, 0),
        ("lvt-error-reserved", 0x837, 1 << 20),
        ("timer-init-wide", 0x838, 1 << 32),
        ("timer-current", 0x839, 0),
        ("divide-reserved", 0x83e, 0x100),
        ("self-ipi-wide", 0x83f, 0x100),
        ("isr", 0x810, 0),
        ("hole-804", 0x804, 0),
        ("beyond-840", 0x840, 0),
        ("beyond-8ff", 0x8ff, 0),
    ] {
        fact!(
            ("x2apic-write-{name}"),
            "{}",
            result(cpu::wrmsr_safe(msr, value))
        );
    }
    lapic::enable();
    lapic::write(TPR, 0);
    for msr in [0x80bu32, 0x80e, 0x831, 0x83f, 0x804, 0x840, 0x8ff, 0x82f] {
        match cpu::rdmsr_safe(msr) {
            Ok(value) => fact!(("x2apic-read-{msr:x}"), "{value:#x}"),
            Err(fault) => fact!(("x2apic-read-{msr:x}"), "{fault}"),
        }
    }
    open(3);
}

/// Processor 1: enables its APIC and sleeps; interrupts wake it, are counted, and it sleeps again.
fn sleeper() {
    lapic::enable();
    READY.store(true, Ordering::Release);
    loop {
        cpu::sti_hlt_cli();
        if SWITCH.load(Ordering::Acquire) && !lapic::x2apic() {
            let _ = lapic::enable_x2apic();
            READY.store(true, Ordering::Release);
        }
    }
}

static SWITCH: AtomicBool = AtomicBool::new(false);

static READY: AtomicBool = AtomicBool::new(false);

fn ready() -> bool {
    READY.load(Ordering::Acquire)
}

/// IPIs to the sleeping processor 1, which is in the same mode.
fn others(mode: &str, broadcast: u32) {
    let target = smp::apic_id(1);
    let n = gained(1, PLAIN, || lapic::send(target, u32::from(PLAIN)));
    check!(n == 1, "{mode}: {n} interrupts for one IPI to processor 1");
    let own = trap::count(0, TO_ALL);
    let n = gained(1, TO_ALL, || lapic::send(0, OTHERS | u32::from(TO_ALL)));
    check!(n == 1, "{mode}: {n} interrupts for one IPI to all others");
    check!(
        trap::count(0, TO_ALL) == own,
        "{mode}: all-but-self includes self"
    );
    let n = gained(1, TO_ALL, || lapic::send(0, ALL | u32::from(TO_ALL)));
    check!(
        n == 1 && trap::count(0, TO_ALL) == own + 1,
        "{mode}: {n} interrupts for one IPI to all"
    );
    // Broadcast by destination, with a sleeping target.
    let n = gained(1, TO_ALL, || lapic::send(broadcast, u32::from(TO_ALL)));
    fact!(
        ("{mode}-broadcast"),
        "other={n} self={}",
        trap::count(0, TO_ALL) - own - 1
    );
    check!(n == 1, "{mode}: a broadcast reaches processor 1 {n} times");
    let own = trap::count(0, TO_ALL);
    let n = gained(1, TO_ALL, || {
        lapic::send(broadcast, LOGICAL | u32::from(TO_ALL))
    });
    fact!(
        ("{mode}-logical-broadcast"),
        "other={n} self={}",
        trap::count(0, TO_ALL) - own
    );
    let nmis = trap::count(1, 2);
    lapic::send(target, 0x400);
    let came = time::wait_ms(500, || trap::count(1, 2) != nmis);
    check!(came, "{mode}: NMI to processor 1 is lost");
    let before = trap::count(1, PLAIN);
    for _ in 0..50 {
        let now = trap::count(1, PLAIN);
        lapic::send(target, u32::from(PLAIN));
        time::wait_ms(500, || trap::count(1, PLAIN) != now);
    }
    let n = trap::count(1, PLAIN) - before;
    check!(n == 50, "{mode}: {n} of 50 IPIs arrived");
    fact!(("{mode}-others"), "nmi={came} ipis={n}");
}
