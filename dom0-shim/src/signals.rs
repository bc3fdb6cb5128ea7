//! Signals as something to wait for.

use signal_hook::consts as number;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// What a service is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// End (SIGTERM, SIGINT).
    End,
    /// Begin the logs anew (SIGHUP).
    Reopen,
    /// A child ended (SIGCHLD).
    Child,
    /// Asked of process 1: power off (SIGUSR2).
    PowerOff,
    /// Asked of process 1: halt (SIGUSR1).
    Halt,
}

impl Signal {
    fn numbers(self) -> &'static [i32] {
        match self {
            Signal::End => &[number::SIGTERM, number::SIGINT],
            Signal::Reopen => &[number::SIGHUP],
            Signal::Child => &[number::SIGCHLD],
            Signal::PowerOff => &[number::SIGUSR2],
            Signal::Halt => &[number::SIGUSR1],
        }
    }
}

/// The signals that are caught; readable when one has come.
#[derive(Debug)]
pub struct Signals {
    ends: Vec<(Signal, UnixStream)>,
    bell: UnixStream,
}

impl Signals {
    /// Catches these signals.
    ///
    /// # Errors
    /// The system's.
    pub fn catch(signals: &[Signal]) -> io::Result<Signals> {
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let mut ends = Vec::new();
        for signal in signals {
            let (receive, send) = UnixStream::pair()?;
            receive.set_nonblocking(true)?;
            for number in signal.numbers() {
                // First what came, then that something came.
                signal_hook::low_level::pipe::register(*number, send.try_clone()?)?;
                signal_hook::low_level::pipe::register(*number, ring.try_clone()?)?;
            }
            ends.push((*signal, receive));
        }
        Ok(Signals { ends, bell })
    }

    /// The signals that have come since the last call, each once.
    pub fn take(&mut self) -> Vec<Signal> {
        empty(&mut self.bell);
        self.ends
            .iter_mut()
            .filter_map(|(signal, end)| empty(end).then_some(*signal))
            .collect()
    }
}

/// Takes all bytes; whether there were any.
fn empty(stream: &mut UnixStream) -> bool {
    let (mut bytes, mut any) = ([0; 64], false);
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
        any = true;
    }
    any
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
