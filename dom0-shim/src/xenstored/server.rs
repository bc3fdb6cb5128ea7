//! The store with its clients: bytes in, bytes out. Knows no socket and no ring; those move the bytes.

use super::domains::Domains;
use super::host::Host;
use super::message::{Inbox, Outbox, Queued, TooLong, encode};
use super::path::{Path, WatchPath};
use super::perms::{Access, Perms, Who};
use super::quota::{Quota, Quotas};
use super::transaction::{Change, Transaction};
use super::tree::{Node, Tree};
use super::watch::{Watch, Watches};
use std::collections::BTreeMap;
use xen_abi::io::xs_wire::{SockMsg, error_name, kind, limit};
use xen_abi::{DomId, Errno};

/// Above this many bytes of events a guest gets stand-ins: an event on the watched path itself instead of the changed one.
/// There are no more different ones than it has watches, so what waits for a guest that never reads stays below
/// [`GUEST_EVENTS`] + [`STAND_INS`].
pub const GUEST_EVENTS: usize = 256 << 10;
/// The same for the control domain's clients.
const CONTROL_EVENTS: usize = 8 << 20;
/// Room for stand-ins. 128 watches with the longest events take 514 KiB.
pub const STAND_INS: usize = 640 << 10;
/// While more replies than this wait, a client of the control domain is not read.
const CONTROL_UNREAD: usize = 1 << 20;

/// A connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(
    /// Never used again.
    pub u32,
);

/// The client's end as the server knows it.
#[derive(Debug)]
pub struct Conn {
    pub(super) who: Who,
    /// It is this domain's ring; otherwise a socket.
    pub(super) ring: Option<DomId>,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) transactions: BTreeMap<u32, Transaction>,
    pub(super) next_transaction: u32,
    /// Not served any more: it broke the protocol or does not fetch what it asked for.
    dead: bool,
}

impl Conn {
    fn new(who: Who, ring: Option<DomId>) -> Conn {
        Conn {
            who,
            ring,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            transactions: BTreeMap::new(),
            next_transaction: 1,
            dead: false,
        }
    }
}

/// The permissions of the two names that can be watched and are no nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Special {
    /// Of `@introduceDomain`.
    pub introduce: Perms,
    /// Of `@releaseDomain`.
    pub release: Perms,
}

impl Default for Special {
    fn default() -> Special {
        let control = Perms::new(DomId::DOM0, Access::NONE);
        Special {
            introduce: control.clone(),
            release: control,
        }
    }
}

impl Special {
    /// The permissions of that name.
    pub fn of(&mut self, name: &str) -> Option<&mut Perms> {
        match name {
            INTRODUCE_DOMAIN => Some(&mut self.introduce),
            RELEASE_DOMAIN => Some(&mut self.release),
            _ => None,
        }
    }
}

/// Event when a domain joins.
pub const INTRODUCE_DOMAIN: &str = "@introduceDomain";
/// Event when a domain shuts down or leaves.
pub const RELEASE_DOMAIN: &str = "@releaseDomain";

/// The store and all its connections.
#[derive(Debug, Default)]
pub struct Server {
    pub(super) tree: Tree,
    pub(super) watches: Watches,
    pub(super) quotas: Quotas,
    pub(super) conns: BTreeMap<ConnId, Conn>,
    pub(super) domains: Domains,
    pub(super) special: Special,
    pub(super) next_conn: u32,
    /// Every request is logged.
    pub(super) tracing: bool,
    /// Something changed that a restart must not lose.
    pub(super) dirty: bool,
}

impl Server {
    /// An empty store with the node that says that there is one.
    pub fn new(quotas: Quotas) -> Server {
        let mut server = Server {
            quotas,
            ..Server::default()
        };
        let perms = Perms::new(DomId::DOM0, Access::NONE);
        let mut path = Path::root();
        let mut around = Node::new(perms.clone());
        for leaf in ["tool", "xenstored"] {
            around.children.push(leaf.into());
            server.tree.put(&path, around);
            path = path.child(leaf);
            around = Node::new(perms.clone());
        }
        server.tree.put(&path, around);
        server
    }

    /// A new client over a socket: it speaks for the control domain.
    pub fn open(&mut self) -> ConnId {
        self.add_conn(Who::CONTROL, None)
    }

