//! The XSAVE area in its standard form, as bytes: what may be loaded into a processor.
//!
//! XRSTOR faults on a header with reserved bits and on an MXCSR with bits that the processor does not have. An image that
//! comes from elsewhere goes through [`replace`] first, whose result a processor always takes.

/// The FXSAVE image.
pub const LEGACY: usize = 512;
/// Legacy image and header.
pub const MIN: usize = 576;
/// MXCSR bits of processors that tell no mask (SDM vol. 1, 11.6.6).
pub const MXCSR_DEFAULT_MASK: u32 = 0xffbf;
const FCW: usize = 0;
const MXCSR: usize = 24;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

/// Components that a header says are not in their initial state; 0 if there is no header.
pub fn components(area: &[u8]) -> u64 {
    u64::from(word(area, LEGACY + 4)) << 32 | u64::from(word(area, LEGACY))
}

/// Puts the initial state of all components into an area.
pub fn reset(area: &mut [u8]) {
    area.fill(0);
    // The zero header stands for the initial state, except that MXCSR always comes from the area (APM vol. 2, 11.5.10);
    // FXRSTOR takes the control word too.
    area[FCW..FCW + 2].copy_from_slice(&0x037f_u16.to_le_bytes());
    area[MXCSR..MXCSR + 4].copy_from_slice(&0x1f80_u32.to_le_bytes());
}

/// Replaces an area's contents by an image that somebody else made, as far as a processor takes it: components outside
/// `allowed` and MXCSR bits outside `mxcsr_mask` are dropped, the rest of the header is zero. An image shorter than legacy
/// part and header is the initial state.
pub fn replace(area: &mut [u8], image: &[u8], allowed: u64, mxcsr_mask: u32) {
    reset(area);
    if image.len() < MIN || area.len() < MIN {
        return;
    }
    let n = image.len().min(area.len());
    area[..LEGACY].copy_from_slice(&image[..LEGACY]);
    area[MIN..n].copy_from_slice(&image[MIN..n]);
    let mxcsr = word(image, MXCSR) & mxcsr_mask;
    area[MXCSR..MXCSR + 4].copy_from_slice(&mxcsr.to_le_bytes());
    let header = components(image) & allowed;
    area[LEGACY..LEGACY + 8].copy_from_slice(&header.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_loaded_never_faults(
            image in prop::collection::vec(any::<u8>(), 0..900),
            allowed in any::<u64>(),
            mask in any::<u32>(),
        ) {
            let mut area = [0xee; 832];
            replace(&mut area, &image, allowed, mask);
            prop_assert_eq!(components(&area) & !allowed, 0);
            prop_assert!(area[LEGACY + 8..MIN].iter().all(|&b| b == 0));
            if image.len() >= MIN {
                prop_assert_eq!(word(&area, MXCSR) & !mask, 0);
                prop_assert_eq!(&area[32..LEGACY], &image[32..LEGACY]);
                let n = image.len().min(area.len());
                prop_assert_eq!(&area[MIN..n], &image[MIN..n]);
            } else {
                prop_assert_eq!((word(&area, MXCSR), components(&area)), (0x1f80, 0));
            }
        }
    }
}
