//! Domains at their rings, on plain memory: the real transports, the real pump, no Xen.
#![forbid(unsafe_code)]

mod common;

use dom0_shim::shared::{BoxedPage, Page};
use dom0_shim::xenstored::host::DomainState;
use dom0_shim::xenstored::machine::{Machine, Xen};
use dom0_shim::xenstored::pump::serve;
use dom0_shim::xenstored::quota::Quotas;
use dom0_shim::xenstored::server::{ConnId, Server};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::rc::Rc;
use xen_abi::DomId;
use xen_abi::io::xs_wire::{
    DomainInterface, HEADER_LEN, SockMsg, connection, feature, kind, ring_error,
};
use xen_sys::evtchn::LocalPort;
use xen_sys::page::SharedPage;
use zerocopy::{FromBytes, IntoBytes};

const REQ_CONS: usize = offset_of!(DomainInterface, req_cons);
const REQ_PROD: usize = offset_of!(DomainInterface, req_prod);
const RSP_CONS: usize = offset_of!(DomainInterface, rsp_cons);
const RSP_PROD: usize = offset_of!(DomainInterface, rsp_prod);
const FEATURES: usize = offset_of!(DomainInterface, server_features);
const CONNECTION: usize = offset_of!(DomainInterface, connection);
const ERROR: usize = offset_of!(DomainInterface, error);

/// Pages of the test's domains, and what was done to their ports.
#[derive(Default)]
struct Pages {
    pages: BTreeMap<DomId, Rc<SharedPage>>,
    events: Vec<u32>,
    unbound: Vec<u32>,
}

struct FakeXen(Rc<RefCell<Pages>>);

impl Xen for FakeXen {
    fn map(&mut self, domid: DomId) -> io::Result<BoxedPage> {
        let page = self.0.borrow().pages.get(&domid).cloned();
        Ok(Box::new(page.ok_or(io::ErrorKind::NotFound)?) as Box<dyn Page>)
    }
    fn bind(&mut self, _: DomId, port: u32) -> io::Result<LocalPort> {
        if port == 666 {
            Err(io::ErrorKind::InvalidInput.into())
        } else {
            Ok(LocalPort(port + 1000))
        }
    }
    fn unbind(&mut self, port: LocalPort) {
        self.0.borrow_mut().unbound.push(port.0);
    }
    fn notify(&mut self, port: LocalPort) {
        self.0.borrow_mut().events.push(port.0);
    }
    fn state(&mut self, _: DomId) -> io::Result<DomainState> {
        Ok(DomainState::Running)
    }
}

struct Setup {
    server: Server,
    machine: Machine,
    xen: Rc<RefCell<Pages>>,
    log: Rc<RefCell<Vec<String>>>,
}

impl Setup {
    fn new() -> Setup {
        let xen = Rc::new(RefCell::new(Pages::default()));
        let log = Rc::new(RefCell::new(Vec::new()));
        let lines = log.clone();
        let log_line = Box::new(move |l: &str| lines.borrow_mut().push(l.to_owned()));
        let machine = Machine::new(Box::new(FakeXen(xen.clone())), log_line);
        Setup {
            server: Server::new(Quotas::default()),
            machine,
            xen,
            log,
        }
    }

    /// A domain whose page holds `garbage` at first.
    fn domain(&mut self, domid: u16, garbage: u8) -> Guest {
        let page = Rc::new(SharedPage::private().unwrap());
        page.copy_in(0, &[garbage; 2064]);
        self.xen
            .borrow_mut()
            .pages
            .insert(DomId(domid), page.clone());
        self.server
            .introduce(DomId(domid), 1, u32::from(domid).max(1), &mut self.machine)
            .unwrap();
        Guest {
            page,
            conn: self.server.ring_of(DomId(domid)).unwrap(),
            got: Vec::new(),
        }
    }

    fn turn(&mut self, guest: &Guest) {
        serve(&mut self.server, &mut self.machine, guest.conn);
        self.machine.flush();
    }

