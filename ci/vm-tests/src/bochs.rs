//! Intel's VT-x, which of all emulators that need no such processor only Bochs has: the micro-guests, then Linux.

use vmtest::bochs;

use crate::row::{Level, READY, Step, VmTest};

const MACHINE: &str = "bochs";

/// Micro-guests of every run, and what each must end with. The first line is that the driver was chosen.
const SHORT: &[(&str, &str)] = &[
    ("smp", "TEST smp: SUCCESS"),
    ("apic", "TEST apic: SUCCESS"),
    ("cr8", "TEST cr8: SUCCESS"),
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

/// A way to handle local APICs.
struct Assist {
    name: &'static str,
    level: Level,
    /// Option of the hypervisor.
    option: &'static str,
    /// Another processor than the machine's.
    cpu: &'static [&'static str],
    /// What CPUID then says.
    flags: &'static str,
}

const fn assist(
    name: &'static str,
    level: Level,
    option: &'static str,
    cpu: &'static [&'static str],
    flags: &'static str,
) -> Assist {
    Assist {
        name,
        level,
        option,
        cpu,
        flags,
    }
}

const NONE: &str = "FACT xen-hvm flags=0x5c";
const XAPIC: &str = "FACT xen-hvm flags=0x5d";
const X2APIC: &str = "FACT xen-hvm flags=0x5e";
const BOTH: &str = "FACT xen-hvm flags=0x5f";
const IVY_BRIDGE: &[&str] = &["cpu: model=corei7_ivy_bridge_3770k"];
const HASWELL: &[&str] = &["cpu: model=corei7_haswell_4770"];

const XHCI: &[&str] = &["usb_xhci: enabled=1, port3=mouse"];

