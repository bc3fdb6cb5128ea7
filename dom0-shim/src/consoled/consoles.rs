//! All guests' consoles.

use super::guest::{Guest, Overflow};
use super::host::Host;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use xen_abi::DomId;
use xen_sys::evtchn::LocalPort;

/// Dead guests whose last words wait at a time.
const DEAD_MOST: usize = 32;
/// How often it is looked whether the last words of dead guests have been read.
const DEAD_EVERY: Duration = Duration::from_millis(200);

/// The consoles.
pub struct Consoles<H: Host> {
    guests: BTreeMap<DomId, Guest<H::Terminal>>,
    /// Guests that are dead, the oldest first, each with a number under which its terminal is known.
    dead: VecDeque<(u64, Guest<H::Terminal>)>,
    buried: u64,
    watched: BTreeSet<DomId>,
    overflow: Overflow,
}

/// A console, dead or alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// That of a domain.
    Of(DomId),
    /// That of a dead one.
    Dead(u64),
}

impl<H: Host> Consoles<H> {
    /// None yet.
    pub fn new(overflow: Overflow) -> Consoles<H> {
        Consoles {
            guests: BTreeMap::new(),
            dead: VecDeque::new(),
            buried: 0,
            watched: BTreeSet::new(),
            overflow,
        }
    }

    /// Some domain came or went.
    pub fn scan(&mut self, now: Instant, host: &mut H) {
        let there: BTreeSet<DomId> = host
            .domains()
            .into_iter()
            .filter(|d| *d != DomId::DOM0 && host.exists(*d))
            .collect();
        // One that has lost its directory already may still have something to say.
        let known: Vec<DomId> = self
            .watched
            .iter()
            .copied()
            .filter(|d| !there.contains(d))
            .collect();
        for domid in known {
            if !host.exists(domid) {
                self.end(domid, now, host);
            }
        }
        for domid in there {
            if self.watched.insert(domid) {
                host.watch(domid);
            }
            self.look(domid, now, host);
        }
    }

    /// A domain's console nodes may have changed.
    pub fn look(&mut self, domid: DomId, now: Instant, host: &mut H) {
        let Some(nodes) = host.nodes(domid).filter(|_| self.watched.contains(&domid)) else {
            return;
        };
        if let Some(guest) = self.guests.get_mut(&domid) {
            return guest.update(nodes, host);
        }
        match Guest::connect(domid, nodes, self.overflow, now, host) {
            Ok(guest) => _ = self.guests.insert(domid, guest),
            Err(text) => host.say(&text),
        }
    }

    fn end(&mut self, domid: DomId, now: Instant, host: &mut H) {
        if self.watched.remove(&domid) {
            host.unwatch(domid);
        }
        let Some(mut guest) = self.guests.remove(&domid) else {
            return;
        };
        guest.end(now, host);
        if !guest.is_over(now) {
            self.buried += 1;
            self.dead.push_back((self.buried, guest));
            if self.dead.len() > DEAD_MOST {
                self.dead.pop_front();
            }
        }
    }

    /// Asks again to be told of all that is watched: the store lost it.
    pub fn watch_again(&self, host: &mut H) {
        self.watched.iter().for_each(|d| host.watch(*d));
    }

    /// Ports fired; they are silent now. If some may have been missed, all guests are served.
    pub fn fired(&mut self, ports: &[LocalPort], lost: bool, now: Instant, host: &mut H) {
        for guest in self.guests.values_mut() {
            if guest.port().is_some_and(|p| lost || ports.contains(&p)) {
                guest.fired(now, host);
            }
        }
    }

    /// A terminal can be read or written.
    pub fn terminal_ready(&mut self, key: Key, host: &mut H) {
        let guest = match key {
            Key::Of(domid) => self.guests.get_mut(&domid),
            Key::Dead(number) => self
                .dead
                .iter_mut()
                .find(|(n, _)| *n == number)
                .map(|(_, g)| g),
        };
        if let Some(guest) = guest {
            guest.serve(host);
        }
    }

    /// Does what its time has come for.
    pub fn tick(&mut self, now: Instant, host: &mut H) {
        for guest in self.guests.values_mut() {
            if guest.silent_until().is_some_and(|until| until <= now) {
                guest.serve(host);
                guest.let_fire(now, host);
            }
        }
        self.dead.retain(|(_, g)| !g.is_over(now));
    }

    /// When [`Consoles::tick`] is to be called at the latest.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let silent = self.guests.values().filter_map(Guest::silent_until);
        silent
            .chain((!self.dead.is_empty()).then(|| now + DEAD_EVERY))
            .min()
    }

    /// All terminals: whether typed text is wanted from each and whether there is output for it.
    pub fn terminals(&self) -> impl Iterator<Item = (Key, &H::Terminal, bool, bool)> {
        let living = self.guests.iter().map(|(d, g)| (Key::Of(*d), g));
        let dead = self.dead.iter().map(|(n, g)| (Key::Dead(*n), g));
        living.chain(dead).filter_map(|(key, guest)| {
            let (terminal, wants, has) = guest.terminal()?;
            Some((key, terminal, wants, has))
        })
    }

    /// Begins all logs anew whose files were moved away.
    pub fn reopen_logs(&mut self) {
        self.guests.values_mut().for_each(Guest::reopen_log);
    }

    /// The console of a domain.
    pub fn guest(&self, domid: DomId) -> Option<&Guest<H::Terminal>> {
        self.guests.get(&domid)
    }

    /// How many dead guests' last words wait.
    pub fn dead(&self) -> usize {
        self.dead.len()
    }
}
