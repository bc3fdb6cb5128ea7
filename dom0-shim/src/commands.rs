//! The sub-commands of the program.

use crate::service;

/// Their names.
pub fn names() -> Vec<&'static str> {
    service::names().collect()
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
    service::run(command, args)
}
