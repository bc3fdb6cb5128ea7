//! Messages from one CPU to others: which destinations are written, for each kind of addressing.

use core::sync::atomic::{AtomicU32, Ordering};

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

/// The CPUs that are up, by CPU number, as messages name them: 64 in each of `B` blocks. Written by the CPU that brings them
/// up or takes them away.
pub struct Roster<W, const B: usize> {
    apic_ids: [[W; 64]; B],
    /// [`Place::pack`]ed, or 0.
    places: [[W; 64]; B],
    /// Not 0 once there was a CPU without a place.
    unplaced: W,
}

impl<const B: usize> Roster<AtomicU32, B> {
    /// Without CPUs.
    pub const fn empty() -> Self {
        Self {
            apic_ids: [const { [const { AtomicU32::new(0) }; 64] }; B],
            places: [const { [const { AtomicU32::new(0) }; 64] }; B],
            unplaced: AtomicU32::new(0),
        }
    }
}

impl<W: Word, const B: usize> Roster<W, B> {
    /// A CPU is up. A number beyond the table is ignored.
    pub fn set(&self, cpu: u32, target: Target) {
        let (block, n) = (cpu as usize / 64, cpu as usize % 64);
        if let (Some(ids), Some(places)) = (self.apic_ids.get(block), self.places.get(block)) {
            ids[n].store(target.apic_id, Ordering::Relaxed);
            places[n].store(target.place.map_or(0, Place::pack), Ordering::Release);
            if target.place.is_none() {
                self.unplaced.store(1, Ordering::Release);
            }
        }
    }

    /// Calls `f` with APIC ID and place of each CPU of the mask.
    #[inline(always)]
    fn each(&self, mask: &[u64], mut f: impl FnMut(&W, &W)) {
        for ((&bits, ids), places) in mask.iter().zip(&self.apic_ids).zip(&self.places) {
            let mut bits = bits;
            while bits != 0 {
                let n = bits.trailing_zeros() as usize;
                f(&ids[n], &places[n]);
                bits &= bits - 1;
            }
        }
    }
}

impl IpiAddressing {
    /// Calls `write` once for each message that is needed to reach the CPUs of `mask` (a bit for each CPU number): one per
    /// CPU in physical mode, one per cluster otherwise, whatever the order of their numbers. A CPU that has left the
    /// clusters' table is not named; one that never had a logical ID is named by its APIC ID.
    #[inline]
    pub fn deliver<W: Word, const C: usize, const B: usize>(
        self,
        clusters: &Clusters<W, C>,
        roster: &Roster<W, B>,
        mask: &[u64],
        mut write: impl FnMut(Destination),
    ) {
        if self == Self::Physical {
            roster.each(mask, |id, _| {
                write(Destination::physical(id.load(Ordering::Relaxed)));
            });
            return;
        }
        // The loops over CPUs are what the sender pays for, so they decide nothing that can be decided before.
        if roster.unplaced.load(Ordering::Acquire) != 0 {
            roster.each(mask, |id, place| {
                if place.load(Ordering::Acquire) == 0 {
                    write(Destination::physical(id.load(Ordering::Relaxed)));
                }
            });
        }
        let mut start = 0;
        while !clusters.is_free(start) {
            let mut members = [0u16; WINDOW];
            if start == 0 && clusters.is_free(WINDOW as u16) {
                roster.each(mask, |_, place| {
                    let place = place.load(Ordering::Acquire);
                    members[(place >> 16) as usize % WINDOW] |= place as u16;
                });
            } else {
                roster.each(mask, |_, place| {
                    let place = place.load(Ordering::Acquire);
                    let at = (place >> 16).wrapping_sub(start.into()) as usize;
                    if let Some(m) = members.get_mut(at) {
                        *m |= place as u16;
                    }
                });
            }
            for (slot, &members) in (start..).zip(&members) {
                if clusters.is_free(slot) {
                    break;
                }
                if members != 0
                    && let Some(id) = clusters.logical_id(slot, members)
                {
                    write(Destination { id, logical: true });
                }
            }
            start += WINDOW as u16;
        }
    }
}