    /// A daemon that takes over what this one leaves. What is in the pages stays.
    fn restarted(self) -> Setup {
        let text = self
            .server
            .dump(|d| dom0_shim::xenstored::host::Host::indices(&self.machine, d));
        let mut next = Setup::new();
        next.xen.borrow_mut().pages = self.xen.borrow().pages.clone();
        next.server.load(&text, &mut next.machine).unwrap();
        assert_eq!(
            next.server
                .dump(|d| dom0_shim::xenstored::host::Host::indices(&next.machine, d)),
            text
        );
        next
    }
}

/// The domain's end of the ring, as a kernel drives it.
struct Guest {
    page: Rc<SharedPage>,
    conn: ConnId,
    got: Vec<u8>,
}

impl Guest {
    /// Puts as many bytes into the ring as fit.
    fn put(&self, bytes: &[u8]) -> usize {
        let (cons, prod) = (self.page.load(REQ_CONS), self.page.load(REQ_PROD));
        let room = 1024 - prod.wrapping_sub(cons) as usize;
        let count = bytes.len().min(room);
        for (i, byte) in bytes[..count].iter().enumerate() {
            self.page
                .copy_in(prod.wrapping_add(i as u32) as usize % 1024, &[*byte]);
        }
        self.page.store(REQ_PROD, prod.wrapping_add(count as u32));
        count
    }

    /// Takes up to `most` bytes out of the ring.
    fn take(&mut self, most: u32) {
        let (cons, prod) = (self.page.load(RSP_CONS), self.page.load(RSP_PROD));
        let count = prod.wrapping_sub(cons).min(most);
        for i in 0..count {
            let mut byte = [0];
            self.page
                .copy_out(1024 + cons.wrapping_add(i) as usize % 1024, &mut byte);
            self.got.push(byte[0]);
        }
        self.page.store(RSP_CONS, cons.wrapping_add(count));
    }

    /// The whole messages so far.
    fn messages(&mut self) -> Vec<(u32, Vec<u8>)> {
        let mut messages = Vec::new();
        while let Some(header) = self
            .got
            .get(..HEADER_LEN)
            .map(|h| SockMsg::read_from_bytes(h).unwrap())
        {
            let end = HEADER_LEN + header.len as usize;
            if self.got.len() < end {
                break;
            }
            messages.push((header.kind, self.got[HEADER_LEN..end].to_vec()));
            self.got.drain(..end);
        }
        messages
    }

    /// Sends a request and takes all that comes back.
    fn ask(&mut self, setup: &mut Setup, kind: u32, payload: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let bytes = request(kind, payload);
        let mut rest = &bytes[..];
        for _ in 0..40 {
            rest = &rest[self.put(rest)..];
            setup.turn(self);
            self.take(u32::MAX);
        }
        assert!(rest.is_empty(), "the store does not read");
        self.messages()
    }
}

fn request(kind: u32, payload: &[u8]) -> Vec<u8> {
    let header = SockMsg {
        kind,
        req_id: 1,
        tx_id: 0,
        len: payload.len() as u32,
    };
    [header.as_bytes(), payload].concat()
}

#[test]
fn a_fresh_ring_is_empty_and_says_what_the_store_can_do() {
    let mut s = Setup::new();
    let mut g = s.domain(3, 0xa5);
    for index in [REQ_CONS, REQ_PROD, RSP_CONS, RSP_PROD, ERROR] {
        assert_eq!(g.page.load(index), 0);
    }
    assert_eq!(
        g.page.load(FEATURES),
        feature::RECONNECTION | feature::ERROR
    );
    assert_eq!(
        g.ask(&mut s, kind::GET_DOMAIN_PATH, b"3\0"),
        [(kind::GET_DOMAIN_PATH, b"/local/domain/3\0".to_vec())]
    );
    assert!(
        s.xen.borrow().events.contains(&1003),
        "the domain was sent an event"
    );
    s.server.release(DomId(3), &mut s.machine).unwrap();
    assert_eq!(s.xen.borrow().unbound, [1003]);
    // A port that cannot be bound, a page that is not there.
    s.xen.borrow_mut().pages.remove(&DomId(3));
    assert!(s.server.introduce(DomId(3), 1, 3, &mut s.machine).is_err());
    assert!(
        s.server
            .introduce(DomId(3), 1, 666, &mut s.machine)
            .is_err()
    );
    assert!(
        s.log
            .borrow()
            .iter()
            .any(|l| l.starts_with("d3: cannot map the xenstore page: "))
    );
}

