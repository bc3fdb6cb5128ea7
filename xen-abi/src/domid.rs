//! Domain identifiers (`xen.h`, `domid_t`).

use core::fmt;

use crate::layout::abi_header;

/// A domain identifier as guests see it: 16 bits, the values from [`DomId::FIRST_RESERVED`] up are special.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
#[repr(transparent)]
pub struct DomId(pub u16);

impl DomId {
    /// The control domain.
    pub const DOM0: DomId = DomId(0);
    /// First identifier that never names an ordinary domain.
    pub const FIRST_RESERVED: DomId = DomId(value::FIRST_RESERVED);
    /// The caller itself.
    pub const SELF: DomId = DomId(value::SELF);
    /// Owner of I/O memory that has no domain.
    pub const IO: DomId = DomId(value::IO);
    /// The hypervisor's own memory.
    pub const XEN: DomId = DomId(value::XEN);
    /// Owner of shared copy-on-write pages.
    pub const COW: DomId = DomId(value::COW);
    /// No domain.
    pub const INVALID: DomId = DomId(value::INVALID);
    /// The idle domain.
    pub const IDLE: DomId = DomId(value::IDLE);

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

abi_header! {
    header "xen.h";
    structs {}
    constants {
        /// The special identifiers as plain numbers; [`DomId`] has them typed.
        mod value: u16 {
            FIRST_RESERVED "DOMID_FIRST_RESERVED" = 0x7ff0,
            SELF "DOMID_SELF" = 0x7ff0,
            IO "DOMID_IO" = 0x7ff1,
            XEN "DOMID_XEN" = 0x7ff2,
            COW "DOMID_COW" = 0x7ff3,
            INVALID "DOMID_INVALID" = 0x7ff4,
            IDLE "DOMID_IDLE" = 0x7fff,
            MASK "DOMID_MASK" = 0x7fff,
        }
    }
}
