//! The one way to guest memory.

pub mod access;

pub use access::GuestAccess;
