//! Disks and interfaces against a store and a machine in this process.

use dom0_shim::backend::glue::{Glue, Manner};
use dom0_shim::backend::script;
use dom0_shim::backend::system::{System, Target};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use xen_sys::fake::FakeStore;
use xen_sys::loopdev::DeviceNumber;
use xen_sys::xenstore::{Client, Transaction};

const NO_MANNER: Manner = Manner {
    make_bridges: false,
    always: false,
};

#[derive(Default)]
struct Machine {
    targets: BTreeMap<PathBuf, Target>,
    loops: BTreeMap<u32, (PathBuf, bool)>,
    /// Names, and the bridge of each that has one.
    interfaces: BTreeMap<String, Option<String>>,
    up: BTreeSet<String>,
    mtu: BTreeMap<String, u32>,
    no_loops: bool,
}

/// The machine, shared with the test.
#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Machine>>);

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl System for Fake {
    fn target(&mut self, path: &Path) -> io::Result<Target> {
        self.0
            .borrow()
            .targets
            .get(path)
            .copied()
            .ok_or_else(missing)
    }
    fn is_program(&mut self, path: &Path) -> bool {
        path == Path::new("/etc/xen/scripts/block")
    }
    fn attach_loop(&mut self, file: &Path, read_only: bool) -> io::Result<u32> {
        let mut machine = self.0.borrow_mut();
        if machine.no_loops {
            return Err(missing());
        }
        let number = (0..).find(|n| !machine.loops.contains_key(n)).unwrap();
        machine.loops.insert(number, (file.into(), read_only));
        let block = Target::Block(DeviceNumber {
            major: 7,
            minor: number,
        });
        machine
            .targets
            .insert(format!("/dev/loop{number}").into(), block);
        Ok(number)
    }
    fn detach_loop(&mut self, number: u32) -> io::Result<()> {
        self.0
            .borrow_mut()
            .loops
            .remove(&number)
            .map(drop)
            .ok_or_else(missing)
    }
    fn interface_exists(&mut self, name: &str) -> bool {
        self.0.borrow().interfaces.contains_key(name)
    }
    fn rename_interface(&mut self, name: &str, new: &str) -> io::Result<()> {
        let bridge = self
            .0
            .borrow_mut()
            .interfaces
            .remove(name)
            .ok_or_else(missing)?;
        self.0.borrow_mut().interfaces.insert(new.into(), bridge);
        Ok(())
    }
    fn set_mtu(&mut self, name: &str, mtu: u32) -> io::Result<()> {
        self.0.borrow_mut().mtu.insert(name.into(), mtu);
        Ok(())
    }
    fn bring_up(&mut self, name: &str) -> io::Result<()> {
        self.0.borrow_mut().up.insert(name.into());
        Ok(())
    }
    fn make_bridge(&mut self, name: &str) -> io::Result<()> {
        self.0.borrow_mut().interfaces.insert(name.into(), None);
        Ok(())
    }
    fn join_bridge(&mut self, bridge: &str, name: &str) -> io::Result<()> {
        let mut machine = self.0.borrow_mut();
        *machine.interfaces.get_mut(name).ok_or_else(missing)? = Some(bridge.into());
        Ok(())
    }
    fn take_down(&mut self, bridge: Option<&str>, name: &str) {
        let mut machine = self.0.borrow_mut();
        machine.up.remove(name);
        if let Some(port) = machine.interfaces.get_mut(name)
            && port.as_deref() == bridge
        {
            *port = None;
        }
    }
}

/// The whole arrangement.
struct Bench {
    fake: Fake,
    store: FakeStore,
    client: Client,
    glue: Glue<Fake>,
    said: Rc<RefCell<Vec<String>>>,
}

impl Bench {
    fn new(manner: Manner) -> Bench {
        let (fake, store) = (
            Fake::default(),
            FakeStore::new(&[("/local/domain/0/name", "Domain-0")]),
        );
        fake.0.borrow_mut().targets.extend([
            ("/srv/a.img".into(), Target::File(1, 10)),
            ("/srv/also-a.img".into(), Target::File(1, 10)),
            ("/srv/b.img".into(), Target::File(1, 11)),
            (
                "/dev/vg/root".into(),
                Target::Block(DeviceNumber {
                    major: 254,
                    minor: 17,
                }),
            ),
        ]);
        let (client, said) = (Client::fake(&store), Rc::new(RefCell::new(Vec::new())));
        let mut bench = Bench {
            glue: Bench::glue(&fake, manner, &said),
            fake,
            store,
            client,
            said,
        };
        bench.glue.begin(&mut bench.client).unwrap();
        bench
    }

