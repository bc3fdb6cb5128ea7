//! Interrupt remapping: with each kind of unit, do all interrupts arrive, through entries, and are wrong ones reported?

use crate::row::{Level, Step, VmTest};

const LOAD: &[&str] = &[
    "-drive",
    "file={disk},if=none,id=d0,format=raw,snapshot=on",
    "-device",
    "ide-hd,bus=ide.0,drive=d0",
    "-netdev",
    "user,id=n0",
    "-device",
    "e1000e,netdev=n0,romfile=",
];
const WIDE: &[&str] = &[
    "-smp",
    "1,sockets=300,cores=1,threads=1,maxcpus=300",
    "-device",
    "EPYC-x86_64-cpu,socket-id=299,core-id=0,thread-id=0",
    "-drive",
    "file={disk},if=none,id=d0,format=raw,snapshot=on",
    "-device",
    "ide-hd,bus=ide.0,drive=d0",
    "-netdev",
    "user,id=n0",
    "-device",
    "e1000e,netdev=n0,romfile=",
];
const EDU: &[&str] = &["-device", "edu,dma_mask=0xffffffff"];
const INTEL: &str =
    "Interrupt remapping enabled: Intel VT-d, 1 unit, 1024 entries, 32-bit destinations";
const AMD: &str =
    "Interrupt remapping enabled: AMD-Vi, 1 unit, a table for each device, 32-bit destinations";
/// Every change of an entry is logged, so that the log shows which device has one.
const TRACE: &str = "iommu=verbose,debug loglvl=all guest_loglvl=all";

/// The rows.
pub fn rows() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let on = |name: &str, level, machine| {
        VmTest::new(format!("iommu/{name}"), level)
            .machine(machine)
            .needs_xen()
    };
    let load = |name: &str, level, machine, line| {
        on(name, level, machine)
            .devices(LOAD)
            .disk(32)
            .script("remap")
            .cmdline(TRACE)
            .steps(&[
                Step::See(line),
                // The controller of the disk, which q35 has at 1f.2.
                Step::See("Remapping: 0000:00:1f.2 message entry"),
            ])
            .extra_time(120)
    };
    let cluster = |name: &str, machine, line| {
        load(name, Full, machine, line)
            .dom0_cmdline(MSI)
            .cmdline("x2apic-mode=cluster iommu=debug loglvl=all guest_loglvl=all")
            .steps(&[
                Step::See("Switched to APIC driver x2apic_cluster"),
                Step::See("to set 0x2 vector"),
            ])
    };
    let lines = |name: &str, level, machine, line, pin| {
        on(name, level, machine)
            .devices(LOAD)
            .disk(32)
            .script("remap")
            .cmdline(TRACE)
            .dom0_cmdline("xt.irq=ahci xt.net=eth0 pci=nomsi")
            .steps(&[Step::See(line), Step::See(pin)])
            .extra_time(120)
    };
    const MSI: &str = "xt.irq=ahci xt.net=eth0";
    vec![
        load("intel", Normal, "iommu-intel", INTEL).dom0_cmdline(MSI),
        load("amd", Normal, "iommu-amd", AMD).dom0_cmdline(MSI),
        lines(
            "intel-lines",
            Normal,
            "iommu-intel",
            INTEL,
            "Remapping: 0000:ff:00.0 pin entry",
        ),
        // DMA through the device table too; otherwise QEMU lets it pass by.
        load("amd-dma", Normal, "iommu-amd-dma", AMD).dom0_cmdline(MSI),
        // QEMU 10.0 lays out the address space of the IO-APIC before the regions that it consists of: its messages never
        // reach this unit. (They are lost where DMA passes by, and reach the first CPU as they are where it does not; so there
        // is no other.)
        lines(
            "amd-lines",
            Full,
            "iommu-amd-dma",
            AMD,
            "Remapping: 0000:00:14.0 pin entry",
        )
        .cpus(1),
        // An index that is not in use. QEMU says for no device that it is another's entry, and lets messages of the old
        // format pass.
        on("intel-bad-message", Normal, "iommu-intel")
            .devices(EDU)
            .script("badmsi")
            .cmdline(TRACE)
            .dom0_cmdline("iomem=relaxed xt.messages=0xfee07ff0")
            .steps(&[Step::See(
                "interrupt with index 0x3ff dropped: the entry is not present (reason 0x22) (1 so far)",
            )]),
        // The second CPU has APIC ID 299 (0x12b), which only a remapped interrupt can name.
        load("intel-wide-id", Normal, "iommu-intel", INTEL)
            .devices(WIDE)
            .dom0_cmdline(MSI)
            .steps(&[Step::See("to APIC 0x12b vector")]),
        load("amd-wide-id", Full, "iommu-amd", AMD)
            .devices(WIDE)
            .dom0_cmdline(MSI)
            .steps(&[Step::See("to APIC 0x12b vector")]),
        // The administrator's word about where the IO-APIC is goes before the table's.
        on("amd-ioapic-source", Full, "iommu-amd")
            .cmdline("ivrs_ioapic[0]=00:14.0 iommu=debug loglvl=all guest_loglvl=all")
            .script("boot")
            .steps(&[
                Step::See("IO-APIC 0: its source is 0000:00:14.0 (ivrs_ioapic)"),
                Step::See(AMD),
                Step::See("Remapping: 0000:00:14.0 pin entry"),
            ]),
        // A DMAR table whose unit is not there.
        on("silent-unit", Normal, "q35")
            .devices(&["-acpitable", "sig=DMAR,rev=1,data={machines}/dmar-silent.bin"])
            .script("boot")
            .steps(&[
                Step::See("VT-d unit 0 at 0xfed91000 does not answer, not used"),
                Step::See("Interrupt remapping disabled: a unit does not answer"),
            ]),
        load(
            "intel-xapic",
            Full,
            "iommu-intel",
            "Interrupt remapping enabled: Intel VT-d, 1 unit, 1024 entries, 8-bit destinations",
        )
        .dom0_cmdline(MSI)
        .cmdline("iommu=verbose,debug loglvl=all guest_loglvl=all x2apic=0"),
        cluster("intel-cluster", "iommu-intel", INTEL),
        cluster("amd-cluster", "iommu-amd", AMD),
        load("intel-physical", Full, "iommu-intel", INTEL)
            .dom0_cmdline(MSI)
            .cmdline("x2apic-mode=physical iommu=debug loglvl=all guest_loglvl=all"),
        load("amd-xapic", Full, "iommu-amd", AMD)
            .dom0_cmdline(MSI)
            .cmdline("x2apic=0 iommu=debug loglvl=all guest_loglvl=all"),
        on("intel-off", Full, "iommu-intel")
            .devices(LOAD)
            .disk(32)
            .script("remap")
            .dom0_cmdline(MSI)
            .cmdline("iommu=no-intremap")
            .steps(&[Step::See("Interrupt remapping disabled: iommu=no-intremap")])
            .extra_time(120),
        on("amd-off", Full, "iommu-amd")
            .devices(LOAD)
            .disk(32)
            .script("remap")
            .dom0_cmdline(MSI)
            .cmdline("iommu=off")
            .steps(&[Step::See("Interrupt remapping disabled: iommu=off")])
            .extra_time(120),
        on("required", Full, "q35")
            .cmdline("iommu=required")
            .steps(&[Step::See(
                "Xenolith cannot start: iommu=required, and there is no IOMMU that can be used",
            )]),
    ]
}
