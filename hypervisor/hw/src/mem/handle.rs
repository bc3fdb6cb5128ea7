//! Counted handles to guest frames: the only way to a guest page's bytes.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use x86_model::{Mfn, PAGE_SIZE};
use xen_abi::DomId;

use super::frames::{self, FrameKind};
use super::phys_to_virt;

/// A counted reference to a live guest frame. While it exists the frame is not reused. Guests may write the frame at
/// any time: reads give a snapshot that must be validated after the copy, never before.
#[derive(Debug)]
pub struct FrameRef(Mfn);

impl FrameRef {
    /// Allocates a zeroed frame for `owner`, with this handle as its only reference. `None` when memory is exhausted.
    pub fn alloc(owner: DomId) -> Option<Self> {
        Self::alloc_drawing(owner, 0)
    }

    /// As [`FrameRef::alloc`], for somebody to whom `draw` (0 or 1) of the frames belong that are set aside.
    pub fn alloc_drawing(owner: DomId, draw: usize) -> Option<Self> {
        let mfn = frames::alloc_drawing(1, 1, None, FrameKind::Guest, owner, draw)?;
        let this = FrameRef(mfn);
        this.zero();
        Some(this)
    }

    /// Takes the very frame `mfn` out of the free pool for `owner`, zeroed, with this handle as its only reference. `None`
    /// if it is not free. `draw` as for [`FrameRef::alloc_drawing`].
    pub fn take(mfn: Mfn, owner: DomId, draw: usize) -> Option<Self> {
        frames::take_free(mfn, owner, draw)?;
        let this = FrameRef(mfn);
        this.zero();
        Some(this)
    }

    /// A further reference to the guest frame `mfn`. `None` if it is not live guest memory.
    pub fn get(mfn: Mfn) -> Option<Self> {
        frames::get(mfn).map(|()| FrameRef(mfn))
    }

    /// The frame's number.
    pub fn mfn(&self) -> Mfn {
        self.0
    }

    /// The domain that owns the frame.
    pub fn owner(&self) -> DomId {
        frames::owner(self.0).unwrap_or(DomId::INVALID)
    }

    /// Gives up the handle but keeps its reference, to be taken back by [`FrameRef::from_raw`] (for p2m entries).
    pub fn into_raw(self) -> Mfn {
        let mfn = self.0;
        core::mem::forget(self);
        mfn
    }

    /// Takes over a reference that [`FrameRef::into_raw`] kept. Each may be taken back once; a surplus call underflows
    /// the count and panics instead of touching memory.
    pub fn from_raw(mfn: Mfn) -> Self {
        FrameRef(mfn)
    }

    /// Fills the page with zeroes.
    pub fn zero(&self) {
        // SAFETY: the frame is live guest RAM (we hold a reference), mapped whole in the direct map; guest frames are
        // only accessed through raw copies and atomics, never through Rust references to plain data.
        unsafe { core::ptr::write_bytes(phys_to_virt(self.0.hpa()), 0, PAGE_SIZE as usize) }
    }

    /// Copies bytes out of the page. `offset + buf.len()` must not exceed the page; it panics otherwise (our bug).
    pub fn read(&self, offset: usize, buf: &mut [u8]) {
        assert!(
            offset
                .checked_add(buf.len())
                .is_some_and(|end| end <= PAGE_SIZE as usize)
        );
        // SAFETY: in bounds of a live frame (checked above); see `zero` for aliasing.
        unsafe {
            core::ptr::copy_nonoverlapping(
                phys_to_virt(self.0.hpa()).add(offset),
                buf.as_mut_ptr(),
                buf.len(),
            );
        }
    }

    /// Copies bytes into the page. Same bound as [`FrameRef::read`].
    pub fn write(&self, offset: usize, buf: &[u8]) {
        assert!(
            offset
                .checked_add(buf.len())
                .is_some_and(|end| end <= PAGE_SIZE as usize)
        );
        // SAFETY: in bounds of a live frame (checked above); see `zero` for aliasing.
        unsafe {
            core::ptr::copy_nonoverlapping(
                buf.as_ptr(),
                phys_to_virt(self.0.hpa()).add(offset),
                buf.len(),
            );
        }
    }
}

