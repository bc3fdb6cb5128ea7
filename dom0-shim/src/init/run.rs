//! Process 1.

use super::children::Children;
use super::conf::{self, Step};
use super::steps::{self, Started};
use super::stop::{self, End};
use crate::signals::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, wait};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The store's service name.
const STORE: &str = "xenstored";
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
    let mut init = Init {
        todo: steps_of_file(&mut say).into(),
        runs: None,
        shell: None,
        children: Children::default(),
    };
    let end = loop {
        init.go_on(&mut say);
        let now = Instant::now();
        for command in init.children.due(now) {
            init.start(command, &mut say);
        }
        wait_for(
            &signals,
            init.children
                .next()
                .map(|t| t.saturating_duration_since(now)),
        );
        let came = signals.take();
        reap(&mut |pid, well| init.ended(pid, well, &mut say));
        let ends = [
            (Signal::PowerOff, End::PowerOff),
            (Signal::Halt, End::Halt),
            (Signal::End, End::Reboot),
        ];
        if let Some((_, end)) = ends.iter().find(|(s, _)| came.contains(s)) {
            break *end;
        }
    };
    let children = init.children;
    stop::guests(&mut say);
    stop::devices(&mut say);
    let (store, services): (Vec<_>, Vec<_>) = children
        .running()
        .into_iter()
        .partition(|(_, name)| name == STORE);
    for (pid, name) in services {
        stop::ask(pid, name == SESSION);
        let start = Instant::now();
        let mut gone = false;
        while !gone && start.elapsed() < SERVICES {
            reap(&mut |ended, _| gone |= ended == pid);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // The store goes on until the machine ends: see `devices`.
    stop::processes(store.first().map(|(pid, _)| *pid));
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

/// What is done, and what is still to do.
struct Init {
    todo: VecDeque<Step>,
    /// The program of a `run` step that has not ended, and its name. Meanwhile services are kept.
    runs: Option<(u32, String)>,
    shell: Option<Vec<String>>,
    children: Children,
}

impl Init {
    /// Does steps until one takes its time.
    fn go_on(&mut self, say: &mut dyn FnMut(&str)) {
        while self.runs.is_none()
            && let Some(step) = self.todo.pop_front()
        {
            match step {
                Step::Shell(command) => self.shell = Some(command),
                Step::Run(command) => {
                    let child = steps::program(&command);
                    let child = child.and_then(|mut c| c.spawn().map_err(|e| e.to_string()));
                    match child {
                        Ok(child) => self.runs = Some((child.id(), command.join(" "))),
                        Err(error) => say(&format!("{}: {error}", command.join(" "))),
                    }
                }
                step => match steps::run(&step, say) {
                    Ok(started) => started.into_iter().for_each(|s| self.keep(s)),
                    Err(error) => say(&error),
                },
            }
        }
        if self.runs.is_none()
            && let Some(command) = self.shell.take()
        {
            self.start([vec![SESSION.to_owned()], command].concat(), say);
        }
    }

    fn keep(&mut self, started: Started) {
        let pid = started.child.id();
        self.children.started(pid, started.command, Instant::now());
    }

    fn start(&mut self, command: Vec<String>, say: &mut dyn FnMut(&str)) {
        let child: Result<Child, String> = match command.split_first() {
            Some((first, rest)) if first == SESSION => Command::new("/proc/self/exe")
                .arg0(SESSION)
                .args(rest)
                .spawn()
                .map_err(|e| format!("no shell: {e}")),
            _ => steps::service(&command),
        };
        match child {
            Ok(child) => self.keep(Started { command, child }),
            Err(error) => {
                say(&error);
                self.children.failed(&command, Instant::now());
            }
        }
    }

    fn ended(&mut self, pid: u32, well: bool, say: &mut dyn FnMut(&str)) {
        if let Some((_, name)) = self.runs.take_if(|(running, _)| *running == pid) {
            if !well {
                say(&format!("{name}: it failed"));
            }
        } else if let Some((name, again)) = self.children.ended(pid, Instant::now()) {
            let again = again.as_secs_f32();
            say(&format!(
                "{name} has ended; it is started again in {again:.1} s"
            ));
        }
    }
}

fn wait_for(signals: &Signals, most: Option<Duration>) {
    let timeout = most.and_then(|t| Timespec::try_from(t).ok());
    // Interrupted or not: what has happened is looked at next.
    let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], timeout.as_ref());
}

/// Takes note of all processes that have ended, also of those that nobody else waits for: its number, and whether it ended
/// well.
pub fn reap(ended: &mut dyn FnMut(u32, bool)) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        ended(
            pid.as_raw_pid().unsigned_abs(),
            status.exit_status() == Some(0),
        );
    }
}
