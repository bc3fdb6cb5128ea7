//! The MSR bitmap (SDM vol. 3, 26.6.9): one bit an MSR and direction, set means exit; MSRs outside the two ranges always exit.

/// Bytes of the map.
pub const SIZE: usize = 4096;

/// MSRs that a guest reads and writes directly: the control structure or we swap them with the vCPU, and the CPU itself
/// refuses values that are not canonical.
pub const DIRECT: [u32; 11] = crate::virt::svm::msrpm::DIRECT;

/// Byte and bit of the read permission; the write permission lies half a page behind it. `None` outside the map.
pub const fn position(msr: u32) -> Option<(usize, u32)> {
    let (base, index) = match msr {
        0..=0x1fff => (0, msr),
        0xc000_0000..=0xc000_1fff => (0x400, msr - 0xc000_0000),
        _ => return None,
    };
    Some((base + index as usize / 8, index % 8))
}

/// Lets the guest read (`read`) or write (`write`) `msr` directly; what is false exits.
pub fn set(map: &mut [u8; SIZE], msr: u32, read: bool, write: bool) {
    if let Some((byte, bit)) = position(msr) {
        for (at, direct) in [(byte, read), (byte + SIZE / 2, write)] {
            if direct {
                map[at] &= !(1 << bit);
            } else {
                map[at] |= 1 << bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        assert_eq!(position(0x174), Some((0x2e, 4)));
        assert_eq!(position(0x1fff), Some((0x3ff, 7)));
        assert_eq!(position(0xc000_0081), Some((0x410, 1)));
        for outside in [0x2000, 0xbfff_ffff, 0xc000_2000, 0xc001_0114] {
            assert_eq!(position(outside), None);
        }
    }

    #[test]
    fn only_the_direct_ones_open() {
        let mut map = [0xff; SIZE];
        for msr in DIRECT {
            set(&mut map, msr, true, true);
        }
        let open: u32 = map.iter().map(|b| b.count_zeros()).sum();
        assert_eq!(open, 2 * DIRECT.len() as u32);
        let (byte, bit) = position(0xc000_0080).unwrap();
        assert_eq!(map[byte] >> bit & 1, 1, "EFER must exit");
        set(&mut map, 0x808, true, false);
        let (byte, bit) = position(0x808).unwrap();
        assert_eq!(map[byte] >> bit & 1, 0);
        assert_eq!(map[byte + SIZE / 2] >> bit & 1, 1);
        set(&mut map, 0x808, false, false);
        assert_eq!(map[byte] >> bit & 1, 1);
    }
}
