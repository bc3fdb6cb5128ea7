//! The nodes as all clients see them, and the count of nodes that each domain owns.

use super::path::Path;
use super::perms::{Access, Perms};
use std::collections::BTreeMap;
use std::rc::Rc;
use xen_abi::DomId;

/// One node. Never changed in place: a change makes a new one, so a transaction can keep what it has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Differs for every change of any node.
    pub generation: u64,
    /// Who may do what.
    pub perms: Perms,
    /// Any bytes.
    pub value: Rc<[u8]>,
    /// Leaf names in order of creation.
    pub children: Vec<Rc<str>>,
}

impl Node {
    /// A node without value and children.
    pub fn new(perms: Perms) -> Node {
        Node {
            generation: 0,
            perms,
            value: Rc::new([]),
            children: Vec::new(),
        }
    }

    /// Bytes that the quota of a node's size counts: what xenstored's record of it would take.
    pub fn size(&self) -> usize {
        const FIXED: usize = 24;
        const PER_ENTRY: usize = 8;
        FIXED + PER_ENTRY * self.perms.entries().len() + self.value.len() + self.children_len()
    }

    /// Bytes of the list of children on the wire.
    pub fn children_len(&self) -> usize {
        self.children.iter().map(|c| c.len() + 1).sum()
    }
}

/// All nodes by name. There is always a root, and every node's parent lists it.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<Path, Rc<Node>>,
    generation: u64,
    owned: BTreeMap<DomId, Owned>,
}

/// What a domain owns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Owned {
    /// Nodes.
    pub nodes: usize,
    /// Their bytes, names included.
    pub bytes: usize,
}

impl Tree {
    /// Only the root, which belongs to the control domain and which no other may read.
    pub fn new() -> Tree {
        let mut tree = Tree {
            nodes: BTreeMap::new(),
            generation: 0,
            owned: BTreeMap::new(),
        };
        tree.put(
            &Path::root(),
            Node::new(Perms::new(DomId::DOM0, Access::NONE)),
        );
        tree
    }

    /// The node of that name.
    pub fn get(&self, path: &Path) -> Option<&Rc<Node>> {
        self.nodes.get(path)
    }

    /// Stores a node under a new generation. The caller keeps the parent's list of children in step.
    pub fn put(&mut self, path: &Path, mut node: Node) {
        self.generation += 1;
        node.generation = self.generation;
        let (owner, bytes) = (node.perms.owner(), path.as_str().len() + node.size());
        if let Some(old) = self.nodes.insert(path.clone(), Rc::new(node)) {
            self.uncount(path, &old);
        }
        let owned = self.owned.entry(owner).or_default();
        owned.nodes += 1;
        owned.bytes += bytes;
    }

    /// Drops one node. The caller keeps the parent's list of children in step.
    pub fn drop_node(&mut self, path: &Path) {
        if let Some(old) = self.nodes.remove(path) {
            self.uncount(path, &old);
        }
    }

    fn uncount(&mut self, path: &Path, node: &Node) {
        let owner = node.perms.owner();
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.nodes -= 1;
            owned.bytes -= path.as_str().len() + node.size();
            if owned.nodes == 0 {
                self.owned.remove(&owner);
            }
        }
    }

    /// What a domain owns.
    pub fn owned_by(&self, domid: DomId) -> Owned {
        self.owned.get(&domid).copied().unwrap_or_default()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: there is a root.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Rc<Node>)> {
        self.nodes.iter()
    }

    /// Walks all nodes, each before its children, these in their order.
    pub fn walk(&self, mut each: impl FnMut(&Path, &Node)) {
        let mut stack = vec![Path::root()];
        while let Some(path) = stack.pop() {
            let Some(node) = self.get(&path) else {
                continue;
            };
            each(&path, node);
            stack.extend(node.children.iter().rev().map(|leaf| path.child(leaf)));
        }
    }

    /// What is wrong with the tree, one line each: nodes that no parent lists, listed children that are missing or listed
    /// twice, wrong counts. Nothing, unless the store has a defect.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut reached = std::collections::BTreeSet::new();
        self.walk(|path, node| {
            if !reached.insert(path.clone()) {
                faults.push(format!("{} is listed twice", path.as_str()));
            }
            let missing = node
                .children
                .iter()
                .map(|c| path.child(c))
                .filter(|c| self.get(c).is_none());
            faults.extend(missing.map(|c| format!("{} is listed but missing", c.as_str())));
        });
        let lost = self.nodes.keys().filter(|p| !reached.contains(p));
        faults.extend(lost.map(|p| format!("{} is not listed", p.as_str())));
        let mut owned = BTreeMap::<DomId, Owned>::new();
        for (path, node) in &self.nodes {
            let of = owned.entry(node.perms.owner()).or_default();
            of.nodes += 1;
            of.bytes += path.as_str().len() + node.size();
        }
        if owned != self.owned {
            faults.push("the counts of owned nodes are wrong".into());
        }
        faults
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}