/// Messages of all sizes, longer than the ring too, across its end and across the end of the indices.
#[test]
fn messages_go_round_the_ring() {
    let mut s = Setup::new();
    let start = u32::MAX - 3000;
    // The control domain's kernel may have used its ring before: the store goes on where the page says.
    let page = Rc::new(SharedPage::private().unwrap());
    for index in [REQ_CONS, REQ_PROD, RSP_CONS, RSP_PROD] {
        page.store(index, start);
    }
    s.xen.borrow_mut().pages.insert(DomId(0), page.clone());
    s.server.introduce(DomId(0), 0, 1, &mut s.machine).unwrap();
    let conn = s.server.ring_of(DomId(0)).unwrap();
    let mut g = Guest {
        page,
        conn,
        got: Vec::new(),
    };
    for size in [0, 1, 7, 1000, 1024, 1025, 4000, 3, 4088, 2048] {
        let value = vec![b'v'; size];
        let wrote = g.ask(&mut s, kind::WRITE, &[b"/value\0", &value[..]].concat());
        assert_eq!(wrote, [(kind::WRITE, b"OK\0".to_vec())], "{size}");
        assert_eq!(
            g.ask(&mut s, kind::READ, b"/value\0"),
            [(kind::READ, value)]
        );
    }
    assert!(g.page.load(REQ_CONS) < start, "the index went round");
}

#[test]
fn indices_that_make_no_sense() {
    for (index, value) in [
        (REQ_PROD, 1025),
        (REQ_PROD, u32::MAX),
        (RSP_CONS, 1),
        (RSP_CONS, 0x8000_0000),
    ] {
        let mut s = Setup::new();
        let (mut bad, mut good) = (s.domain(1, 0), s.domain(2, 0));
        bad.put(&request(kind::GET_DOMAIN_PATH, b"1\0"));
        bad.page.store(index, value);
        s.turn(&bad);
        assert_eq!(
            bad.page.load(ERROR),
            ring_error::RINGIDX,
            "{index} {value:#x}"
        );
        assert!(s.server.is_dead(bad.conn));
        assert!(
            s.log
                .borrow()
                .iter()
                .any(|l| l == "d1: breaks the protocol (Indices) and is not served any more")
        );
        // The other one is served, and so is this one once it has asked for a fresh connection.
        assert_eq!(good.ask(&mut s, kind::GET_DOMAIN_PATH, b"2\0").len(), 1);
        bad.page.store(CONNECTION, connection::RECONNECT);
        s.turn(&bad);
        assert_eq!(
            (bad.page.load(CONNECTION), bad.page.load(ERROR)),
            (connection::CONNECTED, ring_error::NONE)
        );
        assert_eq!(bad.ask(&mut s, kind::GET_DOMAIN_PATH, b"1\0").len(), 1);
    }
}

#[test]
fn a_domain_that_overwrites_the_stores_indices_fools_itself() {
    let mut s = Setup::new();
    let mut g = s.domain(1, 0);
    g.ask(&mut s, kind::GET_DOMAIN_PATH, b"1\0");
    let (req, rsp) = (g.page.load(REQ_CONS), g.page.load(RSP_PROD));
    g.page.store(REQ_CONS, 12345);
    g.page.store(RSP_PROD, 54321);
    g.page.store(REQ_PROD, req);
    s.turn(&g);
    assert!(!s.server.is_dead(g.conn));
    g.page.store(REQ_CONS, req);
    g.page.store(RSP_PROD, rsp);
    assert_eq!(g.ask(&mut s, kind::GET_DOMAIN_PATH, b"1\0").len(), 1);
}

