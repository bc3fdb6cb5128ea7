//! Network interfaces: `vif`.

use super::{Device, Node};
use crate::cfg::vif::{Vif, mac_text};
use xen_abi::DomId;

/// The bridge unless one is named.
pub const BRIDGE: &str = "xenbr0";

/// An interface as a device.
pub fn device(vif: &Vif, domid: DomId, backend: DomId) -> Device {
    Device {
        kind: "vif",
        domid,
        backend,
        devid: vif.devid.unwrap_or_default(),
    }
}

/// Its nodes. The hardware address must have been chosen.
pub fn nodes(vif: &Vif, device: &Device) -> Vec<Node> {
    let mac = mac_text(vif.mac.unwrap_or_default());
    let mtu = vif.mtu.unwrap_or(1500).to_string();
    let trusted = u8::from(vif.trusted.unwrap_or(true)).to_string();
    let front = [
        ("handle", device.devid.to_string()),
        ("mac", mac.clone()),
        ("mtu", mtu.clone()),
        ("trusted", trusted),
    ];
    let script = vif
        .script
        .as_deref()
        .unwrap_or("/etc/xen/scripts/vif-bridge");
    let script = match script.contains('/') {
        true => script.to_owned(),
        false => format!("/etc/xen/scripts/{script}"),
    };
    let mut back = vec![
        ("script", script),
        ("mac", mac),
        (
            "bridge",
            vif.bridge.clone().unwrap_or_else(|| BRIDGE.into()),
        ),
        ("handle", device.devid.to_string()),
        ("type", "vif".to_owned()),
        ("mtu", mtu),
        ("hotplug-status", String::new()),
    ];
    if let Some(name) = &vif.vifname {
        back.push(("vifname", name.clone()));
    }
    if let Some(ip) = &vif.ip {
        back.push(("ip", ip.clone()));
    }
    if let Some(gateway) = &vif.gatewaydev {
        back.push(("gatewaydev", gateway.clone()));
    }
    if let Some((bytes, micros)) = vif.rate {
        back.push(("rate", format!("{bytes},{micros}")));
    }
    device.nodes(&front, &back)
}
