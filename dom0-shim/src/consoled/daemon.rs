//! The daemon: one thread that waits for the store, event channels, terminals and signals.

use super::consoles::{Consoles, Key};
use super::host::Host;
use super::hvlog::HypervisorLog;
use super::options::Options;
use super::xen::{Machine, News};
use crate::signals::{Signal, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often a store that is gone is looked for.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// How long the store may take to be there at the start.
const STORE_PATIENCE: Duration = Duration::from_secs(30);
/// News taken from the store in one turn.
const NEWS: usize = 64;

/// Runs until SIGTERM or SIGINT; SIGHUP begins the logs anew. `ready` is called once guests are served.
///
/// # Errors
/// Why it cannot start or go on.
pub fn run(
    options: Options,
    say: Box<dyn FnMut(&str)>,
    ready: impl FnOnce(),
) -> Result<(), String> {
    let signals = Signals::catch(&[Signal::End, Signal::Reopen])
        .map_err(|e| format!("signals cannot be caught: {e}"))?;
    let (pid_file, overflow) = (options.pid_file.clone(), options.overflow);
    let log = HypervisorLog::open(&options);
    let mut machine =
        Machine::open(options, say).map_err(|e| format!("{e}; is this a control domain?"))?;
    let start = Instant::now();
    while let Err(error) = machine.connect() {
        if start.elapsed() > STORE_PATIENCE {
            return Err(format!("{error}"));
        }
        std::thread::sleep(STORE_EVERY / 10);
    }
    if let Some(dir) = pid_file.parent() {
        // If it is not there, writing the file says so.
        let _ = std::fs::create_dir_all(dir);
    }
    std::fs::write(&pid_file, format!("{}\n", std::process::id()))
        .map_err(|e| format!("{}: {e}", pid_file.display()))?;
    let mut daemon = Daemon {
        consoles: Consoles::new(overflow),
        machine,
        signals,
        retry: Instant::now(),
        log: None,
    };
    match log {
        Ok(log) => daemon.log = log,
        Err(text) => daemon.machine.say(&text),
    }
    daemon.consoles.scan(Instant::now(), &mut daemon.machine);
    ready();
    let result = daemon.turns();
    // Gone already if somebody tidied up.
    let _ = std::fs::remove_file(&pid_file);
    result
}

struct Daemon {
    consoles: Consoles<Machine>,
    machine: Machine,
    signals: Signals,
    /// When the store is looked for, if it is gone.
    retry: Instant,
    log: Option<HypervisorLog>,
}

/// What happened.
#[derive(Default)]
struct Ready {
    signal: bool,
    events: bool,
    terminals: Vec<Key>,
}

impl Daemon {
    fn turns(&mut self) -> Result<(), String> {
        loop {
            let ready = self.wait().map_err(|e| format!("poll: {e}"))?;
            if ready.signal {
                for signal in self.signals.take() {
                    match signal {
                        Signal::Reopen => {
                            self.consoles.reopen_logs();
                            self.log.iter_mut().for_each(HypervisorLog::reopen);
                        }
                        _ => return Ok(()),
                    }
                }
            }
            let now = Instant::now();
            if ready.events {
                let (ports, lost) = self
                    .machine
                    .channels()
                    .take()
                    .map_err(|e| format!("/dev/xen/evtchn: {e}"))?;
                self.consoles.fired(&ports, lost, now, &mut self.machine);
            }
            for key in ready.terminals {
                self.consoles.terminal_ready(key, &mut self.machine);
            }
            self.store_turn(now);
            self.consoles.tick(now, &mut self.machine);
            if let Some(Err(error)) = self.log.as_mut().map(HypervisorLog::turn) {
                self.machine.say(&format!(
                    "the hypervisor's log is not followed any more: {error}"
                ));
                self.log = None;
            }
        }
    }

    fn store_turn(&mut self, now: Instant) {
        let mut scan = false;
        for _ in 0..NEWS {
            match self.machine.news() {
                Some(News::Domains) => scan = true,
                Some(News::Console(domid)) => self.consoles.look(domid, now, &mut self.machine),
                None => break,
            }
        }
        if scan {
            self.consoles.scan(now, &mut self.machine);
        }
        if let Some(error) = self.machine.take_lost() {
            self.machine.say(&format!(
                "xenstored is gone ({error}); guests go on, and it is looked for"
            ));
            self.retry = now;
        }
        if self.machine.store().is_none() && now >= self.retry {
            self.retry = now + STORE_EVERY;
            if self.machine.connect().is_ok() {
                self.machine.say("xenstored is back");
                self.consoles.watch_again(&mut self.machine);
                self.consoles.scan(now, &mut self.machine);
            }
        }
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        let store = self.machine.store();
        let retry = store.is_none().then_some(self.retry);
        let news = store.is_some_and(|s| s.has_event()).then_some(now);
        let deadline = [self.consoles.deadline(now), retry, news]
            .into_iter()
            .flatten()
            .min();
        let timeout =
            deadline.and_then(|d| Timespec::try_from(d.saturating_duration_since(now)).ok());
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::from_borrowed_fd(self.machine.channels().as_fd(), PollFlags::IN),
        ];
        let mut keys = Vec::new();
        for (key, terminal, wants, has) in self.consoles.terminals() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, wants);
            flags.set(PollFlags::OUT, has);
            if !flags.is_empty() {
                keys.push(key);
                fds.push(PollFd::new(terminal, flags));
            }
        }
        // Last: they only end the wait.
        let log = self.log.as_ref().map(HypervisorLog::fd);
        fds.extend(log.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let store = store.and_then(|s| s.fd());
        fds.extend(store.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened = |at: usize| !fds[at].revents().is_empty();
        Ok(Ready {
            signal: happened(0),
            events: happened(1),
            terminals: keys
                .iter()
                .enumerate()
                .filter(|(i, _)| happened(i + 2))
                .map(|(_, k)| *k)
                .collect(),
        })
    }
}
