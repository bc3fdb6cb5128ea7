//! A store without a machine around it, and clients that speak the wire protocol with it.

#![allow(dead_code, reason = "each test uses its part")]

use dom0_shim::xenstored::host::{DomainState, Host};
use dom0_shim::xenstored::quota::Quotas;
use dom0_shim::xenstored::server::{ConnId, Server};
use std::collections::{BTreeMap, VecDeque};
use xen_abi::io::xs_wire::{HEADER_LEN, SockMsg, error_from_name, kind};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, IntoBytes};

/// Number of cases of a property test: a quick slice by default, a long run with `XENOLITH_CASES`.
pub fn cases() -> proptest::prelude::ProptestConfig {
    let wanted = std::env::var("XENOLITH_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    // Failures are printed; there is no place for them in the source tree.
    proptest::prelude::ProptestConfig {
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::with_cases(wanted.unwrap_or(256))
    }
}

/// Domains that run unless told otherwise, and a record of what the store did with them.
#[derive(Default)]
pub struct FakeHost {
    pub states: BTreeMap<DomId, DomainState>,
    pub refuse: bool,
    pub indices: BTreeMap<DomId, (u32, u32)>,
    pub calls: Vec<String>,
    pub lines: Vec<String>,
}

impl Host for FakeHost {
    fn connect(&mut self, domid: DomId, gfn: u64, port: u32) -> Result<(), Errno> {
        self.calls.push(format!("connect {domid} {gfn} {port}"));
        if self.refuse {
            Err(Errno::EINVAL)
        } else {
            Ok(())
        }
    }
    fn rebind(&mut self, domid: DomId, port: u32) -> Result<(), Errno> {
        self.calls.push(format!("rebind {domid} {port}"));
        Ok(())
    }
    fn reset_ring(&mut self, domid: DomId) {
        self.calls.push(format!("reset {domid}"));
    }
    fn indices(&self, domid: DomId) -> Option<(u32, u32)> {
        self.indices.get(&domid).copied()
    }
    fn disconnect(&mut self, domid: DomId) {
        self.calls.push(format!("disconnect {domid}"));
    }
    fn state(&mut self, domid: DomId) -> DomainState {
        self.states
            .get(&domid)
            .copied()
            .unwrap_or(DomainState::Running)
    }
    fn log(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }
}

/// The store under test.
pub struct Store {
    pub server: Server,
    pub host: FakeHost,
    events: BTreeMap<ConnId, VecDeque<String>>,
}

impl Store {
    pub fn new() -> Store {
        Store {
            server: Server::new(Quotas::default()),
            host: FakeHost::default(),
            events: BTreeMap::new(),
        }
    }

    /// A client of the control domain.
    pub fn control(&mut self) -> ConnId {
        self.server.open()
    }

    /// Introduces a guest that owns its home.
    pub fn guest(&mut self, domid: u16) -> ConnId {
        let conn = self.control();
        let home = format!("/local/domain/{domid}");
        self.write(conn, 0, &home, "").unwrap();
        self.set_perms(conn, 0, &home, &[&format!("n{domid}")])
            .unwrap();
        self.ask(
            conn,
            kind::INTRODUCE,
            0,
            format!("{domid}\x001\x005\0").as_bytes(),
        )
        .unwrap();
        self.server.close(conn);
        self.server.ring_of(DomId(domid)).unwrap()
    }

    /// Sends bytes as they are, as far as the store takes them; returns how many it took.
    pub fn push(&mut self, conn: ConnId, mut bytes: &[u8]) -> usize {
        let all = bytes.len();
        while !bytes.is_empty() {
            let n = self.server.wanted(conn).min(bytes.len());
            if n == 0 {
                break;
            }
            if self
                .server
                .receive(conn, &bytes[..n], &mut self.host)
                .is_err()
            {
                self.server.ignore(conn);
                break;
            }
            bytes = &bytes[n..];
        }
        all - bytes.len()
    }

    /// One request and its reply; events that arrive with it are kept for [`Store::events`].
    pub fn ask(
        &mut self,
        conn: ConnId,
        kind: u32,
        tx_id: u32,
        payload: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        let header = SockMsg {
            kind,
            req_id: 77,
            tx_id,
            len: payload.len() as u32,
        };
        self.push(conn, header.as_bytes());
        self.push(conn, payload);
        let (header, payload) = self.fetch(conn).into_iter().next().expect("a reply");
        assert_eq!((header.req_id, header.tx_id), (77, tx_id));
        if header.kind == xen_abi::io::xs_wire::kind::ERROR {
            return Err(error_from_name(payload.strip_suffix(&[0]).unwrap()).unwrap());
        }
        assert_eq!(header.kind, kind);
        Ok(payload)
    }

    /// Fetches all that waits: returns the replies and keeps the events.
    pub fn fetch(&mut self, conn: ConnId) -> Vec<(SockMsg, Vec<u8>)> {
        let mut bytes = Vec::new();
        while !self.server.outgoing(conn).is_empty() {
            let next = self.server.outgoing(conn).to_vec();
            self.server.sent(conn, next.len());
            bytes.extend(next);
        }
        let (mut rest, mut replies) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let header = SockMsg::read_from_bytes(&rest[..HEADER_LEN]).unwrap();
            let (payload, after) = rest[HEADER_LEN..].split_at(header.len as usize);
            if header.kind == kind::WATCH_EVENT {
                assert_eq!((header.req_id, header.tx_id), (0, 0));
                let text = String::from_utf8(payload.to_vec()).unwrap();
                let text = text.trim_end_matches('\0').replace('\0', " ");
                self.events.entry(conn).or_default().push_back(text);
            } else {
                replies.push((header, payload.to_vec()));
            }
            rest = after;
        }
        replies
    }

    /// The events since the last call, as `path token`.
    pub fn events(&mut self, conn: ConnId) -> Vec<String> {
        assert!(self.fetch(conn).is_empty(), "a reply that nobody asked for");
        self.events.remove(&conn).unwrap_or_default().into()
    }

    pub fn read(&mut self, conn: ConnId, tx: u32, path: &str) -> Result<String, Errno> {
        self.text(conn, kind::READ, tx, path)
    }

    pub fn list(&mut self, conn: ConnId, tx: u32, path: &str) -> Result<String, Errno> {
        let text = self.text(conn, kind::DIRECTORY, tx, path)?;
        Ok(text.trim_end_matches('\0').replace('\0', " "))
    }

    pub fn perms(&mut self, conn: ConnId, tx: u32, path: &str) -> Result<String, Errno> {
        let text = self.text(conn, kind::GET_PERMS, tx, path)?;
        Ok(text.trim_end_matches('\0').replace('\0', ","))
    }

    fn text(&mut self, conn: ConnId, kind: u32, tx: u32, path: &str) -> Result<String, Errno> {
        let payload = format!("{path}\0");
        Ok(String::from_utf8(self.ask(conn, kind, tx, payload.as_bytes())?).unwrap())
    }

    pub fn write(&mut self, conn: ConnId, tx: u32, path: &str, value: &str) -> Result<(), Errno> {
        self.ok(conn, kind::WRITE, tx, &format!("{path}\0{value}"))
    }

    pub fn mkdir(&mut self, conn: ConnId, tx: u32, path: &str) -> Result<(), Errno> {
        self.ok(conn, kind::MKDIR, tx, &format!("{path}\0"))
    }

    pub fn rm(&mut self, conn: ConnId, tx: u32, path: &str) -> Result<(), Errno> {
        self.ok(conn, kind::RM, tx, &format!("{path}\0"))
    }

    pub fn set_perms(
        &mut self,
        conn: ConnId,
        tx: u32,
        path: &str,
        perms: &[&str],
    ) -> Result<(), Errno> {
        let perms: String = perms.iter().map(|p| format!("{p}\0")).collect();
        self.ok(conn, kind::SET_PERMS, tx, &format!("{path}\0{perms}"))
    }

    pub fn watch(&mut self, conn: ConnId, path: &str, token: &str) -> Result<(), Errno> {
        self.ok(conn, kind::WATCH, 0, &format!("{path}\0{token}\0"))
    }

    pub fn start(&mut self, conn: ConnId) -> Result<u32, Errno> {
        let id = self.ask(conn, kind::TRANSACTION_START, 0, b"\0")?;
        Ok(str::from_utf8(&id)
            .unwrap()
            .trim_end_matches('\0')
            .parse()
            .unwrap())
    }

    pub fn end(&mut self, conn: ConnId, tx: u32, commit: bool) -> Result<(), Errno> {
        self.ok(
            conn,
            kind::TRANSACTION_END,
            tx,
            if commit { "T\0" } else { "F\0" },
        )
    }

    pub fn ok(&mut self, conn: ConnId, kind: u32, tx: u32, payload: &str) -> Result<(), Errno> {
        let reply = self.ask(conn, kind, tx, payload.as_bytes())?;
        assert_eq!(reply, b"OK\0");
        Ok(())
    }

    /// The tree must be whole whatever happened.
    pub fn check(&self) {
        assert_eq!(self.server.tree().faults(), Vec::<String>::new());
    }
}