#[test]
fn too_long_a_message() {
    let mut s = Setup::new();
    let g = s.domain(1, 0);
    let header = SockMsg {
        kind: kind::WRITE,
        req_id: 1,
        tx_id: 0,
        len: 4097,
    };
    g.put(header.as_bytes());
    s.turn(&g);
    assert_eq!(g.page.load(ERROR), ring_error::PROTO);
    assert!(s.server.is_dead(g.conn));
}

/// A fresh connection forgets half a message, watches and transactions.
#[test]
fn reconnection() {
    let mut s = Setup::new();
    let mut g = s.domain(1, 0);
    g.ask(&mut s, kind::WATCH, b"x\0t\0");
    g.put(&request(kind::WRITE, b"x\0half")[..18]);
    s.turn(&g);
    s.xen.borrow_mut().events.clear();
    g.page.store(CONNECTION, connection::RECONNECT);
    s.turn(&g);
    assert_eq!(g.page.load(CONNECTION), connection::CONNECTED);
    assert_eq!(s.xen.borrow().events, [1001], "the domain was told");
    let control = s.server.open();
    let write = request(kind::WRITE, b"/local/domain/1/x\0v");
    s.server
        .receive(control, &write[..16], &mut s.machine)
        .unwrap();
    s.server
        .receive(control, &write[16..], &mut s.machine)
        .unwrap();
    let answer = g.ask(&mut s, kind::GET_DOMAIN_PATH, b"1\0");
    assert_eq!(
        answer,
        [(kind::GET_DOMAIN_PATH, b"/local/domain/1\0".to_vec())],
        "and no event"
    );
}

/// A guest that puts requests and never takes replies: the store reads up to the quota and waits.
#[test]
fn a_ring_that_is_never_emptied() {
    let mut s = Setup::new();
    let mut g = s.domain(1, 0);
    let flood = request(kind::GET_DOMAIN_PATH, b"1\0").repeat(500);
    let mut rest = &flood[..];
    for _ in 0..100 {
        rest = &rest[g.put(rest)..];
        s.turn(&g);
        assert!(s.server.buffered(g.conn) <= 21 * 4112);
    }
    assert!(!rest.is_empty());
    // Once it takes them, everything is answered.
    let mut answers = 0;
    for _ in 0..2000 {
        rest = &rest[g.put(rest)..];
        s.turn(&g);
        g.take(u32::MAX);
        answers += g.messages().len();
    }
    assert_eq!(answers, 500);
}

/// A restart in the middle of messages in both directions, with watches and an open transaction.
#[test]
fn a_restart_is_not_noticed() {
    let mut s = Setup::new();
    let mut g = s.domain(1, 0);
    s.domain(2, 0);
    let control = s.server.open();
    let send = |s: &mut Setup, kind, payload: &[u8]| {
        for piece in [&request(kind, payload)[..16], payload] {
            s.server.receive(control, piece, &mut s.machine).unwrap();
        }
    };
    send(&mut s, kind::WRITE, b"/local/domain/1\0");
    send(&mut s, kind::SET_PERMS, b"/local/domain/1\0n1\0r2\0");
    send(
        &mut s,
        kind::WRITE,
        &[b"/local/domain/1/bin\0", &[0, 255, b' ', b'%'][..]].concat(),
    );
    send(&mut s, kind::SET_PERMS, b"@releaseDomain\0n0\0r1\0");
    send(&mut s, kind::SET_TARGET, b"2\x001\0");
    g.ask(&mut s, kind::WATCH, b"x\0t %\0");
    let id = g.ask(&mut s, kind::TRANSACTION_START, b"\0")[0].1.clone();
    assert_eq!(id, b"1\0");
    // Replies that do not fit into the ring, of which the domain has taken half of one; and half a request.
    g.ask(&mut s, kind::WRITE, &[b"big\0", &[b'b'; 1500][..]].concat());
    let reads = request(kind::READ, b"big\0");
    g.put(&reads);
    let write = request(kind::WRITE, b"x\0new");
    g.put(&write[..19]);
    s.turn(&g);
    g.take(100);
    s.turn(&g);

    let mut s = s.restarted();
    g.conn = s.server.ring_of(DomId(1)).unwrap();
    g.put(&write[19..]);
    for _ in 0..10 {
        s.turn(&g);
        g.take(u32::MAX);
    }
    let messages = g.messages();
    assert_eq!(messages[0], (kind::READ, vec![b'b'; 1500]));
    assert_eq!(messages[1], (kind::WRITE, b"OK\0".to_vec()));
    assert_eq!(messages[2], (kind::WATCH_EVENT, b"x\0t %\0".to_vec()));
    assert_eq!(messages.len(), 3);
    // Its transaction is known and has lost.
    let end = SockMsg {
        kind: kind::TRANSACTION_END,
        req_id: 1,
        tx_id: 1,
        len: 2,
    };
    g.put(&[end.as_bytes(), b"T\0"].concat());
    s.turn(&g);
    g.take(u32::MAX);
    assert_eq!(g.messages(), [(kind::ERROR, b"EAGAIN\0".to_vec())]);
    assert_eq!(
        g.ask(&mut s, kind::READ, b"bin\0"),
        [(kind::READ, vec![0, 255, b' ', b'%'])]
    );
}

