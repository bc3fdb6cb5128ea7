//! Several CPUs: hot-unplug and replug, inter-processor interrupts and timers under load.

use crate::row::{Level, READY, Step, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let mut rows = vec![
        VmTest::new("smp/hotplug", Normal)
            .cpus(4)
            .script("hotplug")
            .extra_time(60),
        VmTest::new("smp/hotplug-6.12", Full)
            .kernel("6.12")
            .cpus(4)
            .script("hotplug")
            .extra_time(120),
        VmTest::new("smp/stress-10s", Normal)
            .script("stress")
            .dom0_cmdline("xt.seconds=10")
            .extra_time(60),
        VmTest::new("smp/stress-60s", Full)
            .cpus(4)
            .script("stress")
            .dom0_cmdline("xt.seconds=60")
            .extra_time(180),
    ];
    rows.extend(bring_up());
    rows.extend(moving());
    rows.extend(pcpus());
    rows.push(
        VmTest::new("smp/apic-x2apic-cluster", Normal)
            .machine("peer")
            .cpus(4)
            .cmdline("x2apic-mode=cluster")
            .extra_time(60)
            .steps(&[
                Step::See("APIC driver x2apic_cluster (x2apic-mode)"),
                Step::See(READY),
            ])
            .needs_xen(),
    );
    for (name, level, cpus, cmdline, line) in [
        (
            "x2apic-physical",
            Full,
            4,
            "x2apic-mode=physical",
            "APIC driver x2apic_phys (x2apic-mode)",
        ),
        (
            "x2apic-cluster-alone",
            Full,
            4,
            "x2apic-mode=cluster",
            "APIC driver x2apic_mixed (x2apic-mode)",
        ),
        (
            "xapic-flat",
            Normal,
            4,
            "x2apic=off maxcpus=3 dom0_max_vcpus=3",
            "APIC driver default (xAPIC: x2apic=0)",
        ),
        (
            "xapic-physical",
            Full,
            9,
            "x2apic=off dom0_max_vcpus=4",
            "APIC driver bigsmp (xAPIC: x2apic=0)",
        ),
    ] {
        let mut row = VmTest::new(format!("smp/apic-{name}"), level)
            .cpus(cpus)
            .cmdline(cmdline)
            .extra_time(60)
            .steps(&[Step::See(line), Step::See(READY)]);
        row.needs_xen = true;
        rows.push(row);
    }
    rows
}

/// Two disks with the same contents and a network card: MSI that cannot be masked, MSI-X, MSI-X. After `$first`.
macro_rules! three_devices {
    ($($first:literal),*) => {
        &[
            $($first,)*
            "-drive",
            "file={disk},if=none,id=d0,format=raw,snapshot=on",
            "-device",
            "ide-hd,bus=ide.0,drive=d0",
            "-drive",
            "file={disk},if=none,id=d1,format=raw,snapshot=on",
            "-device",
            "qemu-xhci,id=xhci",
            "-device",
            "usb-storage,bus=xhci.0,drive=d1",
            "-netdev",
            "user,id=n0",
            "-device",
            "e1000e,netdev=n0,romfile=",
        ]
    };
}

const THREE_DEVICES: &[&str] = three_devices![];

/// The same, with two threads a core.
const THREE_DEVICES_THREADS: &[&str] = three_devices!["-smp", "4,cores=2,threads=2"];

/// Interrupts that move between CPUs under load: none may be lost. The hypervisor's own table must show the moves, and no
/// interrupt of unknown origin.
fn moving() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let row = |name: &str, level, machine, cmdline, line| {
        VmTest::new(format!("smp/moving-{name}"), level)
            .machine(machine)
            .cpus(4)
            .cmdline(cmdline)
            .dom0_cmdline("xt.rounds=4")
            .devices(THREE_DEVICES)
            .disk(8)
            .script("moving")
            .extra_time(300)
            .steps(&[
                Step::See(line),
                Step::See("asking for the hypervisor's table"),
                Step::Type("\x01\x01\x01i"),
                Step::See("  of unknown origin: 0, late: "),
                Step::AtLeast("moves in all: ", 20),
                Step::Type("\x01\x01\x01"),
                Step::See("*** Serial input to DOM0"),
                Step::Type("seen\n"),
            ])
            .needs_xen()
    };
    let lines = |name: &str, level, machine, line| {
        let mut row = row(name, level, machine, "", line);
        row.dom0_cmdline = "xt.rounds=4 pci=nomsi";
        row
    };
    vec![
        row("mixed", Normal, "q35", "", "driver x2apic_mixed"),
        row("flat", Full, "q35", "x2apic=off", "driver default"),
        row(
            "physical",
            Full,
            "q35",
            "x2apic-mode=physical",
            "driver x2apic_phys",
        ),
        row(
            "intel-mixed",
            Full,
            "iommu-intel",
            "",
            "driver x2apic_mixed",
        ),
        row(
            "intel-physical",
            Full,
            "iommu-intel",
            "x2apic-mode=physical",
            "driver x2apic_phys",
        ),
        row(
            "intel-cluster",
            Normal,
            "iommu-intel",
            "x2apic-mode=cluster",
            "driver x2apic_cluster",
        ),
        row(
            "intel-flat",
            Full,
            "iommu-intel",
            "x2apic=off",
            "driver default",
        ),
        row("amd-mixed", Full, "iommu-amd", "", "driver x2apic_mixed"),
        row(
            "amd-cluster",
            Full,
            "iommu-amd",
            "x2apic-mode=cluster",
            "driver x2apic_cluster",
        ),
        lines("lines", Normal, "q35", "driver x2apic_mixed"),
        // Not with AMD-Vi: QEMU 10.0 does not remap the IO-APIC's messages there, so they all reach the first CPU.
        lines("intel-lines", Full, "iommu-intel", "driver x2apic_mixed"),
    ]
}

