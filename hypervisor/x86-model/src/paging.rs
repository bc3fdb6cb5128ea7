//! Long-mode page-table entries (AMD64 APM volume 2, 5.3 and 5.4; Intel SDM volume 3, 4.5).

use bitflags::bitflags;

bitflags! {
    /// Flag bits of an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pte: u64 {
        /// Valid.
        const PRESENT = 1;
        /// Writable.
        const WRITE = 1 << 1;
        /// Reachable from user mode.
        const USER = 1 << 2;
        /// Memory type, low bit (page write-through).
        const PWT = 1 << 3;
        /// Memory type, middle bit (page cache disable).
        const PCD = 1 << 4;
        /// Was used.
        const ACCESSED = 1 << 5;
        /// Was written (leaf).
        const DIRTY = 1 << 6;
        /// A leaf above the last level; in the last level this is the memory type's high bit.
        const LARGE = 1 << 7;
        /// Survives address-space switches (leaf).
        const GLOBAL = 1 << 8;
        /// No instruction fetches.
        const NO_EXECUTE = 1 << 63;
    }
}

/// The address field of an entry.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The memory type's high bit in a 4 KiB leaf.
pub const PAT_SMALL: u64 = 1 << 7;
/// The memory type's high bit in a larger leaf.
pub const PAT_LARGE: u64 = 1 << 12;

/// Bytes that one entry of a level covers; level 0 is the last (4 KiB).
pub const fn span(level: u32) -> u64 {
    1 << (12 + 9 * level)
}

/// Index into the table of a level.
pub const fn index(va: u64, level: u32) -> usize {
    (va >> (12 + 9 * level) & 511) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_and_spans() {
        let va = 0xffff_8300_0020_1000;
        assert_eq!(
            (index(va, 3), index(va, 2), index(va, 1), index(va, 0)),
            (262, 0, 1, 1)
        );
        assert_eq!(index(0xffff_ffff_8000_0000, 3), 511);
        assert_eq!(index(0xffff_ffff_8000_0000, 2), 510);
        assert_eq!((span(0), span(1), span(2)), (4096, 2 << 20, 1 << 30));
    }
}
