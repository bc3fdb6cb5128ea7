//! `network-attach`, `network-detach`, `block-attach`, `block-detach`.

use super::device_list::{self, devices};
use super::failure::{Failure, Outcome, Result};
use super::host::Host;
use super::{Args, Command, Context, Opt, output};
use crate::cfg::{disk, vif};
use crate::hotplug::{self, Device, Ready};
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

/// Shows what would be written.
fn show(kind: &str, device: &Device) -> Outcome {
    let nodes = device.front.iter().chain(&device.back);
    let nodes = nodes.map(|(name, value)| ((*name).to_owned(), Value::from(value.clone())));
    let mut all: Map<String, Value> = nodes.collect();
    all.insert("devid".into(), device.devid.into());
    all.insert("backend_domid".into(), device.backend.0.into());
    output::print(&format!("{kind}: {}", output::to_json(&all)?))
}

/// Adds a device; if nobody serves it, nothing is left of it.
fn attach(host: &mut Host, domid: DomId, what: &str, device: &Device) -> Outcome {
    let taken = hotplug::numbers(&mut host.store, domid, device.class)?;
    if taken.contains(&device.devid) {
        return Err(Failure::new(format!(
            "domain {} has {what} already",
            domid.0
        )));
    }
    host.store
        .transaction(|store, tx| hotplug::write(store, tx, domid, device))?;
    let paths = hotplug::paths(domid, device.class, device.devid, device.backend);
    let why = match hotplug::wait_ready(&mut host.store, &paths.back, COMING)? {
        Ready::Yes => return Ok(()),
        Ready::No(why) => why,
        Ready::Silence => "nobody serves devices; is 'xl devd' running?".into(),
    };
    hotplug::remove(&mut host.store, &paths, GOING)?;
    Err(Failure::new(format!(
        "cannot add {what} to domain {}: {why}",
        domid.0
    )))
}

fn network_attach(context: &Context, args: &Args) -> Outcome {
    let text = args.words[1..].join(",");
    let config = vif::parse(&text).map_err(Failure::new)?;
    let host = &mut Host::open()?;
    let domid = host.domain(&args.words[0])?.id();
    let taken = hotplug::numbers(&mut host.store, domid, "vif")?;
    let next = taken.last().map_or(0, |n| n + 1);
    let devid = config.devid.unwrap_or(next);
    let backend = backend(host, config.backend_domain.as_deref())?;
    let device = hotplug::vif(&config, devid, backend, hotplug::random_mac()?);
    if context.dry_run {
        return show("vif", &device);
    }
    attach(host, domid, &format!("interface {devid}"), &device)
}

fn block_attach(context: &Context, args: &Args) -> Outcome {
    let text = args.words[1..].join(",");
    let config = disk::parse(&text).map_err(Failure::new)?;
    let host = &mut Host::open()?;
    let domid = host.domain(&args.words[0])?.id();
    let backend = backend(host, config.backend_domain.as_deref())?;
    let device = hotplug::vbd(&config, backend).map_err(Failure::new)?;
    if context.dry_run {
        return show("disk", &device);
    }
    attach(host, domid, &format!("disk {}", config.vdev), &device)
}

fn detach(host: &mut Host, found: &device_list::Device, patience: Duration) -> Outcome {
    let (domid, backend) = (DomId(found.domid), DomId(found.backend_domid));
    let class = found.backend.split('/').nth(5).unwrap_or_default();
    let paths = hotplug::paths(domid, class, found.devid, backend);
    let closed = hotplug::remove(&mut host.store, &paths, patience)?;
    if !closed && !patience.is_zero() {
        eprintln!(
            "xl: domain {} did not let go of the device within {} s; it is gone now all the same",
            domid.0,
            patience.as_secs()
        );
    }
    Ok(())
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
                .contains("need QEMU")
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
