//! One guest's console: its ring, what waits for its terminal, its log.

use super::backlog::Backlog;
use super::host::{Host, Log, Terminal};
use super::nodes::Nodes;
use super::rate::Rate;
use super::ring::{INPUT_SIZE, Nonsense, OUTPUT_SIZE, Ring};
use crate::shared::BoxedPage;
use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_sys::evtchn::LocalPort;

/// How long the last words of a dead guest wait in its terminal for a reader.
pub const LINGER: Duration = Duration::from_secs(30);
/// Bytes of typed text moved at once.
const TYPED: usize = INPUT_SIZE as usize;

/// What happens to output that nobody reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// The oldest goes when the limit is reached.
    Discard,
    /// The guest waits when the limit is reached.
    Keep,
}

/// A guest with a console.
pub struct Guest<T> {
    domid: DomId,
    name: String,
    nodes: Nodes,
    /// Gone when the guest is.
    link: Option<Link>,
    rate: Rate,
    /// The port stays silent until then.
    silent_until: Option<Instant>,
    backlog: Backlog,
    overflow: Overflow,
    terminal: Option<T>,
    log: Option<Box<dyn Log>>,
    /// The administrator knows that the ring makes no sense.
    told: bool,
    gone: Option<Instant>,
}

struct Link {
    ring: Ring<BoxedPage>,
    port: Option<LocalPort>,
}

impl<T: Terminal> Guest<T> {
    /// Connects a guest and takes what it has printed so far.
    ///
    /// # Errors
    /// One line that says what does not work.
    pub fn connect<H: Host<Terminal = T>>(
        domid: DomId,
        nodes: Nodes,
        overflow: Overflow,
        now: Instant,
        host: &mut H,
    ) -> Result<Guest<T>, String> {
        let link = Link::new(domid, &nodes, host)?;
        let name = host.name(domid);
        let mut guest = Guest {
            domid,
            log: host.log_of(&name),
            name,
            link: Some(link),
            rate: Rate::new(now),
            silent_until: None,
            backlog: Backlog::new(nodes.limit),
            nodes,
            overflow,
            terminal: None,
            told: false,
            gone: None,
        };
        guest.open_terminal(host);
        guest.serve(host);
        Ok(guest)
    }

    /// Takes changed nodes over: another limit, or another ring.
    pub fn update<H: Host<Terminal = T>>(&mut self, nodes: Nodes, host: &mut H) {
        self.backlog.set_limit(nodes.limit);
        let same = (nodes.ring_ref, nodes.port) == (self.nodes.ring_ref, self.nodes.port);
        self.nodes = nodes;
        if same {
            return;
        }
        self.disconnect(host);
        match Link::new(self.domid, &self.nodes, host) {
            Ok(link) => self.link = Some(link),
            Err(text) => host.say(&text),
        }
        self.told = false;
        self.serve(host);
    }

    /// The port through which the guest wakes the daemon.
    pub fn port(&self) -> Option<LocalPort> {
        self.link.as_ref().and_then(|l| l.port)
    }

    /// The guest's port fired and is silent now.
    pub fn fired<H: Host<Terminal = T>>(&mut self, now: Instant, host: &mut H) {
        self.serve(host);
        self.silent_until = self.rate.event(now);
        self.let_fire(now, host);
    }

    /// Lets the port fire again if its time has come.
    pub fn let_fire<H: Host<Terminal = T>>(&mut self, now: Instant, host: &mut H) {
        if self.silent_until.is_some_and(|until| until > now) {
            return;
        }
        self.silent_until = None;
        if let Some(port) = self.port() {
            host.unmask(port);
        }
    }

    /// Until when the port is silent.
    pub fn silent_until(&self) -> Option<Instant> {
        self.silent_until
    }

    /// Moves bytes both ways, a bounded number.
    pub fn serve<H: Host<Terminal = T>>(&mut self, host: &mut H) {
        self.flush(host);
        self.take_output(host);
        self.flush(host);
        self.type_in(host);
        if let Some(link) = &mut self.link
            && link.ring.take_notify()
            && let Some(port) = link.port
        {
            host.notify(port);
        }
    }

    fn take_output<H: Host<Terminal = T>>(&mut self, host: &mut H) {
        let Some(link) = &mut self.link else { return };
        if self.overflow == Overflow::Keep && self.backlog.is_full() {
            return;
        }
        match link.ring.take_output() {
            Ok(bytes) => {
                if let Some(log) = self.log.as_mut().filter(|_| !bytes.is_empty()) {
                    log.write(&bytes);
                }
                self.backlog.push(&bytes);
            }
            Err(Nonsense) => self.tell(host),
        }
    }

