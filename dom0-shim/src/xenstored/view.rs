//! What one request may see and do: the tree, or a transaction's layer over it, through the caller's permissions and
//! quotas.
//!
//! Every check comes before the first change, so a refused request changes nothing.

use super::path::Path;
use super::perms::{Access, Entry, Perms, Who};
use super::quota::{Quota, Quotas};
use super::transaction::{Change, Transaction};
use super::tree::{Node, Tree};
use std::rc::Rc;
use xen_abi::Errno;

/// The store for the time of one request.
pub struct View<'a> {
    /// The nodes.
    pub tree: &'a mut Tree,
    /// The transaction that the request names.
    pub transaction: Option<&'a mut Transaction>,
    /// Who asks.
    pub who: Who,
    /// Limits.
    pub quotas: &'a mut Quotas,
    /// Bytes that the caller's other transactions keep.
    pub kept_bytes: usize,
    /// Out: changes that are visible at once.
    pub changes: Vec<Change>,
    /// Out: lines for the log.
    pub log: Vec<String>,
}

/// What a request needs to be allowed.
#[derive(Clone, Copy)]
enum Need {
    Read,
    Write,
}

impl Need {
    fn met_by(self, access: Access) -> bool {
        match self {
            Need::Read => access.read,
            Need::Write => access.write,
        }
    }
}

