//! Address and frame-number types. They never convert into one another silently: a guest frame number becomes a
//! machine frame number only through a p2m lookup.

use core::fmt;

/// log2 of the base page size.
pub const PAGE_SHIFT: u32 = 12;
/// Base page size in bytes.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Offset inside the base page, in bytes.
            pub const fn page_offset(self) -> u64 {
                self.0 & (PAGE_SIZE - 1)
            }
            /// This address plus `bytes`, or `None` past the end of the address space.
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(v) => Some(Self(v)),
                    None => None,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:#x}"), self.0)
            }
        }
    };
}

address!(
    /// Guest-linear ("virtual") address.
    Gva, "gva:"
);
address!(
    /// Guest-physical address.
    Gpa, "gpa:"
);
address!(
    /// Host-physical (machine) address.
    Hpa, "hpa:"
);
address!(
    /// Guest frame number.
    Gfn, "gfn:"
);
address!(
    /// Machine frame number. A number only: it grants no access.
    Mfn, "mfn:"
);

impl Gpa {
    /// The frame that contains this address.
    pub const fn gfn(self) -> Gfn {
        Gfn(self.0 >> PAGE_SHIFT)
    }
}

impl Hpa {
    /// The frame that contains this address.
    pub const fn mfn(self) -> Mfn {
        Mfn(self.0 >> PAGE_SHIFT)
    }
}

impl Gfn {
    /// First address of the frame; `None` if the frame lies beyond 64 bits.
    pub const fn gpa(self) -> Option<Gpa> {
        if self.0 >> (64 - PAGE_SHIFT) == 0 {
            Some(Gpa(self.0 << PAGE_SHIFT))
        } else {
            None
        }
    }
}

impl Mfn {
    /// First address of the frame. The number must be a real machine frame (below 2^52).
    pub const fn hpa(self) -> Hpa {
        Hpa(self.0 << PAGE_SHIFT)
    }
}
