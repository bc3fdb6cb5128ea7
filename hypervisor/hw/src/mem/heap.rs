//! The hypervisor's heap. Small objects come from `talc`, which grows by 2 MiB runs of frames and keeps them; objects
//! of 256 KiB and more are runs of frames of their own and go back to the frame pool when freed, so that the dom0
//! builder's buffers leave nothing behind.
//!
//! Exhaustion gives null, which only our own infallible allocations turn into a panic; what guests can make grow uses
//! fallible ones.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};

use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;
use x86_model::{Hpa, PAGE_SIZE};
use xen_abi::DomId;

use super::frames::{self, FrameKind};
use super::{phys_to_virt, virt_to_phys};
use crate::sync::{SpinLock, rank};

/// Objects of this size (bytes) and more are runs of frames.
const LARGE: usize = 256 << 10;
/// What the small-object heap grows by, in frames.
const CHUNK_FRAMES: usize = 512;

/// Bytes of all objects that live, of all heaps: there is one.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the hypervisor's objects, as they were asked for.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// The allocator; the image declares one as the global allocator.
pub struct Heap {
    small: SpinLock<Talc<Manual, DefaultBinning>, { rank::HEAP }>,
}

impl Heap {
    /// An empty heap. Usable as soon as the frame table has free frames.
    #[allow(clippy::new_without_default, reason = "only meant for the one static")]
    pub const fn new() -> Self {
        Heap {
            small: SpinLock::new(Talc::new(Manual)),
        }
    }

    fn small(&self, layout: Layout) -> *mut u8 {
        let mut heap = self.small.lock();
        // SAFETY: the layout has a non-zero size: `GlobalAlloc::alloc`'s contract.
        if let Some(p) = unsafe { heap.allocate(layout) } {
            return p.as_ptr();
        }
        let Some(first) = run(CHUNK_FRAMES, CHUNK_FRAMES) else {
            return null_mut();
        };
        // SAFETY: the run was just allocated for us and is only used by this heap from now on.
        unsafe { heap.claim(phys_to_virt(first), CHUNK_FRAMES * PAGE_SIZE as usize) };
        // SAFETY: as above.
        unsafe { heap.allocate(layout) }.map_or(null_mut(), NonNull::as_ptr)
    }
}

fn run(count: usize, align: usize) -> Option<Hpa> {
    frames::alloc_contiguous(count, align, None, FrameKind::Hypervisor, DomId::XEN)
        .map(|mfn| mfn.hpa())
}

fn pages(layout: Layout) -> usize {
    layout.size().div_ceil(PAGE_SIZE as usize)
}

/// Small alignment is what lets a chunk always satisfy a small object.
fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE || layout.align() >= LARGE
}

// SAFETY: memory comes from runs of frames owned by the hypervisor and mapped in the direct map, each handed out once;
// size and alignment are kept by `talc` for small objects and by whole, aligned frames for large ones.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let at = if is_large(layout) {
            let align = layout.align().div_ceil(PAGE_SIZE as usize);
            run(pages(layout), align).map_or(null_mut(), phys_to_virt)
        } else {
            self.small(layout)
        };
        if !at.is_null() {
            IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        }
        at
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        if is_large(layout) {
            frames::free_contiguous(virt_to_phys(ptr).mfn(), pages(layout));
        } else {
            // SAFETY: the caller's contract: `ptr` came from `small` with this layout.
            unsafe { self.small.lock().deallocate(ptr, layout) };
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's contract: the size is non-zero and does not overflow with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // Wraps, as the sum does: a smaller object is a negative difference.
        let grow = || IN_USE.fetch_add(new_size.wrapping_sub(layout.size()), Ordering::Relaxed);
        if is_large(layout) && is_large(new) && pages(layout) == pages(new) {
            grow();
            return ptr;
        }
        if !is_large(layout) && !is_large(new) {
            // SAFETY: the caller's contract: `ptr` came from `small` with this layout.
            if unsafe {
                self.small
                    .lock()
                    .try_realloc_in_place(ptr, layout, new_size)
            } {
                grow();
                return ptr;
            }
        }
        // SAFETY: as above; the two blocks are distinct, and both hold the smaller of the two sizes.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                core::ptr::copy_nonoverlapping(ptr, to, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn large_objects_come_from_and_return_to_the_frame_pool() {
        crate::host::arena::init();
        let heap = Heap::new();
        let l = layout(5 << 20, 8);
        // SAFETY: the layout is not empty; the block is freed with the layout it was made with.
        unsafe {
            let p = heap.alloc(l);
            assert!(!p.is_null());
            assert_eq!(frames::kind(virt_to_phys(p).mfn()), FrameKind::Hypervisor);
            p.write_bytes(0xaa, l.size());
            heap.dealloc(p, l);
            assert_ne!(frames::kind(virt_to_phys(p).mfn()), FrameKind::Guest);
        }
    }

    #[test]
    fn growing_keeps_the_contents_across_the_size_classes() {
        crate::host::arena::init();
        let heap = Heap::new();
        // SAFETY: layouts are not empty and follow the block through its sizes.
        unsafe {
            let mut l = layout(16, 16);
            let mut p = heap.alloc(l);
            for i in 0..16 {
                p.add(i).write(i as u8);
            }
            for size in [100, 4096, LARGE - 1, LARGE, LARGE + 5000, 2 << 20, 64] {
                p = heap.realloc(p, l, size);
                assert!(!p.is_null());
                l = layout(size, 16);
                for i in 0..16 {
                    assert_eq!(p.add(i).read(), i as u8);
                }
            }
            heap.dealloc(p, l);
        }
    }

    #[test]
    fn every_byte_is_counted_once_and_given_back() {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock();
        crate::host::arena::init();
        let heap = Heap::new();
        // Other tests of this file change the sum meanwhile, by no more than this.
        let other = 8 << 20;
        let start = in_use() as isize;
        // SAFETY: the layouts are not empty and follow the block.
        unsafe {
            let mut l = layout(64 << 20, 8);
            let mut p = heap.alloc(l);
            for size in [64 << 20, (64 << 20) - 5, 100, 80, 64 << 20] {
                p = heap.realloc(p, l, size);
                assert!(!p.is_null());
                l = layout(size, 8);
                let counted = in_use() as isize - start;
                assert!(
                    (counted - size as isize).abs() <= other,
                    "{counted} for {size}"
                );
            }
            heap.dealloc(p, l);
        }
        assert!((in_use() as isize - start).abs() <= other);
    }

    #[test]
    fn exhaustion_gives_null() {
        crate::host::arena::init();
        let heap = Heap::new();
        // SAFETY: the layouts are not empty.
        unsafe {
            assert!(heap.alloc(layout(1 << 40, 8)).is_null());
            assert!(heap.alloc(layout(1 << 20, 1 << 40)).is_null());
        }
    }
}
