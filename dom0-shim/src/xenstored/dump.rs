//! The store's state as text, to be kept over a restart of the daemon.
//!
//! One record a line, fields separated by blanks; bytes other than printable ASCII, blanks and `%` are written as `%` and
//! two hexadecimal digits, an empty field as `%`. Nodes come before their children, in the order of the children. The last
//! line says that the text is complete. Clients over sockets are not in it: they see their connection end. A domain's ring
//! goes on where it was; its open transactions end with a conflict.

use super::host::{DomainState, Host, Indices};
use super::number::decimal;
use super::path::{Path, WatchPath};
use super::perms::{Entry, Perms};
use super::server::Server;
use super::transaction::Transaction;
use super::tree::{Node, Tree};
use std::fmt::Write;
use xen_abi::io::xs_wire::{HEADER_LEN, limit};
use xen_abi::{DomId, Errno};

const FIRST: &str = "xenolith-xenstored-state 1";
const LAST: &str = "end";

impl Server {
    /// The state as text. `indices` says where rings are.
    pub fn dump(&self, indices: impl Fn(DomId) -> Option<Indices>) -> String {
        let mut text = format!("{FIRST}\n");
        let mut line = |fields: &[&[u8]]| {
            let fields: Vec<String> = fields.iter().map(|f| escape(f)).collect();
            let _ = writeln!(text, "{}", fields.join(" "));
        };
        self.tree.walk(|path, node| {
            line(&[
                b"node",
                path.as_str().as_bytes(),
                list(&node.perms).as_bytes(),
                &node.value,
            ])
        });
        line(&[b"introduce-perms", list(&self.special.introduce).as_bytes()]);
        line(&[b"release-perms", list(&self.special.release).as_bytes()]);
        for (domid, link) in &self.domains.0 {
            let domid = domid.0.to_string();
            let domid = domid.as_bytes();
            let Some(link) = link else {
                line(&[b"known", domid]);
                continue;
            };
            let (gfn, port) = (link.gfn.to_string(), link.port.to_string());
            let shutdown = if link.shutdown { b"1" } else { b"0" };
            line(&[b"domain", domid, gfn.as_bytes(), port.as_bytes(), shutdown]);
            let Some(conn) = self.conns.get(&link.conn) else {
                continue;
            };
            if let Some(target) = conn.who.target {
                line(&[b"target", domid, target.0.to_string().as_bytes()]);
            }
            let (cons, prod) = indices(conn.who.domid).unwrap_or_default();
            let (fetched, messages) = conn.outbox.saved();
            let numbers =
                [cons, prod, conn.next_transaction, fetched as u32].map(|n| n.to_string());
            let numbers: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
            line(&[&[b"ring", domid][..], &numbers, &[conn.inbox.partial()]].concat());
            messages.for_each(|m| line(&[b"message", domid, m]));
            conn.transactions
                .keys()
                .for_each(|id| line(&[b"transaction", domid, id.to_string().as_bytes()]));
        }
        for watch in self.watches.all() {
            if let Some(domid) = self.conns.get(&watch.conn).and_then(|c| c.ring) {
                let shown = watch.path.key.get(watch.path.hidden..).unwrap_or_default();
                line(&[
                    b"watch",
                    domid.0.to_string().as_bytes(),
                    shown.as_bytes(),
                    &watch.token,
                ]);
            }
        }
        text + LAST + "\n"
    }

    /// Takes a state over into a server without clients. Domains that are gone are forgotten with all that was theirs, as
    /// if they had gone now.
    ///
    /// # Errors
    /// The line and what is wrong with it; the server is then not to be used.
    pub fn load(&mut self, text: &str, host: &mut dyn Host) -> Result<(), String> {
        let lines: Vec<&str> = text.lines().collect();
        let [FIRST, records @ .., LAST] = &lines[..] else {
            return Err("not a whole state of this version".into());
        };
        self.tree = Tree::new();
        let mut loading = Loading::default();
        for (at, record) in records.iter().enumerate() {
            self.record(record, &mut loading, host)
                .ok_or_else(|| format!("line {}: {record:.80}", at + 2))?;
        }
        let faults = self.tree.faults();
        if let Some(fault) = faults.first() {
            return Err(fault.clone());
        }
        for ring in loading.rings {
            self.restore_ring(ring, host)?;
        }
        for domid in loading.gone {
            self.forget(domid, host);
        }
        self.dirty = true;
        Ok(())
    }

