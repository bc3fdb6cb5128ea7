//! What does one exit cost? Loops of single operations between markers that a QEMU plugin counts instructions by.
//!
//! Command line: `op=NAME` (default: all), `n=COUNT` (default 100). Each operation is bracketed by its own pair of
//! markers, so that a timer interrupt of the hypervisor spoils one sample and not the median.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{SET_TIMER_OP, XEN_VERSION, call};
use guest_rt::start::option;
use guest_rt::{check, cpu, evtchn, fact, lapic, marker_start, marker_stop, shared, time};

guest_rt::entry!("bench", run);

/// Brackets `$body` `$n` times with the markers of `$id`.
macro_rules! measure {
    ($wanted:expr, $n:expr, $id:literal, $name:literal, $body:expr) => {
        if $wanted.is_none_or(|wanted| wanted == $name) {
            for _ in 0..$n {
                marker_start!($id);
                $body;
                marker_stop!($id);
            }
            fact!(("op-{}", $name), "id={} n={}", $id, $n);
        }
    };
}

fn run() {
    let n = option("n")
        .and_then(|text| text.parse().ok())
        .unwrap_or(100u32);
    let wanted = option("op");
    shared::init();
    time::calibrate();
    evtchn::mask_all();
    // Ready, but with the upcall byte set for good: each send is the same short path.
    let port = evtchn::bind_ipi(0).unwrap_or(0);
    check!(port != 0, "no IPI port");
    let far = time::now() + 3_600_000_000_000;

    measure!(wanted, n, 0, "nothing", core::hint::black_box(()));
    measure!(
        wanted,
        n,
        1,
        "cpuid",
        core::hint::black_box(cpu::cpuid(0x4000_0000, 0))
    );
    measure!(
        wanted,
        n,
        2,
        "hypercall",
        core::hint::black_box(call(XEN_VERSION, [0; 5]))
    );
    measure!(
        wanted,
        n,
        3,
        "send",
        core::hint::black_box(evtchn::send(port))
    );
    measure!(
        wanted,
        n,
        4,
        "set-timer",
        call(SET_TIMER_OP, [far, 0, 0, 0, 0])
    );
    call(SET_TIMER_OP, [0; 5]);
    measure!(
        wanted,
        n,
        5,
        "port-read",
        core::hint::black_box(cpu::in8(0x40))
    );
    measure!(
        wanted,
        n,
        6,
        "msr-read",
        core::hint::black_box(cpu::rdmsr(lapic::APIC_BASE))
    );
    measure!(wanted, n, 7, "xapic-tpr", lapic::write_mmio(lapic::TPR, 0));
    lapic::enable();
    if lapic::enable_x2apic().is_err() {
        fact!("x2apic", "refused");
        return;
    }
    measure!(
        wanted,
        n,
        8,
        "x2apic-tpr",
        cpu::wrmsr(0x800 + lapic::TPR, 0)
    );
    measure!(
        wanted,
        n,
        9,
        "x2apic-eoi",
        cpu::wrmsr(0x800 + lapic::EOI, 0)
    );
    // Interrupts are off: after the first one the request bit is already set.
    measure!(
        wanted,
        n,
        10,
        "x2apic-icr-self",
        cpu::wrmsr(0x800 + lapic::ICR, 0x4_0040)
    );
}
