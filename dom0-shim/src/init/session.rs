//! A shell on the console, with job control: a session of its own whose terminal the console is.

use rustix::process::{ioctl_tiocsctty, setsid};
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Becomes the program, on the console.
///
/// # Errors
/// One line that says why not.
pub fn become_program(command: &[String]) -> Result<(), String> {
    let (program, args) = command.split_first().ok_or("no program")?;
    // A new process that leads no session becomes the leader of one.
    let _ = setsid();
    let path = console();
    let console = OpenOptions::new().read(true).write(true).open(&path);
    let console = console.map_err(|e| format!("{path}: {e}"))?;
    // Without it there is no Ctrl-C, which is no reason to have no shell.
    let _ = ioctl_tiocsctty(&console);
    let copy = || {
        console
            .try_clone()
            .map(Stdio::from)
            .map_err(|e| e.to_string())
    };
    let (input, output) = (copy()?, copy()?);
    let error = Command::new(program)
        .args(args)
        .stdin(input)
        .stdout(output)
        .stderr(copy()?)
        .exec();
    Err(format!("{program}: {error}"))
}

/// The device behind `/dev/console`, which itself cannot be a terminal of a session.
fn console() -> String {
    let active = std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    let last = active.split_whitespace().last().unwrap_or("console");
    format!("/dev/{last}")
}
