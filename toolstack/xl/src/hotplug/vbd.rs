//! Disks.

use super::Device;
use crate::cfg::disk::{Backend, Disk, Format};
use xen_abi::DomId;

/// Named in the store for back ends that run it.
const SCRIPT: &str = "/etc/xen/scripts/block";

/// A disk of a config as a device.
///
/// # Errors
/// What no back end here can do.
pub fn vbd(disk: &Disk, backend: DomId) -> Result<Device, String> {
    let vdev = &disk.vdev;
    let devid = disk
        .devid()
        .ok_or_else(|| format!("'{vdev}' is no name of a disk such as xvda"))?;
    if disk.format != Format::Raw {
        let format = disk.format.name();
        return Err(format!(
            "{vdev}: disks of format {format} need QEMU, which does not serve them here; make it raw ('qemu-img convert -O raw')"
        ));
    }
    if !matches!(disk.backend, None | Some(Backend::Phy)) {
        return Err(format!(
            "{vdev}: only the kernel serves disks here (backendtype=phy)"
        ));
    }
    if disk.target.is_empty() {
        return Err(format!("{vdev}: which file or device? (target=)"));
    }
    let kind = if disk.cdrom { "cdrom" } else { "disk" };
    let flag = |on: bool| if on { "1" } else { "0" }.to_owned();
    let front = vec![
        ("virtual-device", devid.to_string()),
        ("device-type", kind.into()),
        ("trusted", flag(disk.trusted != Some(false))),
    ];
    let script = disk.script.as_deref().unwrap_or(SCRIPT);
    let script = match script.starts_with('/') {
        true => script.to_owned(),
        false => format!("/etc/xen/scripts/{script}"),
    };
    let mut back = vec![
        ("params", disk.target.clone()),
        ("script", script),
        ("removable", flag(disk.cdrom)),
        ("bootable", "1".into()),
        ("dev", vdev.clone()),
        ("type", "phy".into()),
        ("mode", if disk.writable { "w" } else { "r" }.into()),
        ("device-type", kind.into()),
        (
            "discard-enable",
            flag(disk.discard.unwrap_or(!disk.cdrom && disk.writable)),
        ),
        ("specification", "xen".into()),
    ];
    if disk.direct_io_safe {
        back.push(("direct-io-safe", "1".into()));
    }
    Ok(Device {
        class: "vbd",
        devid,
        backend,
        front,
        back,
    })
}

#[cfg(test)]
mod tests {
    use super::vbd;
    use crate::cfg::disk::parse;
    use xen_abi::DomId;

    fn nodes(text: &str) -> Result<String, String> {
        let device = vbd(&parse(text).unwrap(), DomId(0))?;
        let line = |(name, value): &(&str, String)| format!("{name}={value}");
        let front: Vec<String> = device.front.iter().map(line).collect();
        let back: Vec<String> = device.back.iter().map(line).collect();
        Ok(format!("{} | {}", front.join(" "), back.join(" ")))
    }

    #[test]
    fn disks() {
        assert_eq!(
            nodes("phy:/dev/sda1,xvda,w").unwrap(),
            "virtual-device=51712 device-type=disk trusted=1 | params=/dev/sda1 \
             script=/etc/xen/scripts/block removable=0 bootable=1 dev=xvda type=phy mode=w device-type=disk \
             discard-enable=1 specification=xen"
        );
        let cdrom = nodes("/a.iso,raw,xvdc,r,cdrom").unwrap();
        for part in [
            "device-type=cdrom",
            "mode=r",
            "removable=1",
            "discard-enable=0",
        ] {
            assert!(cdrom.contains(part), "{cdrom}");
        }
    }

    #[test]
    fn what_nobody_serves_is_refused() {
        assert!(nodes("/a,qcow2,xvda,w").unwrap_err().contains("need QEMU"));
    }
}
