//! All devices that the store names: each is connected when its nodes are complete, and let go when they go.

use super::device::{CLOSED, CLOSING, Device, INIT_WAIT, Kind};
use super::disk::{self, Outcome};
use super::system::System;
use super::vif::{self, Vif};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use xen_sys::xenstore::{Client, Result};

/// Tokens of watches.
const TOKEN: &str = "backend";

/// What is kept of a device that was connected.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Held {
    /// A disk, with the loop device that is to be let go.
    Disk(Option<u32>),
    /// An interface.
    Interface(Vif),
    /// It could not be connected, which has been said.
    Failed,
}

/// How devices are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manner {
    /// A bridge that is not there is made.
    pub make_bridges: bool,
    /// Devices are served also if they name a script that the toolstack runs.
    pub always: bool,
}

/// The devices.
pub struct Glue<S> {
    system: S,
    manner: Manner,
    held: BTreeMap<Device, Held>,
    /// Interfaces that the kernel has not made yet.
    waiting: BTreeSet<Device>,
    say: Box<dyn FnMut(&str)>,
}

impl<S: System> Glue<S> {
    /// None yet; `say` takes lines for the administrator.
    pub fn new(system: S, manner: Manner, say: Box<dyn FnMut(&str)>) -> Glue<S> {
        Glue {
            system,
            manner,
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            say,
        }
    }

    /// Asks to be told of devices and serves those that are there. Afterwards each event of the store goes to
    /// [`Glue::event`].
    ///
    /// # Errors
    /// The store does not answer.
    pub fn begin(&mut self, store: &mut Client) -> Result<()> {
        for kind in Kind::ALL {
            store.watch(&format!("backend/{}", kind.name()), TOKEN)?;
        }
        // What went while nobody looked.
        for device in self.held.keys().copied().collect::<Vec<_>>() {
            self.look(device, store)?;
        }
        for kind in Kind::ALL {
            for device in Device::all(kind, store)? {
                self.look(device, store)?;
            }
        }
        Ok(())
    }

    /// Something changed at a path.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn event(&mut self, path: &str, store: &mut Client) -> Result<()> {
        if let Some(device) = Device::of(path) {
            return self.look(device, store);
        }
        // A whole kind, or all devices of a guest, went at once.
        let path = &path[path.find("backend/").unwrap_or(0)..];
        let gone = |d: &Device| d.path().starts_with(&format!("{path}/"));
        for device in self.held.keys().copied().filter(gone).collect::<Vec<_>>() {
            self.look(device, store)?;
        }
        Ok(())
    }

    /// Looks again at interfaces that the kernel had not made.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn tick(&mut self, store: &mut Client) -> Result<()> {
        for device in std::mem::take(&mut self.waiting) {
            self.look(device, store)?;
        }
        Ok(())
    }

    /// Whether [`Glue::tick`] is to be called soon.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn look(&mut self, device: Device, store: &mut Client) -> Result<()> {
        self.waiting.remove(&device);
        let there = device.read(store, "frontend")?.is_some();
        let state = device.state(store)?;
        if !there || state == CLOSED {
            self.let_go(device);
            return Ok(());
        }
        if state == CLOSING || self.held.contains_key(&device) {
            return Ok(());
        }
        if !self.manner.always && self.is_anothers(device, store)? {
            return Ok(());
        }
        // An earlier run of this program did it.
        if device.read(store, "hotplug-status")?.as_deref() == Some("connected") {
            let held = match device.kind {
                Kind::Vbd => Held::Disk(disk::made_before(device, store)?),
                Kind::Vif => Held::Interface(vif::describe(device, store)?),
            };
            self.held.insert(device, held);
            return Ok(());
        }
        let outcome = match device.kind {
            Kind::Vbd => disk::connect(device, store, &mut self.system)?,
            Kind::Vif => vif::connect(device, store, &mut self.system, self.manner.make_bridges)?,
        };
        match outcome {
            Outcome::Ready(number) => {
                let held = match device.kind {
                    Kind::Vbd => Held::Disk(number),
                    Kind::Vif => Held::Interface(vif::describe(device, store)?),
                };
                self.held.insert(device, held);
            }
            Outcome::Failed(reason) => {
                (self.say)(&format!("{}: {reason}", device.path()));
                self.held.insert(device, Held::Failed);
                device.write(
                    store,
                    &[("hotplug-error", &reason), ("hotplug-status", "error")],
                )?;
            }
            // The kernel says that the device is there a moment before the interface is.
            Outcome::Nothing if device.kind == Kind::Vif && state >= INIT_WAIT => {
                self.waiting.insert(device);
            }
            Outcome::Nothing => {}
        }
        Ok(())
    }

    /// Whether the toolstack runs a script for the device itself, as Xen's does; ours says that it leaves it to this program.
    fn is_anothers(&mut self, device: Device, store: &mut Client) -> Result<bool> {
        let script = device.read(store, "script")?.unwrap_or_default();
        let by = device.read(store, "hotplug-by")?;
        Ok(by.as_deref() != Some("devd") && self.system.is_program(Path::new(&script)))
    }

    fn let_go(&mut self, device: Device) {
        match self.held.remove(&device) {
            Some(Held::Disk(Some(number))) => {
                if let Err(error) = self.system.detach_loop(number) {
                    (self.say)(&format!(
                        "{}: /dev/loop{number} stays: {error}",
                        device.path()
                    ));
                }
            }
            Some(Held::Interface(vif)) => self.system.take_down(vif.bridge.as_deref(), &vif.name),
            _ => {}
        }
    }
}
