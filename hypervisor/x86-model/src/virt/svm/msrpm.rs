//! The MSR permission map (APM vol. 2, 15.11): two bits an MSR, read then write, set means exit; MSRs outside the three
//! ranges always exit.

/// Bytes of the map.
pub const SIZE: usize = 8192;

/// MSRs that a guest reads and writes directly: VMLOAD and VMSAVE swap them with the guest (APM vol. 2, 15.5.2), and the
/// CPU itself refuses values that are not canonical. TSC_AUX is swapped by us with the vCPU.
pub const DIRECT: [u32; 11] = [
    0x174,       // SYSENTER_CS
    0x175,       // SYSENTER_ESP
    0x176,       // SYSENTER_EIP
    0xc000_0081, // STAR
    0xc000_0082, // LSTAR
    0xc000_0083, // CSTAR
    0xc000_0084, // SFMASK
    0xc000_0100, // FS_BASE
    0xc000_0101, // GS_BASE
    0xc000_0102, // KERNEL_GS_BASE
    0xc000_0103, // TSC_AUX
];

/// Byte and bit of the read permission; the write permission is the next bit. `None` outside the map.
pub const fn position(msr: u32) -> Option<(usize, u32)> {
    let (base, first) = match msr {
        0..=0x1fff => (0, 0),
        0xc000_0000..=0xc000_1fff => (0x800, 0xc000_0000),
        0xc001_0000..=0xc001_1fff => (0x1000, 0xc001_0000),
        _ => return None,
    };
    let bits = (msr - first) * 2;
    Some((base + bits as usize / 8, bits % 8))
}

/// Lets the guest read and write `msr` directly.
pub fn allow(map: &mut [u8; SIZE], msr: u32) {
    if let Some((byte, bit)) = position(msr) {
        map[byte] &= !(0b11 << bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        assert_eq!(position(0x174), Some((0x5d, 0)));
        assert_eq!(position(0x1fff), Some((0x7ff, 6)));
        assert_eq!(position(0xc000_0081), Some((0x820, 2)));
        assert_eq!(position(0xc001_0114), Some((0x1045, 0)));
        assert_eq!(position(0x2000), None);
        assert_eq!(position(0x4000_0000), None);
    }

    #[test]
    fn only_the_direct_ones_open() {
        let mut map = [0xff; SIZE];
        for msr in DIRECT {
            allow(&mut map, msr);
        }
        let open: u32 = map.iter().map(|b| b.count_zeros()).sum();
        assert_eq!(open, 2 * DIRECT.len() as u32);
        let (byte, bit) = position(0xc000_0080).unwrap();
        assert_eq!(map[byte] >> bit & 3, 3, "EFER must exit");
    }
}
