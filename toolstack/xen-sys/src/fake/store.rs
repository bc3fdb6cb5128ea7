//! A store in this process, for tests of what uses [`crate::xenstore::Client`]. Permissions are kept but not asked.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xen_abi::Errno;
use xen_abi::io::xs_wire::{SockMsg, error_name, kind};

type Nodes = BTreeMap<String, Node>;

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Node {
    value: Vec<u8>,
    perms: Vec<String>,
}

/// What another domain or program does as soon as a node is written: given path and value, writes of its own.
pub type Responder = Box<dyn FnMut(&str, &str) -> Vec<(String, String)> + Send>;

/// The store. Copies of the handle are the same store.
#[derive(Clone, Default)]
pub struct FakeStore(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    nodes: Nodes,
    transaction: Option<(u32, Nodes, Vec<String>)>,
    transactions: u32,
    watches: Vec<(String, String)>,
    replies: VecDeque<(SockMsg, Vec<u8>)>,
    responder: Option<Responder>,
    /// Requests until one fails with `EIO`.
    fuse: Option<usize>,
}

impl fmt::Debug for FakeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FakeStore").field(&self.paths()).finish()
    }
}

impl FakeStore {
    /// A store with these nodes, parents included.
    pub fn new(nodes: &[(&str, &str)]) -> FakeStore {
        let store = FakeStore::default();
        nodes
            .iter()
            .for_each(|(path, value)| store.set(path, value));
        store
    }

    /// Sets a node as somebody else.
    pub fn set(&self, path: &str, value: &str) {
        self.state().change(path, value.as_bytes());
    }

    /// A node's value.
    pub fn get(&self, path: &str) -> Option<String> {
        let state = self.state();
        let node = state.nodes.get(path)?;
        Some(String::from_utf8_lossy(&node.value).into_owned())
    }

    /// A node's permissions as text, joined by commas.
    pub fn perms(&self, path: &str) -> Option<String> {
        Some(self.state().nodes.get(path)?.perms.join(","))
    }

    /// All nodes in order.
    pub fn paths(&self) -> Vec<String> {
        self.state().nodes.keys().cloned().collect()
    }

    /// Says what answers writes.
    pub fn respond(&self, responder: Responder) {
        self.state().responder = Some(responder);
    }

