//! Back-end directories in the store, `backend/<kind>/<domid>/<number>` below this domain's home.

use xen_sys::xenstore::{Client, Result, Transaction};

/// The state of a back end that waits for its front end (`XenbusStateInitWait`).
pub const INIT_WAIT: u32 = 2;
/// The states in which a back end ends (`Closing`, `Closed`).
pub const CLOSING: u32 = 5;
/// As above.
pub const CLOSED: u32 = 6;

/// What a device is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A disk.
    Vbd,
    /// A network interface.
    Vif,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Vbd, Kind::Vif];

    /// Its name in paths.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vbd => "vbd",
            Kind::Vif => "vif",
        }
    }
}

/// One device of one guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Device {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub domid: u16,
    /// Its number there.
    pub number: u32,
}

impl Device {
    /// The device that a path is of or below, absolute or below this domain's home.
    pub fn of(path: &str) -> Option<Device> {
        let at = path.find("backend/")?;
        let mut parts = path[at..].split('/').skip(1);
        let kind = parts.next()?;
        Some(Device {
            kind: Kind::ALL.into_iter().find(|k| k.name() == kind)?,
            domid: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        })
    }

    /// Its directory, below this domain's home.
    pub fn path(self) -> String {
        format!(
            "backend/{}/{}/{}",
            self.kind.name(),
            self.domid,
            self.number
        )
    }

    /// A node's value; `None` if there is none, or no text.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn read(self, store: &mut Client, name: &str) -> Result<Option<String>> {
        value(store, &format!("{}/{name}", self.path()))
    }

    /// The state of the back end, 0 if there is none.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn state(self, store: &mut Client) -> Result<u32> {
        Ok(self
            .read(store, "state")?
            .and_then(|t| t.parse().ok())
            .unwrap_or(0))
    }

    /// Writes nodes, all or none, if the directory is still there; whether it was.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn write(self, store: &mut Client, nodes: &[(&str, &str)]) -> Result<bool> {
        let path = self.path();
        store.transaction(|store, tx| {
            // A directory that the toolstack has removed must not come to life again.
            let there = optional(store.read(tx, &format!("{path}/frontend")))?.is_some();
            for (name, value) in nodes.iter().filter(|_| there) {
                store.write(tx, &format!("{path}/{name}"), value.as_bytes())?;
            }
            Ok(there)
        })
    }

    /// All devices of a kind.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn all(kind: Kind, store: &mut Client) -> Result<Vec<Device>> {
        let mut found = Vec::new();
        let top = format!("backend/{}", kind.name());
        for domid in list(store, &top)? {
            for number in list(store, &format!("{top}/{domid}"))? {
                found.extend(Device::of(&format!("{top}/{domid}/{number}")));
            }
        }
        Ok(found)
    }
}

fn value(store: &mut Client, path: &str) -> Result<Option<String>> {
    let bytes = optional(store.read(Transaction::NONE, path))?;
    Ok(bytes.and_then(|b| String::from_utf8(b).ok()))
}

fn list(store: &mut Client, path: &str) -> Result<Vec<String>> {
    Ok(optional(store.list(Transaction::NONE, path))?.unwrap_or_default())
}

/// A refusal is an answer too.
fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(xen_sys::xenstore::Error::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let disk = Device {
            kind: Kind::Vbd,
            domid: 3,
            number: 51712,
        };
        assert_eq!(Device::of("backend/vbd/3/51712"), Some(disk));
        assert_eq!(
            Device::of("/local/domain/0/backend/vbd/3/51712/state"),
            Some(disk)
        );
        assert_eq!(Device::of(&disk.path()), Some(disk));
        for path in [
            "backend/vbd",
            "backend/vbd/3",
            "backend/console/3/0",
            "backend/vif/x/0",
            "backend/vif/70000/0",
            "",
        ] {
            assert_eq!(Device::of(path), None, "{path}");
        }
    }
}
