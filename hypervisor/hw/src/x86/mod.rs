//! The metal: x86-64 with AMD-V (and later VT-x).

pub mod acpi;
pub mod apic;
pub mod asm;
pub mod boot;
mod bring_up;
pub mod cpu;
pub mod iommu;
mod metal;
pub mod paging;
pub mod panic;
pub mod power;
pub mod quirks;
pub mod smp;
pub mod time;
pub mod virt;

pub use bring_up::{CpuOptions, bring_up};
pub use metal::Metal;
pub use smp::start_aps;