    fn glue(fake: &Fake, manner: Manner, said: &Rc<RefCell<Vec<String>>>) -> Glue<Fake> {
        let lines = said.clone();
        Glue::new(
            fake.clone(),
            manner,
            Box::new(move |line| lines.borrow_mut().push(line.into())),
        )
    }

    /// Writes a back end as a toolstack does.
    fn write(&mut self, device: &str, nodes: &[(&str, &str)]) {
        for (name, value) in [("frontend", "/local/domain/x"), ("online", "1")]
            .iter()
            .chain(nodes)
        {
            self.store.set(&path(device, name), value);
        }
        self.turn();
    }

    fn disk(&mut self, device: &str, params: &str, mode: &str) {
        self.write(
            device,
            &[("params", params), ("mode", mode), ("state", "1")],
        );
    }

    fn turn(&mut self) {
        while let Some(event) = self.client.event(Some(Duration::ZERO)).unwrap() {
            self.glue.event(&event.path, &mut self.client).unwrap();
        }
        self.glue.tick(&mut self.client).unwrap();
    }

    fn get(&self, device: &str, name: &str) -> Option<String> {
        self.store.get(&path(device, name))
    }

    fn remove(&mut self, node: &str) {
        // By the same client: this store has one queue of events.
        self.client
            .rm(
                Transaction::NONE,
                &format!("/local/domain/0/backend/{node}"),
            )
            .unwrap();
        self.turn();
    }

    fn loops(&self) -> Vec<(u32, String, bool)> {
        let machine = self.fake.0.borrow();
        machine
            .loops
            .iter()
            .map(|(n, (p, ro))| (*n, p.display().to_string(), *ro))
            .collect()
    }
}

fn path(device: &str, name: &str) -> String {
    format!("/local/domain/0/backend/{device}/{name}")
}

const A: &str = "vbd/3/51712";

#[test]
fn a_file_becomes_a_loop_device_and_goes_with_the_device() {
    let mut bench = Bench::new(NO_MANNER);
    bench.disk(A, "/srv/a.img", "w");
    assert_eq!(bench.loops(), [(0, "/srv/a.img".into(), false)]);
    assert_eq!(bench.get(A, "physical-device").as_deref(), Some("7:0"));
    assert_eq!(
        bench.get(A, "physical-device-path").as_deref(),
        Some("/dev/loop0")
    );
    assert_eq!(bench.get(A, "hotplug-status").as_deref(), Some("connected"));
    // Our own writes come back as events, and change nothing; nor does the device's life until it is closed.
    for state in ["2", "4", "5"] {
        bench.store.set(&path(A, "state"), state);
        bench.turn();
        assert_eq!(bench.loops().len(), 1);
    }
    bench.store.set(&path(A, "state"), "6");
    bench.turn();
    assert_eq!(bench.loops(), []);
    bench.remove(A);
    assert!(bench.said.borrow().is_empty());
}

#[test]
fn a_block_device_stays_the_administrators() {
    let mut bench = Bench::new(NO_MANNER);
    bench.disk(A, "vg/root", "r");
    assert_eq!(bench.get(A, "physical-device").as_deref(), Some("fe:11"));
    assert_eq!(bench.get(A, "node"), None);
    bench.remove("vbd/3");
    bench.disk(A, "/srv/b.img", "r");
    assert_eq!(bench.loops(), [(0, "/srv/b.img".into(), true)]);
    // All of the guest's devices go at once.
    bench.remove("vbd");
    assert_eq!(bench.loops(), []);
}

#[test]
fn nodes_come_one_by_one() {
    let mut bench = Bench::new(NO_MANNER);
    bench.write(A, &[("state", "1")]);
    assert_eq!(bench.get(A, "hotplug-status"), None);
    bench.write(A, &[("params", "/srv/a.img"), ("mode", "w")]);
    assert_eq!(bench.get(A, "hotplug-status").as_deref(), Some("connected"));
}

