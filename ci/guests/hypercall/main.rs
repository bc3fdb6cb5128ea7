//! Which ways into the hypervisor exist, and what do they preserve?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::hypercall::{Ret, XEN_VERSION, call, call_observed, call_page, uses_vmmcall};
use guest_rt::{Page, check, cpu, fact, user};

guest_rt::entry!("hypercall", run);

static PAGE: Page = Page::new();

fn show<T: core::fmt::Display>(key: &str, result: Result<T, cpu::Fault>) {
    match result {
        Ok(value) => fact!(("{key}"), "{value}"),
        Err(fault) => fact!(("{key}"), "{fault}"),
    }
}

fn run() {
    let version = call(XEN_VERSION, [0; 5]);
    fact!("direct", "{version:#x}");
    check!(version > 0, "direct call failed: {version}");
    fact!(
        "instruction",
        "{}",
        if uses_vmmcall() { "vmmcall" } else { "vmcall" }
    );
    show(
        "vmmcall",
        cpu::vmmcall_safe(XEN_VERSION, 0).map(|v| v as i64),
    );
    show("vmcall", cpu::vmcall_safe(XEN_VERSION, 0).map(|v| v as i64));

    let (rax, changed, flags) = call_observed(XEN_VERSION, [0, 0x2222, 0x3333, 0x4444, 0x5555]);
    fact!(
        "observed",
        "rax={rax:#x} changed={changed:#x} flags-changed={flags}"
    );
    check!(changed == 0, "a hypercall changed registers: {changed:#x}");
    check!(!flags, "a hypercall changed RFLAGS");
    let (rax, changed, flags) = call_observed(63, [1, 0x2222, 0x3333, 0x4444, 0x5555]);
    fact!(
        "observed-unknown",
        "rax={} changed={changed:#x} flags-changed={flags}",
        Ret(rax)
    );
    // Upper halves of the number.
    fact!(
        "number-high-bits",
        "{}",
        Ret(call(1 << 32 | XEN_VERSION, [0; 5]))
    );
    fact!(
        "number-bit-31",
        "{}",
        Ret(call(1 << 31 | XEN_VERSION, [0; 5]))
    );
    fact!("number-negative", "{}", Ret(call(u64::MAX, [0; 5])));
    // The command is 32 bits wide: do high bits matter?
    fact!(
        "command-high-bits",
        "{}",
        Ret(call(XEN_VERSION, [1 << 32, 0, 0, 0, 0]))
    );

    let [_, msr, _, _] = cpu::cpuid(0x4000_0002, 0);
    show("msr-read", cpu::rdmsr_safe(msr));
    show(
        "msr-index-1",
        cpu::wrmsr_safe(msr, PAGE.address() | 1).map(|()| "accepted"),
    );
    show("msr-hole", cpu::wrmsr_safe(msr, HOLE).map(|()| "accepted"));
    show(
        "msr-huge",
        cpu::wrmsr_safe(msr, 0xffff_ffff_ffff_f000).map(|()| "accepted"),
    );
    show(
        "msr-page",
        cpu::wrmsr_safe(msr, PAGE.address()).map(|()| "accepted"),
    );
    show("msr-read-after", cpu::rdmsr_safe(msr));
    for stub in [0usize, 17, 23, 34, 63, 64, 127] {
        let words = [0, 8, 16, 24].map(|at| PAGE.u64(32 * stub + at).load(Ordering::Relaxed));
        fact!(
            ("stub-{stub}"),
            "{:016x} {:016x}",
            words[0].swap_bytes(),
            words[1].swap_bytes()
        );
    }
    let again = call_page(&PAGE, XEN_VERSION, [0; 5]);
    fact!("page", "{again:#x}");
    check!(
        again == version,
        "page and direct call disagree: {again} and {version}"
    );

    show("user-mode", user::hypercall(XEN_VERSION, 0).map(Ret));
    show("user-mode-unknown", user::hypercall(63, 0).map(Ret));
    check!(
        call(XEN_VERSION, [0; 5]) == version,
        "direct call broken after user mode"
    );
}
