//! Starting a service: in the foreground, or in the background once it is ready.

use crate::{backend, consoled, xenstored};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Set for the process in the background: it says on its standard output when it is ready.
const BACKGROUND: &str = "DOM0_SHIM_BACKGROUND";
const READY: &str = "ready";
/// Where the logs of services in the background go unless something else is asked for.
const LOGS: &str = "/var/log/xen";

/// What a service is given to tell the administrator.
pub type Say = Box<dyn FnMut(&str)>;
/// What a service calls when it is ready.
pub type Ready = Box<dyn FnOnce()>;
/// A service that can begin.
type Body = Box<dyn FnOnce(Say, Ready) -> Result<(), String>>;

/// Reads a service's command line.
type Parse = fn(&[String]) -> Result<Service, String>;

/// A service as its command line wants it.
struct Service {
    foreground: bool,
    /// Where its log goes, if not to the usual place.
    log: Option<PathBuf>,
    body: Body,
}

/// The sub-commands that are services, and what reads their command lines.
const SERVICES: &[(&str, Parse)] = &[
    ("xenstored", store),
    ("xenconsoled", consoles),
    ("devd", devices),
];

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(Into::into)
}

fn store(args: &[String]) -> Result<Service, String> {
    let options = xenstored::options::Options::parse(args, variable)?;
    Ok(Service {
        foreground: options.no_fork,
        log: options.trace_file.clone(),
        body: Box::new(|say, ready| xenstored::daemon::run(options, say, ready)),
    })
}

fn consoles(args: &[String]) -> Result<Service, String> {
    let options = consoled::options::Options::parse(args, variable)?;
    Ok(Service {
        foreground: options.foreground,
        log: None,
        body: Box::new(|say, ready| consoled::daemon::run(options, say, ready)),
    })
}

fn devices(args: &[String]) -> Result<Service, String> {
    let options = backend::options::Options::parse(args)?;
    Ok(Service {
        foreground: options.foreground,
        log: None,
        body: Box::new(|say, ready| backend::daemon::run(options, say, ready)),
    })
}

/// Names of the services.
pub fn names() -> impl Iterator<Item = &'static str> {
    SERVICES.iter().map(|(name, _)| *name)
}

/// Runs a service.
///
/// # Errors
/// One line that says why not.
pub fn run(name: &str, args: &[String]) -> Result<(), String> {
    let found = SERVICES.iter().find(|(n, _)| *n == name);
    let (_, parse) = found.ok_or_else(|| format!("there is no service {name}"))?;
    let service = parse(args)?;
    let background = std::env::var_os(BACKGROUND).is_some();
    match service.foreground || background {
        true => foreground(name, service, background),
        false => behind(name, args),
    }
}

fn foreground(name: &str, service: Service, background: bool) -> Result<(), String> {
    if background {
        // Already the leader of a session if whoever started it saw to that.
        let _ = rustix::process::setsid();
    }
    let usual = || background.then(|| Path::new(LOGS).join(format!("{name}.log")));
    let file = service.log.clone().or_else(usual);
    let name = name.to_owned();
    let log: Say = match file.as_deref().map(open_log) {
        Some(Err(error)) if service.log.is_some() => {
            return Err(format!("the log cannot be written: {error}"));
        }
        // Without a place for the default log there is none.
        Some(Err(_)) => Box::new(|_| {}),
        Some(Ok(mut file)) => Box::new(move |line| _ = writeln!(file, "{name}: {line}")),
        None => Box::new(move |line| _ = writeln!(io::stderr(), "{name}: {line}")),
    };
    let ready = move || {
        if background {
            let _ = writeln!(io::stdout(), "{READY}");
        }
        tell_service_manager();
    };
    (service.body)(log, Box::new(ready))
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// Starts this program again in the background and returns once it is ready.
fn behind(command: &str, args: &[String]) -> Result<(), String> {
    spawn(command, args).map(drop)
}

/// Starts a service as a process of its own and returns once it is ready.
///
/// # Errors
/// One line that says why it does not start.
pub fn spawn(command: &str, args: &[String]) -> Result<Child, String> {
    let mut child = Command::new("/proc/self/exe")
        .arg0(command)
        .args(args)
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{command}: cannot start in the background: {e}"))?;
    let output = child
        .stdout
        .take()
        .ok_or("cannot hear from the process in the background")?;
    for line in BufReader::new(output).lines() {
        match line {
            Ok(line) if line == READY => return Ok(child),
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
    Err(format!("{command} did not start: {status}"))
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
