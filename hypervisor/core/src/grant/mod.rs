//! Grant tables: pages that a domain offers to others, in entries that both sides share, and what others have mapped.
//!
//! Owned by the domain through an `Arc`, since mappings outlive the domain that granted them. The lock has rank GRANT and
//! only one table is locked at a time. Changes of a domain's memory map (rank P2M, below) are made without it; a mapping
//! that is being made or removed has a reserved handle meanwhile.

mod active;
mod copy;
mod entry;
mod map;
mod maptrack;
mod table;

#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;

use hv_hw::mem::FrameRef;
use hv_hw::sync::{SpinLock, rank};
use x86_model::{Gfn, Mfn};
use xen_abi::grant_table::status;
use xen_abi::{DomId, Errno};

pub use copy::copy;
pub use map::{UNMAP_BATCH, map, release, unmap};

use table::Inner;

/// Result of a single grant operation other than okay: one of [`xen_abi::grant_table::status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i16);

impl Status {
    /// What the guest gets for a result.
    pub fn of(result: Result<(), Status>) -> i16 {
        match result {
            Ok(()) => status::OKAY,
            Err(Status(s)) => s,
        }
    }
}

/// Handles in one maptrack frame, the unit in which Xen's options and the toolstack count them.
pub const HANDLES_PER_FRAME: u32 = 256;

/// Bounds of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shared frames (`gnttab_max_frames`).
    pub max_frames: u32,
    /// Mappings of others' pages (`gnttab_max_maptrack_frames` in units of mappings).
    pub max_handles: u32,
    /// Highest version of entries, 1 or 2.
    pub max_version: u32,
}

impl Default for Limits {
    /// Xen's defaults: 64 frames, 1024 maptrack frames of 256 handles, both versions.
    fn default() -> Self {
        Limits {
            max_frames: 64,
            max_handles: 1024 * HANDLES_PER_FRAME,
            max_version: 2,
        }
    }
}

/// A domain, as far as grants are concerned.
pub trait GrantHost {
    /// Its identifier.
    fn id(&self) -> DomId;
    /// Its table.
    fn grants(&self) -> &Arc<GrantTable>;
    /// RAM of its own at `gfn`, and whether it may be written. Called under the grant lock: must not take locks of rank
    /// GRANT or below.
    fn own_frame(&self, gfn: Gfn) -> Option<(FrameRef, bool)>;
    /// Maps another domain's page at `gfn`, which must be a hole. ENXIO: there is no such address.
    fn map_grant(&self, gfn: Gfn, frame: FrameRef, write: bool) -> Result<(), Errno>;
    /// Makes `gfn` a hole again if it maps exactly the granted frame `mfn`; the reference that the map held.
    fn unmap_grant(&self, gfn: Gfn, mfn: Mfn) -> Result<FrameRef, Errno>;
    /// Makes sure that no CPU uses removed mappings of this domain any more.
    fn flush(&self);
}

/// A domain's grant table.
pub struct GrantTable {
    inner: SpinLock<Inner, { rank::GRANT }>,
}

impl core::fmt::Debug for GrantTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("GrantTable")
    }
}

impl GrantTable {
    /// An empty table of version 1. ENOMEM is only met when it grows.
    pub fn new(owner: DomId, limits: Limits) -> Arc<Self> {
        Arc::new(GrantTable {
            inner: SpinLock::new(Inner::new(owner, limits)),
        })
    }

    /// `GNTTABOP_query_size`: frames that there are and that there can be.
    pub fn query_size(&self) -> (u32, u32) {
        let inner = self.inner.lock();
        (inner.frames(), inner.max_frames())
    }

    /// `GNTTABOP_get_version`.
    pub fn version(&self) -> u32 {
        self.inner.lock().version().number()
    }

    /// `GNTTABOP_set_version`. EINVAL: no such version; ENOSYS: not for this domain; EBUSY: entries from 8 up in use;
    /// ENOMEM. The entries are cleared, apart from the first 8. Returns the status frames that the table has no more: where
    /// the domain maps them, they must be taken away, or each change would leave it one page more.
    pub fn set_version(&self, version: u32) -> Result<Vec<FrameRef>, Errno> {
        self.inner.lock().set_version(version)
    }

    /// `GNTTABOP_setup_table`: makes the table at least `frames` long. EINVAL above the limit, ENOMEM.
    pub fn grow(&self, frames: u32) -> Result<(), Errno> {
        self.inner.lock().grow(frames)
    }

    /// `GNTTABOP_swap_grant_ref`.
    pub fn swap(&self, a: u32, b: u32) -> Result<(), Status> {
        self.inner.lock().swap(a, b)
    }

    /// A shared or status frame, to be mapped somewhere; the table grows as needed. EINVAL above the limit, or status frames
    /// in version 1; ENOMEM.
    pub fn frame(&self, index: u32, status: bool) -> Result<FrameRef, Errno> {
        self.inner.lock().frame(index, status)
    }

    /// Entries that the frames hold now.
    pub fn entries(&self) -> u32 {
        self.inner.lock().entries()
    }

    /// Mappings of others' pages that the domain has.
    pub fn mappings(&self) -> u32 {
        self.inner.lock().maptrack.in_use()
    }
}
