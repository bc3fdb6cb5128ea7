//! The one way to guest memory.

pub mod access;
pub mod walk_cache;

pub use access::GuestAccess;
pub use walk_cache::WalkCache;
