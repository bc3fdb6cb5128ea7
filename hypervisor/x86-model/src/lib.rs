//! x86 as data: registers, tables, walks and codecs. Executes nothing and knows no Xen policy, so all of it
//! runs and is tested on any host.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

extern crate alloc;

pub mod acpi;
pub mod addr;
pub mod apic;
pub mod callin;
pub mod clock;
pub mod gprs;
pub mod insn;
pub mod interrupt;
pub mod iommu;
pub mod msi;
pub mod paging;
pub mod pci;
pub mod policy;
pub mod posted;
pub mod regs;
pub mod rtc;
pub mod siblings;
pub mod sync;
pub mod virt;
pub mod walk;
pub mod width;
pub mod xsave;

pub use addr::{Gfn, Gpa, Gva, Hpa, Mfn, PAGE_SHIFT, PAGE_SIZE};
pub use gprs::{Gpr, Gprs};
pub use width::Width;