    fn record(&mut self, record: &str, loading: &mut Loading, host: &mut dyn Host) -> Option<()> {
        let fields = record
            .split(' ')
            .map(unescape)
            .collect::<Option<Vec<Vec<u8>>>>()?;
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        match fields[..] {
            [b"node", path, perms, value] => {
                let path = Path::parse(path, DomId::DOM0, limit::ABS_PATH_MAX as usize).ok()?;
                if let Some(parent) = path.parent() {
                    let around = self.tree.get(&parent)?;
                    let mut around = Node::clone(around);
                    around.children.push(path.leaf().into());
                    self.tree.put(&parent, around);
                }
                self.tree.put(
                    &path,
                    Node {
                        value: value.into(),
                        ..Node::new(parse_list(perms)?)
                    },
                );
            }
            [b"introduce-perms", perms] => self.special.introduce = parse_list(perms)?,
            [b"release-perms", perms] => self.special.release = parse_list(perms)?,
            [b"known", domid] => {
                let domid = DomId(decimal(domid)?);
                self.domains.0.insert(domid, None);
                if domid != DomId::DOM0 && host.state(domid) == DomainState::Gone {
                    loading.gone.push(domid);
                }
            }
            [b"domain", domid, gfn, port, shutdown] => {
                let (domid, gfn, port) = (DomId(decimal(domid)?), decimal(gfn)?, decimal(port)?);
                let conn = self.link_up(domid, gfn, port, shutdown == b"1");
                let gone = domid != DomId::DOM0 && host.state(domid) == DomainState::Gone;
                if gone {
                    loading.gone.push(domid);
                } else if let Err(errno) = host.connect(domid, gfn, port) {
                    host.log(&format!("{domid}: cannot be connected again: {errno:?}"));
                    self.ignore(conn);
                }
            }
            [b"target", domid, target] => {
                let conn = self.domains.connection(DomId(decimal(domid)?))?;
                self.conns.get_mut(&conn)?.who.target = Some(DomId(decimal(target)?));
            }
            [b"ring", domid, cons, prod, next, fetched, partial] => loading.rings.push(Saved {
                domid: DomId(decimal(domid)?),
                at: (decimal(cons)?, decimal(prod)?),
                next_transaction: decimal(next)?,
                fetched: decimal(fetched)?,
                partial: partial.to_vec(),
                messages: Vec::new(),
            }),
            [b"message", domid, message] => {
                let ring = loading
                    .rings
                    .last_mut()
                    .filter(|r| Some(r.domid.0) == decimal(domid))?;
                ring.messages.push(message.to_vec());
            }
            [b"transaction", domid, id] => {
                let conn = self.domains.connection(DomId(decimal(domid)?))?;
                self.conns
                    .get_mut(&conn)?
                    .transactions
                    .insert(decimal(id)?, Transaction::lost());
            }
            [b"watch", domid, path, token] => {
                let domid = DomId(decimal(domid)?);
                let conn = self.domains.connection(domid)?;
                let path = WatchPath::parse(path, domid, limit::ABS_PATH_MAX as usize).ok()?;
                match self.watches.add(conn, path, token) {
                    Ok(_) | Err(Errno::EEXIST) => {}
                    Err(_) => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Goes on in the middle of messages, if the ring has not moved since the state was written.
    fn restore_ring(&mut self, ring: Saved, host: &mut dyn Host) -> Result<(), String> {
        let Some(now) = host.indices(ring.domid) else {
            return Ok(());
        };
        let conn = self
            .domains
            .connection(ring.domid)
            .and_then(|c| self.conns.get_mut(&c));
        let Some(conn) = conn else { return Ok(()) };
        conn.next_transaction = ring.next_transaction;
        if now != ring.at {
            host.log(&format!(
                "{}: its ring moved after the state was saved; unfinished messages are lost",
                ring.domid
            ));
            return Ok(());
        }
        // First the header, which says how much more there may be.
        let (header, payload) = ring.partial.split_at(ring.partial.len().min(HEADER_LEN));
        let pushed = conn
            .inbox
            .push(header)
            .and_then(|()| conn.inbox.push(payload));
        let taken = pushed.is_ok() && conn.inbox.partial().len() == ring.partial.len();
        if !taken || !conn.outbox.restore(ring.fetched, ring.messages) {
            return Err(format!("{}: its messages make no sense", ring.domid));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Loading {
    gone: Vec<DomId>,
    rings: Vec<Saved>,
}

struct Saved {
    domid: DomId,
    at: Indices,
    next_transaction: u32,
    fetched: usize,
    partial: Vec<u8>,
    messages: Vec<Vec<u8>>,
}

fn list(perms: &Perms) -> String {
    let entries: Vec<String> = perms.entries().iter().map(Entry::to_string).collect();
    entries.join(",")
}

fn parse_list(text: &[u8]) -> Option<Perms> {
    let entries = text.split(|b| *b == b',').map(|e| Entry::parse(e).ok());
    Perms::from_entries(entries.collect::<Option<_>>()?)
}

fn escape(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "%".into();
    }
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len()), |mut text, b| {
            match b {
                b'!'..=b'~' if *b != b'%' => text.push(char::from(*b)),
                _ => _ = write!(text, "%{b:02x}"),
            }
            text
        })
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    if rest == b"%" {
        return Some(bytes);
    }
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let value = match byte {
            b'%' => {
                let digits = str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            plain => *plain,
        };
        bytes.push(value);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            let text = escape(&bytes);
            prop_assert!(text.bytes().all(|b| (b'!'..=b'~').contains(&b)));
            prop_assert_eq!(unescape(&text), Some(bytes));
        }

        #[test]
        fn any_text_is_taken_or_not(text in ".{0,40}") {
            let _ = unescape(&text);
        }
    }
}