impl View<'_> {
    /// A node's value.
    ///
    /// # Errors
    /// `ENOENT`; `EACCES`, also for a node that is not there in a place that the caller may not see; `ENOSPC` by quota.
    pub fn read(&mut self, path: &Path) -> Result<Rc<[u8]>, Errno> {
        Ok(self.permitted(path, Need::Read)?.value.clone())
    }

    /// A node with its children and entries. Errors as [`View::read`].
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn node(&mut self, path: &Path) -> Result<Rc<Node>, Errno> {
        self.permitted(path, Need::Read)
    }

    /// Sets a node's value; makes the node, and those around it, if need be.
    ///
    /// # Errors
    /// `EACCES`; `ENOSPC` by quota.
    pub fn write(&mut self, path: &Path, value: &[u8]) -> Result<(), Errno> {
        match self.permitted(path, Need::Write) {
            Ok(old) => {
                let node = Node {
                    value: value.into(),
                    ..Node::clone(&old)
                };
                self.check_size(&node, Some(&old))?;
                self.put(path, Some(node));
                self.changed(path, false, None);
                Ok(())
            }
            Err(Errno::ENOENT) => self.create(path, value),
            Err(other) => Err(other),
        }
    }

    /// Makes a node, and those around it, unless it is there.
    ///
    /// # Errors
    /// As [`View::write`].
    pub fn mkdir(&mut self, path: &Path) -> Result<(), Errno> {
        match self.permitted(path, Need::Write) {
            Ok(_) => Ok(()),
            Err(Errno::ENOENT) => self.create(path, &[]),
            Err(other) => Err(other),
        }
    }

    /// Removes a node and all below it. A node that is not there is no error if its parent is.
    ///
    /// # Errors
    /// `ENOENT`; `EACCES`; `EINVAL` for the root; `ENOSPC` by quota.
    pub fn rm(&mut self, path: &Path) -> Result<(), Errno> {
        let found = self.permitted(path, Need::Write);
        let Some(parent) = path.parent() else {
            return Err(found.err().unwrap_or(Errno::EINVAL));
        };
        match found {
            Ok(_) => self.remove_tree(path),
            Err(Errno::ENOENT) => match self.look(&parent)? {
                Some(_) => Ok(()),
                None => Err(Errno::ENOENT),
            },
            Err(other) => Err(other),
        }
    }

    /// Replaces a node's entries.
    ///
    /// # Errors
    /// `EACCES` unless the caller owns the node; `EPERM` if a guest would give it away; `ENOENT`; `ENOSPC` by quota.
    pub fn set_perms(&mut self, path: &Path, entries: Vec<Entry>) -> Result<(), Errno> {
        self.check_entries(&entries)?;
        let perms = Perms::from_entries(entries).ok_or(Errno::EINVAL)?;
        let old = self.permitted(path, Need::Write)?;
        if !old.perms.is_owner(self.who) {
            return Err(Errno::EACCES);
        }
        if !self.who.is_privileged() && perms.owner() != old.perms.owner() {
            return Err(Errno::EPERM);
        }
        let old_perms = old.perms.clone();
        let node = Node {
            perms,
            ..Node::clone(&old)
        };
        self.check_size(&node, Some(&old))?;
        self.put(path, Some(node));
        self.changed(path, false, Some(old_perms));
        Ok(())
    }

    /// Whether the caller may set that many entries.
    ///
    /// # Errors
    /// `ENOSPC` by quota.
    pub fn check_entries(&mut self, entries: &[Entry]) -> Result<(), Errno> {
        self.within(Quota::Permissions, entries.len())
    }

    /// Removes a node and all below it whatever the permissions; nothing if it is not there or is the root.
    ///
    /// # Errors
    /// `ENOSPC` by quota.
    pub fn remove_tree(&mut self, path: &Path) -> Result<(), Errno> {
        let Some(parent) = path.parent() else {
            return Ok(());
        };
        // All nodes are seen before the first goes: a transaction's quota may end the walk.
        let mut doomed: Vec<(Path, Rc<Node>)> = Vec::new();
        let mut stack = vec![path.clone()];
        while let Some(at) = stack.pop() {
            let Some(node) = self.look(&at)? else {
                continue;
            };
            stack.extend(node.children.iter().map(|leaf| at.child(leaf)));
            doomed.push((at, node));
        }
        let Some(around) = self.look(&parent)? else {
            return Ok(());
        };
        for (at, node) in doomed.into_iter().rev() {
            self.put(&at, None);
            self.changed(&at, at != *path, Some(node.perms.clone()));
        }
        let mut around = Node::clone(&around);
        around.children.retain(|leaf| **leaf != *path.leaf());
        self.put(&parent, Some(around));
        Ok(())
    }

    fn create(&mut self, path: &Path, value: &[u8]) -> Result<(), Errno> {
        // From the innermost missing node outwards to the first that is there.
        let mut missing = vec![path.clone()];
        let (mut around, around_path) = loop {
            let parent = missing[missing.len() - 1].parent().ok_or(Errno::EINVAL)?;
            match self.look(&parent)? {
                Some(node) => break (Node::clone(&node), parent),
                None => missing.push(parent),
            }
        };
        let before = around.clone();
        let mut perms = around.perms.clone();
        let mut new: Vec<(Path, Node)> = Vec::with_capacity(missing.len());
        around
            .children
            .push(missing[missing.len() - 1].leaf().into());
        for (i, at) in missing.iter().enumerate().rev() {
            perms = perms.inherited_by(self.who);
            let mut node = Node::new(perms.clone());
            match i.checked_sub(1) {
                Some(inner) => node.children.push(missing[inner].leaf().into()),
                None => node.value = value.into(),
            }
            new.push((at.clone(), node));
        }
        if !self.who.is_privileged() {
            let owned = self.tree.owned_by(self.who.domid).nodes as isize;
            let delta = self
                .transaction
                .as_ref()
                .map_or(0, |t| t.owned_delta(self.who.domid));
            self.within(Quota::Nodes, (owned + delta).max(0) as usize + new.len())?;
        }
        let mut bytes = 0;
        for (at, node) in &new {
            self.check_size(node, None)?;
            bytes += at.as_str().len() + node.size();
        }
        self.check_memory(bytes)?;
        self.check_size(&around, Some(&before))?;
        self.put(&around_path, Some(around));
        for (at, node) in new {
            self.put(&at, Some(node));
        }
        self.changed(path, false, None);
        Ok(())
    }

    /// The node if the caller has what it needs there. What it may not know about looks like what it may not touch.
    fn permitted(&mut self, path: &Path, need: Need) -> Result<Rc<Node>, Errno> {
        if let Some(node) = self.look(path)? {
            return if need.met_by(node.perms.access(self.who)) {
                Ok(node)
            } else {
                Err(Errno::EACCES)
            };
        }
        let mut at = path.clone();
        while let Some(parent) = at.parent() {
            if let Some(node) = self.look(&parent)? {
                let known = need.met_by(node.perms.access(self.who));
                return Err(if known { Errno::ENOENT } else { Errno::EACCES });
            }
            at = parent;
        }
        Err(Errno::ENOENT)
    }

    /// The node, whoever asks.
    fn look(&mut self, path: &Path) -> Result<Option<Rc<Node>>, Errno> {
        let Some(transaction) = self.transaction.as_deref() else {
            return Ok(self.tree.get(path).cloned());
        };
        if !transaction.has_touched(path) {
            let (touched, kept) = (transaction.touched(), transaction.bytes());
            self.within(Quota::TransactionNodes, touched + 1)?;
            if !self.who.is_privileged() {
                let owned = self.tree.owned_by(self.who.domid).bytes;
                self.within(Quota::Memory, owned + self.kept_bytes + kept)?;
            }
        }
        match self.transaction.as_deref_mut() {
            Some(transaction) => Ok(transaction.get(self.tree, path)),
            None => Ok(None),
        }
    }

    fn put(&mut self, path: &Path, node: Option<Node>) {
        match (self.transaction.as_deref_mut(), node) {
            (Some(transaction), node) => transaction.put(self.tree, path, node),
            (None, Some(node)) => self.tree.put(path, node),
            (None, None) => self.tree.drop_node(path),
        }
    }

    fn changed(&mut self, path: &Path, exact: bool, old_perms: Option<Perms>) {
        let change = Change {
            path: path.clone(),
            exact,
            old_perms,
        };
        match self.transaction.as_deref_mut() {
            Some(transaction) => transaction.note(change),
            None => self.changes.push(change),
        }
    }

    /// The quota of a node's size, and of memory for what it grows. A node may always shrink.
    fn check_size(&mut self, node: &Node, old: Option<&Node>) -> Result<(), Errno> {
        let (size, before) = (node.size(), old.map_or(0, Node::size));
        if self.who.is_privileged() || size <= before {
            return Ok(());
        }
        // One byte less than the limit, as in xenstored.
        self.within(Quota::NodeSize, size + 1)?;
        if old.is_some() {
            self.check_memory(size - before)
        } else {
            Ok(())
        }
    }

    fn check_memory(&mut self, more: usize) -> Result<(), Errno> {
        if self.who.is_privileged() {
            return Ok(());
        }
        let in_transaction = self.transaction.as_ref().map_or(0, |t| t.bytes());
        let now = self.tree.owned_by(self.who.domid).bytes + self.kept_bytes + in_transaction;
        self.within(Quota::Memory, now + more)
    }

    /// Refuses what is above a limit.
    fn within(&mut self, quota: Quota, wanted: usize) -> Result<(), Errno> {
        if self.who.is_privileged() || wanted <= self.quotas.limit(quota) {
            return Ok(());
        }
        self.log.extend(self.quotas.refuse(self.who.domid, quota));
        Err(Errno::ENOSPC)
    }
}
