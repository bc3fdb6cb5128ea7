//! One request: from the message to the reply and the events that follow it.

use super::host::Host;
use super::number::decimal;
use super::path::home;
use super::perms::{Entry, Who};
use super::quota::Quota;
use super::server::{ConnId, Server};
use super::transaction::{Change, Transaction};
use super::view::View;
use xen_abi::io::xs_wire::{SockMsg, kind, limit};
use xen_abi::{DomId, Errno};

/// What a successful request without a result answers.
const OK: &[u8] = b"OK\0";

/// What a request did besides answering.
#[derive(Default)]
struct Done {
    changes: Vec<Change>,
    /// A new watch, whose first event follows the reply.
    watch: Option<super::watch::Watch>,
    log: Vec<String>,
}

impl Server {
    /// Does what a whole message asks for. The reply is queued before any event that the request causes.
    pub(super) fn request(
        &mut self,
        conn: ConnId,
        message: SockMsg,
        payload: &[u8],
        host: &mut dyn Host,
    ) {
        let mut done = Done::default();
        let result = self.dispatch(conn, message, payload, &mut done, host);
        self.reply(conn, message, result, host);
        done.log.iter().for_each(|line| host.log(line));
        if let Some(watch) = done.watch {
            let key = watch.path.key.clone();
            self.send_event(&watch, &key, host);
        }
        self.publish(done.changes, host);
    }

    fn dispatch(
        &mut self,
        conn: ConnId,
        message: SockMsg,
        payload: &[u8],
        done: &mut Done,
        host: &mut dyn Host,
    ) -> Result<Vec<u8>, Errno> {
        let who = self.conns.get(&conn).ok_or(Errno::EINVAL)?.who;
        let privileged = matches!(
            message.kind,
            kind::CONTROL
                | kind::INTRODUCE
                | kind::RELEASE
                | kind::IS_DOMAIN_INTRODUCED
                | kind::RESUME
                | kind::SET_TARGET
        );
        if privileged && !who.is_privileged() {
            return Err(Errno::EACCES);
        }
        match message.kind {
            kind::WATCH => return self.watch(conn, who, payload, done),
            kind::UNWATCH => return self.unwatch(conn, who, payload),
            k if k > kind::DIRECTORY_PART || [kind::WATCH_EVENT, kind::ERROR, 20].contains(&k) => {
                return Err(Errno::ENOSYS);
            }
            _ => {}
        }
        let known = self
            .conns
            .get(&conn)
            .is_some_and(|c| c.transactions.contains_key(&message.tx_id));
        if message.tx_id != 0 && !known {
            return Err(Errno::ENOENT);
        }
        match message.kind {
            kind::TRANSACTION_START => self.transaction_start(conn, who, message.tx_id, done),
            kind::TRANSACTION_END => self.transaction_end(conn, who, message.tx_id, payload, done),
            kind::RESET_WATCHES => {
                self.watches.remove_all(conn);
                if let Some(c) = self.conns.get_mut(&conn) {
                    c.transactions.clear();
                }
                self.dirty = true;
                Ok(OK.into())
            }
            kind::CONTROL => self.control(payload, host),
            kind::GET_DOMAIN_PATH => Ok(format!("{}\0", home(domid(one(payload)?)?)).into()),
            kind::INTRODUCE => {
                let [domain, gfn, port, ..] = words(payload)[..] else {
                    return Err(Errno::EINVAL);
                };
                // The page is found through its grant, so a number that does not fit does no harm.
                let gfn = decimal(gfn).unwrap_or(0);
                self.introduce(
                    domid(domain)?,
                    gfn,
                    decimal(port).ok_or(Errno::EINVAL)?,
                    host,
                )?;
                Ok(OK.into())
            }
            kind::RELEASE => {
                self.release(guest(one(payload)?)?, host)?;
                Ok(OK.into())
            }
            kind::RESUME => {
                self.resume(guest(one(payload)?)?)?;
                Ok(OK.into())
            }
            kind::SET_TARGET => {
                let [domain, target, ..] = words(payload)[..] else {
                    return Err(Errno::EINVAL);
                };
                self.set_target(domid(domain)?, domid(target)?)?;
                Ok(OK.into())
            }
            kind::IS_DOMAIN_INTRODUCED => {
                let asked = domid(one(payload)?)?;
                let is = asked == DomId::SELF || self.domains.link(asked).is_some();
                Ok(if is { b"T\0" } else { b"F\0" }.to_vec())
            }
            _ => self.nodes(conn, who, message, payload, done, host),
        }
    }

