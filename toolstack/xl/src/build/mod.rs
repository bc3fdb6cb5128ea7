//! The builder of PVH guests: from files and a config to an image of guest memory, pure.
//!
//! Layout (facts from Xen's toolstack, so that tools and guests that know its guests know these): RAM from 0 up to the hole for
//! devices and from 4 GiB; kernel where it was linked, RAM disk and start information behind it; ACPI tables at the start
//! of the hole; pages shared with the control domain below 4 GiB.

pub mod acpi;
pub mod context;
mod image;
mod start_info;
#[cfg(test)]
mod tests;

pub use image::{BuildError, Image, Parts, build, frames};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Where RAM stops below 4 GiB, and ACPI tables begin.
pub const HOLE: u64 = 0xfc00_0000;
/// Where RAM goes on.
pub const HIGH: u64 = 1 << 32;

/// Pages that are no RAM: frame numbers.
pub mod special {
    /// The first.
    pub const FIRST: u64 = 0xf_eff8;
    /// How many.
    pub const COUNT: u64 = 8;
    /// Paging events.
    pub const PAGING_RING: u64 = FIRST;
    /// Monitor events.
    pub const MONITOR_RING: u64 = FIRST + 1;
    /// Sharing events.
    pub const SHARING_RING: u64 = FIRST + 2;
    /// Buffered requests to a device model.
    pub const BUFFERED_IOREQ: u64 = FIRST + 3;
    /// The ring to xenstored.
    pub const XENSTORE: u64 = FIRST + 4;
    /// Requests to a device model.
    pub const IOREQ: u64 = FIRST + 5;
    /// The page directory that a vCPU without unrestricted mode needs.
    pub const IDENTITY: u64 = FIRST + 6;
    /// The console's ring.
    pub const CONSOLE: u64 = FIRST + 7;
}

/// A range of guest addresses with its type (`xen_abi::hvm::start_info::memmap_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Type.
    pub kind: u32,
}

/// Bytes to write into guest memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// What it is, for messages.
    pub what: &'static str,
    /// Where: guest address.
    pub at: u64,
    /// The bytes; memory behind them stays zero.
    pub bytes: std::borrow::Cow<'a, [u8]>,
}

impl std::fmt::Debug for Chunk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} at {:#x}, {} bytes",
            self.what,
            self.at,
            self.bytes.len()
        )
    }
}
