//! From the loader to a running hypervisor: entry stub, boot information, moving the image, final page tables.
//!
//! Runs on the boot CPU alone, in the order of [`start`]; what it leaves behind is read-only afterwards.

pub mod console;
mod cpu;
mod entry;
mod loader;
mod memory;

pub use cpu::init_cpu;
pub use loader::{info, start};
pub use memory::{
    ModuleData, build_id, image, init as init_memory, origin, phys_of, ram, stack, symbol_table,
    take_module, text, trampoline_page, trampoline_root,
};
