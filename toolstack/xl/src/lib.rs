//! Xen's `xl` with the same commands, options, config files and output.
//!
//! What decides is pure and tested on the host: command line, config, plan, guest image. What touches the system is thin and
//! goes through `xen-sys`.
#![forbid(unsafe_code)]

pub mod bootloader;
pub mod build;
pub mod cfg;
pub mod cmd;
pub mod core_file;
pub mod device;
pub mod domain;
pub mod hotplug;
