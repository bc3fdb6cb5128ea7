//! Intel's VT-x, which of all emulators that need no such processor only Bochs has: the micro-guests, then Linux.

use crate::row::{Level, READY, Step, VmTest};

const MACHINE: &str = "bochs";

/// Micro-guests of every run, and what each must end with. The first line is that the driver was chosen.
const SHORT: &[(&str, &str)] = &[
    ("smp", "TEST smp: SUCCESS"),
    ("apic", "TEST apic: SUCCESS"),
    ("timer", "TEST timer: SUCCESS"),
    ("memory", "TEST memory: SUCCESS"),
    ("domu", "TEST domu: SUCCESS"),
];

/// Those of the long run.
const LONG: &[(&str, &str)] = &[
    ("console", "TEST console: SUCCESS"),
    ("cpuid", "TEST cpuid: SUCCESS"),
    ("domctl", "TEST domctl: SUCCESS"),
    ("evtchn-2l", "TEST evtchn-2l: SUCCESS"),
    ("evtchn-fifo", "TEST evtchn-fifo: SUCCESS"),
    ("grant", "TEST grant: SUCCESS"),
    ("hypercall", "TEST hypercall: SUCCESS"),
    ("hypfs", "TEST hypfs: SUCCESS"),
    ("msr", "TEST msr: SUCCESS"),
    ("multicall", "TEST multicall: SUCCESS"),
    ("physdev", "TEST physdev: SUCCESS"),
    ("port", "TEST port: SUCCESS"),
    ("pvclock", "TEST pvclock: SUCCESS"),
    ("restart", "TEST restart: SUCCESS"),
    ("sched", "TEST sched: SUCCESS"),
    ("unknown", "TEST unknown: SUCCESS"),
    ("upcall", "TEST upcall: SUCCESS"),
    ("upcall-vcpu", "TEST upcall-vcpu: SUCCESS"),
    ("vcpu", "TEST vcpu: SUCCESS"),
    ("version", "TEST version: SUCCESS"),
];

/// The rows.
pub fn rows() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let row = |name: &str, level| {
        VmTest::new(format!("bochs/{name}"), level)
            .machine(MACHINE)
            .needs_xen()
    };
    let mut rows = vec![
        row("no-virtualization", Normal)
            .guest("version")
            .devices(&["cpu: exclude_features=vmx"])
            .steps(&[
                Step::See("Xenolith 0."),
                Step::See(
                    "Xenolith cannot start: the CPU has no hardware virtualization that the system could see",
                ),
            ]),
    ];
    for (guests, level) in [(SHORT, Normal), (LONG, Full)] {
        rows.extend(guests.iter().map(|&(guest, end)| {
            row(guest, level)
                .guest(guest)
                .steps(&[Step::See("Intel VT-x, EPT"), Step::See(end)])
        }));
    }
    // Who delivers interrupts, and what CPUID says about it.
    for (name, line, flags) in [
        ("cpuid-delivery", "", "FACT xen-hvm flags=0x5e"),
        ("cpuid-software", "apicv=off", "FACT xen-hvm flags=0x5c"),
    ] {
        let row = row(name, Normal).guest("cpuid").cmdline(line);
        rows.push(row.steps(&[Step::See("Intel VT-x, EPT"), Step::See(flags)]));
    }
    rows.push(
        row("apic-software", Full)
            .guest("apic")
            .cmdline("apicv=off")
            .steps(&[Step::See("TEST apic: SUCCESS")]),
    );
    // The build for such processors alone.
    rows.push(
        row("intel-minimal", Full)
            .defconfig("intel_minimal")
            .guest("version")
            .steps(&[
                Step::See("Intel VT-x, EPT"),
                Step::See("TEST version: SUCCESS"),
            ]),
    );
    // Emulated time runs at its own pace; a busy host makes it a long wait.
    let linux = |cpus| {
        row(&format!("linux-{cpus}cpu"), Full)
            .cpus(cpus)
            .script("boot")
            .steps(&[Step::See("Intel VT-x, EPT"), Step::See(READY)])
            .extra_time(600)
    };
    rows.extend([linux(1), linux(2)]);
    // Linux to user space with and without APIC virtualization; each prints its table of exits.
    for (cpus, apicv) in [(1, "on"), (1, "off"), (2, "on"), (2, "off")] {
        let line = if apicv == "on" { "" } else { "apicv=off" };
        let row = row(&format!("exits-{cpus}cpu-{apicv}"), Full);
        let row = row.cpus(cpus).script("exits").tools().cmdline(line);
        rows.push(row.steps(&[Step::See(READY)]).extra_time(900));
    }
    rows
}
