//! Pages and small cells shared with the hypervisor or with other processors.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// One page of guest memory that others may write at any time; all access is by atomics.
#[repr(C, align(4096))]
pub struct Page(UnsafeCell<[u8; 4096]>);

// SAFETY: the only way to the bytes is `cell`, which hands out atomics.
unsafe impl Sync for Page {}

impl Page {
    /// A page of zeroes, for a `static`.
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; 4096]))
    }

    /// The page at a guest-physical address that the page tables of [`crate::boot`] map.
    ///
    /// The address must be page aligned and below 4 GiB or within the window at [`crate::boot::HOLE`]; the page is
    /// never also a Rust object of another type. A page that is absent in the physical map reads as the
    /// hypervisor decides.
    pub fn at(address: u64) -> &'static Page {
        let known = address < 1 << 32
            || (crate::boot::HOLE..crate::boot::HOLE + (1 << 30)).contains(&address);
        assert!(
            known && address.is_multiple_of(4096),
            "page outside the map: {address:#x}"
        );
        // SAFETY: mapped by the boot page tables, aligned, and accessed by atomics only.
        unsafe { &*(address as *const Page) }
    }

    /// Guest-physical address.
    pub fn address(&self) -> u64 {
        self.0.get().expose_provenance() as u64
    }

    /// Guest frame number.
    pub fn gfn(&self) -> u64 {
        self.address() >> 12
    }

    fn cell<T>(&self, offset: usize) -> &T {
        let size = size_of::<T>();
        assert!(
            offset.is_multiple_of(size) && offset + size <= 4096,
            "bad offset {offset}"
        );
        // SAFETY: in bounds and aligned; `T` is one of the atomics below, valid for every bit pattern.
        unsafe { &*self.0.get().cast::<u8>().add(offset).cast::<T>() }
    }

    /// The byte at `offset`.
    pub fn u8(&self, offset: usize) -> &AtomicU8 {
        self.cell(offset)
    }

    /// The half word at `offset`, a multiple of 2.
    pub fn u16(&self, offset: usize) -> &AtomicU16 {
        self.cell(offset)
    }

    /// The word at `offset`, a multiple of 4.
    pub fn u32(&self, offset: usize) -> &AtomicU32 {
        self.cell(offset)
    }

    /// The double word at `offset`, a multiple of 8.
    pub fn u64(&self, offset: usize) -> &AtomicU64 {
        self.cell(offset)
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}
