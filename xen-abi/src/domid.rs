//! Domain identifiers (`xen.h`, `domid_t`).

use core::fmt;

/// A domain identifier as guests see it: 16 bits, the values from [`DomId::FIRST_RESERVED`] up are special.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomId(pub u16);

impl DomId {
    /// The control domain.
    pub const DOM0: DomId = DomId(0);
    /// First identifier that never names an ordinary domain.
    pub const FIRST_RESERVED: DomId = DomId(0x7ff0);
    /// The caller itself.
    pub const SELF: DomId = DomId(0x7ff0);
    /// Owner of I/O memory that has no domain.
    pub const IO: DomId = DomId(0x7ff1);
    /// The hypervisor's own memory.
    pub const XEN: DomId = DomId(0x7ff2);
    /// Owner of shared copy-on-write pages.
    pub const COW: DomId = DomId(0x7ff3);
    /// No domain.
    pub const INVALID: DomId = DomId(0x7ff4);
    /// The idle domain.
    pub const IDLE: DomId = DomId(0x7fff);

    /// Whether this identifier may name an ordinary domain.
    pub const fn is_ordinary(self) -> bool {
        self.0 < Self::FIRST_RESERVED.0
    }
}

impl fmt::Debug for DomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}

impl fmt::Display for DomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
