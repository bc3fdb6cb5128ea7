//! The end: guests first, then services, then everything else.

use rustix::fs::sync;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::system::{RebootCommand, reboot};
use std::path::Path;
use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_sys::domctl::Control;
use xen_sys::xenstore::{Client, Transaction};

/// How long guests may take to shut down.
const GUESTS: Duration = Duration::from_secs(60);
/// How long processes may take to end before they are ended.
const PROCESSES: Duration = Duration::from_secs(5);
/// How long the kernel may take to let the devices of guests that are gone go.
const DEVICES: Duration = Duration::from_secs(10);
/// Where it has them until it has done with them; from its buses they go earlier.
const BACK_ENDS: &str = "/sys/devices/xen-backend";

/// How the machine ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Off.
    PowerOff,
    /// Again from the beginning.
    Reboot,
    /// Stopped.
    Halt,
}

/// Asks all guests to shut down and waits for them, not for ever. `say` takes lines for the console.
pub fn guests(say: &mut dyn FnMut(&str)) {
    let (Ok(mut store), Ok(control)) = (Client::open(), Control::open()) else {
        return;
    };
    let domains = store
        .list(Transaction::NONE, "/local/domain")
        .unwrap_or_default();
    let domains = domains.iter().filter_map(|d| d.parse().ok().map(DomId));
    let running = |d: &DomId| {
        control
            .status(*d)
            .is_ok_and(|s| s.is_some_and(|s| !s.shutdown && !s.dying))
    };
    let mut left: Vec<DomId> = domains
        .filter(|d| *d != DomId::DOM0 && running(d))
        .collect();
    if left.is_empty() {
        return;
    }
    say(&format!("asking guests to shut down: {}", left.len()));
    for domid in &left {
        let path = format!("/local/domain/{}/control/shutdown", domid.0);
        // One that cannot be asked is one that is waited for.
        let _ = store.write(Transaction::NONE, &path, b"poweroff");
    }
    let start = Instant::now();
    while !left.is_empty() && start.elapsed() < GUESTS {
        std::thread::sleep(Duration::from_millis(100));
        left.retain(running);
    }
    for domid in left {
        say(&format!(
            "{domid} did not shut down in {} s",
            GUESTS.as_secs()
        ));
    }
}

/// Waits until the kernel has done with the devices of guests that are gone, not for ever. It asks the store about each at the
/// end, a store that has ended never answers, and the kernel does not switch the machine off while it waits for that.
pub fn devices(say: &mut dyn FnMut(&str)) {
    let start = Instant::now();
    while let left @ 1.. = back_ends(Path::new(BACK_ENDS)) {
        if start.elapsed() > DEVICES {
            say(&format!("devices of guests that are still there: {left}"));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Devices there: their names have their kind, their domain and their number.
fn back_ends(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|e| e.file_name().to_string_lossy().matches('-').count() >= 2)
        .count()
}

/// Asks a process to end; a shell on a terminal minds only that its terminal goes.
pub fn ask(pid: u32, shell: bool) {
    signal(pid, if shell { Signal::HUP } else { Signal::TERM });
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone already, then.
        let _ = kill_process(pid, signal);
    }
}

/// Ends every process but this one and `but`: asked first, then made. Must be process 1.
pub fn processes(but: Option<u32>) {
    let others = || others().into_iter().filter(|p| Some(*p) != but);
    for (kind, patience) in [
        (Signal::TERM, PROCESSES),
        (Signal::KILL, Duration::from_secs(1)),
    ] {
        for pid in others() {
            signal(pid, kind);
            // Shells do not mind the first.
            signal(pid, Signal::HUP);
        }
        let start = Instant::now();
        while others().next().is_some() && start.elapsed() < patience {
            super::run::reap(&mut |_, _| {});
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Processes with a program, which those of the kernel have not.
fn others() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|p| *p != 1 && std::fs::read_link(format!("/proc/{p}/exe")).is_ok())
        .collect()
}

/// Writes everything to disks, lets them go, and ends the machine.
///
/// # Errors
/// The kernel does not end it.
pub fn machine(end: End) -> Result<(), String> {
    sync();
    let table = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let disks = table.lines().rev().filter_map(|l| {
        let mut words = l.split(' ');
        words
            .next()
            .filter(|source| source.starts_with("/dev/"))
            .and(words.next())
    });
    for place in disks {
        if unmount(place, UnmountFlags::empty()).is_err() {
            // In use by something that did not end: at least nothing is written any more.
            let _ = mount_remount(place, MountFlags::RDONLY, c"");
        }
    }
    sync();
    let command = match end {
        End::PowerOff => RebootCommand::PowerOff,
        End::Reboot => RebootCommand::Restart,
        End::Halt => RebootCommand::Halt,
    };
    reboot(command).map_err(|e| format!("the kernel does not end the machine: {e}"))
}

#[cfg(test)]
mod tests {
    use super::back_ends;

    #[test]
    fn devices_are_told_from_other_entries() {
        let dir = std::env::temp_dir().join(format!("init-back-ends-{}", std::process::id()));
        for name in ["vif-1-0", "vbd-12-51712", "power", "xen-backend"] {
            std::fs::create_dir_all(dir.join(name)).expect("made");
        }
        std::fs::write(dir.join("uevent"), "").expect("written");
        assert_eq!(back_ends(&dir), 2);
        assert_eq!(back_ends(&dir.join("none")), 0);
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
