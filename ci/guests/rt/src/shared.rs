//! shared_info: mapping, vcpu_info and the 2-level bitmaps.

use crate::hypercall::{DOMID_SELF, Ret, memory_op};
use crate::{Page, cpu};

/// The page that becomes shared_info.
pub static SHARED: Page = Page::new();

/// Argument of XENMEM_add_to_physmap.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "the names are the ABI's")]
pub struct AddToPhysmap {
    pub domid: u16,
    pub size: u16,
    pub space: u32,
    pub idx: u64,
    pub gpfn: u64,
}

/// XENMEM_add_to_physmap for the own domain.
pub fn add_to_physmap(space: u32, idx: u64, gpfn: u64) -> Ret {
    memory_op(
        7,
        &mut AddToPhysmap {
            domid: DOMID_SELF,
            size: 0,
            space,
            idx,
            gpfn,
        },
    )
}

/// Maps shared_info at [`SHARED`]; ends the test if that fails, because nothing works without it.
pub fn init() {
    let ret = add_to_physmap(0, 0, SHARED.gfn());
    assert!(ret == Ret(0), "shared_info: {ret}");
}

/// Offset of the vcpu_info of `vcpu` (below 32) in shared_info.
pub const fn vcpu_info(vcpu: usize) -> usize {
    64 * vcpu
}

/// Offset of the pending bitmap.
pub const PENDING: usize = 2048;
/// Offset of the mask bitmap.
pub const MASK: usize = 2560;

/// Xen's number of the running vCPU.
pub fn vcpu_id() -> usize {
    cpu::cpuid(0x4000_0004, 0)[1] as usize
}
