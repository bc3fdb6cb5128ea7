//! An allocator for tests that counts what lives: a test declares it as its global allocator and compares before and after.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static BYTES: AtomicUsize = AtomicUsize::new(0);
static OBJECTS: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with counters.
pub struct Counting;

/// How many objects live, and their bytes.
pub fn in_use() -> (usize, usize) {
    (
        OBJECTS.load(Ordering::Relaxed),
        BYTES.load(Ordering::Relaxed),
    )
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let at = unsafe { System.alloc(layout) };
        if !at.is_null() {
            OBJECTS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        }
        at
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        OBJECTS.fetch_sub(1, Ordering::Relaxed);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) };
    }
}
