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
