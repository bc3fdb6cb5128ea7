//! Segment attributes: the VMCB packs the descriptor's two flag fields into 12 bits; the neutral form leaves the gap of the
//! descriptor (bits 7:0 and 15:12) and has bit 16 for "unusable".

const PRESENT: u16 = 1 << 7;
/// The segment is unusable (neutral form).
pub const UNUSABLE: u32 = 1 << 16;

/// VMCB attributes of the neutral form. An unusable segment becomes a not-present one and keeps its DPL, since the CPU
/// takes CPL from SS.
pub const fn attr_from_access(access: u32) -> u16 {
    let attr = (access & 0xff | access >> 4 & 0xf00) as u16;
    if access & UNUSABLE != 0 {
        attr & !PRESENT
    } else {
        attr
    }
}

/// Neutral form of VMCB attributes. A segment that is not present is unusable.
pub const fn access_from_attr(attr: u16) -> u32 {
    let access = (attr & 0xff) as u32 | ((attr & 0xf00) as u32) << 4;
    if attr & PRESENT == 0 {
        access | UNUSABLE
    } else {
        access
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_segments() {
        // Flat 32-bit code, 64-bit code, busy 32-bit TSS, real-mode data.
        for (access, attr) in [(0xc09b, 0xc9b), (0xa09b, 0xa9b), (0x8b, 0x8b), (0x93, 0x93)] {
            assert_eq!(attr_from_access(access), attr);
            assert_eq!(access_from_attr(attr), access);
        }
    }

    #[test]
    fn unusable_keeps_its_privilege_level() {
        let null_ss_of_user = UNUSABLE | 0xf3;
        let attr = attr_from_access(null_ss_of_user);
        assert_eq!(attr & PRESENT, 0);
        assert_eq!(attr >> 5 & 3, 3);
        assert_ne!(access_from_attr(attr) & UNUSABLE, 0);
    }

    #[test]
    fn every_attribute_survives() {
        for attr in 0..0x1000 {
            assert_eq!(attr_from_access(access_from_attr(attr)), attr);
        }
    }
}
