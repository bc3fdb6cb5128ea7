//! `network-attach`, `network-detach`, `block-attach`, `block-detach`.

use super::create::random_mac;
use super::device_list::{self, devices};
use super::failure::{Failure, Outcome, Result};
use super::host::Host;
use super::{Args, Command, Context, Opt, output};
use crate::cfg::{disk, vif};
use crate::device::{self, Device, Node};
use crate::domain::execute::write_nodes;
use crate::domain::{json, kept, live};
use crate::hotplug::{self, Ready};
use serde_json::{Map, Value};
use std::time::Duration;
use xen_abi::DomId;

/// The rows.
pub const ROWS: &[Command] = &[
    Command {
        name: "network-attach",
        options: &[],
        usage: "<Domain> [type=<type>] [mac=<mac>] [bridge=<bridge>] [ip=<ip>] [script=<script>] [backend=<BackDomain>] [vifname=<name>] [rate=<rate>] [model=<model>] [mtu=<mtu>]",
        help: "Add a network interface to a domain",
        min: 1,
        dry_run: true,
        run: network_attach,
    },
    Command {
        name: "network-detach",
        options: &[],
        usage: "<Domain> <DevId|mac>",
        help: "Remove a network interface",
        min: 2,
        dry_run: false,
        run: network_detach,
    },
    Command {
        name: "block-attach",
        options: &[],
        usage: "<Domain> <disk-spec-component(s)>...",
        help: "Add a disk to a domain",
        min: 2,
        dry_run: true,
        run: block_attach,
    },
    Command {
        name: "block-detach",
        options: &[Opt::flag(
            Some('f'),
            &["force"],
            "do not wait for the domain to let go",
        )],
        usage: "[options] <Domain> <DevId>",
        help: "Remove a disk",
        min: 2,
        dry_run: false,
        run: block_detach,
    },
];

/// How long the back end may take to come.
const COMING: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 40 });
/// How long both ends may take to go.
const GOING: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

fn backend(host: &mut Host, name: Option<&str>) -> Result<DomId> {
    match name {
        None => Ok(DomId::DOM0),
        Some(name) => Ok(host.domain(name)?.id()),
    }
}

/// Runs the script that a back end names, if there is one and scripts are to be run.
#[cfg(not(test))]
fn run_script(script: &str, action: &str, device: &Device) -> Outcome {
    use crate::domain::{real::Real, system::System};
    let done = Real::open()?.script(script, action, &device.back_relative());
    done.map(drop)
}

#[cfg(test)]
fn run_script(_: &str, _: &str, _: &Device) -> Outcome {
    Ok(())
}

/// Shows what would be written.
fn show(kind: &str, device: &Device, nodes: &[Node]) -> Outcome {
    let ends = [device.front(), device.back()];
    let of_ends = nodes.iter().filter_map(|n| {
        let (dir, name) = n.path.rsplit_once('/')?;
        let value = n.value.clone()?;
        ends.iter()
            .any(|e| e == dir)
            .then(|| (name.to_owned(), Value::from(value)))
    });
    let mut all: Map<String, Value> = of_ends.collect();
    all.insert("devid".into(), device.devid.into());
    output::print(&format!("{kind}: {}", output::to_json(&all)?))
}

/// Adds a device, `entry` in the kept config; if nobody serves it, nothing is left of it.
fn attach(host: &mut Host, what: &str, device: &Device, nodes: &[Node], entry: Value) -> Outcome {
    let domid = device.domid;
    let taken = hotplug::numbers(&mut host.store, domid, device.kind)?;
    if taken.contains(&device.devid) {
        return Err(Failure::new(format!(
            "domain {} has {what} already",
            domid.0
        )));
    }
    write_nodes(&mut host.store, nodes)?;
    let added = connect(host, device, nodes);
    if added.is_err() {
        hotplug::close(&mut host.store, device, GOING)?;
        hotplug::remove(&mut host.store, device)?;
    }
    added.map_err(|f| f.context(format!("cannot add {what} to domain {}", domid.0)))?;
    keep(host, device, Some(entry))
}

/// Notes in the config that libxl's tools read that a device came (with its entry) or went.
fn keep(host: &mut Host, device: &Device, entry: Option<Value>) -> Outcome {
    let Some(domain) = host.xen.domain(device.domid)? else {
        return Ok(());
    };
    let list = if device.kind == "vif" {
        "nics"
    } else {
        "disks"
    };
    let changed = kept::change(device.domid, &domain.uuid(), |config| match entry {
        Some(entry) => live::put(config, list, device.devid, entry),
        None => live::drop_device(config, list, device.devid),
    });
    changed.map_err(|e| {
        Failure::new(format!(
            "the device is as it should be, but the kept config is not: {e}"
        ))
    })
}

