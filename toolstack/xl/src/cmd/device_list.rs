//! `network-list`, `block-list`: devices of domains, as the store has them.

use super::failure::Result;
use super::host::{Host, Report, Versioned};
use super::{Args, Command, Context, Outcome};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use xen_abi::DomId;
use xen_sys::xenstore::Transaction;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "network-list",
        options: &[],
        usage: "<Domain(s)>",
        help: "Show the network interfaces of domains",
        min: 1,
        dry_run: false,
        run: network_list,
    },
    Command {
        name: "block-list",
        options: &[],
        usage: "<Domain(s)>",
        help: "Show the disks of domains",
        min: 1,
        dry_run: false,
        run: block_list,
    },
];

/// A device of one class.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The domain that uses it.
    pub domid: u16,
    /// Its number.
    pub devid: u32,
    /// The domain that serves it.
    pub backend_domid: u16,
    /// The directory of the end that serves it.
    pub backend: String,
    /// How far the domain's end has come, a xenbus state; `None` if it says nothing.
    pub state: Option<i64>,
    /// Its port.
    pub event_channel: Option<i64>,
    /// Its grants, by name of the node.
    #[serde(skip)]
    rings: Vec<Option<i64>>,
}

/// The devices of a class (`vif`, `vbd`) of a domain, in order.
pub fn devices(host: &mut Host, domid: DomId, class: &str, rings: &[&str]) -> Vec<Device> {
    let domid = domid.0;
    // The toolstack's own copy first: a domain can write into its own directory what it likes.
    let kept = format!("/libxl/{domid}/device/{class}");
    let front = format!("/local/domain/{domid}/device/{class}");
    let mut names = host.store.list(Transaction::NONE, &kept);
    let base = if names.is_ok() { &kept } else { &front };
    if names.is_err() {
        names = host.store.list(Transaction::NONE, &front);
    }
    let mut ids: Vec<u32> = names
        .unwrap_or_default()
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    ids.sort_unstable();
    let device = |devid: u32| {
        let backend = host.read(&format!("{base}/{devid}/backend"))?;
        let backend_domid = host
            .number(&format!("{base}/{devid}/backend-id"))
            .or_else(|| backend.split('/').nth(3)?.parse().ok())?;
        let mut number = |name: &str| {
            let text = host.read(&format!("{front}/{devid}/{name}"))?;
            text.trim().parse::<i64>().ok()
        };
        Some(Device {
            domid,
            devid,
            backend_domid: backend_domid.try_into().ok()?,
            state: number("state"),
            event_channel: number("event-channel"),
            rings: rings.iter().map(|r| number(r)).collect(),
            backend,
        })
    };
    ids.into_iter().filter_map(device).collect()
}

/// As a column: -1 if it is not there.
fn column(number: Option<i64>) -> i64 {
    number.unwrap_or(-1)
}

#[derive(Serialize)]
struct Interface {
    #[serde(flatten)]
    device: Device,
    mac: String,
    bridge: Option<String>,
    tx_ring_ref: Option<i64>,
    rx_ring_ref: Option<i64>,
}

fn network_list(context: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let mut text = format!(
        "{:<3} {:<2} {:<17} {:<6} {:<5} {:<6} {:>5}/{:<5} {:<30}\n",
        "Idx", "BE", "Mac Addr.", "handle", "state", "evt-ch", "tx-", "rx-ring-ref", "BE-path"
    );
    let mut entries = Vec::new();
    for device in of_all(host, args, "vif", &["tx-ring-ref", "rx-ring-ref"])? {
        let mac = host.read(&format!("{}/mac", device.backend));
        let mac = mac.unwrap_or_else(|| "00:00:00:00:00:00".into());
        let [tx, rx] = [0, 1].map(|n| device.rings[n]);
        let _ = writeln!(
            text,
            "{:<3} {:<2} {mac}{:>6} {:>5} {:>6} {:>5}/{:<11} {:<30}",
            device.devid,
            device.backend_domid,
            device.devid,
            column(device.state),
            column(device.event_channel),
            column(tx),
            column(rx),
            device.backend
        );
        entries.push(Interface {
            mac,
            bridge: host.read(&format!("{}/bridge", device.backend)),
            tx_ring_ref: tx,
            rx_ring_ref: rx,
            device,
        });
    }
    Report::new(text, &Versioned::new(json!({ "interfaces": entries })))?.print(context)
}

#[derive(Serialize)]
struct Disk {
    #[serde(flatten)]
    device: Device,
    vdev: Option<String>,
    mode: Option<String>,
    target: Option<String>,
    ring_ref: Option<i64>,
}

