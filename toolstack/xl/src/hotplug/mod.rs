//! Devices that come to a running domain and go: what is written for both ends in the store.
//!
//! The ends are kernels: a front end in the domain and a back end here or in a driver domain. The toolstack only writes what
//! both need to find each other; a daemon beside the back end (`dom0-shim devd`) does what the kernel does not.

mod vbd;
mod vif;

pub use vbd::vbd;
pub use vif::{random_mac, vif};

use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_sys::xenstore::{Client, Result, Transaction};

/// States of a back end that matter here (xenbus).
const CLOSING: &str = "5";
const CLOSED: &str = "6";

/// A device as both ends are told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Class in paths: `vif`, `vbd`.
    pub class: &'static str,
    /// Number in its class.
    pub devid: u32,
    /// The domain that serves it.
    pub backend: DomId,
    /// For the front end, besides where the back end is.
    pub front: Vec<(&'static str, String)>,
    /// For the back end, besides where the front end is.
    pub back: Vec<(&'static str, String)>,
}

/// Directories of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// Of the front end.
    pub front: String,
    /// Of the back end.
    pub back: String,
    /// The toolstack's own, which no domain can change.
    pub kept: String,
}

/// Directories of a device of a domain.
pub fn paths(domid: DomId, class: &str, devid: u32, backend: DomId) -> Paths {
    let (domid, backend) = (domid.0, backend.0);
    Paths {
        front: format!("/local/domain/{domid}/device/{class}/{devid}"),
        back: format!("/local/domain/{backend}/backend/{class}/{domid}/{devid}"),
        kept: format!("/libxl/{domid}/device/{class}/{devid}"),
    }
}

/// Numbers that the devices of a class of a domain have.
///
/// # Errors
/// The store's.
pub fn numbers(store: &mut Client, domid: DomId, class: &str) -> Result<Vec<u32>> {
    let kept = format!("/libxl/{}/device/{class}", domid.0);
    let names = match store.list(Transaction::NONE, &kept) {
        Err(xen_sys::xenstore::Error::Refused(xen_abi::Errno::ENOENT)) => Vec::new(),
        other => other?,
    };
    let mut numbers: Vec<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Writes a device of a domain, in a transaction of the caller's.
///
/// # Errors
/// The store's.
pub fn write(store: &mut Client, tx: Transaction, domid: DomId, device: &Device) -> Result<()> {
    let paths = paths(domid, device.class, device.devid, device.backend);
    let ends = [
        ("frontend", paths.front.clone()),
        ("frontend-id", domid.0.to_string()),
        ("online", "1".into()),
        ("state", "1".into()),
    ];
    let back: Vec<_> = ends.into_iter().chain(device.back.clone()).collect();
    let ends = [
        ("backend", paths.back.clone()),
        ("backend-id", device.backend.0.to_string()),
        ("state", "1".into()),
    ];
    let front: Vec<_> = ends.into_iter().chain(device.front.clone()).collect();
    let owned =
        |owner: DomId, reader: DomId| vec![format!("n{}", owner.0), format!("r{}", reader.0)];
    // A directory first: what is written below it gets its permissions.
    let places = [
        (&paths.front, owned(domid, device.backend), &front),
        (&paths.back, owned(device.backend, domid), &back),
        (&paths.kept, vec!["n0".into()], &back),
    ];
    for (path, perms, nodes) in places {
        store.mkdir(tx, path)?;
        store.set_perms(tx, path, &perms)?;
        for (name, value) in nodes {
            let node = format!("{path}/{name}");
            store.write(tx, &node, value.as_bytes())?;
            store.set_perms(tx, &node, &perms)?;
        }
    }
    for (name, value) in [
        ("backend", &paths.back),
        ("backend-id", &device.backend.0.to_string()),
    ] {
        store.write(tx, &format!("{}/{name}", paths.kept), value.as_bytes())?;
    }
    Ok(())
}

/// How waiting for a device ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready {
    /// The back end has what it needs.
    Yes,
    /// What the daemon says against it.
    No(String),
    /// Nobody did anything in time.
    Silence,
}

/// Waits until the daemon beside the back end has done its part.
///
/// # Errors
/// The store's.
pub fn wait_ready(store: &mut Client, back: &str, patience: Duration) -> Result<Ready> {
    let start = Instant::now();
    loop {
        if let Some(error) = read(store, &format!("{back}/hotplug-error")).filter(|e| !e.is_empty())
        {
            return Ok(Ready::No(error));
        }
        match read(store, &format!("{back}/hotplug-status")).as_deref() {
            Some("connected") => return Ok(Ready::Yes),
            Some("error") => return Ok(Ready::No("it failed".into())),
            _ => {}
        }
        if start.elapsed() >= patience {
            return Ok(Ready::Silence);
        }
        pause();
    }
}

