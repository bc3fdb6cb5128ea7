//! The machine as the daemon has it: its clients' ends, and Xen if there is one.

use super::conn::ring::Ring;
use super::conn::socket::Socket;
use super::conn::{Fault, Transport};
use super::host::{DomainState, Host, Indices};
use super::server::ConnId;
use crate::shared::BoxedPage;
use std::collections::BTreeMap;
use std::io;
use xen_abi::{DomId, Errno};
use xen_sys::evtchn::LocalPort;

/// What the daemon needs of Xen, or a stand-in for it.
pub trait Xen {
    /// Maps a domain's ring page.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn map(&mut self, domid: DomId) -> io::Result<BoxedPage>;

    /// Binds the port that a domain holds ready; for the control domain its kernel's.
    ///
    /// # Errors
    /// Whatever prevents it.
    fn bind(&mut self, domid: DomId, port: u32) -> io::Result<LocalPort>;

    /// Closes a port.
    fn unbind(&mut self, port: LocalPort);

    /// Sends an event.
    fn notify(&mut self, port: LocalPort);

    /// What a domain is doing.
    ///
    /// # Errors
    /// If the hypervisor cannot be asked.
    fn state(&mut self, domid: DomId) -> io::Result<DomainState>;
}

/// No Xen: only clients over the socket, for tests and for trying the store out. Every domain is said to run.
#[derive(Debug)]
pub struct NoXen;

impl Xen for NoXen {
    fn map(&mut self, _: DomId) -> io::Result<BoxedPage> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn bind(&mut self, _: DomId, _: u32) -> io::Result<LocalPort> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn unbind(&mut self, _: LocalPort) {}
    fn notify(&mut self, _: LocalPort) {}
    fn state(&mut self, _: DomId) -> io::Result<DomainState> {
        Ok(DomainState::Running)
    }
}

/// A connected domain.
struct Peer {
    ring: Ring<BoxedPage>,
    /// `None` if binding it failed: the domain cannot be woken, nor wake the store.
    port: Option<LocalPort>,
}

/// Xen, rings and sockets.
pub struct Machine {
    xen: Box<dyn Xen>,
    peers: BTreeMap<DomId, Peer>,
    sockets: BTreeMap<ConnId, Socket>,
    log: Box<dyn FnMut(&str)>,
}

impl Machine {
    /// With no clients yet; `log` takes lines for the administrator.
    pub fn new(xen: Box<dyn Xen>, log: Box<dyn FnMut(&str)>) -> Machine {
        Machine {
            xen,
            peers: BTreeMap::new(),
            sockets: BTreeMap::new(),
            log,
        }
    }

    /// Adds a client's socket.
    pub fn add_socket(&mut self, conn: ConnId, socket: Socket) {
        self.sockets.insert(conn, socket);
    }

    /// Drops a client's socket.
    pub fn drop_socket(&mut self, conn: ConnId) {
        self.sockets.remove(&conn);
    }

    /// All sockets.
    pub fn sockets(&self) -> impl Iterator<Item = (ConnId, &Socket)> {
        self.sockets.iter().map(|(c, s)| (*c, s))
    }

    /// A client's end: its domain's ring, or its socket.
    pub fn transport(&mut self, conn: ConnId, ring: Option<DomId>) -> Option<&mut dyn Transport> {
        match ring {
            Some(domid) => self
                .peers
                .get_mut(&domid)
                .map(|p| &mut p.ring as &mut dyn Transport),
            None => self.sockets.get_mut(&conn).map(|s| s as &mut dyn Transport),
        }
    }

    /// Whether a ring has something to do, given whether the store wants input from it and has output for it.
    pub fn ring_is_ready(&self, domid: DomId, wants: bool, has: bool) -> bool {
        let ready = |p: &Peer| (wants && p.ring.has_input()) || (has && p.ring.has_room());
        self.peers.get(&domid).is_some_and(ready)
    }

    /// Tells a client that it is not served any more.
    pub fn refuse(&mut self, conn: ConnId, ring: Option<DomId>, fault: Fault) {
        if let Some(transport) = self.transport(conn, ring) {
            transport.refuse(fault);
        }
    }

    /// Sends the events that moving bytes left to be sent.
    pub fn flush(&mut self) {
        for peer in self.peers.values_mut() {
            if let (true, Some(port)) = (peer.ring.take_notify(), peer.port) {
                self.xen.notify(port);
            }
        }
    }

    /// Wakes the control domain's kernel, which waits for its store to be there.
    pub fn wake_kernel(&mut self) {
        if let Some(port) = self.peers.get(&DomId::DOM0).and_then(|p| p.port) {
            self.xen.notify(port);
        }
    }

    fn bind(&mut self, domid: DomId, port: u32) -> Result<LocalPort, Errno> {
        self.xen.bind(domid, port).map_err(|error| {
            (self.log)(&format!(
                "{domid}: cannot bind event channel port {port}: {error}"
            ));
            Errno::EINVAL
        })
    }
}

impl Host for Machine {
    fn connect(&mut self, domid: DomId, _gfn: u64, port: u32) -> Result<(), Errno> {
        let page = self.xen.map(domid).map_err(|error| {
            (self.log)(&format!("{domid}: cannot map the xenstore page: {error}"));
            Errno::EINVAL
        })?;
        let port = self.bind(domid, port)?;
        self.peers.insert(
            domid,
            Peer {
                ring: Ring::attach(page),
                port: Some(port),
            },
        );
        Ok(())
    }

    fn rebind(&mut self, domid: DomId, port: u32) -> Result<(), Errno> {
        if let Some(old) = self.peers.get_mut(&domid).and_then(|p| p.port.take()) {
            self.xen.unbind(old);
        }
        let port = self.bind(domid, port)?;
        if let Some(peer) = self.peers.get_mut(&domid) {
            peer.port = Some(port);
        }
        Ok(())
    }

    fn reset_ring(&mut self, domid: DomId) {
        // The control domain's kernel waits for an event before it uses its ring, and programs may have used it already.
        if let Some(peer) = self.peers.get_mut(&domid).filter(|_| domid != DomId::DOM0) {
            peer.ring.reset();
        }
    }

    fn indices(&self, domid: DomId) -> Option<Indices> {
        self.peers.get(&domid).map(|p| p.ring.indices())
    }

    fn disconnect(&mut self, domid: DomId) {
        if let Some(port) = self.peers.remove(&domid).and_then(|p| p.port) {
            self.xen.unbind(port);
        }
    }

    fn state(&mut self, domid: DomId) -> DomainState {
        self.xen.state(domid).unwrap_or_else(|error| {
            // Better to keep a domain that is gone than to lose one that is there.
            (self.log)(&format!(
                "{domid}: the hypervisor does not tell its state: {error}"
            ));
            DomainState::Running
        })
    }

    fn log(&mut self, line: &str) {
        (self.log)(line);
    }
}
