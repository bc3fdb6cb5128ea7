//! dom0's memory map, made from the host's. dom0 is identity mapped: its RAM is the lowest free RAM of the machine, up to
//! `dom0_mem`. RAM that it does not get is marked unusable, so that it is neither used nor taken for a hole; the
//! hypervisor's memory is marked reserved; what the firmware keeps stays as it is.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use hv_hw::bootinfo::memmap::{Kind, Range, Region};
use x86_model::PAGE_SIZE;

use crate::options::Dom0Mem;

/// Most entries that Linux takes (it has room for 128 and adds one without checking).
pub const MAX_ENTRIES: usize = 127;
/// Entries that may still be added when a range is split after the map is made.
const SPARE: usize = 4;
const PAGE_MASK: u64 = PAGE_SIZE - 1;
/// Display memory, option ROMs, BIOS: never RAM, whatever the firmware says.
const LEGACY_HOLE: Range = Range {
    start: 0xa_0000,
    end: 0x10_0000,
};
/// Linux starts its other CPUs from a block of RAM below 1 MiB and panics without one; its block is a few tens of KiB.
const LOW_RAM_NEEDED: u64 = 0x1_0000;
const MIB: u64 = 1 << 20;

/// What the map is made from.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory<'a> {
    /// The firmware's or boot loader's map: in any order, overlapping or not.
    pub regions: &'a [Region],
    /// What the hypervisor keeps (image, tables, heap, start-up page of the other CPUs, ...).
    pub hypervisor: &'a [Range],
    /// Firmware tables that dom0 reads; where they lie in RAM, their pages are kept out of it.
    pub tables: &'a [Range],
}

/// dom0's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dom0Memory {
    /// The map for dom0: ascending, disjoint, at most [`MAX_ENTRIES`], RAM in whole pages. [`Kind::Bad`] is RAM that is not
    /// dom0's.
    pub map: Vec<Region>,
    /// Bytes of RAM in the map.
    pub ram_bytes: u64,
    /// Bytes that dom0 may ever have, if the command line says so.
    pub max_bytes: Option<u64>,
    /// RAM from page 1 up to 640 KiB, in bytes.
    pub low_ram_bytes: u64,
    /// How many entries were left out because there were too many.
    pub dropped: usize,
}

impl Dom0Memory {
    /// Makes the map.
    pub fn build(host: &HostMemory<'_>, want: &Dom0Mem) -> Self {
        let mut map = flatten(host);
        let available: u64 = ram(&map).map(Range::len).sum();
        let (target, max_bytes) = amount(want, available);
        clip(&mut map, target);
        merge(&mut map);
        let dropped = shorten(&mut map, MAX_ENTRIES - SPARE);
        let mut this = Self {
            map,
            ram_bytes: 0,
            max_bytes,
            low_ram_bytes: 0,
            dropped,
        };
        this.count();
        this
    }

    /// dom0's RAM, ascending.
    pub fn ram(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        ram(&self.map)
    }

    /// Whether the whole range is RAM of dom0.
    pub fn is_ram(&self, range: Range) -> bool {
        !range.is_empty()
            && self
                .ram()
                .any(|r| r.start <= range.start && range.end <= r.end)
    }

    /// Whether there is the block below 1 MiB that Linux needs to start at all.
    pub fn has_low_ram(&self) -> bool {
        self.low_ram_bytes >= LOW_RAM_NEEDED
    }

    /// Turns whole pages of RAM into another kind.
    pub fn steal(&mut self, range: Range, kind: Kind) {
        overlay(&mut self.map, range, kind);
        merge(&mut self.map);
        self.count();
    }

    fn count(&mut self) {
        self.ram_bytes = self.ram().map(Range::len).sum();
        self.low_ram_bytes = self
            .ram()
            .map(|r| {
                r.end
                    .min(LEGACY_HOLE.start)
                    .saturating_sub(r.start.max(PAGE_SIZE))
            })
            .sum();
    }
}

fn ram(map: &[Region]) -> impl DoubleEndedIterator<Item = Range> + '_ {
    map.iter().filter(|r| r.kind == Kind::Ram).map(|r| Range {
        start: r.base,
        end: r.base + r.len,
    })
}

/// Which kind counts where regions overlap: the more careful one.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Ram => 0,
        Kind::Persistent => 1,
        Kind::AcpiReclaim => 2,
        Kind::AcpiNvs => 3,
        Kind::Reserved => 4,
        Kind::Bad => 5,
    }
}

