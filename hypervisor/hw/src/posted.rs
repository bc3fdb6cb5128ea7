//! Where a virtual CPU's interrupts are posted: a descriptor in memory whose address the processor and the units have.
//!
//! A backend that can deliver posted interrupts makes one for each vCPU and gives it out by
//! [`crate::GuestContext::post_target`]. The core posts to it, and switches it when the vCPU runs, waits, sleeps or moves;
//! the protocol is in [`x86_model::posted`].

use core::ops::Deref;

use x86_model::posted::Descriptor;
use x86_model::{Hpa, Mfn};
use xen_abi::DomId;

use crate::mem::{FrameKind, alloc_contiguous, free_contiguous, phys_to_virt};

/// A descriptor in a frame of its own. (64 bytes would do on a processor; Bochs 3.0 wants a page boundary.)
///
/// The processor has the address while the vCPU exists, a unit as long as an entry names it: the owner keeps the target
/// until both have let go.
#[derive(Debug)]
pub struct PostTarget {
    frame: Mfn,
}

impl PostTarget {
    /// An empty descriptor that suppresses notifications. `None` without memory.
    pub fn new() -> Option<Self> {
        let frame = alloc_contiguous(1, 1, None, FrameKind::Hypervisor, DomId::XEN)?;
        let at = phys_to_virt(frame.hpa()).cast::<Descriptor>();
        // SAFETY: a frame that was just allocated, mapped whole in the direct map, known to nobody else yet; page-aligned
        // and large enough.
        unsafe { at.write(Descriptor::suppressed()) };
        Some(Self { frame })
    }

    /// Physical address, 64-byte aligned.
    pub fn hpa(&self) -> Hpa {
        self.frame.hpa()
    }
}

impl Deref for PostTarget {
    type Target = Descriptor;
    #[inline]
    fn deref(&self) -> &Descriptor {
        // SAFETY: initialised by `new` in a frame that lives as long as `self`; made of atomics, so that processors and
        // units may change it at any time.
        unsafe { &*phys_to_virt(self.frame.hpa()).cast::<Descriptor>() }
    }
}

impl Drop for PostTarget {
    fn drop(&mut self) {
        free_contiguous(self.frame, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86_model::posted::Post;

    #[test]
    fn a_target_is_aligned_empty_and_given_back() {
        crate::host::arena::init();
        let target = PostTarget::new().unwrap();
        assert!(target.hpa().0.is_multiple_of(4096) && target.is_valid());
        assert_eq!(target.post(0x31), Post::Suppressed);
        let frame = target.hpa();
        drop(target);
        // The next one starts empty, wherever it lies.
        let again: alloc::vec::Vec<_> = (0..4).filter_map(|_| PostTarget::new()).collect();
        assert!(again.iter().all(|t| !t.is_pending()), "{frame:?}");
    }
}