#[test]
fn what_cannot_be_is_said_with_a_reason() {
    let mut bench = Bench::new(NO_MANNER);
    bench.disk(A, "/srv/none.img", "w");
    assert_eq!(bench.get(A, "hotplug-status").as_deref(), Some("error"));
    let reason = bench.get(A, "hotplug-error").unwrap();
    assert!(reason.starts_with("/srv/none.img: "), "{reason}");
    assert_eq!(*bench.said.borrow(), [format!("backend/{A}: {reason}")]);
    // Once: the failure is not tried again with every change.
    bench.store.set(&path(A, "state"), "2");
    bench.turn();
    assert_eq!(bench.said.borrow().len(), 1);
    bench.fake.0.borrow_mut().no_loops = true;
    bench.disk("vbd/4/51712", "/srv/a.img", "w");
    assert!(
        bench
            .get("vbd/4/51712", "hotplug-error")
            .unwrap()
            .contains("no loop device")
    );
}

#[test]
fn two_writers_need_a_word() {
    for (first, second, fine) in [
        ("r", "r", true),
        ("w", "r", false),
        ("r", "w", false),
        ("w", "w", false),
        ("w!", "w!", true),
        ("w", "w!", true),
        ("w!", "w", false),
    ] {
        let mut bench = Bench::new(NO_MANNER);
        bench.disk(A, "/srv/a.img", first);
        // By another name, which does not help.
        bench.disk("vbd/5/51712", "/srv/also-a.img", second);
        let status = bench.get("vbd/5/51712", "hotplug-status").unwrap();
        assert_eq!(status == "connected", fine, "{first} {second}");
        if !fine {
            let reason = bench.get("vbd/5/51712", "hotplug-error").unwrap();
            assert!(reason.contains("domain 3 uses it"), "{reason}");
        }
        // The other disk does not matter once it is gone.
        bench.remove("vbd/3");
        bench.disk("vbd/6/51712", "/srv/b.img", "w");
        assert_eq!(
            bench.get("vbd/6/51712", "hotplug-status").as_deref(),
            Some("connected")
        );
    }
}

#[test]
fn scripts_of_the_toolstack_are_left_alone() {
    // Only one that is there is run by somebody.
    for (script, by, always, served) in [
        ("/etc/xen/scripts/block", "", false, false),
        ("/etc/xen/scripts/block", "devd", false, true),
        ("/etc/xen/scripts/block", "", true, true),
        ("/etc/xen/scripts/none", "", false, true),
        ("", "", false, true),
    ] {
        let mut bench = Bench::new(Manner {
            always,
            ..NO_MANNER
        });
        bench.store.set(&path(A, "script"), script);
        bench.store.set(&path(A, "hotplug-by"), by);
        bench.disk(A, "/srv/a.img", "w");
        let status = bench.get(A, "hotplug-status");
        assert_eq!(status.is_some(), served, "{script} {by} {always}");
    }
}

#[test]
fn a_restart_takes_over_and_finds_what_went() {
    let mut bench = Bench::new(NO_MANNER);
    bench.disk(A, "/srv/a.img", "w");
    bench.disk("vbd/4/51712", "/srv/b.img", "w");
    // The daemon restarts; one device goes afterwards.
    bench.glue = Bench::glue(&bench.fake, NO_MANNER, &bench.said);
    bench.client = Client::fake(&bench.store);
    bench.glue.begin(&mut bench.client).unwrap();
    assert_eq!(bench.loops().len(), 2);
    bench.remove(A);
    assert_eq!(bench.loops(), [(1, "/srv/b.img".into(), false)]);
    // The store restarts, and the other device goes meanwhile.
    Client::fake(&bench.store)
        .rm(Transaction::NONE, &path("vbd", "4"))
        .unwrap();
    bench.client = Client::fake(&bench.store);
    bench.glue.begin(&mut bench.client).unwrap();
    assert_eq!(bench.loops(), []);
}

const V: &str = "vif/3/0";