/// Asks the ends of a device to let go, waits for that, and removes its nodes. Returns false if the ends did not let go in
/// time; the nodes are gone all the same.
///
/// # Errors
/// The store's.
pub fn remove(store: &mut Client, paths: &Paths, patience: Duration) -> Result<bool> {
    let there = read(store, &format!("{}/state", paths.back)).is_some();
    let mut closed = true;
    if there {
        store.transaction(|store, tx| {
            store.write(tx, &format!("{}/online", paths.back), b"0")?;
            store.write(tx, &format!("{}/state", paths.back), CLOSING.as_bytes())
        })?;
        closed = wait_closed(store, &paths.back, patience);
    }
    store.transaction(|store, tx| {
        for path in [&paths.front, &paths.back, &paths.kept] {
            match store.rm(tx, path) {
                Err(xen_sys::xenstore::Error::Refused(xen_abi::Errno::ENOENT)) => {}
                other => other?,
            }
        }
        Ok(())
    })?;
    Ok(closed)
}

fn wait_closed(store: &mut Client, back: &str, patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        match read(store, &format!("{back}/state")).as_deref() {
            None | Some(CLOSED) => return true,
            _ if start.elapsed() >= patience => return false,
            _ => pause(),
        }
    }
}

fn read(store: &mut Client, path: &str) -> Option<String> {
    let value = store.read(Transaction::NONE, path).ok()?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[cfg(test)]
mod tests {
    use super::*;
    use xen_sys::fake::FakeStore;

    const NOW: Duration = Duration::ZERO;

    fn device() -> Device {
        Device {
            class: "vif",
            devid: 1,
            backend: DomId(0),
            front: vec![("mac", "m".into())],
            back: vec![("bridge", "b".into())],
        }
    }

    #[test]
    fn both_ends_and_the_toolstack_get_their_nodes() {
        let store = FakeStore::default();
        let mut client = Client::fake(&store);
        client
            .transaction(|c, tx| write(c, tx, DomId(5), &device()))
            .unwrap();
        let p = paths(DomId(5), "vif", 1, DomId(0));
        let get = |path: &str, name| store.get(&format!("{path}/{name}")).unwrap();
        assert_eq!(get(&p.front, "backend"), p.back);
        assert_eq!(
            (get(&p.front, "state"), get(&p.front, "mac")),
            ("1".into(), "m".into())
        );
        assert_eq!(
            (get(&p.back, "frontend-id"), get(&p.back, "online")),
            ("5".into(), "1".into())
        );
        assert_eq!(
            (get(&p.kept, "backend"), get(&p.kept, "bridge")),
            (p.back.clone(), "b".into())
        );
        for (path, perms) in [(&p.front, "n5,r0"), (&p.back, "n0,r5"), (&p.kept, "n0")] {
            assert_eq!(store.perms(path).unwrap(), perms);
            assert_eq!(store.perms(&format!("{path}/state")).unwrap(), perms);
        }
        assert_eq!(numbers(&mut client, DomId(5), "vif").unwrap(), [1]);
        assert!(numbers(&mut client, DomId(6), "vif").unwrap().is_empty());
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        for after in 1..10 {
            let store = FakeStore::default();
            let mut client = Client::fake(&store);
            store.fail_after(after);
            let result = client.transaction(|c, tx| write(c, tx, DomId(5), &device()));
            assert!(result.is_err());
            assert!(store.paths().is_empty(), "{:?}", store.paths());
        }
    }

    #[test]
    fn the_daemon_is_waited_for() {
        let store = FakeStore::new(&[("/b", "")]);
        let mut client = Client::fake(&store);
        assert_eq!(wait_ready(&mut client, "/b", NOW).unwrap(), Ready::Silence);
        store.set("/b/hotplug-status", "connected");
        assert_eq!(wait_ready(&mut client, "/b", NOW).unwrap(), Ready::Yes);
        store.set("/b/hotplug-error", "no bridge");
        assert_eq!(
            wait_ready(&mut client, "/b", NOW).unwrap(),
            Ready::No("no bridge".into())
        );
    }

    #[test]
    fn a_device_is_removed_when_its_ends_let_go_or_never() {
        for answers in [true, false] {
            let store = FakeStore::default();
            let mut client = Client::fake(&store);
            client
                .transaction(|c, tx| write(c, tx, DomId(5), &device()))
                .unwrap();
            store.respond(Box::new(move |path, value| {
                match path.ends_with("/state") && value == CLOSING && answers {
                    true => vec![(path.to_owned(), CLOSED.to_owned())],
                    false => Vec::new(),
                }
            }));
            let p = paths(DomId(5), "vif", 1, DomId(0));
            assert_eq!(remove(&mut client, &p, NOW).unwrap(), answers);
            assert!(store.get(&p.front).is_none() && store.get(&p.back).is_none());
            assert!(store.get(&p.kept).is_none());
            // Again, with nothing there.
            assert!(remove(&mut client, &p, NOW).unwrap());
        }
    }
}
