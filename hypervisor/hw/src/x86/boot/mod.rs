//! From the loader to a running hypervisor: entry stub, boot information, moving the image, final page tables.
//!
//! Runs on the boot CPU alone, in the order of [`start`]; what it leaves behind is read-only afterwards.

mod entry;
mod loader;

pub use loader::{info, start};
