//! Watches of all connections, found by the path that they are set on.

use super::path::{Path, WatchPath};
use super::server::ConnId;
use std::collections::BTreeMap;
use std::rc::Rc;
use xen_abi::Errno;

/// One watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Whose.
    pub conn: ConnId,
    /// On what.
    pub path: WatchPath,
    /// Repeated in every event.
    pub token: Rc<[u8]>,
    /// Order of registration.
    serial: u64,
}

/// All watches.
#[derive(Debug, Default)]
pub struct Watches {
    by_path: BTreeMap<Rc<str>, Vec<Watch>>,
    /// Names that each connection has watches on, once for each watch.
    by_conn: BTreeMap<ConnId, Vec<Rc<str>>>,
    next: u64,
}

impl Watches {
    /// Sets a watch.
    ///
    /// # Errors
    /// `EEXIST` if the connection has one with this path and token.
    pub fn add(&mut self, conn: ConnId, path: WatchPath, token: &[u8]) -> Result<Watch, Errno> {
        if self.has(conn, &path.key, token) {
            return Err(Errno::EEXIST);
        }
        let here = self.by_path.entry(path.key.clone()).or_default();
        let watch = Watch {
            conn,
            path,
            token: token.into(),
            serial: self.next,
        };
        self.next += 1;
        self.by_conn
            .entry(conn)
            .or_default()
            .push(watch.path.key.clone());
        here.push(watch.clone());
        Ok(watch)
    }

    /// Whether a connection has that watch.
    pub fn has(&self, conn: ConnId, key: &str, token: &[u8]) -> bool {
        let here = self.by_path.get(key).map_or(&[][..], |w| w);
        here.iter().any(|w| w.conn == conn && *w.token == *token)
    }

    /// Takes a watch away.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn remove(&mut self, conn: ConnId, key: &str, token: &[u8]) -> Result<(), Errno> {
        let here = self.by_path.get_mut(key).ok_or(Errno::ENOENT)?;
        let at = here
            .iter()
            .position(|w| w.conn == conn && *w.token == *token);
        here.remove(at.ok_or(Errno::ENOENT)?);
        if here.is_empty() {
            self.by_path.remove(key);
        }
        if let Some(keys) = self.by_conn.get_mut(&conn)
            && let Some(at) = keys.iter().position(|k| **k == *key)
        {
            keys.swap_remove(at);
        }
        Ok(())
    }

    /// Takes all watches of a connection away.
    pub fn remove_all(&mut self, conn: ConnId) {
        for key in self.by_conn.remove(&conn).unwrap_or_default() {
            if let Some(here) = self.by_path.get_mut(&key) {
                here.retain(|w| w.conn != conn);
                if here.is_empty() {
                    self.by_path.remove(&key);
                }
            }
        }
    }

    /// How many watches a connection has.
    pub fn count(&self, conn: ConnId) -> usize {
        self.by_conn.get(&conn).map_or(0, Vec::len)
    }

    /// The watches on exactly this name, in order of registration.
    pub fn on(&self, key: &str) -> Vec<Watch> {
        self.by_path.get(key).cloned().unwrap_or_default()
    }

    /// The watches on this node and those around it, in order of registration.
    pub fn around(&self, path: &Path) -> Vec<Watch> {
        let names = path.with_ancestors();
        let mut found: Vec<Watch> = names
            .filter_map(|n| self.by_path.get(n))
            .flatten()
            .cloned()
            .collect();
        found.sort_by_key(|w| w.serial);
        found
    }

    /// All watches in order of registration.
    pub fn all(&self) -> Vec<Watch> {
        let mut all: Vec<Watch> = self.by_path.values().flatten().cloned().collect();
        all.sort_by_key(|w| w.serial);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xen_abi::DomId;

    fn path(name: &str) -> WatchPath {
        WatchPath::parse(name.as_bytes(), DomId(0), 2048).unwrap()
    }

    #[test]
    fn found_from_below_and_gone_with_their_connection() {
        let mut watches = Watches::default();
        let (a, b) = (ConnId(1), ConnId(2));
        watches.add(a, path("/x"), b"1").unwrap();
        watches.add(b, path("/"), b"2").unwrap();
        watches.add(a, path("/x/y"), b"3").unwrap();
        assert_eq!(watches.add(a, path("/x"), b"1"), Err(Errno::EEXIST));
        let node = Path::parse(b"/x/y/z", DomId(0), 2048).unwrap();
        let tokens = |w: Vec<Watch>| w.iter().map(|w| w.token[0]).collect::<Vec<_>>();
        assert_eq!(tokens(watches.around(&node)), *b"123");
        assert_eq!(tokens(watches.on("/x")), *b"1");
        assert_eq!(watches.remove(a, "/x", b"9"), Err(Errno::ENOENT));
        watches.remove(a, "/x", b"1").unwrap();
        assert_eq!((watches.count(a), watches.count(b)), (1, 1));
        watches.remove_all(a);
        assert_eq!(tokens(watches.all()), *b"2");
        assert_eq!(watches.count(a), 0);
    }
}
