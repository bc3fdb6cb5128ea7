//! The harness of the VM tests and of `cargo xtask run`: boot media, initial RAM disks, emulated machines.
//!
//! Nothing here decides what is tested: that is `ci/vm-tests`. Nothing here fetches: that is `cargo xtask setup`.
//! All state is on disk below the directories that [`paths`] names, or in values owned by the caller.
#![forbid(unsafe_code)]

pub mod acpi;
pub mod bochs;
pub mod bundle;
pub mod console;
pub mod cpio;
pub mod initramfs;
pub mod iso;
pub mod kernels;
pub mod machine;
pub mod paths;
pub mod place;
pub mod qemu;