fn block_list(context: &Context, args: &Args) -> Outcome {
    let host = &mut Host::open()?;
    let mut text = format!(
        "{:<5} {:<3} {:<6} {:<5} {:<6} {:<8} {:<30}\n",
        "Vdev", "BE", "handle", "state", "evt-ch", "ring-ref", "BE-path"
    );
    let mut entries = Vec::new();
    for device in of_all(host, args, "vbd", &["ring-ref"])? {
        let _ = writeln!(
            text,
            "{:<5} {:<3} {:<6} {:<5} {:<6} {:<8} {:<30}",
            device.devid,
            device.backend_domid,
            device.domid,
            column(device.state),
            column(device.event_channel),
            column(device.rings[0]),
            device.backend
        );
        let mut of_backend = |name: &str| host.read(&format!("{}/{name}", device.backend));
        entries.push(Disk {
            vdev: of_backend("dev"),
            mode: of_backend("mode"),
            target: of_backend("params"),
            ring_ref: device.rings[0],
            device,
        });
    }
    Report::new(text, &Versioned::new(json!({ "disks": entries })))?.print(context)
}

fn of_all(host: &mut Host, args: &Args, class: &str, rings: &[&str]) -> Result<Vec<Device>> {
    let mut found = Vec::new();
    for word in &args.words {
        let domid = host.domain(word)?.id();
        found.extend(devices(host, domid, class, rings));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, json, printed, run};

    fn fixture() -> Fixture {
        let f = Fixture::new();
        let vif = "/local/domain/0/backend/vif/3/0";
        let vbd = "/local/domain/0/backend/vbd/3/51712";
        for (path, value) in [
            ("/libxl/3/device/vif/0/backend", vif),
            ("/libxl/3/device/vif/0/backend-id", "0"),
            ("/local/domain/3/device/vif/0/state", "4"),
            ("/local/domain/3/device/vif/0/event-channel", "12"),
            ("/local/domain/3/device/vif/0/tx-ring-ref", "768"),
            ("/local/domain/3/device/vif/0/rx-ring-ref", "769"),
            ("/libxl/3/device/vbd/51712/backend", vbd),
            ("/local/domain/3/device/vbd/51712/state", "4"),
            ("/local/domain/3/device/vbd/51712/event-channel", "15"),
            ("/local/domain/3/device/vbd/51712/ring-ref", "8"),
            (
                "/libxl/3/device/vbd/51728/backend",
                "/local/domain/7/backend/vbd/3/51728",
            ),
        ] {
            f.store.set(path, value);
        }
        f.store.set(&format!("{vif}/mac"), "00:16:3e:01:02:03");
        f.store.set(&format!("{vif}/bridge"), "xenbr0");
        f.store.set(&format!("{vbd}/dev"), "xvda");
        f.store.set(&format!("{vbd}/mode"), "w");
        f
    }

    #[test]
    fn interfaces() {
        let _f = fixture();
        assert_eq!(
            printed("network-list web"),
            "\
Idx BE Mac Addr.         handle state evt-ch   tx-/rx-ring-ref BE-path                       \n\
0   0  00:16:3e:01:02:03     0     4     12   768/769         /local/domain/0/backend/vif/3/0\n"
        );
        let entry = &json("network-list 3")["interfaces"][0];
        assert_eq!(
            (&entry["mac"], &entry["bridge"]),
            (&"00:16:3e:01:02:03".into(), &"xenbr0".into())
        );
        assert_eq!(
            (&entry["state"], &entry["rx_ring_ref"]),
            (&4.into(), &769.into())
        );
    }

    #[test]
    fn disks() {
        let _f = fixture();
        assert_eq!(
            printed("block-list web"),
            "\
Vdev  BE  handle state evt-ch ring-ref BE-path                       \n\
51712 0   3      4     15     8        /local/domain/0/backend/vbd/3/51712\n\
51728 7   3      -1    -1     -1       /local/domain/7/backend/vbd/3/51728\n"
        );
        let disks = json("block-list 3");
        assert_eq!(
            (&disks["disks"][0]["vdev"], &disks["disks"][0]["mode"]),
            (&"xvda".into(), &"w".into())
        );
        assert_eq!(disks["disks"][1]["backend_domid"], 7);
    }

    #[test]
    fn a_domain_without_devices_has_a_head_only() {
        let _f = fixture();
        assert_eq!(printed("block-list old").lines().count(), 1);
        assert_eq!(printed("network-list old 0").lines().count(), 1);
        assert_eq!(run("block-list nobody").0, 1);
        assert_eq!(run("network-list").0, 2);
    }
}
