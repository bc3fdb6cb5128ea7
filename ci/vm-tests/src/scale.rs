//! Each way of addressing interrupts under stress, odd topologies, and many CPUs.

use crate::row::{Level, READY, Step, VmTest};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    let mut rows = stress();
    rows.extend(many());
    rows
}

/// A mode's name, what asks for it, and what the boot says.
type Mode = (&'static str, &'static str, &'static str);

/// The stress of inter-processor interrupts and timers, in each mode of the local APICs, with and without remapping.
fn stress() -> Vec<VmTest> {
    const FLAT: Mode = ("flat", "x2apic=off", "APIC driver default");
    const PHYSICAL: Mode = (
        "physical",
        "x2apic-mode=physical",
        "APIC driver x2apic_phys",
    );
    const CLUSTER: Mode = (
        "cluster",
        "x2apic-mode=cluster",
        "APIC driver x2apic_cluster",
    );
    const MIXED: Mode = ("mixed", "x2apic-mode=mixed", "APIC driver x2apic_mixed");
    let modes: [(&str, &[Mode]); 3] = [
        // Cluster mode needs remapping.
        ("q35", &[FLAT, PHYSICAL, MIXED]),
        ("iommu-intel", &[FLAT, PHYSICAL, CLUSTER, MIXED]),
        ("iommu-amd", &[FLAT, PHYSICAL, CLUSTER, MIXED]),
    ];
    let row = |machine: &'static str,
               &(mode, cmdline, line): &(&str, &'static str, &'static str)| {
        let kind = match machine {
            "iommu-intel" => "intel-",
            "iommu-amd" => "amd-",
            _ => "",
        };
        VmTest::new(format!("smp/apic-stress-{kind}{mode}"), Level::Full)
            .machine(machine)
            .cpus(4)
            .cmdline(cmdline)
            .dom0_cmdline("xt.seconds=10")
            .script("stress")
            .extra_time(120)
            .steps(&[Step::See(line)])
            .needs_xen()
    };
    modes
        .iter()
        .flat_map(|(machine, modes)| modes.iter().map(|m| row(machine, m)))
        .collect()
}

/// Many CPUs, and APIC IDs with gaps.
fn many() -> Vec<VmTest> {
    use Level::Full;
    let row = |name: &str, cpus: u32, cmdline, devices, line| {
        VmTest::new(format!("smp/scale-{name}"), Full)
            .cpus(cpus)
            .cmdline(cmdline)
            .devices(devices)
            .script("boot")
            .extra_time(120 + 8 * u64::from(cpus))
            .steps(&[Step::See(line)])
            .needs_xen()
    };
    let mut rows = vec![
        // APIC IDs 0-2, 4-6, 8-10.
        row(
            "sparse-cores",
            9,
            "",
            &["-smp", "9,sockets=3,cores=3,threads=1"],
            "Brought up 9 CPUs",
        ),
        // 0-5, 8-13.
        row(
            "sparse-threads",
            12,
            "",
            &["-smp", "12,sockets=2,cores=3,threads=2"],
            "Brought up 12 CPUs",
        ),
        // 0, 1, 2, 4, 5, 6, 16 and so on: gaps in cores and in threads.
        row(
            "sparse-both",
            18,
            "",
            &["-smp", "18,sockets=2,cores=3,threads=3"],
            "Brought up 18 CPUs",
        ),
        // The table has three more that are disabled.
        row(
            "disabled-entries",
            3,
            "",
            &["-smp", "3,maxcpus=6"],
            "Brought up 3 CPUs",
        ),
        row("16", 16, "", &[], "Brought up 16 CPUs"),
        row("64", 64, "", &[], "Brought up 64 CPUs"),
    ];
    let mut alone = row(
        "nosmp",
        1,
        "nosmp",
        &["-smp", "3"],
        "1 of 3 CPUs are used (nosmp)",
    );
    alone.extra_time = 60;
    rows.push(alone);
    // IDs above 255 need remapping with 32-bit destinations. Minutes, by hand.
    let mut most = VmTest::new("smp/scale-288", Full)
        .machine("iommu-intel")
        .cpus(288)
        .cmdline("dom0_max_vcpus=2")
        .extra_time(3000)
        .steps(&[Step::See("Brought up 288 CPUs"), Step::See(READY)])
        .needs_xen();
    most.direct = true;
    rows.push(most);
    rows
}
