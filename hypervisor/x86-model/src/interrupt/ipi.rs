//! Messages from one CPU to others: which destinations are written, for each kind of addressing.

use super::cluster::{Clusters, Place};
use super::driver::{ExternalAddressing, IpiAddressing};
use crate::sync::Word;

/// A CPU as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// APIC ID.
    pub apic_id: u32,
    /// Place among the clusters; `None` if its APIC has no logical ID, or the mode has none.
    pub place: Option<Place>,
}

/// Destination of a message. The logical ID of xAPIC's flat model is in the low eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// APIC ID, or logical ID.
    pub id: u32,
    /// Logical.
    pub logical: bool,
}

impl Destination {
    /// One APIC.
    pub const fn physical(id: u32) -> Self {
        Self { id, logical: false }
    }
}

/// Clusters that one pass gathers: enough for 1024 CPUs with consecutive APIC IDs.
const WINDOW: usize = 64;

impl IpiAddressing {
    /// Calls `write` once for each message that is needed to reach all targets: one per target in physical mode, one per
    /// cluster otherwise. Targets may come in any order; a second mention of one is not a second message to it, except in
    /// physical mode. A target that has left the table is not named; one that never had a logical ID is named by its
    /// APIC ID.
    #[inline]
    pub fn deliver<W: Word, const N: usize>(
        self,
        clusters: &Clusters<W, N>,
        targets: impl Iterator<Item = Target> + Clone,
        mut write: impl FnMut(Destination),
    ) {
        if self == Self::Physical {
            targets.for_each(|t| write(Destination::physical(t.apic_id)));
            return;
        }
        let mut start = 0;
        loop {
            let mut members = [0u16; WINDOW];
            let (mut used, mut more) = (0, false);
            for t in targets.clone() {
                match t.place {
                    Some(p) => match usize::from(p.slot).checked_sub(start) {
                        Some(at) if at < WINDOW => {
                            members[at] |= p.bit;
                            used = used.max(at + 1);
                        }
                        Some(_) => more = true,
                        None => {}
                    },
                    None if start == 0 => write(Destination::physical(t.apic_id)),
                    None => {}
                }
            }
            for (slot, &members) in (start..).zip(&members[..used]) {
                if let Some(id) = clusters.logical_id(slot as u16, members) {
                    write(Destination { id, logical: true });
                }
            }
            if !more {
                return;
            }
            start += WINDOW;
        }
    }
}

impl ExternalAddressing {
    /// How a device interrupt names its one target.
    pub fn destination<W: Word, const N: usize>(
        self,
        clusters: &Clusters<W, N>,
        target: Target,
    ) -> Destination {
        match (self, target.place) {
            (Self::Cluster, Some(p)) => match clusters.logical_id(p.slot, p.bit) {
                Some(id) => Destination { id, logical: true },
                None => Destination::physical(target.apic_id),
            },
            _ => Destination::physical(target.apic_id),
        }
    }

    /// Whether a vector for a device interrupt to `one` must be free on `other` as well.
    pub fn shares_vectors(self, one: Target, other: Target) -> bool {
        one.apic_id == other.apic_id
            || match (self, one.place, other.place) {
                (Self::Cluster, Some(a), Some(b)) => a.slot == b.slot,
                _ => false,
            }
    }
}

/// What decides whether "all but self" may stand for the list of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// CPUs that the firmware's tables mention, those that are disabled or out of reach included.
    pub listed: u32,
    /// CPUs that are up.
    pub up: u32,
    /// Bring-up is over and no CPU is coming or going.
    pub settled: bool,
}

/// Whether the shorthand reaches exactly the other CPUs that are up. It reaches every APIC there is: also one that is
/// parked, disabled in the tables, or in the middle of its start, none of which may get a message.
pub const fn shorthand_is_exact(p: Presence) -> bool {
    p.settled && p.listed == p.up
}

