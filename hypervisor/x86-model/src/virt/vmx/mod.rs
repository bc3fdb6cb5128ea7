//! Intel VT-x (VMX): the fields of the control structure, its control words and the encodings in them. Source of all
//! numbers: Intel Software Developer's Manual, volume 3, chapters 24 to 31 and appendices A to C.

pub mod capability;
pub mod control;
pub mod cr0;
pub mod delivery;
#[cfg(test)]
mod dumps;
pub mod early;
pub mod ept;
pub mod error;
pub mod event;
pub mod exit;
pub mod field;
pub mod msr_bitmap;
pub mod segment;

/// FEATURE_CONTROL: the register is locked until reset.
pub const FEATURE_LOCKED: u64 = 1 << 0;
/// FEATURE_CONTROL: VMXON is allowed outside SMX.
pub const FEATURE_VMXON: u64 = 1 << 2;

/// CR0 bits that the guest does not own: NE must be 1 while VMX is on, and CD and NW would act on the real caches.
pub const CR0_HOST_OWNED: u64 =
    crate::regs::cr::CR0_NE | crate::regs::cr::CR0_CD | crate::regs::cr::CR0_NW;
/// CR4 bits that the guest owns, because they need no check and change often or for nothing; every other change exits.
pub const CR4_GUEST_OWNED: u64 =
    crate::regs::cr::CR4_PGE | crate::regs::cr::CR4_TSD | crate::regs::cr::CR4_DE;

/// The nearest address that MSRs and base fields accept: bit 47 repeated above.
pub const fn canonical(address: u64) -> u64 {
    ((address << 16) as i64 >> 16) as u64
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn addresses_become_canonical() {
        for good in [0, 0x7fff_ffff_ffff, 0xffff_8000_0000_0000, u64::MAX] {
            assert_eq!(canonical(good), good);
        }
        assert_eq!(canonical(0x8000_0000_0000), 0xffff_8000_0000_0000);
        assert_eq!(canonical(0x1234_0000_0000_1000), 0x1000);
    }
}
