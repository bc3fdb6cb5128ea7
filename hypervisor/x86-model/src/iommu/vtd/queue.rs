//! The invalidation queue (6.5.2): 128-bit descriptors in a ring of one page.

/// Descriptors in the ring.
pub const ENTRIES: usize = 256;

/// A descriptor as two 64-bit words, low first.
pub type Descriptor = [u64; 2];

/// Drops all cached interrupt-remapping entries.
pub const fn flush_all() -> Descriptor {
    [4, 0]
}

/// Drops the cached entries `index` to `index + 2^log2 - 1`; the index is a multiple of that number.
pub const fn flush_entries(index: u16, log2: u8) -> Descriptor {
    [
        4 | 1 << 4 | ((log2 & 0x1f) as u64) << 27 | (index as u64) << 32,
        0,
    ]
}

/// Waits for all descriptors before it, then stores `value` (32 bits) at a machine address that is a multiple of 4.
pub const fn wait(address: u64, value: u32) -> Descriptor {
    [5 | 1 << 5 | 1 << 6 | (value as u64) << 32, address & !3]
}

/// Value of the queue address register for a ring of [`ENTRIES`] 128-bit descriptors in the page at this address.
pub const fn address(page: u64) -> u64 {
    page & !0xfff
}

/// Value of the head or tail register for a slot.
pub const fn pointer(slot: usize) -> u64 {
    (slot as u64) << 4
}

/// Slot after this one.
pub const fn next(slot: usize) -> usize {
    (slot + 1) % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_as_in_the_manual() {
        assert_eq!(flush_all(), [0x4, 0]);
        assert_eq!(flush_entries(0x1234, 0), [0x0000_1234_0000_0014, 0]);
        assert_eq!(flush_entries(0xfff0, 4), [0x0000_fff0_2000_0014, 0]);
        // SW and FN set, IF clear.
        assert_eq!(wait(0x7654_3210, 2), [0x0000_0002_0000_0065, 0x7654_3210]);
        assert_eq!(
            (address(0x5fff), pointer(255), next(255)),
            (0x5000, 0xff0, 0)
        );
    }
}
