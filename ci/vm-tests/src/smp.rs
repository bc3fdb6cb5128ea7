//! Several CPUs: hot-unplug and replug, inter-processor interrupts and timers under load.

use crate::row::{Level, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    use Level::{Full, Normal};
    vec![
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
    ]
}