    /// Requests about nodes, inside a transaction or not.
    fn nodes(
        &mut self,
        conn: ConnId,
        who: Who,
        message: SockMsg,
        payload: &[u8],
        done: &mut Done,
        host: &mut dyn Host,
    ) -> Result<Vec<u8>, Errno> {
        let (name, rest) = match message.kind {
            kind::WRITE | kind::SET_PERMS | kind::DIRECTORY_PART => cut(payload)?,
            _ => (one(payload)?, &[][..]),
        };
        let entries = match message.kind {
            kind::SET_PERMS => self.entries(who, rest, done, host)?,
            _ => Vec::new(),
        };
        if message.kind == kind::SET_PERMS && name.starts_with(b"@") {
            return self.set_special(who, name, entries);
        }
        let path = self.path(who, name)?;
        let transactions = self.conns.get_mut(&conn).map(|c| &mut c.transactions);
        let transactions = transactions.ok_or(Errno::EINVAL)?;
        let others = transactions.iter().filter(|(id, _)| **id != message.tx_id);
        let kept_bytes = others.map(|(_, t)| t.bytes()).sum();
        let mut view = View {
            tree: &mut self.tree,
            transaction: transactions.get_mut(&message.tx_id),
            who,
            quotas: &mut self.quotas,
            kept_bytes,
            changes: Vec::new(),
            log: Vec::new(),
        };
        let result = match message.kind {
            kind::READ => view.read(&path).map(|v| v.to_vec()),
            kind::DIRECTORY => view.node(&path).map(|n| names(&n.children)),
            kind::DIRECTORY_PART => directory_part(&mut view, &path, rest),
            kind::GET_PERMS => view.node(&path).map(|n| {
                let entries = n.perms.entries().iter();
                entries
                    .flat_map(|e| format!("{e}\0").into_bytes())
                    .collect()
            }),
            kind::WRITE => view.write(&path, rest).map(|()| OK.into()),
            kind::MKDIR => view.mkdir(&path).map(|()| OK.into()),
            kind::RM => view.rm(&path).map(|()| OK.into()),
            kind::SET_PERMS => view.set_perms(&path, entries).map(|()| OK.into()),
            _ => Err(Errno::ENOSYS),
        };
        done.log.append(&mut view.log);
        done.changes.append(&mut view.changes);
        result
    }

    fn entries(
        &mut self,
        who: Who,
        text: &[u8],
        done: &mut Done,
        host: &mut dyn Host,
    ) -> Result<Vec<Entry>, Errno> {
        let words = words(text);
        if words.is_empty() {
            return Err(Errno::EINVAL);
        }
        if !who.is_privileged() && words.len() > self.quotas.limit(Quota::Permissions) {
            done.log
                .extend(self.quotas.refuse(who.domid, Quota::Permissions));
            return Err(Errno::ENOSPC);
        }
        let mut entries = words
            .into_iter()
            .map(Entry::parse)
            .collect::<Result<Vec<_>, _>>()?;
        if !self.may_name(entries[0].domid, host) {
            return Err(Errno::ENOENT);
        }
        // A domain that comes later must not find that it has been given something.
        entries.retain(|e| self.may_name(e.domid, host));
        Ok(entries)
    }

    fn set_special(
        &mut self,
        who: Who,
        name: &[u8],
        entries: Vec<Entry>,
    ) -> Result<Vec<u8>, Errno> {
        let name = str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
        let perms = self.special.of(name).ok_or(Errno::EINVAL)?;
        if !perms.is_owner(who) {
            return Err(Errno::EACCES);
        }
        *perms = super::perms::Perms::from_entries(entries).ok_or(Errno::EINVAL)?;
        self.dirty = true;
        Ok(OK.into())
    }

    fn watch(
        &mut self,
        conn: ConnId,
        who: Who,
        payload: &[u8],
        done: &mut Done,
    ) -> Result<Vec<u8>, Errno> {
        let [name, token] = words(payload)[..] else {
            return Err(Errno::EINVAL);
        };
        let path = self.watch_path(who, name)?;
        if self.watches.has(conn, &path.key, token) {
            return Err(Errno::EEXIST);
        }
        if !who.is_privileged() && self.watches.count(conn) >= self.quotas.limit(Quota::Watches) {
            done.log
                .extend(self.quotas.refuse(who.domid, Quota::Watches));
            return Err(Errno::E2BIG);
        }
        done.watch = Some(self.watches.add(conn, path, token)?);
        self.dirty = true;
        Ok(OK.into())
    }

    fn unwatch(&mut self, conn: ConnId, who: Who, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let [name, token] = words(payload)[..] else {
            return Err(Errno::EINVAL);
        };
        let path = self.watch_path(who, name).map_err(|_| Errno::ENOENT)?;
        self.watches.remove(conn, &path.key, token)?;
        self.dirty = true;
        Ok(OK.into())
    }

