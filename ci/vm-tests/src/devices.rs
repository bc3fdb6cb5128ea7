//! dom0's devices with their interrupts: disks, network, USB.

use crate::row::{Level, VmTest};

const AHCI: &[&str] = &[
    "-drive",
    "file={disk},if=none,id=d0,format=raw,snapshot=on",
    "-device",
    "ide-hd,bus=ide.0,drive=d0",
];
const VIRTIO: &[&str] = &[
    "-drive",
    "file={disk},if=none,id=d0,format=raw,snapshot=on",
    "-device",
    "virtio-blk-pci,drive=d0",
];
const USB: &[&str] = &[
    "-drive",
    "file={disk},if=none,id=d0,format=raw,snapshot=on",
    "-device",
    "qemu-xhci,id=xhci",
    "-device",
    "usb-storage,bus=xhci.0,drive=d0",
];
const E1000E: &[&str] = &[
    "-netdev",
    "user,id=n0",
    "-device",
    "e1000e,netdev=n0,romfile=",
];
const VIRTIO_NET: &[&str] = &[
    "-netdev",
    "user,id=n0",
    "-device",
    "virtio-net-pci,netdev=n0,romfile=",
];

/// The rows.
pub fn rows() -> Vec<VmTest> {
    use Level::{Full, Normal};
    let disk = |name: &str, level, devices, mib| {
        VmTest::new(format!("disk/{name}"), level)
            .devices(devices)
            .disk(mib)
            .script("disk")
            .extra_time(60)
    };
    let net = |name: &str, level, devices| {
        VmTest::new(format!("net/{name}"), level)
            .devices(devices)
            .script("net")
    };
    vec![
        disk("ahci", Normal, AHCI, 32).dom0_cmdline("xt.module=ahci xt.irq=ahci xt.chip=PCI-MSI"),
        // The same interrupts as event channels.
        disk("ahci-pirq", Normal, AHCI, 32)
            .cmdline("dom0=hvm-pirq")
            .dom0_cmdline("xt.module=ahci xt.irq=ahci xt.chip=xen-pirq"),
        disk("ahci-pirq-intx", Full, AHCI, 32)
            .cmdline("dom0=hvm-pirq")
            .dom0_cmdline("xt.module=ahci xt.irq=ahci xt.chip=xen-pirq pci=nomsi"),
        disk("virtio-pirq", Full, VIRTIO, 32)
            .cmdline("dom0=hvm-pirq")
            .dom0_cmdline("xt.module=virtio_blk xt.irq=virtio xt.chip=xen-pirq"),
        disk("ahci-256", Full, AHCI, 256)
            .dom0_cmdline("xt.module=ahci xt.irq=ahci")
            .extra_time(180),
        disk("ahci-intx", Normal, AHCI, 32).dom0_cmdline("xt.module=ahci xt.irq=ahci pci=nomsi"),
        disk("virtio", Normal, VIRTIO, 32).dom0_cmdline("xt.module=virtio_blk xt.irq=virtio"),
        disk("virtio-256", Full, VIRTIO, 256)
            .dom0_cmdline("xt.module=virtio_blk xt.irq=virtio")
            .extra_time(180),
        disk("virtio-intx", Full, VIRTIO, 32)
            .dom0_cmdline("xt.module=virtio_blk xt.irq=virtio pci=nomsi"),
        disk("ide-pc", Full, AHCI, 32)
            .machine("pc")
            .dom0_cmdline("xt.module=ata_piix xt.irq=ata_piix"),
        disk("usb", Normal, USB, 8).dom0_cmdline("xt.module=usb_storage xt.irq=xhci"),
        net("e1000e", Normal, E1000E).dom0_cmdline("xt.module=e1000e xt.irq=eth0"),
        net("virtio", Normal, VIRTIO_NET).dom0_cmdline("xt.module=virtio_net xt.irq=virtio"),
    ]
}
