//! What has changed since a domain's config was written: its memory, its vCPUs, its devices, as the store has them. A restart
//! and `list -l` go by that, as with Xen's toolstack.

use super::json;
use super::nodes::most_memory;
use crate::cfg::disk::{Disk, device_number};
use crate::cfg::domain::DomainConfig;
use crate::cfg::vif::{Vif, parse_mac};
use crate::device::vif::BRIDGE;
use crate::hotplug::numbers;
use serde_json::{Map, Value};
use xen_abi::DomId;
use xen_sys::xenstore::{Client, Transaction};

/// Changes a config to what the domain has now. What the store does not know stays as it is.
pub fn merge(store: &mut Client, domid: DomId, config: &mut DomainConfig) {
    let root = format!("/local/domain/{}", domid.0);
    let number = |store: &mut Client, path: &str| read(store, path)?.trim().parse::<u64>().ok();
    if let Some(kib) = number(store, &format!("{root}/memory/target")).filter(|n| *n > 0) {
        config.memory = kib;
    }
    let own = number(store, &most_memory(domid));
    let shown = number(store, &format!("{root}/memory/static-max"));
    config.maxmem = own.max(shown).unwrap_or(config.maxmem).max(config.memory);
    let availability = |v: u32| format!("{root}/cpu/{v}/availability");
    let online = (0..config.maxvcpus)
        .filter(|v| read(store, &availability(*v)).as_deref() == Some("online"))
        .count() as u32;
    if online > 0 {
        config.vcpus = online;
    }
    if read(store, &format!("/libxl/{}/type", domid.0)).is_none() {
        return;
    }
    let of_config = std::mem::take(&mut config.disks);
    config.disks = kept(store, domid, "vbd")
        .into_iter()
        .filter_map(|(devid, dir)| {
            let known = of_config.iter().find(|d| d.devid() == Some(devid));
            known.cloned().or_else(|| disk(store, &dir))
        })
        .collect();
    let of_config = std::mem::take(&mut config.vifs);
    config.vifs = kept(store, domid, "vif")
        .into_iter()
        .filter_map(|(devid, dir)| {
            let now = vif(store, &dir, devid);
            let known = of_config.iter().find(|v| v.devid == Some(devid)).cloned();
            match (known, now) {
                // Its address may have been made up.
                (Some(mut known), Some(now)) => {
                    known.mac = now.mac.or(known.mac);
                    Some(known)
                }
                (known, now) => known.or(now),
            }
        })
        .collect();
}

/// The same for the devices of a config as libxl writes it.
pub fn merge_devices(store: &mut Client, domid: DomId, config: &mut Map<String, Value>) {
    let disks = kept(store, domid, "vbd")
        .into_iter()
        .filter_map(|(n, dir)| {
            let known = find(config, "disks", n);
            known.or_else(|| Some(json::disk(&disk(store, &dir)?)))
        });
    let disks: Vec<Value> = disks.collect();
    let nics = kept(store, domid, "vif")
        .into_iter()
        .filter_map(|(n, dir)| {
            let now = vif(store, &dir, n);
            let mut entry = find(config, "nics", n).or_else(|| now.as_ref().map(json::nic))?;
            if let (Some(mac), Value::Object(entry)) = (now.and_then(|v| v.mac), &mut entry) {
                entry.insert("mac".into(), crate::cfg::vif::mac_text(mac).into());
            }
            Some(entry)
        });
    let nics: Vec<Value> = nics.collect();
    for (name, list) in [("disks", disks), ("nics", nics)] {
        match list.is_empty() {
            true => drop(config.remove(name)),
            false => drop(config.insert(name.into(), list.into())),
        }
    }
}

/// Adds a device to the `disks` or `nics` of such a config, in place of one with its number.
pub fn put(config: &mut Map<String, Value>, list: &str, devid: u32, entry: Value) {
    drop_device(config, list, devid);
    if let Some(entries) = config
        .entry(list)
        .or_insert_with(|| Value::Array(Vec::new()))
        .as_array_mut()
    {
        entries.push(entry);
    }
}

/// Takes a device out of it.
pub fn drop_device(config: &mut Map<String, Value>, list: &str, devid: u32) {
    if let Some(entries) = config.get_mut(list).and_then(Value::as_array_mut) {
        entries.retain(|e| entry_number(list, e) != Some(devid));
    }
}