    pub(super) fn add_conn(&mut self, who: Who, ring: Option<DomId>) -> ConnId {
        self.next_conn += 1;
        let id = ConnId(self.next_conn);
        self.conns.insert(id, Conn::new(who, ring));
        id
    }

    /// A client is gone; so are its watches and transactions.
    pub fn close(&mut self, conn: ConnId) {
        self.watches.remove_all(conn);
        self.conns.remove(&conn);
    }

    /// How many bytes the client may send now: 0 while it must fetch replies first. More must not be taken from it.
    pub fn wanted(&self, conn: ConnId) -> usize {
        let Some(c) = self.conns.get(&conn) else {
            return 0;
        };
        let busy = match c.who.is_privileged() {
            true => c.outbox.bytes() > CONTROL_UNREAD,
            false => c.outbox.replies() >= self.quotas.limit(Quota::Outstanding),
        };
        if busy || c.dead { 0 } else { c.inbox.wanted() }
    }

    /// Takes bytes from a client, at most [`Server::wanted`], and does what they ask for.
    ///
    /// # Errors
    /// [`TooLong`]: the client is to be dropped.
    pub fn receive(
        &mut self,
        conn: ConnId,
        bytes: &[u8],
        host: &mut dyn Host,
    ) -> Result<(), TooLong> {
        let Some(c) = self.conns.get_mut(&conn) else {
            return Ok(());
        };
        c.inbox.push(bytes)?;
        if let Some((header, payload)) = c.inbox.take() {
            let who = c.who;
            if self.tracing {
                let first = payload.split(|b| *b == 0).next().unwrap_or_default();
                host.log(&format!(
                    "{}, connection {}: message type {} transaction {} {:?}, {} bytes",
                    who.domid,
                    conn.0,
                    header.kind,
                    header.tx_id,
                    String::from_utf8_lossy(first),
                    payload.len()
                ));
            }
            self.request(conn, header, &payload, host);
        }
        Ok(())
    }

    /// The next bytes for the client; empty if there are none.
    pub fn outgoing(&self, conn: ConnId) -> &[u8] {
        self.conns.get(&conn).map_or(&[], |c| c.outbox.next())
    }

    /// The client has got that many of them.
    pub fn sent(&mut self, conn: ConnId, count: usize) {
        if let Some(c) = self.conns.get_mut(&conn) {
            c.outbox.advance(count);
        }
    }

    /// Whether the client is not to be served any more.
    pub fn is_dead(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_none_or(|c| c.dead)
    }

    /// Forgets what a client asked for: watches, transactions, messages in both directions.
    pub fn reset(&mut self, conn: ConnId) {
        self.watches.remove_all(conn);
        if let Some(c) = self.conns.get_mut(&conn) {
            *c = Conn::new(c.who, c.ring);
        }
        self.dirty = true;
    }

    /// Stops serving a client whose stream makes no sense any more. A domain's connection stays, dead, so that the end of
    /// the domain is still noticed.
    pub fn ignore(&mut self, conn: ConnId) {
        self.reset(conn);
        if let Some(c) = self.conns.get_mut(&conn) {
            c.dead = true;
        }
    }

    /// All clients.
    pub fn connections(&self) -> impl Iterator<Item = ConnId> {
        self.conns.keys().copied()
    }

    /// The connection of a domain that has been introduced.
    pub fn ring_of(&self, domid: DomId) -> Option<ConnId> {
        self.domains.connection(domid)
    }

    /// Whose ring a connection is; `None` for a socket.
    pub fn ring_domain(&self, conn: ConnId) -> Option<DomId> {
        self.conns.get(&conn).and_then(|c| c.ring)
    }

    /// Whether something changed that a restart must not lose; asking resets it.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// The nodes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Whether every request is logged.
    pub fn set_tracing(&mut self, on: bool) {
        self.tracing = on;
    }

    /// The limits in force, for another server.
    pub fn limits(&self) -> Quotas {
        self.quotas.fresh()
    }

    /// Bytes of memory that wait for this client or came from it: bounded for guests.
    pub fn buffered(&self, conn: ConnId) -> usize {
        self.conns
            .get(&conn)
            .map_or(0, |c| c.outbox.bytes() + c.inbox.partial().len())
    }

