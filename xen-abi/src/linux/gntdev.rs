//! `/dev/xen/gntdev`: maps pages that other domains granted. A grant gets an index first, at which `mmap` then maps it.

use super::ioc;

/// Argument of [`MAP_GRANT_REF`] for one page.
#[derive(
    Clone, Copy, Debug, Default, zerocopy::IntoBytes, zerocopy::FromBytes, zerocopy::Immutable,
)]
#[repr(C)]
pub struct MapGrantRef {
    /// Number of pages: 1.
    pub count: u32,
    /// Zero.
    pub pad: u32,
    /// Out: offset for `mmap`, bytes.
    pub index: u64,
    /// Who grants.
    pub domid: u32,
    /// The grant.
    pub reference: u32,
}

/// Argument of [`UNMAP_GRANT_REF`].
#[derive(Clone, Copy, Debug, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct UnmapGrantRef {
    /// As returned by the mapping.
    pub index: u64,
    /// Number of pages.
    pub count: u32,
    /// Zero.
    pub pad: u32,
}

/// Takes [`MapGrantRef`].
pub const MAP_GRANT_REF: u32 = ioc(size_of::<MapGrantRef>(), b'G', 0);
/// Takes [`UnmapGrantRef`]; the mapping must be gone.
pub const UNMAP_GRANT_REF: u32 = ioc(size_of::<UnmapGrantRef>(), b'G', 1);
/// Takes the number of grants (u32) that may be mapped; newer kernels answer `ENOTTY` and have no limit.
pub const SET_MAX_GRANTS: u32 = ioc(4, b'G', 3);
/// The grant under which a domain's toolstack offers its xenstore page.
pub const RESERVED_XENSTORE: u32 = 1;
/// The grant under which a domain's toolstack offers its console page.
pub const RESERVED_CONSOLE: u32 = 0;