macro_rules! atomic_view {
    ($(#[$doc:meta])* $name:ident, $ty:ty) => {
        $(#[$doc])*
        pub fn $name(&self, offset: usize) -> &$ty {
            assert!(offset % size_of::<$ty>() == 0 && offset + size_of::<$ty>() <= PAGE_SIZE as usize);
            // SAFETY: in bounds and aligned (checked above), in a frame that stays live as long as `self`; atomics may
            // be changed by anyone, guests included.
            unsafe { &*phys_to_virt(self.0.hpa()).add(offset).cast::<$ty>() }
        }
    };
}

impl FrameRef {
    atomic_view!(
        /// Atomic view of one byte of the page.
        atomic_u8, AtomicU8
    );
    atomic_view!(
        /// Atomic view of two bytes; the offset must be a multiple of 2.
        atomic_u16, AtomicU16
    );
    atomic_view!(
        /// Atomic view of four bytes; the offset must be a multiple of 4.
        atomic_u32, AtomicU32
    );
    atomic_view!(
        /// Atomic view of eight bytes; the offset must be a multiple of 8.
        atomic_u64, AtomicU64
    );
}

impl Clone for FrameRef {
    fn clone(&self) -> Self {
        match frames::get(self.0) {
            Some(()) => FrameRef(self.0),
            None => panic!("frame reference count saturated"),
        }
    }
}

impl Drop for FrameRef {
    fn drop(&mut self) {
        frames::put(self.0);
    }
}

/// A run that is being zeroed: nobody can reach its frames yet.
#[derive(Debug)]
pub struct RawRun {
    run: FrameRun,
    zeroed: usize,
}

impl RawRun {
    /// As [`FrameRun::alloc`], before the first frame is zeroed.
    pub fn alloc(owner: DomId, order: u8, draw: usize) -> Option<Self> {
        let order = order.min(18);
        let count = 1usize << order;
        let first = frames::alloc_drawing(count, count, None, FrameKind::Guest, owner, draw)?;
        Some(RawRun {
            run: FrameRun { first, order },
            zeroed: 0,
        })
    }

    /// Zeroes at most `frames` more frames; true when all are zero.
    pub fn zero(&mut self, frames: usize) -> bool {
        let count = 1usize << self.run.order;
        let end = self.zeroed.saturating_add(frames).min(count);
        for n in self.zeroed..end {
            let at = Mfn(self.run.first.0 + n as u64).hpa();
            // SAFETY: as in `FrameRef::zero`: the run was allocated by us and holds the only reference of each frame.
            unsafe { core::ptr::write_bytes(phys_to_virt(at), 0, PAGE_SIZE as usize) };
        }
        self.zeroed = end;
        end == count
    }

    /// The run; `None`, and its frames are free again, if it is not all zero.
    pub fn finish(self) -> Option<FrameRun> {
        (self.zeroed == 1 << self.run.order).then_some(self.run)
    }
}

/// Counted references to an aligned run of `1 << order` guest frames, one each. What a superpage mapping holds.
#[derive(Debug)]
pub struct FrameRun {
    first: Mfn,
    order: u8,
}

impl FrameRun {
    /// Allocates a zeroed run, aligned to its size, for `owner`, to whom `draw` of the frames belong that are set aside.
    /// `None` when there is no such run. `order` is at most 18.
    pub fn alloc(owner: DomId, order: u8, draw: usize) -> Option<Self> {
        let mut raw = RawRun::alloc(owner, order, draw)?;
        raw.zero(usize::MAX);
        raw.finish()
    }

    /// The first frame.
    pub fn first(&self) -> Mfn {
        self.first
    }

    /// Gives up the handle but keeps its references: for [`FrameRun::from_raw`], or frame by frame for
    /// [`FrameRef::from_raw`].
    pub fn into_raw(self) -> Mfn {
        let first = self.first;
        core::mem::forget(self);
        first
    }

    /// Takes over the references of a whole run. A surplus call underflows a count and panics instead of touching memory.
    pub fn from_raw(first: Mfn, order: u8) -> Self {
        FrameRun { first, order }
    }
}

impl Drop for FrameRun {
    fn drop(&mut self) {
        frames::put_run(self.first, 1 << self.order);
    }
}