#[test]
fn a_state_that_makes_no_sense_is_refused() {
    let mut s = Setup::new();
    s.domain(1, 0);
    let text = s.server.dump(|_| None);
    let load = |text: &str| Server::new(Quotas::default()).load(text, &mut Setup::new().machine);
    assert_eq!(load(&text), Ok(()));
    assert!(load("").is_err());
    assert!(
        load(text.trim_end().trim_end_matches("end")).is_err(),
        "cut short"
    );
    for (good, bad) in [
        ("node /tool n0 %", "node /x/y n0 %"),
        ("node /tool n0 %", "node /tool q0 %"),
        ("node /tool n0 %", "node /tool n0 %x"),
        ("node /tool n0 %", "node /tool n0 %\nnode /tool n0 %"),
        ("domain 1", "nonsense 1"),
        ("domain 1", "domain x"),
    ] {
        assert!(text.contains(good));
        assert!(load(&text.replacen(good, bad, 1)).is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(common::cases())]

    /// A domain that writes anything anywhere into its page, at any time. The store neither panics nor stops serving
    /// others, and reads no more than a ring for each turn that the indices allow.
    #[test]
    fn a_page_of_noise(writes in prop::collection::vec((0..519_usize, any::<u32>(), prop::bool::weighted(0.3)), 1..200)) {
        let mut s = Setup::new();
        let bad = s.domain(1, 0);
        let mut good = s.domain(2, 0);
        for (word, value, small) in writes {
            let value = if small { value % 64 } else { value };
            // Mostly the words that matter.
            let word = if value % 3 == 0 { 512 + word % 7 } else { word };
            bad.page.store(word * 4, value);
            s.turn(&bad);
        }
        prop_assert_eq!(good.ask(&mut s, kind::GET_DOMAIN_PATH, b"2\0").len(), 1);
        prop_assert_eq!(s.server.tree().faults(), Vec::<String>::new());
    }

    /// A state that is damaged anywhere is taken or refused, never more.
    #[test]
    fn a_damaged_state(at in any::<prop::sample::Index>(), with in "[ -~\n]{0,3}", cut in 0..4_usize) {
        let mut s = Setup::new();
        let mut g = s.domain(1, 0);
        g.ask(&mut s, kind::WATCH, b"x\0t\0");
        g.put(&request(kind::READ, b"/\0")[..10]);
        s.turn(&g);
        let mut text = s.server.dump(|d| dom0_shim::xenstored::host::Host::indices(&s.machine, d));
        let start = at.index(text.len());
        text.replace_range(start..(start + cut).min(text.len()), &with);
        let mut next = Setup::new();
        next.xen.borrow_mut().pages = s.xen.borrow().pages.clone();
        if next.server.load(&text, &mut next.machine).is_ok() {
            prop_assert_eq!(next.server.tree().faults(), Vec::<String>::new());
        }
    }
}
