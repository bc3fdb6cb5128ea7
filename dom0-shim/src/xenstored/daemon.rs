//! The daemon: one thread that waits for sockets, event channels and signals.

use super::conn::socket::Socket;
use super::host::Host;
use super::machine::{Machine, NoXen, Xen};
use super::options::Options;
use super::pump::serve;
use super::server::{ConnId, Server};
use super::state;
use super::xen::XenDevices;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_sys::evtchn::{EventChannels, LocalPort};

/// The state is written at most that often while things change, and at the end.
const STATE_EVERY: Duration = Duration::from_secs(1);
/// How long new clients wait after one could not be taken, for example because there are too many.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// New clients taken in one turn.
const ACCEPTS: usize = 16;

/// Runs until SIGTERM or SIGINT. `ready` is called once clients can connect.
///
/// # Errors
/// Why it cannot start or go on.
pub fn run(
    options: Options,
    log: Box<dyn FnMut(&str)>,
    ready: impl FnOnce(),
) -> Result<(), String> {
    let end = signals().map_err(|e| format!("signals cannot be caught: {e}"))?;
    let mut events = None;
    let xen: Box<dyn Xen> = if options.no_domain_init {
        Box::new(NoXen)
    } else {
        let xen = XenDevices::open().map_err(|e| {
            format!("{e}; is this a control domain? Without Xen use --no-domain-init")
        })?;
        events = Some((xen.channels(), xen.virq()));
        Box::new(xen)
    };
    let mut machine = Machine::new(xen, log);
    let listener = listen(&options.socket)?;
    let mut server = Server::new(options.quotas);
    if let Some(path) = &options.state_file {
        server = state::load(path, server, &mut machine);
    }
    server.set_tracing(options.verbose);
    if !options.no_domain_init {
        if server.ring_of(DomId::DOM0).is_none() {
            let port = xen_sys::xsd::port()
                .map_err(|e| format!("/proc/xen/xsd_port: {e}; is xenfs mounted on /proc/xen?"))?;
            let connected = server.introduce(DomId::DOM0, 0, port, &mut machine);
            connected.map_err(|e| format!("the kernel's ring cannot be connected: {e:?}"))?;
        }
        // Domains may have gone while no daemon ran.
        server.sweep(&mut machine);
        machine.wake_kernel();
    }
    if let Some(path) = &options.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if options.output_pid {
        // Whoever asked for it and does not read it is not our concern.
        let _ = writeln!(io::stdout(), "{}", std::process::id());
    }
    ready();
    let mut daemon = Daemon {
        server,
        machine,
        listener,
        events,
        end,
        state_file: options.state_file.as_deref(),
        saved: Instant::now(),
        dirty: true,
        pause: None,
    };
    let result = daemon.turns();
    daemon.save();
    // The next daemon must not take our socket for that of one that runs.
    let _ = std::fs::remove_file(&options.socket);
    result
}

struct Daemon<'a> {
    server: Server,
    machine: Machine,
    listener: UnixListener,
    events: Option<(Rc<EventChannels>, LocalPort)>,
    /// A byte comes when the daemon is to end.
    end: UnixStream,
    state_file: Option<&'a Path>,
    saved: Instant,
    dirty: bool,
    /// No new clients until then.
    pause: Option<Instant>,
}

