//! The file that keeps the state over a restart of the daemon.

use super::host::Host;
use super::machine::Machine;
use super::server::Server;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use xen_abi::DomId;

/// Differs from boot to boot: after one, the old state means nothing.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Replaces the file at once: a reader finds the old text or the new one.
///
/// # Errors
/// Those of writing.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(boot_id().as_bytes())?;
    file.write_all(text.as_bytes())?;
    drop(file);
    std::fs::rename(&new, path)
}

/// Takes the state in the file over into an empty server, if there is one of this boot that makes sense; otherwise says
/// why not and starts empty.
pub fn load(path: &Path, empty: Server, machine: &mut Machine) -> Server {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                machine.log(&format!(
                    "{}: {error}; starting with an empty store",
                    path.display()
                ));
            }
            return empty;
        }
    };
    let Some(state) = text.strip_prefix(&boot_id()) else {
        machine.log(&format!(
            "{}: is of another boot; starting with an empty store",
            path.display()
        ));
        return empty;
    };
    let quotas = empty.limits();
    let mut server = empty;
    match server.load(state, machine) {
        Ok(()) => {
            machine.log(&format!(
                "{}: {} nodes and {} domains taken over",
                path.display(),
                server.tree().len(),
                server.connections().count()
            ));
            server
        }
        Err(why) => {
            machine.log(&format!(
                "{}: {why}; starting with an empty store",
                path.display()
            ));
            let connected: Vec<DomId> = server
                .connections()
                .filter_map(|c| server.ring_domain(c))
                .collect();
            connected.iter().for_each(|d| machine.disconnect(*d));
            Server::new(quotas)
        }
    }
}

fn boot_id() -> String {
    // Where it cannot be read, all boots look the same.
    let id = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
    format!("boot {}\n", id.trim())
}
