//! Starting a service: in the foreground, or in the background once it is ready.

use crate::xenstored::{daemon, options::Options};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The sub-commands.
pub const COMMANDS: &[&str] = &["xenstored"];
/// Set for the process in the background: it says on its standard output when it is ready.
const BACKGROUND: &str = "DOM0_SHIM_BACKGROUND";
const READY: &str = "ready";
/// Where the log of a service in the background goes unless something else is asked for.
const LOG: &str = "/var/log/xen/xenstored.log";

/// How it ended.
#[derive(Debug)]
pub enum Outcome {
    /// Well.
    Done,
    /// With something to tell.
    Failed(String),
}

/// Whether there is a sub-command of that name.
pub fn is_command(name: &str) -> bool {
    COMMANDS.contains(&name)
}

/// Runs a sub-command.
pub fn run(command: &str, args: &[String]) -> Outcome {
    let options = match Options::parse(args, |name| std::env::var_os(name).map(Into::into)) {
        Ok(options) => options,
        Err(message) => return Outcome::Failed(message),
    };
    let background = std::env::var_os(BACKGROUND).is_some();
    let result = match options.no_fork || background {
        true => foreground(options, background),
        false => behind(command, args),
    };
    result.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

fn foreground(options: Options, background: bool) -> Result<(), String> {
    if background {
        // Already the leader of a session if whoever started it saw to that.
        let _ = rustix::process::setsid();
    }
    let file = options
        .trace_file
        .as_deref()
        .or(background.then_some(Path::new(LOG)));
    let log = match file.map(open_log) {
        Some(Err(error)) if options.trace_file.is_some() => {
            return Err(format!("the log cannot be written: {error}"));
        }
        // Without a place for the default log there is none.
        Some(Err(_)) => Box::new(|_: &str| {}) as Box<dyn FnMut(&str)>,
        Some(Ok(mut file)) => Box::new(move |line: &str| _ = writeln!(file, "xenstored: {line}")),
        None => Box::new(|line: &str| _ = writeln!(io::stderr(), "xenstored: {line}")),
    };
    daemon::run(options, log, move || {
        if background {
            let _ = writeln!(io::stdout(), "{READY}");
        }
        tell_service_manager();
    })
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// Starts this program again in the background and returns once it is ready.
fn behind(command: &str, args: &[String]) -> Result<(), String> {
    let mut child = Command::new("/proc/self/exe")
        .arg0(command)
        .args(args)
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start in the background: {e}"))?;
    let output = child
        .stdout
        .take()
        .ok_or("cannot hear from the process in the background")?;
    for line in BufReader::new(output).lines() {
        match line {
            Ok(line) if line == READY => return Ok(()),
            // The process number, if that was asked for.
            Ok(line) => println!("{line}"),
            Err(error) => {
                return Err(format!(
                    "cannot hear from the process in the background: {error}"
                ));
            }
        }
    }
    // It has said why.
    let status = child.wait().map_err(|e| e.to_string())?;
    Err(format!("did not start: {status}"))
}

/// Tells a service manager that asked for it (`sd_notify`).
fn tell_service_manager() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Ok(socket) = UnixDatagram::unbound() {
        // If the manager is gone there is nobody to tell.
        let _ = socket.send_to(b"READY=1", path);
    }
}
