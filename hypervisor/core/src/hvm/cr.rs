//! Writes to control registers. Which CR4 values a guest may set: the bits whose features its CPUID offers, and the rules of the architecture for changing
//! them (APM vol. 2, 3.1.3; SDM vol. 3, 2.5). Hardware alone would let a guest set what the machine has and CPUID hides.

use x86_model::regs::cr::{
    CR4_CET, CR4_DE, CR4_FSGSBASE, CR4_LA57, CR4_MCE, CR4_OSFXSR, CR4_OSXMMEXCPT, CR4_OSXSAVE,
    CR4_PAE, CR4_PCE, CR4_PCIDE, CR4_PGE, CR4_PKE, CR4_PSE, CR4_PVI, CR4_SMAP, CR4_SMEP, CR4_TSD,
    CR4_UMIP, CR4_VME,
};

const EFER_LMA: u64 = 1 << 10;
const PCID: u64 = 0xfff;

/// Feature that offers a bit: leaf, register (0 = EAX), bit.
const OFFERS: [(u64, u32, usize, u32); 19] = [
    (CR4_VME, 1, 3, 1),
    (CR4_PVI, 1, 3, 1),
    (CR4_DE, 1, 3, 2),
    (CR4_PSE, 1, 3, 3),
    (CR4_TSD, 1, 3, 4),
    (CR4_PAE, 1, 3, 6),
    (CR4_MCE, 1, 3, 7),
    (CR4_PGE, 1, 3, 13),
    (CR4_OSFXSR, 1, 3, 24),
    (CR4_OSXMMEXCPT, 1, 3, 25),
    (CR4_PCIDE, 1, 2, 17),
    (CR4_OSXSAVE, 1, 2, 26),
    (CR4_FSGSBASE, 7, 1, 0),
    (CR4_SMEP, 7, 1, 7),
    (CR4_SMAP, 7, 1, 20),
    (CR4_UMIP, 7, 2, 2),
    (CR4_PKE, 7, 2, 3),
    (CR4_CET, 7, 2, 7),
    (CR4_LA57, 7, 2, 16),
];

/// Bits that a guest may set, from `has(leaf, register, bit)` of its CPUID.
pub fn allowed_cr4(has: impl Fn(u32, usize, u32) -> bool) -> u64 {
    let offered = OFFERS
        .iter()
        .filter(|&&(_, leaf, register, bit)| has(leaf, register, bit));
    offered.fold(CR4_PCE, |bits, &(bit, ..)| bits | bit)
}

/// Whether a guest with these registers may replace CR4 `old` by `new`.
pub fn valid_cr4(old: u64, new: u64, allowed: u64, efer: u64, cr3: u64) -> bool {
    let long = efer & EFER_LMA != 0;
    let changed = old ^ new;
    new & !allowed == 0
        // Long mode needs PAE, and the depth of the page tables is fixed while they are in use.
        && !(long && (new & CR4_PAE == 0 || changed & CR4_LA57 != 0))
        // Process identifiers are turned on in long mode, with that of the present tables being 0.
        && !(changed & new & CR4_PCIDE != 0 && (!long || cr3 & PCID != 0))
}

/// The general register that `mov cr<cr>, reg` names and the length of the instruction, from its bytes; `None` if it is not
/// that. CR8 is named by REX or, on AMD processors, by a LOCK prefix (APM vol. 3, MOV CRn).
pub fn decode(bytes: &[u8], long: bool, cr: u8) -> Option<(usize, u8)> {
    let is_prefix = |b: u8| {
        matches!(
            b,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let mut at = bytes.iter().take_while(|&&b| is_prefix(b)).count();
    let lock = bytes[..at].contains(&0xf0);
    let rex = match bytes.get(at) {
        Some(&b @ 0x40..=0x4f) if long => {
            at += 1;
            b
        }
        _ => 0,
    };
    let high = u8::from(lock || rex & 4 != 0) << 3;
    match *bytes.get(at..at + 3)? {
        [0x0f, 0x22, modrm] if modrm >> 3 & 7 | high == cr => {
            let register = usize::from(modrm & 7) | usize::from(rex & 1) << 3;
            Some((register, at as u8 + 3))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: u64 = EFER_LMA | 1 << 8;

    #[test]
    fn cpuid_decides() {
        assert_eq!(allowed_cr4(|_, _, _| false), CR4_PCE);
        let all = allowed_cr4(|_, _, _| true);
        assert_eq!(all.count_ones() as usize, OFFERS.len() + 1);
        let pke = allowed_cr4(|leaf, register, bit| (leaf, register, bit) == (7, 2, 3));
        assert_eq!(pke, CR4_PCE | CR4_PKE);
    }

    #[test]
    fn rules_of_the_architecture() {
        let all = allowed_cr4(|_, _, _| true);
        assert!(valid_cr4(0, CR4_PGE, all, 0, 0));
        assert!(!valid_cr4(0, 1 << 15, all, 0, 0));
        assert!(!valid_cr4(0, 1 << 40, all, 0, 0));
        assert!(!valid_cr4(0, CR4_UMIP, CR4_PCE, 0, 0));
        assert!(!valid_cr4(CR4_PAE, 0, all, LONG, 0));
        assert!(valid_cr4(CR4_PAE, 0, all, 0, 0));
        assert!(!valid_cr4(CR4_PAE, CR4_PAE | CR4_LA57, all, LONG, 0));
        let pcid = CR4_PAE | CR4_PCIDE;
        assert!(valid_cr4(CR4_PAE, pcid, all, LONG, 0x1000));
        assert!(!valid_cr4(CR4_PAE, pcid, all, LONG, 0x1001));
        assert!(!valid_cr4(CR4_PAE, pcid, all, 0, 0x1000));
        assert!(valid_cr4(pcid, pcid | CR4_PGE, all, LONG, 0x1001));
    }

    #[test]
    fn instruction_forms() {
        assert_eq!(decode(&[0x0f, 0x22, 0xe0, 0x90], true, 4), Some((0, 3)));
        assert_eq!(decode(&[0x41, 0x0f, 0x22, 0xe7], true, 4), Some((15, 4)));
        assert_eq!(
            decode(&[0x66, 0x48, 0x0f, 0x22, 0xe3], true, 4),
            Some((3, 5))
        );
        // Writes to other registers, reads, and what is cut short.
        for bytes in [
            &[0x0f, 0x22, 0xd8][..],
            &[0x0f, 0x20, 0xe0],
            &[0x44, 0x0f, 0x22, 0xe0],
            &[0x0f, 0x22],
            &[],
        ] {
            assert_eq!(decode(bytes, true, 4), None, "{bytes:x?}");
        }
        assert_eq!(decode(&[0x44, 0x0f, 0x22, 0xc1], true, 8), Some((1, 4)));
        assert_eq!(decode(&[0x45, 0x0f, 0x22, 0xc1], true, 8), Some((9, 4)));
        assert_eq!(decode(&[0xf0, 0x0f, 0x22, 0xc2], false, 8), Some((2, 4)));
        assert_eq!(decode(&[0x0f, 0x22, 0xc1], true, 8), None);
        // 0x41 is an instruction of its own outside 64-bit code.
        assert_eq!(decode(&[0x41, 0x0f, 0x22, 0xe7], false, 4), None);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>, long: bool, eighth: bool) {
            if let Some((register, len)) = decode(&bytes, long, if eighth { 8 } else { 4 }) {
                prop_assert!(register < 16 && usize::from(len) <= bytes.len());
            }
        }
    }
}