    /// Queues the reply to a request.
    pub(super) fn reply(
        &mut self,
        conn: ConnId,
        request: SockMsg,
        result: Result<Vec<u8>, Errno>,
        host: &mut dyn Host,
    ) {
        let result = match result {
            Ok(payload) if payload.len() > limit::PAYLOAD_MAX as usize => Err(Errno::E2BIG),
            other => other,
        };
        let message = match result {
            Ok(payload) => encode(request, &payload),
            Err(errno) => {
                let name = error_name(errno);
                encode(
                    SockMsg {
                        kind: kind::ERROR,
                        ..request
                    },
                    format!("{name}\0").as_bytes(),
                )
            }
        };
        let Some(c) = self.conns.get_mut(&conn) else {
            return;
        };
        c.outbox.reply(message);
        if !c.who.is_privileged() && c.outbox.replies() == self.quotas.limit(Quota::Outstanding) {
            let line = self.quotas.refuse(c.who.domid, Quota::Outstanding);
            line.iter().for_each(|l| host.log(l));
        }
    }

    /// Tells watches of changes of nodes.
    pub(super) fn publish(&mut self, changes: Vec<Change>, host: &mut dyn Host) {
        for change in changes {
            self.dirty = true;
            let watches = match change.exact {
                true => self.watches.on(change.path.as_str()),
                false => self.watches.around(&change.path),
            };
            if watches.is_empty() {
                continue;
            }
            // Whoever could see the node before or can now, or can see the names in the node around it, may know.
            let perms = |path: Option<&Path>| Some(self.tree.get(path?)?.perms.clone());
            let visible = [
                change.old_perms.clone(),
                perms(Some(&change.path)),
                perms(change.path.parent().as_ref()),
            ];
            for watch in watches {
                let Some(who) = self.conns.get(&watch.conn).map(|c| c.who) else {
                    continue;
                };
                if visible.iter().flatten().any(|p| p.access(who).read) {
                    self.send_event(&watch, change.path.as_str(), host);
                }
            }
        }
    }

    /// Tells watches of what happened to a domain.
    pub(super) fn publish_special(&mut self, name: &str, host: &mut dyn Host) {
        let Some(perms) = self.special.of(name).cloned() else {
            return;
        };
        for watch in self.watches.on(name) {
            let who = self.conns.get(&watch.conn).map(|c| c.who);
            if who.is_some_and(|w| perms.access(w).read) {
                self.send_event(&watch, name, host);
            }
        }
    }

    /// Queues an event, or a stand-in if the client has too many waiting.
    pub(super) fn send_event(&mut self, watch: &Watch, path: &str, host: &mut dyn Host) {
        let Some(c) = self.conns.get_mut(&watch.conn).filter(|c| !c.dead) else {
            return;
        };
        let event = |path: &str| {
            let shown = path.get(watch.path.hidden..).unwrap_or_default();
            let payload = [shown.as_bytes(), b"\0", &watch.token, b"\0"].concat();
            let header = SockMsg {
                kind: kind::WATCH_EVENT,
                ..SockMsg::default()
            };
            (payload.len() <= limit::PAYLOAD_MAX as usize).then(|| encode(header, &payload))
        };
        let room = if c.who.is_privileged() {
            CONTROL_EVENTS
        } else {
            GUEST_EVENTS
        };
        let Some(message) = event(path) else { return };
        if c.outbox.event(message, room) == Queued::Yes {
            return;
        }
        let Some(stand_in) = event(&watch.path.key) else {
            return;
        };
        if c.outbox.event(stand_in, room + STAND_INS) == Queued::Full && c.ring.is_none() {
            c.dead = true;
            host.log(&format!(
                "connection {} does not fetch its watch events and is dropped",
                watch.conn.0
            ));
        }
    }

    /// The path of a request from this client.
    pub(super) fn path(&self, who: Who, name: &[u8]) -> Result<Path, Errno> {
        Path::parse(name, who.domid, self.quotas.limit(Quota::PathLength))
    }

    /// What a watch request of this client names.
    pub(super) fn watch_path(&self, who: Who, name: &[u8]) -> Result<WatchPath, Errno> {
        WatchPath::parse(name, who.domid, self.quotas.limit(Quota::PathLength))
    }
}