/// Calls `write` once for each cluster, for everyone in the table but `me`. CPUs that are about to report are in it too.
#[inline]
pub fn deliver_to_others<W: Word, const C: usize>(
    clusters: &Clusters<W, C>,
    me: Option<Place>,
    mut write: impl FnMut(Destination),
) {
    for slot in 0..C as u16 {
        if clusters.is_free(slot) {
            return;
        }
        let others = match me {
            Some(me) if me.slot == slot => !me.bit,
            _ => u16::MAX,
        };
        if let Some(id) = clusters.logical_id(slot, others) {
            write(Destination { id, logical: true });
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
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    type Table = Clusters<AtomicU32, 128>;

    struct Machine {
        table: Table,
        roster: Roster<AtomicU32, 5>,
        all: Vec<Target>,
    }

    /// CPUs numbered in the order of `ids`.
    fn machine(ids: &[u32]) -> Machine {
        let (table, roster) = (Table::empty(), Roster::empty());
        let all: Vec<Target> = ids
            .iter()
            .map(|&apic_id| Target {
                apic_id,
                place: table.join(x2apic_ldr(apic_id)),
            })
            .collect();
        for (n, t) in all.iter().enumerate() {
            roster.set(n as u32, *t);
        }
        Machine { table, roster, all }
    }

    impl Machine {
        fn messages(&self, how: IpiAddressing, chosen: impl Fn(usize) -> bool) -> Vec<Destination> {
            let mut mask = [0u64; 5];
            for n in (0..self.all.len()).filter(|&n| chosen(n)) {
                mask[n / 64] |= 1 << (n % 64);
            }
            let mut sent = Vec::new();
            how.deliver(&self.table, &self.roster, &mask, |d| sent.push(d));
            sent
        }
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
        let m = machine(&[40, 0, 17, 1, 16, 2]);
        let ids = |sent: Vec<Destination>| sent.iter().map(|d| d.id).collect::<Vec<u32>>();
        let sent = m.messages(IpiAddressing::Cluster, |_| true);
        assert_eq!(ids(sent), [0x0002_0100, 0x0000_0007, 0x0001_0003]);
        assert_eq!(m.messages(IpiAddressing::Physical, |_| true).len(), 6);
        let mut others = Vec::new();
        deliver_to_others(&m.table, m.all[1].place, |d| others.push(d));
        assert_eq!(ids(others), [0x0002_0100, 0x0000_0006, 0x0001_0003]);
    }

    #[test]
    fn flat_is_one_cluster_of_eight() {
        let m = machine(&[]);
        for n in 0..8 {
            let place = m.table.join(1 << n);
            m.roster.set(
                n,
                Target {
                    apic_id: n * 2,
                    place,
                },
            );
        }
        let mut sent = Vec::new();
        IpiAddressing::Flat.deliver(&m.table, &m.roster, &[0b1110], |d| sent.push(d));
        assert_eq!(
            sent,
            [Destination {
                id: 0b1110,
                logical: true
            }]
        );
    }

    #[test]
    fn a_cpu_without_a_logical_id_is_named_by_its_own() {
        let m = machine(&[0, 1]);
        m.roster.set(
            2,
            Target {
                apic_id: 77,
                place: None,
            },
        );
        let mut sent = Vec::new();
        IpiAddressing::Cluster.deliver(&m.table, &m.roster, &[0b110], |d| sent.push(d));
        assert_eq!(
            sent,
            [
                Destination::physical(77),
                Destination {
                    id: 2,
                    logical: true
                }
            ]
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
        let Machine { table, all, .. } = machine(&[3, 5, 20]);
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
            let m = machine(&up);
            let chosen = |n: usize| pick >> (n % 64) & 1 != 0;
            let wanted: BTreeSet<u32> = m.all.iter().enumerate().filter(|(n, _)| chosen(*n)).map(|(_, t)| t.apic_id).collect();
            for how in [IpiAddressing::Physical, IpiAddressing::Cluster] {
                let sent = m.messages(how, chosen);
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
            let gone = m.all[gone.index(m.all.len())];
            m.table.leave(gone.place.unwrap());
            let after: BTreeSet<u32> = m.messages(IpiAddressing::Cluster, |_| true).into_iter().flat_map(reached).collect();
            let left: BTreeSet<u32> = up.iter().copied().filter(|&id| id != gone.apic_id).collect();
            prop_assert_eq!(&after, &left);
            let mut others = Vec::new();
            deliver_to_others(&m.table, gone.place, |d| others.push(d));
            prop_assert_eq!(others.into_iter().flat_map(reached).collect::<BTreeSet<_>>(), left);
        }
    }
}
