//! Xen's public ABI as Rust types: one module per public header. No allocation, no unsafe code, no policy.
#![no_std]
#![forbid(unsafe_code)]

pub mod domid;
pub mod errno;

pub use domid::DomId;
pub use errno::Errno;
