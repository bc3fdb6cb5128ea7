//! The atomic cells that the lock-free protocols of this crate are written over, so that a model checker can run the
//! very code that the machine runs: `tests/loom.rs` and `tests/loom_posted.rs` give them their own cells.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A 32-bit atomic cell.
pub trait Word {
    /// Reads.
    fn load(&self, order: Ordering) -> u32;
    /// Writes.
    fn store(&self, value: u32, order: Ordering);
    /// Sets bits; the value before.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    /// Keeps only the given bits; the value before.
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32;
    /// Replaces `current` by `new`, acquiring and releasing; the value found if it was another.
    fn exchange(&self, current: u32, new: u32) -> Result<(), u32>;
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    #[inline(always)]
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_or(bits, order)
    }
    #[inline(always)]
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_and(bits, order)
    }
    #[inline(always)]
    fn exchange(&self, current: u32, new: u32) -> Result<(), u32> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
    }
}

/// A 64-bit atomic cell.
pub trait Word64 {
    /// Reads.
    fn load(&self, order: Ordering) -> u64;
    /// Sets bits; the value before.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// Keeps only the given bits; the value before.
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
    /// Writes; the value before.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Replaces `current` by `new`, in the one order that all sequentially consistent operations share; the value found if
    /// it was another.
    fn exchange(&self, current: u64, new: u64) -> Result<(), u64>;
}

impl Word64 for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline(always)]
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }
    #[inline(always)]
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }
    #[inline(always)]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
    #[inline(always)]
    fn exchange(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
            .map(drop)
    }
}