#[test]
fn an_interface_goes_into_its_bridge_once_the_kernel_has_made_it() {
    let mut bench = Bench::new(NO_MANNER);
    bench
        .fake
        .0
        .borrow_mut()
        .interfaces
        .insert("xenbr0".into(), None);
    bench.write(
        V,
        &[
            ("handle", "0"),
            ("bridge", "xenbr0"),
            ("mtu", "1400"),
            ("hotplug-status", ""),
            ("state", "1"),
        ],
    );
    assert!(!bench.glue.waits());
    bench.store.set(&path(V, "state"), "2");
    bench.turn();
    assert!(bench.glue.waits());
    assert_eq!(bench.get(V, "hotplug-status").as_deref(), Some(""));
    bench
        .fake
        .0
        .borrow_mut()
        .interfaces
        .insert("vif3.0".into(), None);
    bench.turn();
    assert!(!bench.glue.waits());
    assert_eq!(bench.get(V, "hotplug-status").as_deref(), Some("connected"));
    {
        let machine = bench.fake.0.borrow();
        assert_eq!(machine.interfaces["vif3.0"].as_deref(), Some("xenbr0"));
        assert!(machine.up.contains("vif3.0") && machine.mtu["vif3.0"] == 1400);
    }
    bench.store.set(&path(V, "state"), "6");
    bench.turn();
    let machine = bench.fake.0.borrow();
    assert!(machine.up.is_empty() && machine.interfaces["vif3.0"].is_none());
}

#[test]
fn names_and_bridges() {
    let mut bench = Bench::new(NO_MANNER);
    bench
        .fake
        .0
        .borrow_mut()
        .interfaces
        .insert("vif3.0".into(), None);
    bench.write(
        V,
        &[("vifname", "web0"), ("bridge", "none0"), ("state", "2")],
    );
    assert!(
        bench
            .get(V, "hotplug-error")
            .unwrap()
            .contains("ip link add none0 type bridge")
    );
    let mut bench = Bench::new(Manner {
        make_bridges: true,
        ..NO_MANNER
    });
    bench
        .fake
        .0
        .borrow_mut()
        .interfaces
        .insert("vif3.0".into(), None);
    bench.write(
        V,
        &[("vifname", "web0"), ("bridge", "new0"), ("state", "2")],
    );
    let machine = bench.fake.0.borrow();
    assert_eq!(machine.interfaces["web0"].as_deref(), Some("new0"));
    assert!(machine.interfaces.contains_key("new0") && !machine.interfaces.contains_key("vif3.0"));
}

#[test]
fn a_directory_that_went_does_not_come_back() {
    let mut bench = Bench::new(NO_MANNER);
    bench.store.set(&path(A, "params"), "/srv/a.img");
    bench.turn();
    // There is no front end: the toolstack has not finished, or has begun to remove it.
    assert_eq!(
        (bench.get(A, "hotplug-status"), bench.loops().len()),
        (None, 0)
    );
}

#[test]
fn as_a_script() {
    let mut bench = Bench::new(NO_MANNER);
    bench
        .store
        .set(&path(A, "script"), "/etc/xen/scripts/block");
    bench.disk(A, "/srv/a.img", "w");
    let (mut client, mut fake) = (Client::fake(&bench.store), bench.fake.clone());
    let mut run = |name: &str, step: &str, path: Option<&str>| {
        script::run(
            name,
            &[step.into(), "type_if=vif".into()],
            path,
            &mut client,
            &mut fake,
        )
    };
    let disk = Some("backend/vbd/3/51712");
    run("block", "add", disk).unwrap();
    assert_eq!(
        (bench.loops().len(), bench.get(A, "node").as_deref()),
        (1, Some("/dev/loop0"))
    );
    run("block", "remove", disk).unwrap();
    assert_eq!(bench.loops(), []);
    bench
        .fake
        .0
        .borrow_mut()
        .interfaces
        .extend([("vif3.0".into(), None), ("br".into(), None)]);
    bench.write(V, &[("bridge", "br"), ("state", "2")]);
    run("vif-bridge", "online", Some("backend/vif/3/0")).unwrap();
    assert_eq!(bench.get(V, "hotplug-status").as_deref(), Some("connected"));
    run("vif-bridge", "offline", Some("backend/vif/3/0")).unwrap();
    assert_eq!(bench.fake.0.borrow().interfaces["vif3.0"], None);
    // Wrong use.
    assert!(
        run("block", "add", None)
            .unwrap_err()
            .contains("XENBUS_PATH")
    );
    assert!(
        run("block", "add", Some("backend/vif/3/0"))
            .unwrap_err()
            .contains("names no vbd")
    );
    assert!(
        run("block", "sing", disk)
            .unwrap_err()
            .contains("unknown step")
    );
    bench.store.set(&path(A, "params"), "/srv/none");
    assert!(run("block", "add", disk).is_err());
    assert_eq!(bench.get(A, "hotplug-status").as_deref(), Some("error"));
}
