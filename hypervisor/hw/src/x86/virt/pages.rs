//! Frames that a backend owns and hands to the CPU by physical address: control blocks, bitmaps, save areas.

use core::ptr::NonNull;

use x86_model::{Hpa, Mfn, PAGE_SIZE};
use xen_abi::DomId;

use crate::mem::{FrameKind, alloc_contiguous, free_contiguous, phys_to_virt};

/// A run of hypervisor frames, freed on drop.
pub struct Pages {
    first: Mfn,
    count: usize,
}

impl Pages {
    /// Allocates `count` contiguous frames, every byte set to `fill`.
    pub fn new(count: usize, fill: u8) -> Option<Self> {
        let first = alloc_contiguous(count, 1, None, FrameKind::Hypervisor, DomId::XEN)?;
        let pages = Pages { first, count };
        // SAFETY: frames just allocated, mapped whole in the direct map, known to nobody else yet.
        unsafe { pages.pointer().write_bytes(fill, pages.len()) };
        Some(pages)
    }

    /// Physical address.
    pub fn hpa(&self) -> Hpa {
        self.first.hpa()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.count * PAGE_SIZE as usize
    }

    /// First byte, in the direct map. Valid as long as `self`.
    pub fn pointer(&self) -> NonNull<u8> {
        // The direct map starts far above zero.
        NonNull::new(phys_to_virt(self.hpa())).unwrap_or(NonNull::dangling())
    }

    /// The bytes, while no CPU writes to them.
    #[cfg(any(CONFIG_AMD, CONFIG_INTEL))]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: our own initialised frames, borrowed for as long as `self` is; a CPU that writes to them is the one that
        // the owner is borrowed on.
        unsafe { core::slice::from_raw_parts(self.pointer().as_ptr(), self.len()) }
    }

    /// The bytes, for filling in before the CPU gets the address.
    #[cfg(any(CONFIG_AMD, CONFIG_INTEL))]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: our own initialised frames, borrowed for as long as `self` is.
        unsafe { core::slice::from_raw_parts_mut(self.pointer().as_ptr(), self.len()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        free_contiguous(self.first, self.count);
    }
}
