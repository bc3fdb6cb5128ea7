//! Network interfaces.

use super::Device;
use crate::cfg::vif::{Vif, mac_text};
use std::io::Read;
use xen_abi::DomId;

/// Bytes of the largest packet if the config does not say.
const MTU: u32 = 1492;
/// The bridge if the config does not say.
const BRIDGE: &str = "xenbr0";
/// Named in the store for back ends that run it.
const SCRIPT: &str = "/etc/xen/scripts/vif-bridge";

/// An address of Xen's range that nobody else is likely to have.
///
/// # Errors
/// If there is no randomness.
pub fn random_mac() -> std::io::Result<[u8; 6]> {
    let mut mac = [0, 0x16, 0x3e, 0, 0, 0];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut mac[3..])?;
    mac[3] &= 0x7f;
    Ok(mac)
}

/// An interface of a config as a device. `mac` is used if the config names none.
pub fn vif(vif: &Vif, devid: u32, backend: DomId, mac: [u8; 6]) -> Device {
    let mac = mac_text(vif.mac.unwrap_or(mac));
    let trusted = if vif.trusted == Some(false) { "0" } else { "1" };
    let front = vec![
        ("handle", devid.to_string()),
        ("mac", mac.clone()),
        ("mtu", vif.mtu.unwrap_or(MTU).to_string()),
        ("trusted", trusted.into()),
    ];
    let script = vif.script.as_deref().unwrap_or(SCRIPT);
    let script = match script.starts_with('/') {
        true => script.to_owned(),
        false => format!("/etc/xen/scripts/{script}"),
    };
    let mut back = vec![
        ("script", script),
        ("mac", mac),
        ("handle", devid.to_string()),
        ("type", "vif".into()),
        ("hotplug-status", String::new()),
    ];
    let bridge = vif.bridge.clone().unwrap_or_else(|| BRIDGE.into());
    let rate = vif.rate.map(|(bytes, us)| format!("{bytes},{us}"));
    for (name, value) in [
        ("bridge", Some(bridge)),
        ("ip", vif.ip.clone()),
        ("vifname", vif.vifname.clone()),
        ("gatewaydev", vif.gatewaydev.clone()),
        ("rate", rate),
        ("mtu", vif.mtu.map(|m| m.to_string())),
    ] {
        back.extend(value.map(|v| (name, v)));
    }
    Device {
        class: "vif",
        devid,
        backend,
        front,
        back,
    }
}

#[cfg(test)]
mod tests {
    use super::{random_mac, vif};
    use crate::cfg::vif::parse;
    use xen_abi::DomId;

    fn nodes(text: &str) -> String {
        let device = vif(&parse(text).unwrap(), 2, DomId(0), [0, 0x16, 0x3e, 1, 2, 3]);
        let line = |(name, value): &(&str, String)| format!("{name}={value}");
        let front: Vec<String> = device.front.iter().map(line).collect();
        let back: Vec<String> = device.back.iter().map(line).collect();
        format!("{} | {}", front.join(" "), back.join(" "))
    }

    #[test]
    fn defaults() {
        assert_eq!(
            nodes(""),
            "handle=2 mac=00:16:3e:01:02:03 mtu=1492 trusted=1 | script=/etc/xen/scripts/vif-bridge \
             mac=00:16:3e:01:02:03 handle=2 type=vif hotplug-status= bridge=xenbr0"
        );
    }

    #[test]
    fn everything() {
        assert_eq!(
            nodes(
                "mac=00:16:3e:aa:bb:cc,bridge=lan,ip=10.0.0.2,script=vif-nat,vifname=w,mtu=9000,rate=1MB/s@20ms,untrusted"
            ),
            "handle=2 mac=00:16:3e:aa:bb:cc mtu=9000 trusted=0 | script=/etc/xen/scripts/vif-nat \
             mac=00:16:3e:aa:bb:cc handle=2 type=vif hotplug-status= bridge=lan ip=10.0.0.2 vifname=w \
             rate=20000,20000 mtu=9000"
        );
    }

    #[test]
    fn addresses_made_up_are_in_the_range_of_xen() {
        let (a, b) = (random_mac().unwrap(), random_mac().unwrap());
        assert_eq!(a[..3], [0, 0x16, 0x3e]);
        assert!(a[3] < 0x80);
        assert_ne!(a, b);
    }
}