    /// Says once that the ring makes no sense.
    fn tell<H: Host>(&mut self, host: &mut H) {
        if !std::mem::replace(&mut self.told, true) {
            host.say(&format!(
                "{} ({}): the indices of its console ring make no sense; nothing is moved until they do",
                self.domid, self.name
            ));
        }
    }

    fn flush<H: Host<Terminal = T>>(&mut self, host: &mut H) {
        // Twice the ring, so that a terminal that takes everything keeps up with a guest that prints everything.
        let mut budget = 2 * OUTPUT_SIZE as usize;
        while let Some(terminal) = &mut self.terminal {
            let bytes = self.backlog.front();
            let bytes = &bytes[..bytes.len().min(budget)];
            if bytes.is_empty() {
                return;
            }
            match terminal.write(bytes) {
                Ok(0) => return,
                Ok(count) => {
                    self.backlog.taken(count);
                    budget -= count.min(budget);
                }
                Err(error) => return self.terminal_failed(&error, host),
            }
        }
    }

    fn type_in<H: Host<Terminal = T>>(&mut self, host: &mut H) {
        let (Some(link), Some(terminal)) = (&mut self.link, &mut self.terminal) else {
            return;
        };
        let mut bytes = [0; TYPED];
        let Ok(room) = link.ring.room() else {
            return self.tell(host);
        };
        // Only what surely fits is taken from the terminal.
        match terminal.read(&mut bytes[..room.min(TYPED)]) {
            Ok(count) => _ = link.ring.give_input(&bytes[..count]),
            Err(error) => self.terminal_failed(&error, host),
        }
    }

    fn open_terminal<H: Host<Terminal = T>>(&mut self, host: &mut H) {
        match host.terminal() {
            Ok(terminal) => {
                host.publish(self.domid, terminal.path());
                self.terminal = Some(terminal);
            }
            Err(error) => host.say(&format!(
                "{} ({}): no terminal: {error}",
                self.domid, self.name
            )),
        }
    }

    fn terminal_failed<H: Host<Terminal = T>>(&mut self, error: &std::io::Error, host: &mut H) {
        host.say(&format!(
            "{} ({}): its terminal fails: {error}",
            self.domid, self.name
        ));
        self.terminal = None;
        if self.gone.is_none() {
            self.open_terminal(host);
        }
    }

    fn disconnect<H: Host<Terminal = T>>(&mut self, host: &mut H) {
        if let Some(port) = self.link.take().and_then(|l| l.port) {
            host.unbind(port);
        }
        self.silent_until = None;
    }

    /// The guest is dead: takes its last words and lets its memory go.
    pub fn end<H: Host<Terminal = T>>(&mut self, now: Instant, host: &mut H) {
        if self.gone.is_some() {
            return;
        }
        // Nobody writes to the ring any more, so one turn empties it; a full backlog makes room.
        self.overflow = Overflow::Discard;
        self.serve(host);
        self.disconnect(host);
        self.gone = Some(now);
    }

    /// Whether the guest is dead.
    pub fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Whether the guest is dead and nobody will miss its terminal.
    pub fn is_over(&self, now: Instant) -> bool {
        let waits = || {
            let unread = self.terminal.as_ref().map_or(0, T::unread);
            unread > 0 || (self.terminal.is_some() && !self.backlog.is_empty())
        };
        self.gone
            .is_some_and(|since| now.saturating_duration_since(since) >= LINGER || !waits())
    }

    /// The terminal, whether typed text is wanted from it and whether there is output for it.
    pub fn terminal(&self) -> Option<(&T, bool, bool)> {
        let wants = self
            .link
            .as_ref()
            .is_some_and(|l| l.ring.room().is_ok_and(|room| room > 0));
        self.terminal
            .as_ref()
            .map(|t| (t, wants, !self.backlog.is_empty()))
    }

    /// Begins the log anew if its file was moved away.
    pub fn reopen_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.reopen();
        }
    }

    /// Bytes that were dropped because nobody read them.
    pub fn lost(&self) -> u64 {
        self.backlog.lost()
    }
}

impl Link {
    fn new<H: Host>(domid: DomId, nodes: &Nodes, host: &mut H) -> Result<Link, String> {
        let page = host
            .map(domid, nodes)
            .map_err(|e| format!("{domid}: cannot map the console page: {e}"))?;
        let port = host.bind(domid, nodes.port);
        let port =
            port.map_err(|e| format!("{domid}: cannot bind console port {}: {e}", nodes.port))?;
        Ok(Link {
            ring: Ring::attach(page),
            port: Some(port),
        })
    }
}
