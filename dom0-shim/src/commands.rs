//! The sub-commands of the program.

use crate::backend::linux::Linux;
use crate::backend::script;
use crate::{init, service};
use xen_sys::xenstore::Client;

/// Those that are no services.
const OTHERS: [&str; 3] = ["init", "session", "xen-init-dom0"];

/// Their names.
pub fn names() -> Vec<&'static str> {
    service::names()
        .chain(script::NAMES)
        .chain(OTHERS)
        .collect()
}

/// Whether there is a sub-command of that name.
pub fn is_command(name: &str) -> bool {
    names().contains(&name)
}

/// Runs a sub-command.
///
/// # Errors
/// One line that says what went wrong.
pub fn run(command: &str, args: &[String]) -> Result<(), String> {
    match command {
        "init" => return init::run::run(),
        "session" => return init::session::become_program(args),
        "xen-init-dom0" => return init::dom0::run(),
        _ if script::NAMES.contains(&command) => {}
        _ => return service::run(command, args),
    }
    let path = std::env::var("XENBUS_PATH").ok();
    let mut store = Client::open().map_err(|e| e.to_string())?;
    let mut system = Linux::open().map_err(|e| e.to_string())?;
    script::run(command, args, path.as_deref(), &mut store, &mut system)
}
