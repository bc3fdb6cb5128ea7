//! Disks: `vbd`.

use super::{Device, Node};
use crate::cfg::disk::{Backend, Disk, Format};
use xen_abi::DomId;

/// A disk as a device.
pub fn device(disk: &Disk, domid: DomId, backend: DomId) -> Device {
    Device {
        kind: "vbd",
        domid,
        backend,
        // Checked when the config was read.
        devid: disk.devid().unwrap_or_default(),
    }
}

/// Why a disk cannot be served by a kernel; `None` if it can.
pub fn refused(disk: &Disk) -> Option<String> {
    let raw = matches!(disk.format, Format::Raw);
    match disk.backend {
        Some(Backend::Phy) | None if raw => None,
        _ => Some(format!(
            "disk {}: only raw files and block devices can be served (format={}); convert it with \
             'qemu-img convert -O raw'",
            disk.vdev,
            disk.format.name()
        )),
    }
}

/// Its nodes. `number` is that of the block device, if the target is one.
pub fn nodes(disk: &Disk, device: &Device, number: Option<(u32, u32)>) -> Vec<Node> {
    let kind = if disk.cdrom { "cdrom" } else { "disk" };
    let front = [
        ("virtual-device", device.devid.to_string()),
        ("device-type", kind.to_owned()),
        ("trusted", flag(disk.trusted.unwrap_or(true))),
    ];
    let script = disk.script.as_deref().unwrap_or("/etc/xen/scripts/block");
    let mut back = vec![
        ("params", disk.target.clone()),
        ("script", script.to_owned()),
        ("removable", flag(disk.cdrom)),
        ("bootable", "1".to_owned()),
        ("dev", disk.vdev.clone()),
        ("type", "phy".to_owned()),
        ("mode", if disk.writable { "w" } else { "r" }.to_owned()),
        ("device-type", kind.to_owned()),
        (
            "discard-enable",
            flag(disk.discard.unwrap_or(disk.writable)),
        ),
        ("specification", "xen".to_owned()),
    ];
    if disk.direct_io_safe {
        back.push(("direct-io-safe", flag(true)));
    }
    if let Some((major, minor)) = number {
        back.push(("physical-device", format!("{major:x}:{minor:x}")));
    }
    device.nodes(&front, &back)
}

fn flag(set: bool) -> String {
    u8::from(set).to_string()
}
