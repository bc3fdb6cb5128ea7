//! The dom0 builder: from boot modules and host facts to a complete plan of dom0's memory and first CPU state.
//!
//! Pure: it owns no state and touches no memory but the byte slices it is given. Its input is the administrator's
//! (kernel image, initrd, command line, firmware tables), so errors are one clear line for a person at a console.

pub mod acpi;
pub mod build;
mod error;
pub mod memory;
pub mod place;
pub mod start;
pub mod start_info;

pub use error::Dom0Error;

use kernel_image::{KernelError, bzimage, elf};
