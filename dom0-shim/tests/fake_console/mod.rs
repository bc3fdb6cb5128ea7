//! A stand-in for the machine around the console daemon, and a guest's end of a ring.

use dom0_shim::consoled::host::{Host, Log, Terminal};
use dom0_shim::consoled::nodes::Nodes;
use dom0_shim::shared::BoxedPage;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;
use xen_abi::DomId;
use xen_sys::evtchn::LocalPort;
use xen_sys::page::SharedPage;

/// Where the indices are.
pub mod word {
    pub const IN_CONS: usize = 3072;
    pub const IN_PROD: usize = 3076;
    pub const OUT_CONS: usize = 3080;
    pub const OUT_PROD: usize = 3084;
}

/// A guest that keeps to the rules.
pub struct Frontend {
    pub page: Rc<SharedPage>,
}

impl Frontend {
    /// Prints as much as there is room for; returns how much.
    pub fn print(&self, bytes: &[u8]) -> usize {
        let (cons, mut prod) = (
            self.page.load(word::OUT_CONS),
            self.page.load(word::OUT_PROD),
        );
        let mut count = 0;
        for byte in bytes {
            if prod.wrapping_sub(cons) >= 2048 {
                break;
            }
            self.page.copy_in(1024 + (prod % 2048) as usize, &[*byte]);
            prod = prod.wrapping_add(1);
            count += 1;
        }
        self.page.store(word::OUT_PROD, prod);
        count
    }

    /// Takes what was typed, at most what the ring can hold.
    pub fn read(&self) -> Vec<u8> {
        let (mut cons, prod) = (self.page.load(word::IN_CONS), self.page.load(word::IN_PROD));
        let mut bytes = Vec::new();
        while cons != prod && bytes.len() < 1024 {
            let mut byte = [0];
            self.page.copy_out((cons % 1024) as usize, &mut byte);
            bytes.extend(byte);
            cons = cons.wrapping_add(1);
        }
        self.page.store(word::IN_CONS, cons);
        bytes
    }
}

/// A terminal.
pub struct Tty {
    pub shown: Vec<u8>,
    pub typed: VecDeque<u8>,
    pub room: usize,
    pub unread: usize,
    pub broken: bool,
}

pub struct TtyEnd(String, Rc<RefCell<Tty>>);

impl Terminal for TtyEnd {
    fn path(&self) -> &str {
        &self.0
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut tty = self.1.borrow_mut();
        if tty.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(tty.room);
        tty.room -= count;
        tty.shown.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let typed = &mut self.1.borrow_mut().typed;
        let count = bytes.len().min(typed.len());
        bytes
            .iter_mut()
            .zip(typed.drain(..count))
            .for_each(|(to, from)| *to = from);
        Ok(count)
    }
    fn unread(&self) -> usize {
        self.1.borrow().unread
    }
}

struct Kept(Rc<RefCell<Vec<u8>>>);

impl Log for Kept {
    fn write(&mut self, bytes: &[u8]) {
        self.0.borrow_mut().extend_from_slice(bytes);
    }
    fn reopen(&mut self) {}
}

/// The machine.
#[derive(Default)]
pub struct Fake {
    pub living: BTreeSet<DomId>,
    pub nodes: BTreeMap<DomId, Nodes>,
    pub names: BTreeMap<DomId, String>,
    pub pages: BTreeMap<DomId, Rc<SharedPage>>,
    pub watched: BTreeSet<DomId>,
    pub published: BTreeMap<DomId, String>,
    pub terminals: Vec<Rc<RefCell<Tty>>>,
    pub logs: BTreeMap<String, Rc<RefCell<Vec<u8>>>>,
    pub bound: Vec<(DomId, u32)>,
    pub broken_ports: BTreeSet<u32>,
    pub unbound: Vec<LocalPort>,
    pub notified: Vec<LocalPort>,
    pub unmasked: Vec<LocalPort>,
    pub said: Vec<String>,
}

impl Fake {
    /// A new guest.
    pub fn add(&mut self, domid: DomId, name: &str) -> Frontend {
        let page = Rc::new(SharedPage::private().unwrap());
        self.living.insert(domid);
        self.names.insert(domid, name.into());
        self.pages.insert(domid, page.clone());
        let nodes = Nodes {
            ring_ref: 1000,
            port: 10 * u32::from(domid.0),
            limit: 1 << 20,
        };
        self.nodes.insert(domid, nodes);
        Frontend { page }
    }

    /// The daemon's end of a guest's port.
    pub fn port(&self, domid: DomId) -> LocalPort {
        LocalPort(self.nodes[&domid].port + 1000)
    }
}

impl Host for Fake {
    type Terminal = TtyEnd;
    fn domains(&mut self) -> Vec<DomId> {
        std::iter::once(DomId(0))
            .chain(self.living.iter().copied())
            .collect()
    }
    fn exists(&mut self, domid: DomId) -> bool {
        let exists = self.living.contains(&domid);
        if !exists {
            self.pages.remove(&domid);
        }
        exists
    }
    fn nodes(&mut self, domid: DomId) -> Option<Nodes> {
        self.nodes.get(&domid).cloned()
    }
    fn name(&mut self, domid: DomId) -> String {
        self.names[&domid].clone()
    }
    fn watch(&mut self, domid: DomId) {
        self.watched.insert(domid);
    }
    fn unwatch(&mut self, domid: DomId) {
        self.watched.remove(&domid);
    }
    fn publish(&mut self, domid: DomId, terminal: &str) {
        self.published.insert(domid, terminal.into());
    }
    fn map(&mut self, domid: DomId, _: &Nodes) -> io::Result<BoxedPage> {
        let page = self.pages.get(&domid).cloned();
        Ok(Box::new(page.ok_or(io::ErrorKind::NotFound)?))
    }
    fn bind(&mut self, domid: DomId, port: u32) -> io::Result<LocalPort> {
        if self.broken_ports.contains(&port) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.bound.push((domid, port));
        Ok(LocalPort(port + 1000))
    }
    fn unbind(&mut self, port: LocalPort) {
        self.unbound.push(port);
    }
    fn notify(&mut self, port: LocalPort) {
        self.notified.push(port);
    }
    fn unmask(&mut self, port: LocalPort) {
        self.unmasked.push(port);
    }
    fn terminal(&mut self) -> io::Result<TtyEnd> {
        let tty = Rc::new(RefCell::new(Tty {
            shown: Vec::new(),
            typed: VecDeque::new(),
            room: usize::MAX,
            unread: 0,
            broken: false,
        }));
        self.terminals.push(tty.clone());
        Ok(TtyEnd(format!("/dev/pts/{}", self.terminals.len()), tty))
    }
    fn log_of(&mut self, name: &str) -> Option<Box<dyn Log>> {
        Some(Box::new(Kept(
            self.logs.entry(name.into()).or_default().clone(),
        )))
    }
    fn say(&mut self, line: &str) {
        self.said.push(line.into());
    }
}
