//! Ending a domain: its devices, its part of the store, its files, itself. The undo of a failed create is made of the same.

use super::system::System;
use crate::cmd::failure::{Failure, Outcome, Result};
use crate::device::Device;
use xen_abi::{DomId, Errno};
use xen_sys::xenstore::{Client, Error, Transaction};

const NONE: Transaction = Transaction::NONE;
/// XenbusState.
const CLOSING: &str = "5";
/// XenbusState.
pub const CLOSED: &str = "6";
/// How long a back end of a dead domain gets to close, in seconds.
const CLOSE: u64 = 10;

/// Where the toolstack keeps what it knows of a running domain: `libxl-json` or `xl`.
pub fn userdata(domid: DomId, uuid: &str, kind: &str) -> String {
    format!("/var/lib/xen/userdata-d.{}.{uuid}.{kind}", domid.0)
}

fn read(store: &mut Client, path: &str) -> Option<String> {
    let value = store.read(NONE, path).ok()?;
    Some(String::from_utf8_lossy(&value).into_owned())
}

/// The devices that the toolstack has made for a domain.
///
/// # Errors
/// If the store is out of reach.
pub fn devices(sys: &mut impl System, domid: DomId) -> Result<Vec<Device>> {
    let store = sys.store()?;
    let mut found = Vec::new();
    for kind in ["vbd", "vif"] {
        let dir = format!("/libxl/{}/device/{kind}", domid.0);
        for devid in store.list(NONE, &dir).unwrap_or_default() {
            let back = read(store, &format!("{dir}/{devid}/backend")).unwrap_or_default();
            let backend = back.split('/').nth(3).and_then(|n| n.parse().ok());
            if let (Ok(devid), Some(backend)) = (devid.parse(), backend) {
                found.push(Device {
                    kind,
                    domid,
                    backend: DomId(backend),
                    devid,
                });
            }
        }
    }
    Ok(found)
}

/// Closes a device and removes its nodes. `dead`: the guest will not close its end.
///
/// # Errors
/// If the store is out of reach.
pub fn device(sys: &mut impl System, device: &Device, dead: bool) -> Outcome {
    let (front, back) = (device.front(), device.back());
    let store = sys.store()?;
    let script = read(store, &format!("{back}/script"));
    if read(store, &format!("{back}/state")).is_some() {
        write(store, &format!("{back}/online"), "0")?;
        write(store, &format!("{back}/state"), CLOSING)?;
        // What the guest would do; the back end then lets go of what it has mapped.
        if dead && read(store, &format!("{front}/state")).is_some() {
            write(store, &format!("{front}/state"), CLOSED)?;
        }
        let closed = |state: Option<&str>| matches!(state, None | Some("6" | "0"));
        sys.wait(&format!("{back}/state"), &closed, CLOSE)?;
        if let Some(script) = script {
            let action = if device.kind == "vif" {
                "offline"
            } else {
                "remove"
            };
            // What cannot be undone must not keep the rest from being removed.
            let _ = sys.script(&script, action, &device.back_relative());
        }
    }
    let store = sys.store()?;
    for path in [front, back, device.kept()] {
        remove(store, &path)?;
    }
    prune(store, device)
}

/// Removes the directories above a back end that have become empty.
fn prune(store: &mut Client, device: &Device) -> Outcome {
    let back = device.back();
    let above = back.rsplit_once('/').map_or("", |(dir, _)| dir);
    if store.list(NONE, above).is_ok_and(|l| l.is_empty()) {
        remove(store, above)?;
    }
    Ok(())
}

fn write(store: &mut Client, path: &str, value: &str) -> Outcome {
    Ok(store.write(NONE, path, value.as_bytes())?)
}

/// Removes a node; one that is not there is no error.
fn remove(store: &mut Client, path: &str) -> Outcome {
    match store.rm(NONE, path) {
        Err(Error::Refused(Errno::ENOENT)) => Ok(()),
        other => Ok(other?),
    }
}

/// Removes a domain's part of the store.
///
/// # Errors
/// If the store is out of reach.
pub fn nodes(sys: &mut impl System, domid: DomId, uuid: &str) -> Outcome {
    let store = sys.store()?;
    for path in [
        format!("/local/domain/0/backend/console/{}", domid.0),
        format!("/vm/{uuid}"),
        format!("/local/domain/{}", domid.0),
        format!("/libxl/{}", domid.0),
    ] {
        remove(store, &path)?;
    }
    Ok(())
}

/// Removes a domain's files.
pub fn files(sys: &mut impl System, domid: DomId, uuid: &str) {
    for kind in ["libxl-json", "xl"] {
        // A file that stays behind belongs to a number and an identity that nobody has any more.
        let _ = sys.remove(&userdata(domid, uuid, kind));
    }
}

/// Ends a domain, whatever it is doing.
///
/// # Errors
/// The first thing that went wrong; the rest is done nevertheless.
pub fn destroy(sys: &mut impl System, domid: DomId, uuid: &str) -> Outcome {
    let mut first: Outcome = Ok(());
    let mut note = |result: Outcome| {
        if first.is_ok() {
            first = result;
        }
    };
    let gone = |e: &std::io::Error| xen_sys::errno_of(e) == Some(Errno::ESRCH as i32);
    match sys.pause(domid) {
        Err(e) if !gone(&e) => note(Err(Failure::new(format!("cannot pause it: {e}")))),
        _ => {}
    }
    match devices(sys, domid) {
        Ok(devices) => {
            for d in devices {
                note(device(sys, &d, true));
            }
        }
        Err(error) => note(Err(error)),
    }
    note(nodes(sys, domid, uuid));
    files(sys, domid, uuid);
    note(
        sys.destroy(domid)
            .map_err(|e| Failure::new(format!("cannot destroy it: {e}"))),
    );
    first
}