/// Processors of the machine that go and come back under load.
fn pcpus() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let row = |name: &str, level, machine, cmdline| {
        VmTest::new(format!("smp/pcpus-{name}"), level)
            .machine(machine)
            .cpus(4)
            .cmdline(cmdline)
            .dom0_cmdline("xt.rounds=3")
            .devices(THREE_DEVICES)
            .disk(8)
            .script("pcpus")
            .extra_time(300)
            .steps(&[
                Step::See("CPU 3 is offline"),
                Step::See("CPU 1 is online"),
                Step::See("CPU 3 is online"),
            ])
            .needs_xen()
    };
    let mut parked = row("parked", Full, "q35", "smt=off dom0_max_vcpus=2");
    parked.dom0_cmdline = "xt.rounds=1 xt.away=2,3";
    parked.devices = THREE_DEVICES_THREADS;
    parked.steps = vec![
        Step::See("Parked 2 siblings"),
        Step::See("CPU 2 is online"),
        Step::See("CPU 3 is online"),
        Step::See("CPU 3 is offline"),
    ];
    // By Debian's tool for it.
    let mut smt = VmTest::new("smp/pcpus-smt", Full)
        .cpus(4)
        .devices(&["-smp", "4,cores=2,threads=2"])
        .script("smt")
        .debian()
        .extra_time(120)
        .needs_xen();
    smt.steps = [
        "CPU 1 is offline",
        "CPU 3 is offline",
        "All sibling threads are offline",
        "CPU 1 is online",
        "CPU 3 is online",
        "All sibling threads are online",
    ]
    .map(Step::See)
    .to_vec();
    // A vCPU to a CPU: the last one that is free for the second must stay.
    let mut null = row("null", Full, "q35", "sched=null dom0_max_vcpus=2");
    null.dom0_cmdline = "xt.rounds=3 xt.stays=3";
    null.steps = [
        "CPU 2 is offline",
        "CPU 3 stays online: the scheduler has no other CPU for its vCPU",
        "CPU 2 is online",
    ]
    .map(Step::See)
    .to_vec();
    // With the order of locks checked.
    let debug = row("debug", Full, "q35", "").defconfig("debug");
    vec![
        debug,
        row("mixed", Normal, "q35", ""),
        row("flat", Full, "q35", "x2apic=off"),
        null,
        row("pinned", Full, "q35", "dom0_vcpus_pin"),
        row(
            "intel-cluster",
            Normal,
            "iommu-intel",
            "x2apic-mode=cluster",
        ),
        row("amd-mixed", Full, "iommu-amd", ""),
        parked,
        smt,
    ]
}

/// What happens to CPUs that do not start as they should.
fn bring_up() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let see = |texts: &'static [&'static str]| texts.iter().map(|t| Step::See(t)).collect();
    let row = |name: &str, level, cmdline, steps: Vec<Step>| {
        let mut row = VmTest::new(format!("smp/start-{name}"), level)
            .cpus(4)
            .cmdline(cmdline)
            .extra_time(60)
            .devices(&["-smp", "4,cores=2,threads=2"]);
        row.steps = steps;
        row.needs_xen = true;
        row
    };
    vec![
        row(
            "parked-siblings",
            Normal,
            "smt=off dom0_max_vcpus=2",
            see(&["Brought up 2 CPUs", "Parked 2 siblings", READY]),
        ),
        row(
            "serial",
            Full,
            "ap-bringup=serial,delays dom0_max_vcpus=4",
            see(&["Brought up 4 CPUs", "one by one", READY]),
        ),
        row(
            "missing-cpus",
            Normal,
            "ap-fault=2:hang,3:late dom0_max_vcpus=2",
            see(&[
                "The CPU with APIC ID 0x2 (ACPI UID 2) did not start within 5 s and is left out; last seen with its local APIC",
                "smp::ap::main",
                "The CPU with APIC ID 0x3 (ACPI UID 3) did not start within 5 s and is left out; last seen with virtualization",
                "Brought up 2 CPUs",
                READY,
            ]),
        ),
        // Two CPUs panic at once while a third hangs with handlers and the boot CPU waits: one story, one restart.
        row(
            "panics",
            Normal,
            "ap-fault=1:panic,2:hang,3:panic",
            see(&[
                "(XEN) Panic on CPU",
                "(starting): ap-fault=panic",
                "Rebooting in 5 seconds",
                "Resetting.",
                "Presenting the interface",
            ]),
        ),
        row(
            "deaf-cpu",
            Full,
            "ap-fault=1:deaf dom0_max_vcpus=3",
            see(&[
                "last seen in long mode, before its trap handlers",
                "Brought up 3 CPUs",
                READY,
            ]),
        ),
    ]
}