/// All that the processor can, nothing but the task priority, parts of it, and older processors.
const ASSISTS: &[Assist] = &[
    assist("assisted", Level::Normal, "", &[], BOTH),
    assist("software", Level::Normal, "apicv=off", &[], NONE),
    assist("post", Level::Full, "apicv=post", &[], BOTH),
    assist("no-xapic", Level::Full, "apicv=no-xapic", &[], X2APIC),
    assist("no-x2apic", Level::Full, "apicv=no-x2apic", &[], XAPIC),
    assist("no-delivery", Level::Full, "apicv=no-delivery", &[], XAPIC),
    assist("no-registers", Level::Full, "apicv=no-registers", &[], NONE),
    assist("ivy-bridge", Level::Full, "", IVY_BRIDGE, NONE),
    assist("haswell", Level::Full, "", HASWELL, BOTH),
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
    // What the processor does for local APICs, and what CPUID says about it. The first is the same as in the rows above.
    for (n, a) in ASSISTS.iter().enumerate() {
        let of = |guest: &'static str| {
            row(&format!("{guest}-{}", a.name), a.level)
                .guest(guest)
                .cmdline(a.option)
                .devices(a.cpu)
        };
        rows.push(of("cpuid").steps(&[Step::See("Intel VT-x, EPT"), Step::See(a.flags)]));
        if n > 0 {
            rows.push(of("apic").steps(&[Step::See("TEST apic: SUCCESS")]));
            // Where CR8 makes no exit, what it lets go comes at the next one: a minute and a half on a busy host.
            let cr8 = of("cr8").extra_time(180);
            rows.push(cr8.steps(&[Step::See("TEST cr8: SUCCESS")]));
        }
    }
    rows.push(
        row("domu-switches", Normal)
            .guest("domu")
            .dom0_cmdline("switches=1")
            .steps(&[
                Step::See("FACT features 0x5f"),
                Step::See("FACT features-without-xapic 0x5e"),
                Step::See("FACT features-without-x2apic 0x5d"),
                Step::See("FACT features-without-both 0x5c"),
                Step::See("TEST domu: SUCCESS"),
            ]),
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
    // What interrupts cost a vCPU that runs, and whether one that sleeps is woken. Pinned, so that nothing else exits.
    for (name, line, dom0, level) in [
        ("posted", "dom0_vcpus_pin apicv=post", "expect=none", Normal),
        ("posted-off", "dom0_vcpus_pin", "expect=each", Normal),
        (
            "posted-software",
            "dom0_vcpus_pin apicv=off",
            "expect=each",
            Full,
        ),
    ] {
        let row = row(name, level).guest("posted").cmdline(line);
        let row = row.dom0_cmdline(dom0).cpus(2);
        rows.push(row.steps(&[Step::See("TEST posted: SUCCESS")]));
    }
    // The same of messages that the control domain injects into a guest, whose vCPU has the other processor.
    for (name, line, dom0, level) in [
        ("msi", "dom0_vcpus_pin apicv=post", "expect=none", Normal),
        ("msi-off", "dom0_vcpus_pin apicv=off", "expect=each", Full),
    ] {
        let row = row(name, level).guest("msi").cmdline(line);
        let row = row.dom0_cmdline(dom0).cpus(2);
        rows.push(row.steps(&[Step::See("TEST msi: SUCCESS")]));
    }
    rows.push(
        row("posted-100000", Full)
            .guest("posted")
            .cmdline("dom0_vcpus_pin apicv=post")
            .dom0_cmdline("expect=none rounds=100000")
            .cpus(2)
            .steps(&[
                Step::See("FACT sleeping rounds=100000"),
                Step::See("TEST posted: SUCCESS"),
            ])
            .extra_time(480),
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
    let newer = VmTest::new("bochs/linux-6.12", Full).machine(MACHINE);
    let newer = newer.needs_xen().kernel("6.12").script("boot");
    let newer = newer.steps(&[Step::See("Intel VT-x, EPT"), Step::See(READY)]);
    rows.push(newer.extra_time(900));
    // Linux to user space in the ways of handling its APICs; each prints its table of exits.
    const X2APIC_MODE: &str = "xt.apic=x2apic";
    const XAPIC_MODE: &str = "xt.apic=xapic nox2apic";
    for (name, cpus, apicv, dom0) in [
        ("1cpu-on", 1, "", X2APIC_MODE),
        ("1cpu-off", 1, "apicv=off", X2APIC_MODE),
        ("2cpu-on", 2, "", X2APIC_MODE),
        ("2cpu-off", 2, "apicv=off", X2APIC_MODE),
        ("2cpu-post", 2, "apicv=post", X2APIC_MODE),
        ("2cpu-xapic-on", 2, "", XAPIC_MODE),
        ("2cpu-xapic-off", 2, "apicv=off", XAPIC_MODE),
        ("2cpu-xapic-post", 2, "apicv=post", XAPIC_MODE),
    ] {
        let row = row(&format!("exits-{name}"), Full);
        let row = row.cpus(cpus).script("exits").tools();
        let row = row.cmdline(apicv).dom0_cmdline(dom0);
        rows.push(row.steps(&[Step::See(READY)]).extra_time(900));
    }
    // Wake-ups from one vCPU to the other and timers, as fast as they come.
    for (name, line) in [
        ("stress", ""),
        ("stress-post", "apicv=post"),
        ("stress-software", "apicv=off"),
    ] {
        let row = row(name, Full).script("stress").cmdline(line);
        let row = row.dom0_cmdline("xt.seconds=30 xt.slow=10");
        rows.push(row.steps(&[Step::See(READY)]).extra_time(900));
    }
    // A device of dom0 by interrupt message: through the APIC or as a pirq, as CPUID says.
    for (name, line, dom0) in [
        ("usb-bits", "dom0=hvm-pirq", "xt.feature=1 xt.chip=PCI-MSI"),
        (
            "usb-no-bits",
            "dom0=hvm-pirq apicv=off",
            "xt.feature=1 xt.chip=xen-pirq",
        ),
        ("usb-no-pirqs", "apicv=off", "xt.feature=0 xt.chip=PCI-MSI"),
        (
            "usb-post",
            "dom0=hvm-pirq apicv=post",
            "xt.feature=1 xt.chip=PCI-MSI",
        ),
    ] {
        let row = row(name, Full).script("usb").devices(XHCI).cmdline(line);
        let row = row.dom0_cmdline(dom0).needs_var(
            bochs::PLUGINS,
            "a plugin of Bochs whose USB controller has MSI",
        );
        rows.push(row.steps(&[Step::See(READY)]).extra_time(900));
    }
    rows
}
