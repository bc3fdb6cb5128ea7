//! The steps of the file, done.

use super::conf::Step;
use super::{dom0, modules};
use crate::service;
use rustix::mount::{MountFlags, mount};
use std::process::{Child, Command, Stdio};
use xen_sys::net::Network;

/// Source, place, type of what is mounted first.
const MOUNTS: [(&str, &str); 6] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),
];

/// Mounts what every system has.
pub fn mounts(say: &mut dyn FnMut(&str)) {
    for (kind, place) in MOUNTS {
        mounted(kind, place, say);
    }
    for dir in [
        "/dev/shm",
        "/run/xen",
        "/run/lock",
        "/var/log/xen/console",
        "/var/lib/xen",
    ] {
        if let Err(error) = std::fs::create_dir_all(dir) {
            say(&format!("{dir}: {error}"));
        }
    }
    if !std::path::Path::new("/var/run").exists() {
        // Only old programs look there.
        let _ = std::os::unix::fs::symlink("/run", "/var/run");
    }
}

fn mounted(kind: &str, place: &str, say: &mut dyn FnMut(&str)) {
    // Where it is, or cannot be, the mount says why.
    let _ = std::fs::create_dir_all(place);
    match mount(kind, place, kind, MountFlags::empty(), None) {
        Ok(()) | Err(rustix::io::Errno::BUSY) => {}
        Err(error) => say(&format!("{place}: {error}")),
    }
}

/// A process that a step started and that is to be kept running.
pub struct Started {
    /// Name and arguments.
    pub command: Vec<String>,
    /// The process.
    pub child: Child,
}

/// Does a step; what it started is to be kept running.
///
/// # Errors
/// One line that says what does not work; the steps behind it are done all the same.
pub fn run(step: &Step, say: &mut dyn FnMut(&str)) -> Result<Vec<Started>, String> {
    match step {
        Step::Hostname(name) => {
            rustix::system::sethostname(name.as_bytes()).map_err(|e| format!("hostname: {e}"))?;
        }
        Step::Module(name) => match modules::load(name)? {
            true => {}
            false => {
                return Err(format!(
                    "module {name}: the kernel has none (it may be built in)"
                ));
            }
        },
        Step::Bridge(name, address, ports) => bridge(name, *address, ports)?,
        Step::Services(commands) => return services(commands, say),
        // Process 1 sees to those.
        Step::Run(_) | Step::Shell(_) => {}
    }
    Ok(Vec::new())
}

/// A program with its arguments.
///
/// # Errors
/// There is none.
pub fn program(command: &[String]) -> Result<Command, String> {
    let (program, args) = command.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

fn bridge(
    name: &str,
    address: Option<(std::net::Ipv4Addr, u32)>,
    ports: &[String],
) -> Result<(), String> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| format!("bridge {name}: {what}{error}")
    };
    modules::load("bridge")?;
    let network = Network::open().map_err(told(""))?;
    if !network.exists(name) {
        network.add_bridge(name).map_err(told(""))?;
    }
    if let Some((address, bits)) = address {
        network
            .set_address(name, address, bits)
            .map_err(told("no address: "))?;
    }
    network.up(name, true).map_err(told(""))?;
    for port in ports {
        let joined = network
            .up(port, true)
            .and_then(|()| network.add_port(name, port));
        joined.map_err(told(&format!("port {port}: ")))?;
    }
    Ok(())
}

fn services(commands: &[Vec<String>], say: &mut dyn FnMut(&str)) -> Result<Vec<Started>, String> {
    for module in modules::DOM0 {
        if let Err(error) = modules::load(module) {
            say(&error);
        }
    }
    if let Ok(network) = Network::open() {
        // Programs of dom0 may speak with each other over it; nothing here needs it.
        let _ = network.set_address("lo", std::net::Ipv4Addr::LOCALHOST, 8);
        let _ = network.up("lo", true);
    }
    if !std::path::Path::new("/proc/xen").exists() {
        return Err("there is no Xen below this kernel: no services".into());
    }
    mounted("xenfs", "/proc/xen", say);
    let capabilities = std::fs::read_to_string("/proc/xen/capabilities").unwrap_or_default();
    if !capabilities.contains("control_d") {
        return Err("this is not the control domain: no services".into());
    }
    let mut started = Vec::new();
    for command in commands {
        match service(command) {
            Ok(child) => started.push(Started {
                command: command.clone(),
                child,
            }),
            Err(error) => say(&error),
        }
        // The others need it.
        if command[0] == "xenstored"
            && let Err(error) = dom0::run()
        {
            say(&format!("domain 0: {error}"));
        }
    }
    Ok(started)
}

/// Starts a service of this program, or another program, and waits until it is ready.
///
/// # Errors
/// One line that says why it does not start.
pub fn service(command: &[String]) -> Result<Child, String> {
    let (name, args) = command.split_first().ok_or("no service")?;
    if service::names().any(|n| n == name) {
        return service::spawn(name, args);
    }
    let child = program(command)?.stdin(Stdio::null()).spawn();
    child.map_err(|e| format!("{name}: {e}"))
}
