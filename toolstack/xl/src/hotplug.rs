//! Devices that come to a running domain and go.
//!
//! The ends are kernels: a front end in the domain and a back end here or in a driver domain. The toolstack only writes what
//! both need to find each other; a script or a daemon beside the back end (`dom0-shim devd`) does what the kernel does not.

use crate::device::{Device, Node};
use std::time::{Duration, Instant};
use xen_abi::{DomId, Errno};
use xen_sys::xenstore::{Client, Error, Result, Transaction};

/// States of a back end that matter here (xenbus).
const CLOSING: &str = "5";
const CLOSED: &str = "6";

/// Numbers that the devices of a class of a domain have, in order.
///
/// # Errors
/// The store's.
pub fn numbers(store: &mut Client, domid: DomId, class: &str) -> Result<Vec<u32>> {
    let kept = format!("/libxl/{}/device/{class}", domid.0);
    let names = match store.list(Transaction::NONE, &kept) {
        Err(Error::Refused(Errno::ENOENT)) => Vec::new(),
        other => other?,
    };
    let mut numbers: Vec<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The script that a device's nodes name.
pub fn script(nodes: &[Node]) -> Option<&str> {
    let node = nodes.iter().find(|n| n.path.ends_with("/script"))?;
    node.value.as_deref()
}

/// How waiting for a device ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready {
    /// The back end has what it needs.
    Yes,
    /// What the script or the daemon says against it.
    No(String),
    /// Nobody did anything in time.
    Silence,
}

/// Waits until the back end has what the kernel does not find by itself.
///
/// # Errors
/// The store's.
pub fn wait_ready(store: &mut Client, device: &Device, patience: Duration) -> Result<Ready> {
    let back = device.back();
    let start = Instant::now();
    let reason = |store: &mut Client| {
        read(store, &format!("{back}/hotplug-error")).filter(|e| !e.is_empty())
    };
    loop {
        if let Some(error) = reason(store) {
            return Ok(Ready::No(error));
        }
        match read(store, &format!("{back}/hotplug-status")).as_deref() {
            Some("connected") => return Ok(Ready::Yes),
            // The reason may have come with it, since it was looked for.
            Some("error") => {
                let said = reason(store).unwrap_or_else(|| "it failed".into());
                return Ok(Ready::No(said));
            }
            _ if read(store, &format!("{back}/physical-device")).is_some() => {
                return Ok(Ready::Yes);
            }
            _ if start.elapsed() >= patience => return Ok(Ready::Silence),
            _ => pause(),
        }
    }
}

/// Asks the ends of a device to let go and waits for that. False if they did not in time.
///
/// # Errors
/// The store's.
pub fn close(store: &mut Client, device: &Device, patience: Duration) -> Result<bool> {
    let back = device.back();
    let state = format!("{back}/state");
    if read(store, &state).is_none() {
        return Ok(true);
    }
    store.transaction(|store, tx| {
        store.write(tx, &format!("{back}/online"), b"0")?;
        store.write(tx, &state, CLOSING.as_bytes())
    })?;
    let start = Instant::now();
    loop {
        match read(store, &state).as_deref() {
            None | Some(CLOSED) => return Ok(true),
            _ if start.elapsed() >= patience => return Ok(false),
            _ => pause(),
        }
    }
}

/// Removes a device's nodes.
///
/// # Errors
/// The store's.
pub fn remove(store: &mut Client, device: &Device) -> Result<()> {
    store.transaction(|store, tx| {
        for path in [device.front(), device.back(), device.kept()] {
            match store.rm(tx, &path) {
                Err(Error::Refused(Errno::ENOENT)) => {}
                other => other?,
            }
        }
        Ok(())
    })
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
    use crate::domain::execute::write_nodes;
    use xen_sys::fake::FakeStore;

    const NOW: Duration = Duration::ZERO;

    fn device() -> Device {
        Device {
            kind: "vif",
            domid: DomId(5),
            backend: DomId(0),
            devid: 1,
        }
    }

    fn written() -> (FakeStore, Client) {
        let store = FakeStore::default();
        let mut client = Client::fake(&store);
        let nodes = device().nodes(&[("mac", "m".into())], &[("script", "/s".into())]);
        assert_eq!(script(&nodes), Some("/s"));
        write_nodes(&mut client, &nodes).unwrap();
        (store, client)
    }

    #[test]
    fn the_script_or_the_daemon_is_waited_for() {
        let (store, mut client) = written();
        let back = device().back();
        let mut now = || wait_ready(&mut client, &device(), NOW).unwrap();
        assert_eq!(now(), Ready::Silence);
        store.set(&format!("{back}/physical-device"), "8:1");
        assert_eq!(now(), Ready::Yes);
        store.set(&format!("{back}/hotplug-status"), "connected");
        assert_eq!(now(), Ready::Yes);
        store.set(&format!("{back}/hotplug-error"), "no bridge");
        assert_eq!(now(), Ready::No("no bridge".into()));
    }

    #[test]
    fn a_device_goes_when_its_ends_let_go_or_never() {
        for answers in [true, false] {
            let (store, mut client) = written();
            store.respond(Box::new(move |path, value| {
                match path.ends_with("/state") && value == CLOSING && answers {
                    true => vec![(path.to_owned(), CLOSED.to_owned())],
                    false => Vec::new(),
                }
            }));
            assert_eq!(numbers(&mut client, DomId(5), "vif").unwrap(), [1]);
            assert_eq!(close(&mut client, &device(), NOW).unwrap(), answers);
            remove(&mut client, &device()).unwrap();
            for path in [device().front(), device().back(), device().kept()] {
                assert!(store.get(&path).is_none());
            }
            // Again, with nothing there.
            assert!(close(&mut client, &device(), NOW).unwrap());
            remove(&mut client, &device()).unwrap();
            assert!(numbers(&mut client, DomId(6), "vif").unwrap().is_empty());
        }
    }
}
