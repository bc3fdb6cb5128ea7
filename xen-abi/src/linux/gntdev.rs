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

/// One side of a [`CopySegment`]: an address of the caller's, or [`granted`].
pub type CopySide = u64;

/// A place in a page that another domain granted. Little-endian: the grant, the offset, the domain.
pub const fn granted(reference: u32, offset: u16, domid: u16) -> CopySide {
    reference as u64 | (offset as u64) << 32 | (domid as u64) << 48
}

/// Bytes to copy between the caller's memory and a granted page.
#[derive(
    Clone, Copy, Debug, Default, zerocopy::IntoBytes, zerocopy::FromBytes, zerocopy::Immutable,
)]
#[repr(C)]
pub struct CopySegment {
    /// From.
    pub source: CopySide,
    /// To.
    pub dest: CopySide,
    /// Bytes; a granted side does not leave its page.
    pub len: u16,
    /// Which sides are granted: `xen_abi::grant_table::gntcopy`.
    pub flags: u16,
    /// Out: [`crate::grant_table::status`].
    pub status: i16,
    /// Zero.
    pub pad: u16,
}

/// Argument of [`GRANT_COPY`].
#[derive(Clone, Copy, Debug, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct GrantCopy {
    /// How many.
    pub count: u32,
    /// Zero.
    pub pad: u32,
    /// Address of so many [`CopySegment`].
    pub segments: u64,
}

const _: () = assert!(size_of::<CopySegment>() == 24 && size_of::<GrantCopy>() == 16);

/// Takes [`GrantCopy`]; each segment gets a status of its own.
pub const GRANT_COPY: u32 = ioc(size_of::<GrantCopy>(), b'G', 8);
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
