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