    fn transaction_start(
        &mut self,
        conn: ConnId,
        who: Who,
        inside: u32,
        done: &mut Done,
    ) -> Result<Vec<u8>, Errno> {
        if inside != 0 {
            return Err(Errno::EBUSY);
        }
        let limit = self.quotas.limit(Quota::Transactions);
        let c = self.conns.get_mut(&conn).ok_or(Errno::EINVAL)?;
        if !who.is_privileged() && c.transactions.len() >= limit {
            done.log
                .extend(self.quotas.refuse(who.domid, Quota::Transactions));
            return Err(Errno::ENOSPC);
        }
        while c.next_transaction == 0 || c.transactions.contains_key(&c.next_transaction) {
            c.next_transaction = c.next_transaction.wrapping_add(1);
        }
        let id = c.next_transaction;
        c.next_transaction = id.wrapping_add(1);
        c.transactions.insert(id, Transaction::default());
        Ok(format!("{id}\0").into())
    }

    fn transaction_end(
        &mut self,
        conn: ConnId,
        who: Who,
        id: u32,
        payload: &[u8],
        done: &mut Done,
    ) -> Result<Vec<u8>, Errno> {
        let commit = match one(payload)? {
            b"T" => true,
            b"F" => false,
            _ => return Err(Errno::EINVAL),
        };
        let c = self.conns.get_mut(&conn).ok_or(Errno::EINVAL)?;
        let transaction = c.transactions.remove(&id).ok_or(Errno::ENOENT)?;
        if !commit {
            return Ok(OK.into());
        }
        if !transaction.is_current(&self.tree) {
            return Err(Errno::EAGAIN);
        }
        // Nodes made outside the transaction meanwhile count too.
        let (owned, delta) = (
            self.tree.owned_by(who.domid),
            transaction.owned_delta(who.domid),
        );
        let nodes = (owned.nodes as isize + delta).max(0) as usize;
        if !who.is_privileged() && delta > 0 && nodes > self.quotas.limit(Quota::Nodes) {
            done.log.extend(self.quotas.refuse(who.domid, Quota::Nodes));
            return Err(Errno::ENOSPC);
        }
        done.changes = transaction.apply(&mut self.tree);
        self.dirty = true;
        Ok(OK.into())
    }
}

/// A part of a long list of children: the node's generation, the names from an offset on, an empty name at the end.
fn directory_part(
    view: &mut View<'_>,
    path: &super::path::Path,
    rest: &[u8],
) -> Result<Vec<u8>, Errno> {
    let node = view.node(path)?;
    let offset: usize = decimal(one(rest)?).ok_or(Errno::EINVAL)?;
    let mut reply = format!("{}\0", node.generation).into_bytes();
    let all = names(&node.children);
    let from = all.get(offset..).unwrap_or_default();
    let room = limit::PAYLOAD_MAX as usize - reply.len() - 1;
    let whole = from.split_inclusive(|b| *b == 0);
    let taken = whole.scan(0, |sum, name| {
        *sum += name.len();
        (*sum <= room).then_some(*sum)
    });
    let taken = taken.last().unwrap_or(0);
    reply.extend_from_slice(&from[..taken]);
    if taken == from.len() {
        reply.push(0);
    }
    Ok(reply)
}

/// The list of children on the wire.
fn names(children: &[std::rc::Rc<str>]) -> Vec<u8> {
    children
        .iter()
        .flat_map(|c| [c.as_bytes(), b"\0"].concat())
        .collect()
}

/// A payload that is one string.
fn one(payload: &[u8]) -> Result<&[u8], Errno> {
    match payload.split_last() {
        Some((0, text)) if !text.contains(&0) => Ok(text),
        _ => Err(Errno::EINVAL),
    }
}

/// A payload that starts with a string, and what follows that.
fn cut(payload: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let at = payload.iter().position(|b| *b == 0).ok_or(Errno::EINVAL)?;
    Ok((&payload[..at], &payload[at + 1..]))
}

/// The strings of a payload; what is not closed by a NUL does not count.
pub(super) fn words(payload: &[u8]) -> Vec<&[u8]> {
    let closed = payload.split_inclusive(|b| *b == 0);
    closed.filter_map(|w| w.strip_suffix(&[0])).collect()
}

fn domid(text: &[u8]) -> Result<DomId, Errno> {
    decimal(text).map(DomId).ok_or(Errno::EINVAL)
}

/// A domain other than the control domain.
fn guest(text: &[u8]) -> Result<DomId, Errno> {
    let domid = domid(text)?;
    if domid == DomId::DOM0 {
        Err(Errno::EINVAL)
    } else {
        Ok(domid)
    }
}
