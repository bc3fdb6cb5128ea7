//! What does one exit cost? Loops of single operations between markers that a QEMU plugin counts instructions by.
//!
//! Command line: `op=NAME` (default: all), `n=COUNT` (default 100). Each operation is bracketed by its own pair of
//! markers, so that a timer interrupt of the hypervisor spoils one sample and not the median.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::hypercall::{SET_TIMER_OP, XEN_VERSION, call, set_param};
use guest_rt::start::option;
use guest_rt::{check, cpu, evtchn, fact, lapic, marker_start, marker_stop, shared, time, trap};

guest_rt::entry!("bench", run);

/// The event callback.
const UPCALL: u8 = 0xf3;

/// Brackets `$body` `$n` times with the markers of `$id`.
macro_rules! measure {
    ($wanted:expr, $n:expr, $id:literal, $name:literal, $body:expr) => {
        measure!($wanted, $n, $id, $name, (), $body)
    };
    ($wanted:expr, $n:expr, $id:literal, $name:literal, $before:expr, $body:expr) => {
        if $wanted.is_none_or(|wanted| wanted == $name) {
            for _ in 0..$n {
                $before;
                marker_start!($id);
                $body;
                marker_stop!($id);
            }
            fact!(("op-{}", $name), "id={} n={}", $id, $n);
        }
    };
}

static PORT: AtomicU32 = AtomicU32::new(0);
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Takes the port's event and the upcall.
fn clear() {
    let _ = evtchn::take_selector(0);
    if evtchn::take(PORT.load(Ordering::Relaxed)) {
        TAKEN.store(1, Ordering::Relaxed);
    }
}

fn run() {
    let n = option("n")
        .and_then(|text| text.parse().ok())
        .unwrap_or(100u32);
    let wanted = option("op");
    shared::init();
    time::calibrate();
    evtchn::mask_all();
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
    // The port stays pending, and masked: the shortest path there is.
    measure!(
        wanted,
        n,
        3,
        "send-pending",
        core::hint::black_box(evtchn::send(port))
    );
    let _ = set_param(0, 2 << 56 | u64::from(UPCALL));
    trap::hook(UPCALL, |_| clear());
    PORT.store(port, Ordering::Relaxed);
    evtchn::set_mask(port, false);
    // Nothing is pending before, the upcall is afterwards; interrupts are off.
    measure!(
        wanted,
        n,
        11,
        "send",
        clear(),
        core::hint::black_box(evtchn::send(port))
    );
    clear();
    // And all the way: until the handler has returned.
    measure!(wanted, n, 12, "send-and-upcall", cpu::sti(), {
        core::hint::black_box(evtchn::send(port));
        while TAKEN.swap(0, Ordering::Relaxed) == 0 {
            core::hint::spin_loop();
        }
    });
    cpu::cli();
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
