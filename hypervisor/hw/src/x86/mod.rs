//! The metal: x86-64 with AMD-V (and later VT-x).

pub mod boot;
pub mod paging;
pub mod panic;

/// The machine.
pub struct Metal;
