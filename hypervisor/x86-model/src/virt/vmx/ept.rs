//! Second-stage translation of VT-x: the pointer to the tables, what a CPU can do, faults (SDM vol. 3, 30.3 and appendix
//! A.10). Entries are in `hv-hw`'s radix tree; their bits are named here.

use crate::{Hpa, PAGE_SIZE};

/// Entry: reads allowed.
pub const READ: u64 = 1 << 0;
/// Entry: writes allowed.
pub const WRITE: u64 = 1 << 1;
/// Entry: instruction fetches allowed.
pub const EXECUTE: u64 = 1 << 2;
/// Place of the memory type in a leaf.
pub const TYPE_SHIFT: u32 = 3;
/// Leaf: the guest's PAT has no say in the memory type.
pub const IGNORE_PAT: u64 = 1 << 6;
/// Entry of the two middle levels: maps a large page.
pub const LARGE: u64 = 1 << 7;

/// Memory types (the numbers are those of MTRRs and PAT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryType {
    /// No caching.
    Uncached = 0,
    /// Writes are collected.
    WriteCombining = 1,
    /// Reads are cached, writes go through.
    WriteThrough = 4,
    /// Reads are cached, writes are not.
    WriteProtected = 5,
    /// Ordinary memory.
    WriteBack = 6,
}

impl MemoryType {
    /// The type of a leaf; `None` for the numbers that make the CPU stop with a misconfiguration.
    pub const fn of(entry: u64) -> Option<Self> {
        Some(match entry >> TYPE_SHIFT & 7 {
            0 => Self::Uncached,
            1 => Self::WriteCombining,
            4 => Self::WriteThrough,
            5 => Self::WriteProtected,
            6 => Self::WriteBack,
            _ => return None,
        })
    }
}

/// The pointer for a root table: four levels, tables read through write-back caches, no accessed or dirty bits.
pub const fn pointer(root: Hpa) -> u64 {
    const LEVELS_MINUS_ONE: u64 = 3 << 3;
    root.0 & !(PAGE_SIZE - 1) | LEVELS_MINUS_ONE | MemoryType::WriteBack as u64
}

/// The MSR that describes EPT and tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EptCapabilities(u64);

impl EptCapabilities {
    /// From the MSR.
    pub const fn new(msr: u64) -> Self {
        EptCapabilities(msr)
    }

    const fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }

    /// Whether the radix tree's format works; if not, why.
    pub const fn usable(self) -> Result<(), &'static str> {
        if !self.has(6) || !self.has(14) {
            return Err("the CPU has EPT without four-level tables in ordinary memory");
        }
        if !self.has(16) {
            return Err("the CPU has EPT without 2 MiB pages");
        }
        if !self.has(20) || !(self.has(25) || self.has(26)) {
            return Err("the CPU has EPT without INVEPT");
        }
        Ok(())
    }

    /// Largest mapping, as a power of two of 4 KiB frames.
    pub const fn largest_order(self) -> u8 {
        if self.has(17) { 18 } else { 9 }
    }

    /// INVEPT can drop one tree's translations; else it drops all.
    pub const fn flushes_one_tree(self) -> bool {
        self.has(25)
    }

    /// INVVPID exists and can drop all translations.
    pub const fn flushes_vpids(self) -> bool {
        self.has(32) && self.has(42)
    }
}

/// A second-stage fault, from the exit qualification (SDM vol. 3, table 29-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A write.
    pub write: bool,
    /// An instruction fetch.
    pub fetch: bool,
    /// While the CPU walked the guest's own tables.
    pub walk: bool,
    /// It came while IRET had just ended the NMI mask, which must be set again.
    pub nmi_unblocked: bool,
}

/// Reads the qualification.
pub const fn violation(qualification: u64) -> Violation {
    const LINEAR_VALID: u64 = 1 << 7;
    const FINAL: u64 = 1 << 8;
    Violation {
        write: qualification & 2 != 0,
        fetch: qualification & 4 != 0,
        walk: qualification & (LINEAR_VALID | FINAL) == LINEAR_VALID,
        nmi_unblocked: qualification & 1 << 12 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_of_a_root() {
        assert_eq!(pointer(Hpa(0x1234_5000)), 0x1234_501e);
        assert_eq!(pointer(Hpa(0x1234_5fff)), 0x1234_501e);
    }

    #[test]
    fn types() {
        let of = |n: u64| MemoryType::of(n << TYPE_SHIFT | IGNORE_PAT | READ);
        assert_eq!(of(6), Some(MemoryType::WriteBack));
        assert_eq!(of(0), Some(MemoryType::Uncached));
        for bad in [2, 3, 7] {
            assert_eq!(of(bad), None);
        }
    }

    #[test]
    fn capabilities() {
        // Skylake X: execute-only, 4 levels, UC and WB, 2 MiB and 1 GiB, INVEPT and INVVPID of all kinds.
        let full = 0xf01_0673_4141;
        let all = EptCapabilities::new(full);
        assert_eq!(all.usable(), Ok(()));
        assert!(all.flushes_one_tree() && all.flushes_vpids());
        assert_eq!(all.largest_order(), 18);
        for bit in [6, 14, 16, 20] {
            assert!(EptCapabilities::new(full & !(1 << bit)).usable().is_err());
        }
        let only_all = EptCapabilities::new(full & !(1 << 25));
        assert!(only_all.usable().is_ok() && !only_all.flushes_one_tree());
        assert!(EptCapabilities::new(full & !(3 << 25)).usable().is_err());
        assert!(!EptCapabilities::new(full & !(1 << 42)).flushes_vpids());
        assert_eq!(EptCapabilities::new(full & !(1 << 17)).largest_order(), 9);
    }

    #[test]
    fn violations() {
        let v = violation(0x181 | 2);
        assert!(v.write && !v.fetch && !v.walk);
        let v = violation(0x84);
        assert!(!v.write && v.fetch && v.walk);
        // Not about a linear address at all (loading the entries of PAE paging).
        assert!(!violation(0x1).walk);
        assert!(violation(1 << 12).nmi_unblocked);
    }
}
