//! `/dev/xen/privcmd`: hypercalls from user space.

use super::ioc;

/// Argument of [`HYPERCALL`]. Pointers among the arguments are user-space addresses.
#[derive(Clone, Copy, Debug, Default, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct Hypercall {
    /// Number of the hypercall.
    pub op: u64,
    /// Its arguments.
    pub arg: [u64; 5],
}

/// Takes [`Hypercall`]; returns what it returns, failures as the error of the `ioctl`.
pub const HYPERCALL: u32 = ioc(size_of::<Hypercall>(), b'P', 0);

/// Argument of [`MMAPBATCH_V2`].
#[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct MmapBatch {
    /// Number of pages.
    pub num: u32,
    /// Whose pages.
    pub domid: crate::DomId,
    /// Zero.
    pub pad: u16,
    /// Where to map them: an address in a mapping of the device.
    pub addr: u64,
    /// Address of their frame numbers (u64).
    pub frames: u64,
    /// Address of an error for each (i32, negative).
    pub errors: u64,
}

/// Maps pages of another domain: takes [`MmapBatch`].
pub const MMAPBATCH_V2: u32 = ioc(size_of::<MmapBatch>(), b'P', 4);

/// Argument of [`MMAP_RESOURCE`].
#[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct MmapResource {
    /// Whose resource.
    pub domid: crate::DomId,
    /// Zero.
    pub pad: u16,
    /// Of which type: [`crate::memory::resource`].
    pub kind: u32,
    /// Which of that type.
    pub id: u32,
    /// First page.
    pub first: u32,
    /// Number of pages.
    pub num: u64,
    /// Where to map them.
    pub addr: u64,
}

/// Maps a resource of another domain: takes [`MmapResource`].
pub const MMAP_RESOURCE: u32 = ioc(size_of::<MmapResource>(), b'P', 7);