/// Disjoint, ascending regions; RAM in whole pages, without the hypervisor's and the legacy hole's.
fn flatten(host: &HostMemory<'_>) -> Vec<Region> {
    let mut edges = Vec::new();
    let end = |r: &Region| r.base.saturating_add(r.len);
    for r in host.regions.iter().filter(|r| r.len > 0) {
        edges.extend([r.base, end(r)]);
    }
    edges.sort_unstable();
    edges.dedup();
    let mut map: Vec<Region> = Vec::new();
    for pair in edges.windows(2) {
        let (start, stop) = (pair[0], pair[1]);
        let kind = host
            .regions
            .iter()
            .filter(|r| r.base <= start && end(r) >= stop)
            .map(|r| r.kind)
            .max_by_key(|&kind| rank(kind));
        if let Some(kind) = kind {
            map.push(Region {
                base: start,
                len: stop - start,
                kind,
            });
        }
    }
    merge(&mut map);
    // RAM keeps its whole pages only; the rest of a shared page belongs to what it is shared with.
    let mut split = Vec::with_capacity(map.len());
    for r in &map {
        let stop = r.base + r.len;
        let (first, last) = (
            r.base.checked_next_multiple_of(PAGE_SIZE).unwrap_or(stop),
            stop & !PAGE_MASK,
        );
        if r.kind != Kind::Ram {
            split.push(*r);
        } else if first < last {
            for (base, stop, kind) in [
                (r.base, first, Kind::Reserved),
                (first, last, Kind::Ram),
                (last, stop, Kind::Reserved),
            ] {
                split.push(Region {
                    base,
                    len: stop - base,
                    kind,
                });
            }
        } else {
            split.push(Region {
                kind: Kind::Reserved,
                ..*r
            });
        }
    }
    overlay(&mut split, LEGACY_HOLE, Kind::Reserved);
    for &range in host.tables {
        overlay(
            &mut split,
            Range::pages(range.start, range.end.saturating_sub(range.start)),
            Kind::AcpiReclaim,
        );
    }
    for &range in host.hypervisor {
        overlay(
            &mut split,
            Range::pages(range.start, range.end.saturating_sub(range.start)),
            Kind::Reserved,
        );
    }
    merge(&mut split);
    split
}

/// Gives RAM inside `range` (whole pages) another kind. Nothing else changes.
fn overlay(map: &mut Vec<Region>, range: Range, kind: Kind) {
    let mut out = Vec::with_capacity(map.len() + 2);
    for r in map.iter() {
        let stop = r.base + r.len;
        let (from, to) = (r.base.max(range.start), stop.min(range.end));
        if r.kind != Kind::Ram || from >= to {
            out.push(*r);
            continue;
        }
        for (base, stop, kind) in [(r.base, from, r.kind), (from, to, kind), (to, stop, r.kind)] {
            out.push(Region {
                base,
                len: stop - base,
                kind,
            });
        }
    }
    out.retain(|r| r.len > 0);
    *map = out;
}

/// Joins neighbours of one kind.
fn merge(map: &mut Vec<Region>) {
    map.retain(|r| r.len > 0);
    map.dedup_by(|next, last| {
        let join = last.kind == next.kind && last.base + last.len == next.base;
        if join {
            last.len += next.len;
        }
        join
    });
}

/// dom0's RAM in bytes, whole pages, and its upper bound.
fn amount(want: &Dom0Mem, available: u64) -> (u64, Option<u64>) {
    let resolve = |a: Option<crate::options::Amount>| a.map(|a| a.resolve(available));
    let max = resolve(want.max);
    let initial = resolve(want.initial)
        .unwrap_or_else(|| available - (available / 16).min(128 * MIB))
        .min(max.unwrap_or(u64::MAX))
        .max(resolve(want.min).unwrap_or(0))
        .min(available);
    (initial & !PAGE_MASK, max)
}

/// Leaves the lowest `target` bytes of RAM and marks the rest unusable.
fn clip(map: &mut Vec<Region>, target: u64) {
    let mut left = target;
    for at in 0..map.len() {
        let r = map[at];
        if r.kind != Kind::Ram {
            continue;
        }
        let take = r.len.min(left);
        left -= take;
        if take == r.len {
            continue;
        }
        let rest = Range {
            start: r.base + take,
            end: u64::MAX,
        };
        // Everything above is over the target as well.
        overlay(map, rest, Kind::Bad);
        return;
    }
}

/// Drops entries until at most `limit` are left: the least missed first. Returns how many.
fn shorten(map: &mut Vec<Region>, limit: usize) -> usize {
    let surplus = map.len().saturating_sub(limit);
    for _ in 0..surplus {
        let worth = |r: &Region| match r.kind {
            // Without these entries dom0 takes the place for a hole and leaves it alone, too.
            Kind::Bad | Kind::Reserved => (0, r.len),
            Kind::Persistent => (1, r.len),
            Kind::Ram => (2, r.len),
            Kind::AcpiNvs | Kind::AcpiReclaim => (3, r.len),
        };
        let Some(least) = (0..map.len()).min_by_key(|&at| worth(&map[at])) else {
            break;
        };
        map.remove(least);
    }
    surplus
}
