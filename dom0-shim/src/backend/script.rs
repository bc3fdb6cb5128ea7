//! In place of the scripts that Xen's toolstack runs (`/etc/xen/scripts/block`, `vif-bridge`): one device, one step.

use super::device::{Device, Kind};
use super::disk::{self, Outcome};
use super::system::System;
use super::vif;
use std::time::{Duration, Instant};
use xen_sys::xenstore::{Client, Error};

/// How long an interface may take to appear.
const PATIENCE: Duration = Duration::from_secs(10);

/// Names under which the program is such a script.
pub const NAMES: [&str; 2] = ["block", "vif-bridge"];

/// Does what the script of that name does. The device is the one that `XENBUS_PATH` (`xenbus_path`) names.
///
/// # Errors
/// One line that says what does not work; it is in the store, too.
pub fn run(
    name: &str,
    args: &[String],
    xenbus_path: Option<&str>,
    store: &mut Client,
    system: &mut impl System,
) -> Result<(), String> {
    let path =
        xenbus_path.ok_or("XENBUS_PATH is not set: the toolstack runs this, not a person")?;
    let kind = if name == "block" {
        Kind::Vbd
    } else {
        Kind::Vif
    };
    let device = Device::of(path).filter(|d| d.kind == kind);
    let device = device.ok_or_else(|| format!("XENBUS_PATH {path:?} names no {}", kind.name()))?;
    let told = |e: Error| e.to_string();
    let reason = match args.first().map(String::as_str) {
        Some("add" | "online") => match connect(device, store, system).map_err(told)? {
            Outcome::Ready(_) => return Ok(()),
            Outcome::Failed(reason) => reason,
            Outcome::Nothing => format!("{}: there is no such device", device.path()),
        },
        Some("remove" | "offline") => return disconnect(device, store, system).map_err(told),
        other => return Err(format!("unknown step {}", other.unwrap_or("\"\""))),
    };
    let nodes = [
        ("hotplug-error", reason.as_str()),
        ("hotplug-status", "error"),
    ];
    device.write(store, &nodes).map_err(told)?;
    Err(reason)
}

fn connect(
    device: Device,
    store: &mut Client,
    system: &mut impl System,
) -> xen_sys::xenstore::Result<Outcome> {
    let start = Instant::now();
    loop {
        let outcome = match device.kind {
            Kind::Vbd => return disk::connect(device, store, system),
            Kind::Vif => vif::connect(device, store, system, false)?,
        };
        if outcome != Outcome::Nothing || start.elapsed() > PATIENCE {
            return Ok(outcome);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn disconnect(
    device: Device,
    store: &mut Client,
    system: &mut impl System,
) -> xen_sys::xenstore::Result<()> {
    match device.kind {
        Kind::Vbd => {
            if let Some(number) = disk::made_before(device, store)? {
                // If it is gone there is nothing left to do.
                let _ = system.detach_loop(number);
            }
        }
        Kind::Vif => {
            let vif = vif::describe(device, store)?;
            system.take_down(vif.bridge.as_deref(), &vif.name);
        }
    }
    Ok(())
}
