//! The machine's memory map: kinds, clean-up, and a small set of free ranges for placing things before the frame
//! table exists. Addresses and lengths in bytes.

use arrayvec::ArrayVec;

/// What a range of physical addresses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Usable RAM.
    Ram,
    /// RAM with ACPI tables, usable once they have been read.
    AcpiReclaim,
    /// RAM that the firmware uses at run time.
    AcpiNvs,
    /// Persistent memory.
    Persistent,
    /// Devices, firmware, or anything unknown.
    Reserved,
    /// RAM that fails.
    Bad,
}

impl Kind {
    /// From an E820 type number (ACPI 6.5, table 15.7). Unknown ones are reserved.
    pub const fn from_e820(kind: u32) -> Self {
        match kind {
            1 => Kind::Ram,
            3 => Kind::AcpiReclaim,
            4 => Kind::AcpiNvs,
            5 => Kind::Bad,
            7 => Kind::Persistent,
            _ => Kind::Reserved,
        }
    }

    /// The E820 type number.
    pub const fn to_e820(self) -> u32 {
        match self {
            Kind::Ram => 1,
            Kind::Reserved => 2,
            Kind::AcpiReclaim => 3,
            Kind::AcpiNvs => 4,
            Kind::Bad => 5,
            Kind::Persistent => 7,
        }
    }

    /// From an EFI memory type (UEFI 2.10, 7.2.1), after boot services have ended.
    pub const fn from_efi(kind: u32) -> Self {
        match kind {
            // Loader and boot-services code and data, conventional memory.
            1..=4 | 7 => Kind::Ram,
            8 => Kind::Bad,
            9 => Kind::AcpiReclaim,
            10 => Kind::AcpiNvs,
            14 => Kind::Persistent,
            _ => Kind::Reserved,
        }
    }
}

/// A range of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Kind.
    pub kind: Kind,
}

/// A half-open range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Range {
    /// The pages that `start .. start + len` touches, or nothing if it is empty.
    pub const fn pages(start: u64, len: u64) -> Range {
        if len == 0 {
            return Range { start, end: start };
        }
        let end = start.saturating_add(len);
        Range {
            start: start & !0xfff,
            end: if end > u64::MAX - 0xfff {
                !0xfff
            } else {
                (end + 0xfff) & !0xfff
            },
        }
    }

    /// Bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether nothing is in it.
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

/// Disjoint, sorted ranges. Operations that would need more than `N` fail instead of losing the order.
#[derive(Clone, Debug, Default)]
pub struct Ranges<const N: usize> {
    list: ArrayVec<Range, N>,
}

impl<const N: usize> Ranges<N> {
    /// No ranges.
    pub const fn new() -> Self {
        Ranges {
            list: ArrayVec::new_const(),
        }
    }

    /// The whole 4 KiB pages of RAM in `regions` that no region of another kind touches, below `limit`.
    /// Returns false if some had to be left out for lack of room.
    pub fn ram(regions: &[Region], limit: u64) -> (Self, bool) {
        Self::of_kinds(regions, limit, &[Kind::Ram])
    }

    /// As [`Ranges::ram`], for several kinds.
    pub fn of_kinds(regions: &[Region], limit: u64, kinds: &[Kind]) -> (Self, bool) {
        let mut this = Self::new();
        let mut complete = true;
        for r in regions.iter().filter(|r| kinds.contains(&r.kind)) {
            let end = r.base.saturating_add(r.len).min(limit) & !0xfff;
            let start = r.base.saturating_add(0xfff) & !0xfff;
            complete &= this.add(Range { start, end });
        }
        for r in regions.iter().filter(|r| !kinds.contains(&r.kind)) {
            complete &= this.subtract(Range::pages(r.base, r.len));
        }
        (this, complete)
    }

    /// Adds a range, merging with what it touches. False if there is no room.
    pub fn add(&mut self, mut new: Range) -> bool {
        if new.is_empty() {
            return true;
        }
        self.list.retain(|r| {
            let touches = r.start <= new.end && new.start <= r.end;
            if touches {
                new.start = new.start.min(r.start);
                new.end = new.end.max(r.end);
            }
            !touches
        });
        let at = self.list.partition_point(|r| r.start < new.start);
        self.list.try_insert(at, new).is_ok()
    }

    /// Removes a range. If a split finds no room, the smaller piece is lost too, and the result is false.
    pub fn subtract(&mut self, cut: Range) -> bool {
        let mut complete = true;
        if cut.is_empty() {
            return true;
        }
        let mut i = 0;
        while let Some(&r) = self.list.get(i) {
            if r.start >= cut.end || r.end <= cut.start {
                i += 1;
                continue;
            }
            let low = Range {
                start: r.start,
                end: cut.start.max(r.start),
            };
            let high = Range {
                start: cut.end.min(r.end),
                end: r.end,
            };
            match (low.is_empty(), high.is_empty()) {
                (true, true) => {
                    self.list.remove(i);
                }
                (false, true) => self.list[i] = low,
                (true, false) => self.list[i] = high,
                (false, false) => {
                    self.list[i] = low;
                    if self.list.try_insert(i + 1, high).is_err() {
                        complete = false;
                        if high.len() > low.len() {
                            self.list[i] = high;
                        }
                    }
                }
            }
            if self.list.get(i).is_some_and(|r| r.end <= cut.start) {
                i += 1;
            }
        }
        complete
    }

