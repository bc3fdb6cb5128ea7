//! A network interface: into its bridge.

use super::device::{Device, INIT_WAIT};
use super::disk::Outcome;
use super::system::System;
use std::io;
use xen_sys::xenstore::{Client, Result};

/// An interface as its nodes describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vif {
    /// The kernel's name for it.
    pub kernel_name: String,
    /// The name that it is to have.
    pub name: String,
    /// Its bridge, if it has one.
    pub bridge: Option<String>,
    /// Largest packet in bytes, if it is not to be the kernel's choice.
    pub mtu: Option<u32>,
}

/// What the nodes say.
///
/// # Errors
/// The store does not answer.
pub fn describe(device: Device, store: &mut Client) -> Result<Vif> {
    let mut read = |name: &str| -> Result<Option<String>> {
        Ok(device.read(store, name)?.filter(|v| !v.is_empty()))
    };
    let handle = read("handle")?
        .and_then(|h| h.parse().ok())
        .unwrap_or(device.number);
    let kernel_name = format!("vif{}.{handle}", device.domid);
    Ok(Vif {
        name: read("vifname")?.unwrap_or_else(|| kernel_name.clone()),
        kernel_name,
        bridge: read("bridge")?,
        mtu: read("mtu")?.and_then(|m| m.parse().ok()),
    })
}

/// Brings the interface up, in its bridge, and tells the back end. `make_bridges`: a bridge that is not there is made.
///
/// # Errors
/// The store does not answer.
pub fn connect(
    device: Device,
    store: &mut Client,
    system: &mut impl System,
    make_bridges: bool,
) -> Result<Outcome> {
    // Before, there is no interface.
    if device.state(store)? < INIT_WAIT {
        return Ok(Outcome::Nothing);
    }
    let vif = describe(device, store)?;
    if !system.interface_exists(&vif.name) && !system.interface_exists(&vif.kernel_name) {
        return Ok(Outcome::Nothing);
    }
    match attach(&vif, system, make_bridges) {
        Ok(()) => match device.write(store, &[("hotplug-status", "connected")])? {
            true => Ok(Outcome::Ready(None)),
            false => Ok(Outcome::Nothing),
        },
        Err(reason) => Ok(Outcome::Failed(format!("{}: {reason}", vif.name))),
    }
}

fn attach(
    vif: &Vif,
    system: &mut impl System,
    make_bridges: bool,
) -> std::result::Result<(), String> {
    let name = &vif.name;
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    if !system.interface_exists(name) {
        system
            .rename_interface(&vif.kernel_name, name)
            .map_err(told("cannot be renamed"))?;
    }
    if let Some(mtu) = vif.mtu {
        system
            .set_mtu(name, mtu)
            .map_err(told(&format!("no MTU of {mtu}")))?;
    }
    if let Some(bridge) = &vif.bridge {
        if !system.interface_exists(bridge) {
            if !make_bridges {
                return Err(format!(
                    "there is no bridge {bridge}; make one with `ip link add {bridge} type bridge`"
                ));
            }
            system
                .make_bridge(bridge)
                .map_err(told(&format!("no bridge {bridge}")))?;
        }
        system
            .join_bridge(bridge, name)
            .map_err(told(&format!("not into bridge {bridge}")))?;
    }
    system.bring_up(name).map_err(told("does not go up"))
}
