//! Physical memory: which frames exist, who owns each, and counted handles that give access to a frame's bytes.
//!
//! The frame table and the allocator are the same code on the machine and on the host; only the base of the direct
//! map differs (the fake machine's "RAM" is one host allocation).

pub mod build;
pub mod frames;
pub mod handle;
pub mod heap;
pub mod stage2;

pub use frames::{
    FrameKind, alloc_contiguous, free_contiguous, free_frames, reserved_frames, total_frames,
};
pub use handle::{FrameRef, FrameRun, RawRun};
pub use stage2::{Perms, Stage2, Stage2Error};

use x86_model::Hpa;

/// Virtual base of the direct map of all physical memory.
#[cfg(target_os = "none")]
pub const DIRECT_MAP_BASE: usize = 0xffff_8300_0000_0000;

/// Pointer to a machine address through the direct map. Forming it is safe; dereferencing is the caller's proof.
pub fn phys_to_virt(hpa: Hpa) -> *mut u8 {
    #[cfg(target_os = "none")]
    {
        (DIRECT_MAP_BASE + hpa.0 as usize) as *mut u8
    }
    #[cfg(not(target_os = "none"))]
    {
        crate::host::arena::pointer(hpa)
    }
}

/// Machine address of a pointer that [`phys_to_virt`] gave.
pub fn virt_to_phys(ptr: *const u8) -> Hpa {
    #[cfg(target_os = "none")]
    {
        Hpa((ptr as usize - DIRECT_MAP_BASE) as u64)
    }
    #[cfg(not(target_os = "none"))]
    {
        crate::host::arena::address(ptr)
    }
}