impl Daemon<'_> {
    fn turns(&mut self) -> Result<(), String> {
        let mut ready: Vec<ConnId> = self.server.connections().collect();
        loop {
            for conn in &ready {
                serve(&mut self.server, &mut self.machine, *conn);
            }
            self.machine.flush();
            self.dirty |= self.server.take_dirty();
            if self.dirty && self.saved.elapsed() >= STATE_EVERY {
                self.save();
            }
            match self.wait().map_err(|e| format!("poll: {e}"))? {
                Some(conns) => ready = conns,
                None => return Ok(()),
            }
        }
    }

    /// Waits until something happens; returns who is to be served, or `None` if it is time to end.
    fn wait(&mut self) -> io::Result<Option<Vec<ConnId>>> {
        let rings: Vec<ConnId> = self
            .server
            .connections()
            .filter(|c| self.ring_is_ready(*c))
            .collect();
        let now = Instant::now();
        self.pause = self.pause.filter(|until| *until > now);
        let save_in = self
            .dirty
            .then(|| STATE_EVERY.saturating_sub(self.saved.elapsed()));
        let accept_in = self.pause.map(|until| until - now);
        let timeout = match rings.is_empty() {
            true => [save_in, accept_in].into_iter().flatten().min(),
            false => Some(Duration::ZERO),
        };
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());

        let mut fds = vec![PollFd::new(&self.end, PollFlags::IN)];
        let accepting = if self.pause.is_none() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        fds.push(PollFd::new(&self.listener, accepting));
        fds.extend(
            self.events
                .as_ref()
                .map(|(channels, _)| PollFd::from_borrowed_fd(channels.as_fd(), PollFlags::IN)),
        );
        let fixed = fds.len();
        let mut conns = Vec::new();
        for (conn, socket) in self.machine.sockets() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, self.server.wanted(conn) > 0);
            flags.set(PollFlags::OUT, !self.server.outgoing(conn).is_empty());
            // A client that is not to be served any more is told by closing.
            if self.server.is_dead(conn) {
                flags = PollFlags::OUT;
            }
            conns.push(conn);
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), flags));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        if happened[0] {
            return Ok(None);
        }
        let mut ready: Vec<ConnId> = conns
            .iter()
            .zip(&happened[fixed..])
            .filter(|(_, h)| **h)
            .map(|(c, _)| *c)
            .collect();
        if happened[1] {
            self.accept();
        }
        if fixed > 2 && happened[2] {
            self.fired()?;
        }
        ready.extend(self.server.connections().filter(|c| self.ring_is_ready(*c)));
        Ok(Some(ready))
    }

    fn ring_is_ready(&self, conn: ConnId) -> bool {
        let ready = |domid| {
            // A dead ring may still ask for a fresh connection.
            let wants = self.server.wanted(conn) > 0 || self.server.is_dead(conn);
            self.machine
                .ring_is_ready(domid, wants, !self.server.outgoing(conn).is_empty())
        };
        self.server.ring_domain(conn).is_some_and(ready)
    }

    fn fired(&mut self) -> io::Result<()> {
        let Some((channels, virq)) = &self.events else {
            return Ok(());
        };
        // Rings are looked at in any case; of the ports only this one says something else.
        let (ports, lost) = channels.fired()?;
        if lost || ports.contains(virq) {
            self.server.sweep(&mut self.machine);
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let client = match self.listener.accept() {
                Ok((stream, _)) => Socket::new(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => Err(error),
            };
            match client {
                Ok(socket) => {
                    let conn = self.server.open();
                    self.machine.add_socket(conn, socket);
                }
                Err(error) => {
                    self.machine
                        .log(&format!("a client cannot be taken: {error}"));
                    self.pause = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn save(&mut self) {
        self.saved = Instant::now();
        self.dirty = false;
        let Some(path) = self.state_file else { return };
        let text = self.server.dump(|domid| self.machine.indices(domid));
        if let Err(error) = state::write(path, &text) {
            self.machine.log(&format!(
                "the state cannot be kept: {}: {error}",
                path.display()
            ));
        }
    }
}

/// A stream on which a byte arrives when the daemon is to end.
fn signals() -> io::Result<UnixStream> {
    let (receive, send) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, send.try_clone()?)?;
    }
    Ok(receive)
}

/// The socket, for the owner only. One that a daemon left behind is replaced, one that is in use is not.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let told = |e: io::Error| format!("{}: {e}", path.display());
    if UnixStream::connect(path).is_ok() {
        return Err(format!("{}: another xenstored is running", path.display()));
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(told)?;
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(told(e)),
        _ => {}
    }
    // Nobody else may connect, not even before the mode could be changed.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener.map_err(told)?;
    listener.set_nonblocking(true).map_err(told)?;
    Ok(listener)
}
