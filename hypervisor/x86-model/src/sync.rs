//! The one atomic cell that the lock-free protocols of this crate are written over, so that a model checker can run the
//! very code that the machine runs: `tests/loom.rs` gives them its own cell.

use core::sync::atomic::{AtomicU32, Ordering};

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
