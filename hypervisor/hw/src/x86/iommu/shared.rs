//! Memory that an IOMMU reads and writes on its own: tables and rings. Accessed as atomic words only.

use core::sync::atomic::{AtomicU64, Ordering};

use x86_model::{Hpa, PAGE_SIZE};

use super::super::asm;
use super::super::virt::pages::Pages;

/// A run of zeroed frames. Once a unit has its address it must not be dropped before the unit has let go of it.
pub struct Shared {
    pages: Pages,
    /// The unit reads memory behind the caches' back, so that writes must be flushed to it.
    flush: bool,
}

// SAFETY: plain memory in the direct map, the same on all CPUs; accesses are atomic.
unsafe impl Send for Shared {}

impl Shared {
    /// `bytes` of zeroes, page-aligned. `None` without memory.
    pub fn new(bytes: usize, flush: bool) -> Option<Self> {
        let pages = Pages::new(bytes.div_ceil(PAGE_SIZE as usize), 0)?;
        let this = Self { pages, flush };
        if flush {
            for offset in (0..this.pages.len()).step_by(64) {
                this.flush(offset);
            }
        }
        Some(this)
    }

    /// Address, for the unit.
    pub fn hpa(&self) -> Hpa {
        self.pages.hpa()
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.pages.len());
        // SAFETY: aligned and inside our frames (checked above), which live as long as `self`; only atomics are used.
        unsafe {
            &*self
                .pages
                .pointer()
                .as_ptr()
                .add(offset)
                .cast::<AtomicU64>()
        }
    }

    /// Reads the 64-bit word at a byte offset.
    pub fn read(&self, offset: usize) -> u64 {
        self.at(offset).load(Ordering::Acquire)
    }

    /// Writes the 64-bit word at a byte offset.
    pub fn write(&self, offset: usize, value: u64) {
        self.at(offset).store(value, Ordering::Release);
        if self.flush {
            self.flush(offset);
        }
    }

    /// Writes the 32-bit half of a word that contains a byte offset, leaving the other half; for one writer at a time.
    pub fn write_half(&self, offset: usize, value: u32) {
        let shift = (offset % 8) * 8;
        let word = offset & !7;
        let old = self.read(word);
        self.write(
            word,
            old & !(0xffff_ffff << shift) | u64::from(value) << shift,
        );
    }

    /// Replaces 128 bits at once, so that the unit never sees half of an entry. False if the old value is not `old`:
    /// somebody else wrote.
    pub fn replace(&self, offset: usize, old: [u64; 2], new: [u64; 2]) -> bool {
        assert!(offset.is_multiple_of(16) && offset + 16 <= self.pages.len());
        let at = self.at(offset);
        // SAFETY: 16 bytes, aligned (frames are, and the offset is), inside our frames; no reference to them exists that
        // is not atomic. That the CPU has the instruction was checked when remapping was decided on.
        let done =
            unsafe { asm::compare_exchange_128(core::ptr::from_ref(at).cast_mut(), old, new) };
        if self.flush {
            self.flush(offset);
        }
        done
    }

    fn flush(&self, offset: usize) {
        asm::flush_line(self.at(offset & !7));
    }
}
