//! A disk: which block device it is.

use super::device::{Device, Kind};
use super::system::{System, Target};
use std::path::{Path, PathBuf};
use xen_sys::xenstore::{Client, Result};

/// A disk as its nodes describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The file or block device.
    pub path: PathBuf,
    /// The guest may write.
    pub writable: bool,
    /// Somebody else may write at the same time: the administrator says that it knows what it does.
    pub shared: bool,
}

/// What became of a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is ready; the loop device that was made for it.
    Ready(Option<u32>),
    /// It cannot be: one line that says why.
    Failed(String),
    /// Its nodes are not complete or not there any more.
    Nothing,
}

/// What the nodes say. `None` if they are not complete, or name no disk of this kind.
///
/// # Errors
/// The store does not answer.
pub fn describe(device: Device, store: &mut Client) -> Result<Option<Disk>> {
    let Some(params) = device.read(store, "params")?.filter(|p| !p.is_empty()) else {
        return Ok(None);
    };
    let mode = device.read(store, "mode")?.unwrap_or_default();
    Ok(Some(Disk {
        path: path_of(&params),
        writable: mode.starts_with('w'),
        shared: mode.ends_with('!'),
    }))
}

/// `params` as a path: older toolstacks leave a prefix, and a name without a slash is below `/dev`.
fn path_of(params: &str) -> PathBuf {
    let plain = ["phy:", "file:", "raw:"]
        .iter()
        .find_map(|p| params.strip_prefix(p));
    let plain = plain.unwrap_or(params);
    Path::new("/dev").join(plain)
}

/// Finds or makes the block device and tells the back end.
///
/// # Errors
/// The store does not answer.
pub fn connect(device: Device, store: &mut Client, system: &mut impl System) -> Result<Outcome> {
    let Some(disk) = describe(device, store)? else {
        return Ok(Outcome::Nothing);
    };
    let name = disk.path.display().to_string();
    let outcome = match attach(device, &disk, store, system)? {
        Ok((number, target, node)) => {
            let nodes = [
                ("physical-device", target.as_str()),
                ("physical-device-path", &node),
                ("node", &node),
                ("hotplug-status", "connected"),
            ];
            // A block device of the administrator's is no node of ours.
            let nodes: Vec<(&str, &str)> = nodes
                .into_iter()
                .filter(|(n, _)| *n != "node" || number.is_some())
                .collect();
            match device.write(store, &nodes)? {
                true => Outcome::Ready(number),
                false => {
                    number.map(|n| system.detach_loop(n));
                    Outcome::Nothing
                }
            }
        }
        Err(reason) => Outcome::Failed(format!("{name}: {reason}")),
    };
    Ok(outcome)
}

type Attached = (Option<u32>, String, String);

fn attach(
    device: Device,
    disk: &Disk,
    store: &mut Client,
    system: &mut impl System,
) -> Result<std::result::Result<Attached, String>> {
    let target = match system.target(&disk.path) {
        Ok(target) => target,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Some(reason) = conflict(device, disk, target, store, system)? {
        return Ok(Err(reason));
    }
    if let Target::Block(number) = target {
        let text = format!("{:x}:{:x}", number.major, number.minor);
        return Ok(Ok((None, text, disk.path.display().to_string())));
    }
    let number = match system.attach_loop(&disk.path, !disk.writable) {
        Ok(number) => number,
        Err(error) => return Ok(Err(format!("no loop device: {error}"))),
    };
    let node = format!("/dev/loop{number}");
    match system.target(Path::new(&node)) {
        Ok(Target::Block(n)) => Ok(Ok((
            Some(number),
            format!("{:x}:{:x}", n.major, n.minor),
            node,
        ))),
        _ => {
            // It was made a moment ago.
            let _ = system.detach_loop(number);
            Ok(Err(format!("{node} is no block device")))
        }
    }
}

/// Why the disk must not be connected: another guest has the same one and one of them may write.
fn conflict(
    device: Device,
    disk: &Disk,
    target: Target,
    store: &mut Client,
    system: &mut impl System,
) -> Result<Option<String>> {
    if disk.shared {
        return Ok(None);
    }
    for other in Device::all(Kind::Vbd, store)?
        .into_iter()
        .filter(|d| *d != device)
    {
        if other.read(store, "hotplug-status")?.as_deref() != Some("connected") {
            continue;
        }
        let Some(theirs) = describe(other, store)? else {
            continue;
        };
        let same = system.target(&theirs.path).is_ok_and(|t| t == target);
        if same && (disk.writable || theirs.writable) {
            let (ours, them) = (words(disk.writable), words(theirs.writable));
            let text = format!(
                "domain {} uses it ({them}; wanted {ours}); mode w! allows it",
                other.domid
            );
            return Ok(Some(text));
        }
    }
    Ok(None)
}

fn words(writable: bool) -> &'static str {
    if writable {
        "read and write"
    } else {
        "read only"
    }
}

/// The loop device that an earlier run made for a disk, by its nodes.
///
/// # Errors
/// The store does not answer.
pub fn made_before(device: Device, store: &mut Client) -> Result<Option<u32>> {
    let node = device.read(store, "node")?;
    Ok(node.and_then(|n| n.strip_prefix("/dev/loop")?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params() {
        assert_eq!(path_of("/dev/vg/guest"), Path::new("/dev/vg/guest"));
        assert_eq!(path_of("phy:vg/guest"), Path::new("/dev/vg/guest"));
        assert_eq!(path_of("file:/srv/a b.img"), Path::new("/srv/a b.img"));
    }
}