    /// Takes `len` bytes (a multiple of 4 KiB) aligned to `align` (a power of two, at least 4 KiB) from as high as
    /// possible below `limit`.
    pub fn take_top(&mut self, len: u64, align: u64, limit: u64) -> Option<u64> {
        let found = self.list.iter().rev().find_map(|r| {
            let start = r.end.min(limit).checked_sub(len)? & !(align - 1);
            (start >= r.start).then_some(start)
        })?;
        let range = Range {
            start: found,
            end: found + len,
        };
        // A failed split would lose memory, never hand it out twice.
        self.subtract(range);
        Some(found)
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.list.iter().copied()
    }

    /// Sum of all lengths.
    pub fn total(&self) -> u64 {
        self.list.iter().map(|r| r.len()).sum()
    }

    /// End of the highest range, 0 if there is none.
    pub fn end(&self) -> u64 {
        self.list.last().map_or(0, |r| r.end)
    }

    /// Whether the whole of `range` is inside.
    pub fn contains(&self, range: Range) -> bool {
        range.is_empty()
            || self
                .list
                .iter()
                .any(|r| r.start <= range.start && range.end <= r.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list<const N: usize>(r: &Ranges<N>) -> Vec<(u64, u64)> {
        r.iter().map(|r| (r.start, r.end)).collect()
    }

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn ram_excludes_whatever_else_claims_the_page() {
        let r = |base, len, kind| Region { base, len, kind };
        let map = [
            r(0, 0x9_fc00, Kind::Ram),
            r(0x9_fc00, 0x400, Kind::Reserved),
            r(0x10_0000, 0x10_0000, Kind::Ram),
            r(0x18_0800, 1, Kind::Bad),
            r(0x20_0000, 0x1000, Kind::Ram),
            r(0x1_0000_0000, u64::MAX, Kind::Ram),
        ];
        let (ram, complete) = Ranges::<8>::ram(&map, 0x1_0000_2000);
        assert!(complete);
        assert_eq!(
            list(&ram),
            [
                (0, 0x9_f000),
                (0x10_0000, 0x18_0000),
                (0x18_1000, 0x20_1000),
                (0x1_0000_0000, 0x1_0000_2000)
            ]
        );
    }

    #[test]
    fn takes_from_the_top_with_alignment() {
        let mut r = Ranges::<4>::new();
        r.add(range(0x1000, 0x40_0000));
        r.add(range(0x80_0000, 0x80_3000));
        assert_eq!(r.take_top(0x1000, 0x1000, u64::MAX), Some(0x80_2000));
        assert_eq!(r.take_top(0x10_0000, 0x20_0000, u64::MAX), Some(0x20_0000));
        assert_eq!(r.take_top(0x1000, 0x1000, 0x20_0000), Some(0x1f_f000));
        assert_eq!(r.take_top(0x1000_0000, 0x1000, u64::MAX), None);
        assert!(r.contains(range(0x30_0000, 0x40_0000)));
        assert!(!r.contains(range(0x1f_f000, 0x20_0000)));
    }

    #[test]
    fn pages_of_odd_ranges() {
        assert_eq!(Range::pages(0x1fff, 2), range(0x1000, 0x3000));
        assert!(Range::pages(5, 0).is_empty());
        assert_eq!(Range::pages(u64::MAX - 5, u64::MAX).end, !0xfff);
    }

    proptest! {
        /// Against a set of page numbers.
        #[test]
        fn behaves_as_a_set(steps in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..60)) {
            let mut ours = Ranges::<64>::new();
            let mut model = std::collections::BTreeSet::new();
            for (add, start, len) in steps {
                let pages = start..start + len;
                let range = range(start << 12, (start + len) << 12);
                if add {
                    prop_assert!(ours.add(range));
                    model.extend(pages);
                } else {
                    prop_assert!(ours.subtract(range));
                    model.retain(|p| !pages.contains(p));
                }
                let pages: Vec<u64> = ours.iter().flat_map(|r| r.start >> 12..r.end >> 12).collect();
                prop_assert_eq!(pages, model.iter().copied().collect::<Vec<_>>());
                let gaps = ours.iter().zip(ours.iter().skip(1)).all(|(a, b)| a.end < b.start);
                prop_assert!(gaps, "neighbours must be merged");
            }
        }

        /// A full list loses memory but never invents any.
        #[test]
        fn never_grows_when_full(steps in proptest::collection::vec((any::<bool>(), 0u64..60, 1u64..9), 1..60)) {
            let mut ours = Ranges::<3>::new();
            let mut model = std::collections::BTreeSet::new();
            for (add, start, len) in steps {
                let range = range(start << 12, (start + len) << 12);
                if add {
                    ours.add(range);
                    model.extend(start..start + len);
                } else {
                    ours.subtract(range);
                    model.retain(|p| !(start..start + len).contains(p));
                }
                prop_assert!(ours.iter().flat_map(|r| r.start >> 12..r.end >> 12).all(|p| model.contains(&p)));
            }
        }
    }
}
