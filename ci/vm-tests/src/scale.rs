//! Each way of addressing interrupts under stress, odd topologies, and many CPUs.

use crate::row::{Level, READY, Step, VmTest};
use vmtest::acpi::{Cpu, Table};

/// The rows.
pub fn rows() -> Vec<VmTest> {
    let mut rows = stress();
    rows.extend(many());
    rows.extend(firmware());
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
        // The host's turn for one of so many threads comes late.
        .dom0_cmdline("nosoftlockup")
        .extra_time(3000)
        .steps(&[Step::See("Brought up 288 CPUs"), Step::See(READY)])
        .needs_xen();
    most.direct = true;
    rows.push(most);
    rows
}

/// Four CPUs out of order, each of the first three twice or thrice in some way, and two without an ID of their own.
const ODD_MADT: &[Table] = &[Table::Madt(&[
    Cpu::X2apic(9, u32::MAX, true),
    Cpu::Local(3, 3, true),
    Cpu::Local(1, 1, true),
    Cpu::Local(8, 0xff, true),
    Cpu::Local(0, 0, true),
    Cpu::Local(7, 6, false),
    Cpu::Local(2, 2, true),
    Cpu::X2apic(5, 1, true),
    Cpu::Local(6, 2, true),
])];

/// A second CPU whose APIC ID is 299.
const WIDE: &[&str] = &[
    "-smp",
    "1,sockets=300,cores=1,threads=1,maxcpus=300",
    "-device",
    "EPYC-x86_64-cpu,socket-id=299,core-id=0,thread-id=0",
];

/// What the firmware says or has done already.
fn firmware() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let row = |name: &str, level, tables, line| {
        VmTest::new(format!("smp/{name}"), level)
            .cpus(4)
            .tables(tables)
            .script("boot")
            .extra_time(60)
            .steps(&[Step::See(line), Step::See("Brought up 4 CPUs")])
            .needs_xen()
    };
    // OVMF switches to x2APIC where an APIC ID needs it, and leaves it on.
    let enabled = |name: &str, cmdline, lines: [&'static str; 2]| {
        VmTest::new(format!("smp/apic-{name}"), Full)
            .machine("iommu-intel")
            .efi()
            .devices(WIDE)
            .cmdline(cmdline)
            .script("boot")
            .extra_time(120)
            .steps(&lines.map(Step::See))
            .needs_xen()
    };
    vec![
        row(
            "madt-odd-entries",
            Normal,
            ODD_MADT,
            "MADT entries left out: 2 duplicate (APIC ID 0x2), 2 with the broadcast APIC ID",
        ),
        row(
            "apic-fadt-physical",
            Full,
            &[Table::PhysicalFadt],
            "APIC driver x2apic_phys (the ACPI FADT asks for physical mode)",
        ),
        enabled(
            "by-firmware",
            "",
            [
                "APIC driver x2apic_mixed (default; x2APIC enabled by the firmware)",
                "Brought up 2 CPUs",
            ],
        ),
        enabled(
            "by-firmware-x2apic-off",
            "x2apic=off",
            [
                "x2APIC: already enabled by the firmware; x2apic=0 is ignored",
                "APIC driver x2apic_mixed (default; x2APIC enabled by the firmware)",
            ],
        ),
    ]
}
