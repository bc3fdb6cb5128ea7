//! Width of a port or memory access.

/// Access width in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Width {
    /// 1 byte.
    B1 = 1,
    /// 2 bytes.
    B2 = 2,
    /// 4 bytes.
    B4 = 4,
    /// 8 bytes (memory only, never ports).
    B8 = 8,
}

impl Width {
    /// The width of `bytes` bytes, if x86 has such an access.
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::B1),
            2 => Some(Self::B2),
            4 => Some(Self::B4),
            8 => Some(Self::B8),
            _ => None,
        }
    }
    /// Bytes per access.
    pub const fn bytes(self) -> usize {
        self as usize
    }
    /// Mask of the value bits; also what a read of an absent device returns.
    pub const fn mask(self) -> u64 {
        match self {
            Self::B1 => 0xff,
            Self::B2 => 0xffff,
            Self::B4 => 0xffff_ffff,
            Self::B8 => u64::MAX,
        }
    }
}