/// The number of a device in such a config.
fn entry_number(list: &str, entry: &Value) -> Option<u32> {
    match list {
        "disks" => device_number(entry.get("vdev")?.as_str()?),
        _ => entry
            .get("devid")
            .map_or(Some(0), |n| n.as_u64()?.try_into().ok()),
    }
}

fn find(config: &Map<String, Value>, list: &str, devid: u32) -> Option<Value> {
    let mut entries = config.get(list)?.as_array()?.iter();
    let found = entries.find(|e| entry_number(list, e) == Some(devid));
    found.cloned()
}

/// Number and directory of the toolstack's own copy of each device of a class.
fn kept(store: &mut Client, domid: DomId, class: &str) -> Vec<(u32, String)> {
    let all = numbers(store, domid, class).unwrap_or_default();
    let dir = |n: u32| format!("/libxl/{}/device/{class}/{n}", domid.0);
    all.into_iter().map(|n| (n, dir(n))).collect()
}

fn read(store: &mut Client, path: &str) -> Option<String> {
    let value = store.read(Transaction::NONE, path).ok()?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

/// A node of a device that is not empty.
fn text(store: &mut Client, dir: &str, name: &str) -> Option<String> {
    read(store, &format!("{dir}/{name}")).filter(|v| !v.is_empty())
}

/// The domain that serves a device, unless it is dom0.
fn server(store: &mut Client, dir: &str) -> Option<String> {
    let back = text(store, dir, "backend")?;
    let domid = back.split('/').nth(3)?;
    Some(domid.to_owned()).filter(|d| d != "0")
}

fn disk(store: &mut Client, dir: &str) -> Option<Disk> {
    let vdev = text(store, dir, "dev")?;
    device_number(&vdev)?;
    Some(Disk {
        target: text(store, dir, "params").unwrap_or_default(),
        vdev,
        writable: text(store, dir, "mode").as_deref() == Some("w"),
        cdrom: text(store, dir, "device-type").as_deref() == Some("cdrom"),
        backend_domain: server(store, dir),
        script: text(store, dir, "script").filter(|s| s != "/etc/xen/scripts/block"),
        discard: text(store, dir, "discard-enable").map(|d| d == "1"),
        direct_io_safe: text(store, dir, "direct-io-safe").as_deref() == Some("1"),
        ..Disk::empty()
    })
}

fn vif(store: &mut Client, dir: &str, devid: u32) -> Option<Vif> {
    let rate = text(store, dir, "rate").and_then(|r| {
        let (bytes, micros) = r.split_once(',')?;
        Some((bytes.parse().ok()?, micros.parse().ok()?))
    });
    Some(Vif {
        mac: parse_mac(&text(store, dir, "mac")?).ok(),
        bridge: text(store, dir, "bridge").filter(|b| b != BRIDGE),
        gatewaydev: text(store, dir, "gatewaydev"),
        script: text(store, dir, "script").filter(|s| s != "/etc/xen/scripts/vif-bridge"),
        ip: text(store, dir, "ip"),
        backend_domain: server(store, dir),
        vifname: text(store, dir, "vifname"),
        rate,
        mtu: text(store, dir, "mtu")
            .and_then(|m| m.parse().ok())
            .filter(|m| *m != 1500),
        devid: Some(devid),
        trusted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg;
    use crate::device;
    use xen_sys::fake::FakeStore;

    const CONFIG: &str = "type='pvh'\nname='web'\nkernel='/k'\nmemory=256\nvcpus=2\nmaxvcpus=4\n\
                          disk=['/a,raw,xvda,rw','/b,raw,xvdb,rw']\nvif=['bridge=lan']\n";

    /// The domain has lost disk b and won disk c and an interface.
    fn store() -> (FakeStore, Client) {
        let store = FakeStore::new(&[
            ("/libxl/3/type", "pvh"),
            ("/local/domain/3/memory/target", "131072"),
            ("/local/domain/3/memory/static-max", "524288"),
            ("/local/domain/3/cpu/0/availability", "online"),
            ("/local/domain/3/cpu/1/availability", "online"),
            ("/local/domain/3/cpu/2/availability", "online"),
            ("/local/domain/3/cpu/3/availability", "offline"),
        ]);
        let mut client = Client::fake(&store);
        let (guest, dom0) = (DomId(3), DomId::DOM0);
        let disk = |text: &str| {
            let disk = cfg::disk::parse(text).expect("right");
            device::disk::nodes(&disk, &device::disk::device(&disk, guest, dom0), None)
        };
        let vif = |text: &str| {
            let vif = cfg::vif::parse(text).expect("right");
            device::vif::nodes(&vif, &device::vif::device(&vif, guest, dom0))
        };
        for nodes in [
            disk("/a,raw,xvda,rw"),
            disk("/c,raw,xvdc,ro"),
            vif("bridge=lan,mac=00:16:3e:00:00:01,devid=0"),
            vif("mac=00:16:3e:00:00:02,devid=1,mtu=9000"),
        ] {
            crate::domain::execute::write_nodes(&mut client, &nodes).expect("written");
        }
        (store, client)
    }

    #[test]
    fn the_limit_is_the_toolstack_s_unless_another_has_raised_it() {
        let (store, mut client) = store();
        let mut merged = |own: &str, shown: &str| {
            store.set("/libxl/3/maxmem", own);
            store.set("/local/domain/3/memory/static-max", shown);
            let mut config = cfg::parse("web.cfg", CONFIG, &[]).expect("right").config;
            merge(&mut client, DomId(3), &mut config);
            config.maxmem
        };
        assert_eq!(merged("524288", "131072"), 524_288);
        assert_eq!(merged("262144", "393216"), 393_216);
        assert_eq!(merged("1024", "1024"), 131_072);
    }

    #[test]
    fn a_config_follows_the_domain() {
        let (_, mut client) = store();
        let mut config = cfg::parse("web.cfg", CONFIG, &[]).expect("right").config;
        let first = config.disks[0].clone();
        merge(&mut client, DomId(3), &mut config);
        assert_eq!(
            (config.memory, config.maxmem, config.vcpus),
            (131_072, 524_288, 3)
        );
        assert_eq!(config.disks.len(), 2);
        assert_eq!(config.disks[0], first);
        let third = &config.disks[1];
        assert_eq!(
            (&*third.vdev, &*third.target, third.writable),
            ("xvdc", "/c", false)
        );
        let addresses: Vec<u8> = config.vifs.iter().map(|v| v.mac.unwrap()[5]).collect();
        assert_eq!(addresses, [1, 2]);
        assert_eq!(config.vifs[0].bridge.as_deref(), Some("lan"));
        assert_eq!(
            (config.vifs[1].mtu, &config.vifs[1].bridge),
            (Some(9000), &None)
        );
    }

    #[test]
    fn a_store_that_knows_nothing_changes_nothing() {
        let mut config = cfg::parse("web.cfg", CONFIG, &[]).expect("right").config;
        let before = config.clone();
        let mut client = Client::fake(&FakeStore::default());
        merge(&mut client, DomId(3), &mut config);
        assert_eq!(config, before);
    }

    #[test]
    fn the_lists_of_devices_follow_too() {
        let (_, mut client) = store();
        let config = cfg::parse("web.cfg", CONFIG, &[]).expect("right").config;
        let text = json::text(&config).expect("JSON");
        let mut all: Map<String, Value> = serde_json::from_str(&text).expect("an object");
        all["disks"][0]["only_here"] = 1.into();
        merge_devices(&mut client, DomId(3), &mut all);
        let disks = all["disks"].as_array().expect("a list");
        let names: Vec<&Value> = disks.iter().map(|d| &d["vdev"]).collect();
        assert_eq!(names, ["xvda", "xvdc"]);
        assert_eq!(disks[0]["only_here"], 1);
        assert_eq!(all["nics"][0]["mac"], "00:16:3e:00:00:01");
        assert_eq!(all["nics"][1]["devid"], 1);
        merge_devices(&mut client, DomId(9), &mut all);
        assert!(!all.contains_key("disks") && !all.contains_key("nics"));
    }

    #[test]
    fn a_kept_config_gains_and_loses_devices() {
        let mut all = Map::new();
        let disk = |target: &str| serde_json::json!({ "pdev_path": target, "vdev": "xvda" });
        put(&mut all, "disks", 51712, disk("/a"));
        put(&mut all, "disks", 51712, disk("/b"));
        assert_eq!(all["disks"], serde_json::json!([disk("/b")]));
        put(&mut all, "nics", 1, serde_json::json!({ "devid": 1 }));
        drop_device(&mut all, "nics", 0);
        assert_eq!(all["nics"].as_array().map(Vec::len), Some(1));
        drop_device(&mut all, "nics", 1);
        assert_eq!(all["nics"].as_array().map(Vec::len), Some(0));
    }
}
