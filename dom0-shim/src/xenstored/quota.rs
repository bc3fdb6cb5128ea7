//! Limits on what one guest may make the store hold, and the record of refusals.
//!
//! The control domain has none. The defaults are those of xenstored.

use std::collections::BTreeMap;
use xen_abi::DomId;

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quota {
    /// Nodes that a domain owns.
    Nodes,
    /// Watches.
    Watches,
    /// Open transactions.
    Transactions,
    /// Bytes of a node: value, names of children, 8 for each entry of permissions, 24 for the rest.
    NodeSize,
    /// Entries of permissions of a node.
    Permissions,
    /// Different nodes touched by one transaction.
    TransactionNodes,
    /// Replies that a domain has not fetched yet.
    Outstanding,
    /// Bytes of a path below a domain's home. For every client.
    PathLength,
    /// Bytes of a domain's nodes together, names included.
    Memory,
}

/// Name for `xenstore-control quota` and `--quota`, name in the log, default.
const TABLE: &[(Quota, &str, &str, usize)] = &[
    (Quota::Nodes, "nodes", "nodes per domain", 1000),
    (Quota::Watches, "watches", "watches per domain", 128),
    (
        Quota::Transactions,
        "transactions",
        "open transactions per domain",
        10,
    ),
    (Quota::NodeSize, "node-size", "bytes per node", 2048),
    (
        Quota::Permissions,
        "permissions",
        "permission entries per node",
        5,
    ),
    (
        Quota::TransactionNodes,
        "transaction-nodes",
        "nodes per transaction",
        1024,
    ),
    (
        Quota::Outstanding,
        "outstanding",
        "outstanding requests per domain",
        20,
    ),
    (Quota::PathLength, "path-max", "bytes of a path", 2048),
    (
        Quota::Memory,
        "memory",
        "bytes of all nodes per domain",
        2_621_440,
    ),
];

impl Quota {
    /// The name that settings use.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// In words.
    pub fn description(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> &'static (Quota, &'static str, &'static str, usize) {
        &TABLE[self as usize]
    }
}

/// The limits in force, and how often each was hit.
#[derive(Debug)]
pub struct Quotas {
    limits: Vec<usize>,
    refusals: BTreeMap<(DomId, Quota), u64>,
}

impl Quotas {
    /// The limit.
    pub fn limit(&self, quota: Quota) -> usize {
        self.limits[quota as usize]
    }

    /// Changes the limit that `name` stands for; false if there is none of that name.
    pub fn set(&mut self, name: &str, limit: usize) -> bool {
        let found = TABLE.iter().find(|(_, n, ..)| *n == name);
        if let Some((quota, ..)) = found {
            self.limits[*quota as usize] = limit;
        }
        found.is_some()
    }

    /// The same limits, nothing refused yet.
    pub fn fresh(&self) -> Quotas {
        Quotas {
            limits: self.limits.clone(),
            refusals: BTreeMap::new(),
        }
    }

    /// All limits.
    pub fn iter(&self) -> impl Iterator<Item = (Quota, usize)> {
        TABLE.iter().map(|(quota, ..)| (*quota, self.limit(*quota)))
    }

    /// Counts a refusal. Returns the line for the log, for the 1st, 2nd, 4th, 8th and so on only: a guest must not be able
    /// to fill the log.
    pub fn refuse(&mut self, domid: DomId, quota: Quota) -> Option<String> {
        let times = self.refusals.entry((domid, quota)).or_default();
        *times += 1;
        let times = *times;
        times.is_power_of_two().then(|| {
            format!(
                "{domid}: refused by quota {}: limit is {} {} (refusal number {times})",
                quota.name(),
                self.limit(quota),
                quota.description()
            )
        })
    }

    /// A domain is gone.
    pub fn forget(&mut self, domid: DomId) {
        self.refusals.retain(|(d, _), _| *d != domid);
    }
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            limits: TABLE.iter().map(|(.., limit)| *limit).collect(),
            refusals: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_of_the_enum() {
        for (at, (quota, ..)) in TABLE.iter().enumerate() {
            assert_eq!(*quota as usize, at);
        }
    }

    #[test]
    fn a_flood_of_refusals_is_a_few_lines() {
        let mut quotas = Quotas::default();
        assert!(quotas.set("nodes", 5));
        assert!(!quotas.set("nonsense", 5));
        let lines: Vec<_> = (0..1000)
            .filter_map(|_| quotas.refuse(DomId(7), Quota::Nodes))
            .collect();
        assert_eq!(lines.len(), 10);
        assert_eq!(
            lines[0],
            "d7: refused by quota nodes: limit is 5 nodes per domain (refusal number 1)"
        );
        quotas.forget(DomId(7));
        assert!(quotas.refuse(DomId(7), Quota::Nodes).is_some());
    }
}