fn connect(host: &mut Host, device: &Device, nodes: &[Node]) -> Outcome {
    let known = format!("{}/physical-device", device.back());
    if !nodes.iter().any(|n| n.path == known)
        && let Some(script) = hotplug::script(nodes)
    {
        run_script(
            script,
            if device.kind == "vif" {
                "online"
            } else {
                "add"
            },
            device,
        )?;
    }
    match hotplug::wait_ready(&mut host.store, device, COMING)? {
        Ready::Yes => Ok(()),
        Ready::No(why) => Err(Failure::new(why)),
        Ready::Silence => Err(Failure::new("nobody serves devices; is 'xl devd' running?")),
    }
}

fn network_attach(context: &Context, args: &Args) -> Outcome {
    let text = args.words[1..].join(",");
    let mut config = vif::parse(&text).map_err(Failure::new)?;
    let host = &mut Host::open()?;
    let domid = host.domain(&args.words[0])?.id();
    let taken = hotplug::numbers(&mut host.store, domid, "vif")?;
    let next = taken.last().map_or(0, |n| n + 1);
    let devid = *config.devid.get_or_insert(next);
    if config.mac.is_none() {
        config.mac = Some(random_mac()?);
    }
    let backend = backend(host, config.backend_domain.as_deref())?;
    let device = device::vif::device(&config, domid, backend);
    let nodes = device::vif::nodes(&config, &device);
    if context.dry_run {
        return show("vif", &device, &nodes);
    }
    let entry = json::nic(&config);
    attach(host, &format!("interface {devid}"), &device, &nodes, entry)
}

fn block_attach(context: &Context, args: &Args) -> Outcome {
    let text = args.words[1..].join(",");
    let config = disk::parse(&text).map_err(Failure::new)?;
    if let Some(why) = device::disk::refused(&config) {
        return Err(Failure::new(why));
    }
    let host = &mut Host::open()?;
    let domid = host.domain(&args.words[0])?.id();
    let backend = backend(host, config.backend_domain.as_deref())?;
    let device = device::disk::device(&config, domid, backend);
    let number = match backend == DomId::DOM0 && !context.dry_run {
        true => block_device(&config.target)?,
        false => None,
    };
    let nodes = device::disk::nodes(&config, &device, number);
    if context.dry_run {
        return show("disk", &device, &nodes);
    }
    let what = format!("disk {}", config.vdev);
    attach(host, &what, &device, &nodes, json::disk(&config))
}

#[cfg(not(test))]
fn block_device(target: &str) -> Result<Option<(u32, u32)>> {
    let found = xen_sys::loopdev::block_device(std::path::Path::new(target));
    let found = found.map_err(|e| Failure::new(format!("{target}: {e}")))?;
    Ok(found.map(|n| (n.major, n.minor)))
}

#[cfg(test)]
fn block_device(_: &str) -> Result<Option<(u32, u32)>> {
    Ok(None)
}

fn detach(host: &mut Host, found: &device_list::Device, patience: Duration) -> Outcome {
    let kind = match found.backend.contains("/vif/") {
        true => "vif",
        false => "vbd",
    };
    let device = Device {
        kind,
        domid: DomId(found.domid),
        backend: DomId(found.backend_domid),
        devid: found.devid,
    };
    let script = host.read(&format!("{}/script", device.back()));
    let closed = hotplug::close(&mut host.store, &device, patience)?;
    if !closed && !patience.is_zero() {
        eprintln!(
            "xl: domain {} did not let go of the device within {} s; it is gone now all the same",
            found.domid,
            patience.as_secs()
        );
    }
    if let Some(script) = script {
        let action = if kind == "vif" { "offline" } else { "remove" };
        // What cannot be undone must not keep the rest from being removed.
        if let Err(failure) = run_script(&script, action, &device) {
            eprintln!("xl: {failure}");
        }
    }
    hotplug::remove(&mut host.store, &device)?;
    keep(host, &device, None)
}

fn unknown(word: &str) -> Failure {
    Failure::new(format!("Unknown device {word}."))
}

