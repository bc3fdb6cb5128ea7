//! Process 1.

use super::children::Children;
use super::conf::{self, Step};
use super::steps::{self, Started};
use super::stop::{self, End};
use crate::signals::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The shell's service name.
const SESSION: &str = "session";
/// How long services may take to end.
const SERVICES: Duration = Duration::from_secs(10);

/// Runs for ever, as process 1.
///
/// # Errors
/// One line that says why it cannot.
pub fn run() -> Result<(), String> {
    if std::process::id() != 1 {
        return Err("this is process 1 of a control domain; in a running system start the services themselves".into());
    }
    let mut say: Box<dyn FnMut(&str)> =
        Box::new(|line| _ = writeln!(std::io::stderr(), "init: {line}"));
    steps::mounts(&mut say);
    let caught = [Signal::Child, Signal::End, Signal::PowerOff, Signal::Halt];
    let mut signals =
        Signals::catch(&caught).map_err(|e| format!("signals cannot be caught: {e}"))?;
    let mut children = Children::default();
    let mut shell = None;
    for step in steps_of_file(&mut say) {
        if let Step::Shell(command) = &step {
            shell = Some(command.clone());
            continue;
        }
        match steps::run(&step, &mut say) {
            Ok(started) => started.into_iter().for_each(|s| keep(&mut children, s)),
            Err(error) => say(&error),
        }
    }
    if let Some(command) = shell {
        let command = [vec![SESSION.to_owned()], command].concat();
        start(&mut children, command, &mut say);
    }
    let end = loop {
        let now = Instant::now();
        for command in children.due(now) {
            start(&mut children, command, &mut say);
        }
        wait_for(
            &signals,
            children.next().map(|t| t.saturating_duration_since(now)),
        );
        let came = signals.take();
        reap(&mut |pid| {
            if let Some((name, again)) = children.ended(pid, Instant::now()) {
                say(&format!(
                    "{name} has ended; it is started again in {:.1} s",
                    again.as_secs_f32()
                ));
            }
        });
        let ends = [
            (Signal::PowerOff, End::PowerOff),
            (Signal::Halt, End::Halt),
            (Signal::End, End::Reboot),
        ];
        if let Some((_, end)) = ends.iter().find(|(s, _)| came.contains(s)) {
            break *end;
        }
    };
    stop::guests(&mut say);
    // The store last, as it was started first.
    for pid in children.running() {
        stop::ask(pid);
        let start = Instant::now();
        let mut gone = false;
        while !gone && start.elapsed() < SERVICES {
            reap(&mut |ended| gone |= ended == pid);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    stop::processes();
    stop::machine(end)
}

fn steps_of_file(say: &mut dyn FnMut(&str)) -> Vec<Step> {
    let text = std::fs::read_to_string(conf::PATH).unwrap_or_else(|_| conf::DEFAULT.to_owned());
    conf::parse(&text).unwrap_or_else(|error| {
        say(&format!(
            "{}, {error}; what is usual is done instead",
            conf::PATH
        ));
        conf::parse(conf::DEFAULT).unwrap_or_default()
    })
}

fn keep(children: &mut Children, started: Started) {
    children.started(started.child.id(), started.command, Instant::now());
}

fn start(children: &mut Children, command: Vec<String>, say: &mut dyn FnMut(&str)) {
    let child: Result<Child, String> = match command.split_first() {
        Some((first, rest)) if first == SESSION => Command::new("/proc/self/exe")
            .arg0(SESSION)
            .args(rest)
            .spawn()
            .map_err(|e| format!("no shell: {e}")),
        _ => steps::service(&command),
    };
    match child {
        Ok(child) => keep(children, Started { command, child }),
        Err(error) => {
            say(&error);
            children.failed(&command, Instant::now());
        }
    }
}

fn wait_for(signals: &Signals, most: Option<Duration>) {
    let timeout = most.and_then(|t| Timespec::try_from(t).ok());
    // Interrupted or not: what has happened is looked at next.
    let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], timeout.as_ref());
}

/// Takes note of all processes that have ended, also of those that nobody else waits for.
pub fn reap(ended: &mut dyn FnMut(u32)) {
    while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
        ended(pid.as_raw_pid().unsigned_abs());
    }
}