    /// Lets one request fail with `EIO`, after this many that work.
    pub fn fail_after(&self, requests: usize) {
        self.state().fuse = Some(requests);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message of the client.
    pub(crate) fn take(&self, header: SockMsg, payload: &[u8]) {
        let mut state = self.state();
        let blown = state.fuse == Some(0);
        state.fuse = state.fuse.and_then(|n| n.checked_sub(1));
        let answer = match blown {
            true => Err(Errno::EIO),
            false => state.request(header.kind, header.tx_id, payload),
        };
        let (kind, payload) = match answer {
            Ok(payload) => (header.kind, payload),
            Err(errno) => (kind::ERROR, [error_name(errno).as_bytes(), b"\0"].concat()),
        };
        let header = SockMsg { kind, ..header };
        state.replies.push_back((header, payload));
        if header.kind == kind::WATCH {
            let watch = state.watches.last().cloned();
            watch.into_iter().for_each(|w| state.event(&w.0, &w.1));
        }
    }

    /// The next message for the client.
    pub(crate) fn give(&self) -> Option<(SockMsg, Vec<u8>)> {
        self.state().replies.pop_front()
    }

    pub(crate) fn readable(&self) -> bool {
        !self.state().replies.is_empty()
    }
}

impl State {
    fn request(&mut self, wanted: u32, tx: u32, payload: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut words = payload.split(|b| *b == 0);
        let mut word = || String::from_utf8_lossy(words.next().unwrap_or(b"")).into_owned();
        let ok = Ok(b"OK\0".to_vec());
        let path = absolute(&word());
        match wanted {
            kind::READ => Ok(self.node(tx, &path)?.value.clone()),
            kind::DIRECTORY => {
                self.node(tx, &path)?;
                let names = children(self.nodes(tx), &path);
                Ok(names
                    .iter()
                    .flat_map(|n| [n, "\0"].concat().into_bytes())
                    .collect())
            }
            kind::GET_PERMS => {
                let perms = &self.node(tx, &path)?.perms;
                Ok(perms
                    .iter()
                    .flat_map(|p| [p, "\0"].concat().into_bytes())
                    .collect())
            }
            kind::WRITE | kind::MKDIR => {
                let value = payload.iter().position(|b| *b == 0);
                let value = value.map_or(&[][..], |at| &payload[at + 1..]);
                let there = self.nodes(tx).contains_key(&path);
                if wanted == kind::WRITE || !there {
                    let value = if wanted == kind::WRITE { value } else { b"" };
                    self.write(tx, &path, value);
                }
                ok
            }
            kind::RM => {
                let below = format!("{path}/");
                self.nodes_mut(tx)
                    .retain(|p, _| *p != path && !p.starts_with(&below));
                self.changed(tx, &path);
                ok
            }
            kind::SET_PERMS => {
                let perms: Vec<String> = std::iter::repeat_with(word)
                    .take_while(|p| !p.is_empty())
                    .collect();
                let node = self.nodes_mut(tx).get_mut(&path).ok_or(Errno::ENOENT)?;
                node.perms = perms;
                ok
            }
            kind::TRANSACTION_START => {
                self.transactions += 1;
                self.transaction = Some((self.transactions, self.nodes.clone(), Vec::new()));
                Ok(format!("{}\0", self.transactions).into_bytes())
            }
            kind::TRANSACTION_END => {
                let (_, nodes, changed) = self.transaction.take().ok_or(Errno::ENOENT)?;
                if payload == b"T\0" {
                    self.nodes = nodes;
                    changed.iter().for_each(|path| self.changed(0, path));
                }
                ok
            }
            kind::WATCH => {
                let token = word();
                self.watches.push((path, token));
                ok
            }
            kind::UNWATCH => {
                let watch = (path, word());
                self.watches.retain(|w| *w != watch);
                ok
            }
            kind::INTRODUCE | kind::RELEASE | kind::RESUME => ok,
            kind::IS_DOMAIN_INTRODUCED => Ok(b"T\0".to_vec()),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn nodes(&self, tx: u32) -> &Nodes {
        match &self.transaction {
            Some((id, nodes, _)) if *id == tx => nodes,
            _ => &self.nodes,
        }
    }

    fn nodes_mut(&mut self, tx: u32) -> &mut Nodes {
        match &mut self.transaction {
            Some((id, nodes, _)) if *id == tx => nodes,
            _ => &mut self.nodes,
        }
    }

    fn node(&self, tx: u32, path: &str) -> Result<&Node, Errno> {
        self.nodes(tx).get(path).ok_or(Errno::ENOENT)
    }

    fn write(&mut self, tx: u32, path: &str, value: &[u8]) {
        let nodes = self.nodes_mut(tx);
        let parts = path.match_indices('/').map(|(at, _)| &path[..at]);
        let mut perms = vec!["n0".to_owned()];
        for parent in parts.filter(|p| !p.is_empty()) {
            let node = nodes.entry(parent.into()).or_insert_with(|| Node {
                perms: perms.clone(),
                ..Node::default()
            });
            perms = node.perms.clone();
        }
        let node = nodes.entry(path.into()).or_insert_with(|| Node {
            perms,
            ..Node::default()
        });
        node.value = value.to_vec();
        self.changed(tx, path);
    }

    fn change(&mut self, path: &str, value: &[u8]) {
        self.write(0, path, value);
    }

    fn changed(&mut self, tx: u32, path: &str) {
        match &mut self.transaction {
            Some((id, _, changed)) if *id == tx => changed.push(path.into()),
            _ => {
                for (watched, token) in self.watches.clone() {
                    let below = path
                        .strip_prefix(&watched)
                        .is_some_and(|r| r.is_empty() || r.starts_with('/'));
                    let above = watched
                        .strip_prefix(path)
                        .is_some_and(|r| r.starts_with('/'));
                    if below || above {
                        self.event(if below { path } else { &watched }, &token);
                    }
                }
                let value = self.nodes.get(path).map(|n| n.value.clone());
                let (Some(mut responder), Some(value)) =
                    (self.responder.take_if(|_| value.is_some()), value)
                else {
                    return;
                };
                let answers = responder(path, &String::from_utf8_lossy(&value));
                for (path, value) in answers {
                    self.change(&path, value.as_bytes());
                }
                self.responder.get_or_insert(responder);
            }
        }
    }

    fn event(&mut self, path: &str, token: &str) {
        let payload = format!("{path}\0{token}\0").into_bytes();
        let header = SockMsg {
            kind: kind::WATCH_EVENT,
            req_id: 0,
            tx_id: 0,
            len: payload.len() as u32,
        };
        self.replies.push_back((header, payload));
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') || path.starts_with('@') || path.is_empty() {
        path.into()
    } else {
        format!("/local/domain/0/{path}")
    }
}

fn children(nodes: &Nodes, path: &str) -> Vec<String> {
    let below = format!("{}/", path.trim_end_matches('/'));
    let names = nodes.keys().filter_map(|p| p.strip_prefix(&below));
    names
        .filter(|n| !n.contains('/'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::FakeStore;
    use crate::xenstore::{Client, Error, Transaction};
    use std::time::Duration;
    use xen_abi::Errno;

    const NONE: Transaction = Transaction::NONE;

    #[test]
    fn nodes_transactions_and_watches_work_as_in_a_store() {
        let store = FakeStore::new(&[("/a/b", "1"), ("/a/c", "2")]);
        let mut client = Client::fake(&store);
        assert_eq!(client.list(NONE, "/a").unwrap(), ["b", "c"]);
        assert_eq!(client.read(NONE, "/a/b").unwrap(), b"1");
        assert!(matches!(
            client.read(NONE, "/x"),
            Err(Error::Refused(Errno::ENOENT))
        ));
        client.watch("/a", "t").unwrap();
        let first = client.event(None).unwrap().unwrap();
        assert_eq!(first.path, "/a");
        let result = client.transaction(|c, tx| {
            c.write(tx, "/a/d", b"3")?;
            assert!(c.read(NONE, "/a/d").is_err());
            c.rm(tx, "/a/b")
        });
        result.unwrap();
        assert_eq!(store.paths(), ["/a", "/a/c", "/a/d"]);
        assert_eq!(client.event(None).unwrap().unwrap().path, "/a/d");
        assert_eq!(client.event(None).unwrap().unwrap().path, "/a/b");
        assert_eq!(client.event(Some(Duration::ZERO)).unwrap(), None);
        let undone: Result<(), Error> = client.transaction(|c, tx| {
            c.write(tx, "/a/e", b"")?;
            Err(Error::Refused(Errno::EBUSY))
        });
        assert!(undone.is_err() && store.get("/a/e").is_none());
    }

    #[test]
    fn others_answer_and_requests_fail_on_order() {
        let store = FakeStore::default();
        store.respond(Box::new(|path, value| match value {
            "poweroff" => vec![(path.to_owned(), String::new())],
            _ => Vec::new(),
        }));
        let mut client = Client::fake(&store);
        client.write(NONE, "/control", b"poweroff").unwrap();
        assert_eq!(store.get("/control").unwrap(), "");
        client
            .set_perms(NONE, "/control", &["n0".into(), "r5".into()])
            .unwrap();
        assert_eq!(store.perms("/control").unwrap(), "n0,r5");
        store.fail_after(1);
        client.read(NONE, "/control").unwrap();
        assert!(matches!(
            client.read(NONE, "/control"),
            Err(Error::Refused(Errno::EIO))
        ));
        client.read(NONE, "/control").unwrap();
    }
}