fn network_detach(_: &Context, args: &Args) -> Outcome {
    let word = &args.words[1];
    let host = &mut Host::open()?;
    let domid = host.domain(&args.words[0])?.id();
    let all = devices(host, domid, "vif", &[]);
    let found = match word.contains(':') {
        true => {
            let mac = vif::parse_mac(word).map_err(Failure::new)?;
            let mac = vif::mac_text(mac);
            let has = |d: &&device_list::Device| {
                host.read(&format!("{}/mac", d.backend)).as_deref() == Some(&mac)
            };
            all.iter().find(has)
        }
        false => all.iter().find(|d| d.devid.to_string() == *word),
    };
    let found = found.ok_or_else(|| unknown(word))?;
    detach(host, found, GOING)
}

fn block_detach(_: &Context, args: &Args) -> Outcome {
    let word = &args.words[1];
    let host = &mut Host::open()?;
    let domid = host.domain(&args.words[0])?.id();
    let devid = word.parse().ok().or_else(|| disk::device_number(word));
    let all = devices(host, domid, "vbd", &[]);
    let found = all.iter().find(|d| Some(d.devid) == devid);
    let found =
        found.ok_or_else(|| Failure::new(format!("Error: Device {word} not connected.")))?;
    let patience = if args.has("force") {
        Duration::ZERO
    } else {
        GOING
    };
    detach(host, found, patience)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, printed, run};

    /// A daemon that connects every device, and back ends that let go when told.
    fn fixture() -> Fixture {
        let f = Fixture::new();
        f.store.respond(Box::new(|path, value| {
            let (base, name) = path.rsplit_once('/').unwrap_or_default();
            let back = base.contains("/backend/");
            match (back, name, value) {
                (true, "online", "1") => {
                    vec![(format!("{base}/hotplug-status"), "connected".into())]
                }
                (true, "state", "5") => vec![(path.into(), "6".into())],
                _ => Vec::new(),
            }
        }));
        f
    }

    const VBD: &str = "/local/domain/0/backend/vbd/3/51728";

    #[test]
    fn disks_come_and_go() {
        let f = fixture();
        // The daemon's word must not be overwritten by what is written with the rest.
        printed("block-attach web phy:/dev/sdb xvdb r");
        assert_eq!(f.store.get(&format!("{VBD}/params")).unwrap(), "/dev/sdb");
        assert!(printed("block-list web").contains("51728 0 "));
        assert!(
            run("block-attach web phy:/dev/sdc xvdb w")
                .1
                .contains("has disk xvdb already")
        );
        printed("block-detach web xvdb");
        assert!(f.store.get(VBD).is_none());
        assert!(run("block-detach web xvdb").1.contains("not connected"));
        printed("block-attach web phy:/dev/sdb xvdb r");
        printed("block-detach -f web 51728");
        assert_eq!(printed("block-list web").lines().count(), 1);
    }

    #[test]
    fn interfaces_come_and_go() {
        let f = fixture();
        printed("network-attach web mac=00:16:3e:00:00:01 bridge=lan");
        printed("network-attach web");
        let list = printed("network-list web");
        assert!(list.contains("\n0   0  00:16:3e:00:00:01") && list.contains("\n1   0  00:16:3e:"));
        printed("network-detach web 00:16:3E:00:00:01");
        assert!(f.store.get("/local/domain/3/device/vif/0").is_none());
        printed("network-detach web 1");
        assert!(run("network-detach web 1").1.contains("Unknown device 1."));
    }

    #[test]
    fn nothing_is_left_of_a_device_that_nobody_serves() {
        let f = Fixture::new();
        let before = f.store.paths();
        let (code, text) = run("network-attach web");
        assert!(
            code == 1 && text.contains("is 'xl devd' running?"),
            "{text}"
        );
        let left: Vec<String> = f.store.paths();
        let device = |p: &&String| p.ends_with("/vif/0") || p.contains("/vif/3/0");
        assert!(left.iter().find(device).is_none(), "{left:?} {before:?}");
        assert!(
            run("block-attach web /a qcow2 xvda w")
                .1
                .contains("only raw files")
        );
    }

    #[test]
    fn a_dry_run_shows_and_writes_nothing() {
        let f = fixture();
        let before = f.store.paths();
        let text = printed("-N block-attach web phy:/dev/sdb xvdb w");
        assert!(text.starts_with("disk: {\n") && text.contains("\"params\": \"/dev/sdb\""));
        assert!(printed("-N network-attach web bridge=lan").contains("\"bridge\": \"lan\""));
        assert_eq!(f.store.paths(), before);
    }
}
