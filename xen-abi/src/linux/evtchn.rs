//! `/dev/xen/evtchn`. Reading yields the ports (u32) that fired, which stay masked until they are written back.

use super::ioc;

/// Argument of [`BIND_INTERDOMAIN`].
#[derive(Clone, Copy, Debug, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct BindInterdomain {
    /// The other domain.
    pub remote_domain: u32,
    /// Its unbound port.
    pub remote_port: u32,
}

/// Takes the number of a virtual interrupt (u32); returns the local port.
pub const BIND_VIRQ: u32 = ioc(4, b'E', 0);
/// Takes [`BindInterdomain`]; returns the local port.
pub const BIND_INTERDOMAIN: u32 = ioc(size_of::<BindInterdomain>(), b'E', 1);
/// Takes a local port (u32) and closes it.
pub const UNBIND: u32 = ioc(4, b'E', 3);
/// Takes a local port (u32) and sends an event through it.
pub const NOTIFY: u32 = ioc(4, b'E', 4);
/// Takes nothing; empties the ring of fired ports after an overflow.
pub const RESET: u32 = ioc(0, b'E', 5);
