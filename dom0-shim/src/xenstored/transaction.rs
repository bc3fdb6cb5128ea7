//! Transactions: a private layer over the tree, and its commit.
//!
//! The first time that a transaction touches a node it notes the node's generation (or that there is none) and keeps what
//! it saw; later reads see that, or what the transaction itself wrote. A commit goes through if every touched node still
//! has the generation noted, and otherwise fails as a whole with `EAGAIN`.

use super::path::Path;
use super::perms::Perms;
use super::tree::{Node, Tree};
use std::collections::{BTreeMap, btree_map::Entry};
use std::rc::Rc;
use xen_abi::DomId;

/// A node as the transaction sees it.
#[derive(Clone, Debug)]
struct Touched {
    /// What was in the tree at the first touch.
    before: Option<Rc<Node>>,
    /// What is there now for this transaction.
    now: Option<Rc<Node>>,
    modified: bool,
}

/// A change that watches are told of once it is visible to all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The changed node.
    pub path: Path,
    /// Only watches on this very node get to know, not those around it: it went as part of a tree.
    pub exact: bool,
    /// Its entries before, where they may differ or the node is gone.
    pub old_perms: Option<Perms>,
}

/// An open transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    touched: BTreeMap<Path, Touched>,
    changes: Vec<Change>,
    /// Where in `changes` a node is.
    noted: BTreeMap<Path, usize>,
    /// Bytes that it keeps from being freed, roughly.
    bytes: usize,
    /// It can no longer succeed: what it relies on is gone.
    lost: bool,
}

impl Transaction {
    /// One that will end with a conflict, standing for one that a restart of the store interrupted.
    pub fn lost() -> Transaction {
        Transaction {
            lost: true,
            ..Transaction::default()
        }
    }

    /// How many different nodes it has touched.
    pub fn touched(&self) -> usize {
        self.touched.len()
    }

    /// Whether it has touched this node already.
    pub fn has_touched(&self, path: &Path) -> bool {
        self.touched.contains_key(path)
    }

    /// The node as this transaction sees it.
    pub fn get(&mut self, tree: &Tree, path: &Path) -> Option<Rc<Node>> {
        self.touch(tree, path).now.clone()
    }

    /// Bytes that it keeps: names and nodes, as seen and as written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn touch(&mut self, tree: &Tree, path: &Path) -> &mut Touched {
        match self.touched.entry(path.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let before = tree.get(path).cloned();
                self.bytes += path.as_str().len() + before.as_ref().map_or(0, |n| n.size());
                new.insert(Touched {
                    now: before.clone(),
                    before,
                    modified: false,
                })
            }
        }
    }

    /// Writes or, with `None`, removes a node.
    pub fn put(&mut self, tree: &Tree, path: &Path, node: Option<Node>) {
        let size = |n: &Option<Rc<Node>>| n.as_ref().map_or(0, |n| n.size());
        let touched = self.touch(tree, path);
        let freed = if touched.modified {
            size(&touched.now)
        } else {
            0
        };
        touched.now = node.map(Rc::new);
        touched.modified = true;
        let taken = size(&touched.now);
        self.bytes = self.bytes + taken - freed;
    }

    /// Remembers what watches are to be told. A node gets one event: one for all watches replaces one for its own only.
    pub fn note(&mut self, change: Change) {
        match self.noted.entry(change.path.clone()) {
            Entry::Occupied(at) => self.changes[*at.get()].exact &= change.exact,
            Entry::Vacant(new) => {
                new.insert(self.changes.len());
                self.changes.push(change);
            }
        }
    }

    /// By how many nodes a domain's count changes if this is committed.
    pub fn owned_delta(&self, domid: DomId) -> isize {
        let owns =
            |n: &Option<Rc<Node>>| n.as_ref().is_some_and(|n| n.perms.owner() == domid) as isize;
        let modified = self.touched.values().filter(|t| t.modified);
        modified.map(|t| owns(&t.now) - owns(&t.before)).sum()
    }

    /// A domain is gone. A transaction that would write its number into a node again must not succeed: a later domain of
    /// that number would get what was meant for this one.
    pub fn forget_domain(&mut self, domid: DomId) {
        let names = |n: &Rc<Node>| n.perms.entries().iter().any(|e| e.domid == domid);
        let mut modified = self.touched.values().filter(|t| t.modified);
        self.lost |= modified.any(|t| t.now.as_ref().is_some_and(names));
    }

    /// Whether nothing that it touched has changed since.
    pub fn is_current(&self, tree: &Tree) -> bool {
        let generation = |n: Option<&Rc<Node>>| n.map(|n| n.generation);
        let mut touched = self.touched.iter();
        !self.lost
            && touched.all(|(path, t)| generation(tree.get(path)) == generation(t.before.as_ref()))
    }

    /// Makes its changes visible to all and returns them for the watches. Only if [`Transaction::is_current`].
    pub fn apply(self, tree: &mut Tree) -> Vec<Change> {
        let mut changes = self.changes;
        for change in &mut changes {
            let before = self
                .touched
                .get(&change.path)
                .and_then(|t| t.before.as_ref());
            change.old_perms = before.map(|n| n.perms.clone());
        }
        for (path, touched) in self.touched.into_iter().filter(|(_, t)| t.modified) {
            match touched.now {
                Some(node) => tree.put(&path, Rc::unwrap_or_clone(node)),
                None => tree.drop_node(&path),
            }
        }
        changes
    }
}
