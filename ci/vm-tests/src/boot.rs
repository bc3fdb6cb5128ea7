//! Does dom0 reach user space, on every machine that we promise?

use crate::row::{Level, READY, Step, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    use Level::{Full, Normal, Quick};
    let boot = |name: &str, level| VmTest::new(format!("boot/{name}"), level).script("boot");
    vec![
        boot("k6.1-1cpu", Quick).cpus(1),
        boot("k6.1-2cpu", Quick),
        boot("k6.1-4cpu", Normal).cpus(4),
        boot("k6.1-8cpu", Full).cpus(8).extra_time(120),
        boot("k6.12-1cpu", Normal)
            .kernel("6.12")
            .cpus(1)
            .extra_time(60),
        boot("k6.12-2cpu", Normal).kernel("6.12").extra_time(60),
        boot("k6.12-4cpu", Full)
            .kernel("6.12")
            .cpus(4)
            .extra_time(90),
        boot("k6.12-8cpu", Full)
            .kernel("6.12")
            .cpus(8)
            .extra_time(150),
        boot("k6.1-2cpu-pc", Normal).machine("pc"),
        boot("k6.12-2cpu-pc", Full)
            .machine("pc")
            .kernel("6.12")
            .extra_time(60),
        boot("k6.1-2cpu-efi", Normal).efi().extra_time(60),
        boot("k6.12-2cpu-efi", Full)
            .efi()
            .kernel("6.12")
            .extra_time(120),
        boot("k6.1-2cpu-pc-efi", Full)
            .machine("pc")
            .efi()
            .extra_time(60),
        boot("k6.1-2cpu-direct", Normal).direct(),
        VmTest::new("boot/shell", Normal).steps(&[
            Step::See(READY),
            Step::See("This is dom0."),
            Step::Type("echo shell-$((6*7))\n"),
            Step::See("shell-42"),
        ]),
        VmTest::new("boot/sysfs", Quick).script("sysfs").needs_xen(),
        VmTest::new("soak/boot-smp2", Full).script("boot"),
        // For `cargo xtask soak --test`: is a CPU ever missing?
        VmTest::new("soak/boot-smp16", Full)
            .cpus(16)
            .direct()
            .cmdline("dom0_max_vcpus=2")
            .steps(&[Step::See("Brought up 16 CPUs"), Step::See(READY)])
            .extra_time(120)
            .needs_xen(),
        VmTest::new("soak/boot-smp64", Full)
            .cpus(64)
            .direct()
            .cmdline("dom0_max_vcpus=2")
            .steps(&[Step::See("Brought up 64 CPUs"), Step::See(READY)])
            .extra_time(300)
            .needs_xen(),
        VmTest::new("soak/five-boots", Normal)
            .script("boot")
            .direct()
            .repeat(5),
    ]
}