/// Whether a write to the ICR must be fenced from earlier stores. A WRMSR to an x2APIC register is not serialising on
/// Intel (SDM vol. 3, 12.12.3), so the message could overtake what it tells of: MFENCE orders the stores, LFENCE keeps the
/// WRMSR behind it. On AMD and Hygon these writes are ordered (APM vol. 2, 16.11.2); an xAPIC's page is uncached, so ordered.
pub fn needs_fence(x2apic: bool, vendor: &[u8; 12]) -> bool {
    x2apic && !matches!(vendor, b"AuthenticAMD" | b"HygonGenuine")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::apic::x2apic_ldr;
    use core::sync::atomic::AtomicU32;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    type Table = Clusters<AtomicU32, 128>;

    fn cpus(ids: &[u32], table: &Table) -> Vec<Target> {
        ids.iter()
            .map(|&apic_id| Target {
                apic_id,
                place: table.join(x2apic_ldr(apic_id)),
            })
            .collect()
    }

    fn messages(how: IpiAddressing, table: &Table, targets: &[Target]) -> Vec<Destination> {
        let mut all = Vec::new();
        how.deliver(table, targets.iter().copied(), |d| all.push(d));
        all
    }

    /// The APIC IDs that x2APIC hardware would hand the message to.
    fn reached(d: Destination) -> Vec<u32> {
        if !d.logical {
            return std::vec![d.id];
        }
        let members = (0..16).filter(|bit| d.id >> bit & 1 != 0);
        members.map(|bit| (d.id >> 16) * 16 + bit).collect()
    }

    #[test]
    fn one_message_per_cluster_whatever_the_order() {
        let table = Table::empty();
        let all = cpus(&[40, 0, 17, 1, 16, 2], &table);
        let sent = messages(IpiAddressing::Cluster, &table, &all);
        let ids: Vec<u32> = sent.iter().map(|d| d.id).collect();
        assert_eq!(ids, [0x0002_0100, 0x0000_0007, 0x0001_0003]);
        assert_eq!(messages(IpiAddressing::Physical, &table, &all).len(), 6);
    }

    #[test]
    fn flat_is_one_cluster_of_eight() {
        let table = Table::empty();
        let all: Vec<Target> = (0..8)
            .map(|n| Target {
                apic_id: n * 2,
                place: table.join(1 << n),
            })
            .collect();
        let sent = messages(IpiAddressing::Flat, &table, &all[1..4]);
        assert_eq!(
            sent,
            [Destination {
                id: 0b1110,
                logical: true
            }]
        );
    }

    #[test]
    fn the_shorthand_needs_every_listed_cpu() {
        let p = Presence {
            listed: 4,
            up: 4,
            settled: true,
        };
        assert!(shorthand_is_exact(p));
        assert!(!shorthand_is_exact(Presence { up: 3, ..p }));
        assert!(!shorthand_is_exact(Presence {
            settled: false,
            ..p
        }));
        assert!(!shorthand_is_exact(Presence { listed: 5, ..p }));
    }

    #[test]
    fn fences() {
        assert!(needs_fence(true, b"GenuineIntel") && needs_fence(true, b"CentaurHauls"));
        assert!(!needs_fence(true, b"AuthenticAMD") && !needs_fence(false, b"GenuineIntel"));
    }

    #[test]
    fn device_interrupts_in_both_ways() {
        let table = Table::empty();
        let all = cpus(&[3, 5, 20], &table);
        let (physical, cluster) = (ExternalAddressing::Physical, ExternalAddressing::Cluster);
        assert_eq!(
            physical.destination(&table, all[2]),
            Destination::physical(20)
        );
        assert_eq!(
            cluster.destination(&table, all[2]),
            Destination {
                id: 0x0001_0010,
                logical: true
            }
        );
        assert!(cluster.shares_vectors(all[0], all[1]) && !cluster.shares_vectors(all[0], all[2]));
        assert!(
            !physical.shares_vectors(all[0], all[1]) && physical.shares_vectors(all[0], all[0])
        );
    }

    proptest! {
        /// Every driver reaches exactly the targets; the clusters' drivers with one message per cluster, also when there
        /// are more clusters than one pass gathers.
        #[test]
        fn all_targets_and_no_others(
            up in proptest::collection::btree_set(0u32..2000, 1..300).prop_map(|s| s.into_iter().collect::<Vec<_>>()).prop_shuffle(),
            pick in any::<u64>(),
            gone in any::<prop::sample::Index>(),
        ) {
            let table = Table::empty();
            let all = cpus(&up, &table);
            let chosen: Vec<Target> = all.iter().copied().enumerate().filter(|(i, _)| pick >> (i % 64) & 1 != 0).map(|(_, t)| t).collect();
            let wanted: BTreeSet<u32> = chosen.iter().map(|t| t.apic_id).collect();
            for how in [IpiAddressing::Physical, IpiAddressing::Cluster] {
                let sent = messages(how, &table, &chosen);
                let mut seen = BTreeMap::new();
                for id in sent.iter().flat_map(|&d| reached(d)) {
                    *seen.entry(id).or_insert(0) += 1;
                }
                prop_assert!(seen.values().all(|&n| n == 1));
                prop_assert_eq!(&seen.keys().copied().collect::<BTreeSet<_>>(), &wanted);
                if how == IpiAddressing::Cluster {
                    let clusters: BTreeSet<u32> = wanted.iter().map(|id| id >> 4).collect();
                    prop_assert_eq!(sent.len(), clusters.len());
                }
            }
            // A CPU that was unplugged is never named again, the others still are.
            let gone = all[gone.index(all.len())];
            table.leave(gone.place.unwrap());
            let after: BTreeSet<u32> = messages(IpiAddressing::Cluster, &table, &all).into_iter().flat_map(reached).collect();
            let left: BTreeSet<u32> = up.iter().copied().filter(|&id| id != gone.apic_id).collect();
            prop_assert_eq!(after, left);
        }
    }
}
