//! A guest's write to CR0 that exits because it changes a bit that the guest does not own. The rest of what the instruction
//! does then falls to us: the rules of the architecture, and the start or end of long mode (SDM vol. 3, 2.5, 10.8.5).

use super::CR0_HOST_OWNED;
use crate::regs::cr::*;
use crate::regs::msr::{EFER_LMA, EFER_LME};

/// What a write to CR0 meets.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// CR0 as the guest sees it.
    pub cr0: u64,
    /// CR4 as the guest sees it.
    pub cr4: u64,
    /// EFER.
    pub efer: u64,
    /// CS.L: in long mode, 64-bit code.
    pub cs_long: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// #GP(0).
    Fault,
    /// The new state.
    Set {
        /// CR0 for the CPU.
        real: u64,
        /// CR0 for the guest to read.
        shadow: u64,
        /// EFER with LMA following.
        efer: u64,
    },
}

/// CR0 for the CPU when the guest's is `value`.
pub const fn real(value: u64) -> u64 {
    value & !(CR0_CD | CR0_NW) & 0xffff_ffff | CR0_NE | CR0_ET
}

/// CR0 as the guest sees it.
pub const fn visible(real: u64, shadow: u64) -> u64 {
    real & !CR0_HOST_OWNED | shadow & CR0_HOST_OWNED
}

/// A MOV of `value` to CR0.
pub const fn write(before: Before, value: u64) -> Outcome {
    let Before { cr0, cr4, efer, .. } = before;
    let starts = value & CR0_PG != 0 && cr0 & CR0_PG == 0;
    let ends = value & CR0_PG == 0 && cr0 & CR0_PG != 0;
    let long = efer & EFER_LMA != 0;
    let bad = value >> 32 != 0
        || value & CR0_PG != 0 && value & CR0_PE == 0
        || value & CR0_NW != 0 && value & CR0_CD == 0
        || value & CR0_WP == 0 && cr4 & CR4_CET != 0
        || ends && (cr4 & CR4_PCIDE != 0 || long && before.cs_long)
        || starts && efer & EFER_LME != 0 && (cr4 & CR4_PAE == 0 || before.cs_long);
    if bad {
        return Outcome::Fault;
    }
    let efer = if starts && efer & EFER_LME != 0 {
        efer | EFER_LMA
    } else if ends {
        efer & !EFER_LMA
    } else {
        efer
    };
    Outcome::Set {
        real: real(value),
        shadow: value | CR0_ET,
        efer,
    }
}

/// Whether a guest with these registers uses the four entries that PAE paging keeps in the CPU.
pub const fn uses_pdptes(cr0: u64, cr4: u64, efer: u64) -> bool {
    cr0 & CR0_PG != 0 && cr4 & CR4_PAE != 0 && efer & EFER_LMA == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: Before = Before {
        cr0: CR0_PE | CR0_ET,
        cr4: 0,
        efer: 0,
        cs_long: false,
    };
    const READY: Before = Before {
        cr4: CR4_PAE,
        efer: EFER_LME,
        ..RESET
    };
    const LONG: Before = Before {
        cr0: CR0_PG | CR0_PE | CR0_ET | CR0_WP,
        efer: EFER_LME | EFER_LMA,
        cs_long: true,
        ..READY
    };

    #[test]
    fn long_mode_starts_and_ends() {
        let on = CR0_PG | CR0_PE;
        let Outcome::Set { real, shadow, efer } = write(READY, on) else {
            panic!()
        };
        assert_eq!(efer, EFER_LME | EFER_LMA);
        assert_eq!((real, shadow), (on | CR0_NE | CR0_ET, on | CR0_ET));
        assert_eq!(visible(real, shadow), on | CR0_ET);
        assert_eq!(write(Before { cr4: 0, ..READY }, on), Outcome::Fault);
        let with_l = Before {
            cs_long: true,
            ..READY
        };
        assert_eq!(write(with_l, on), Outcome::Fault);
        assert_eq!(write(LONG, CR0_PE), Outcome::Fault);
        let compatible = Before {
            cs_long: false,
            ..LONG
        };
        let Outcome::Set { efer, .. } = write(compatible, CR0_PE) else {
            panic!()
        };
        assert_eq!(efer, EFER_LME);
        let pcid = Before {
            cr4: CR4_PAE | CR4_PCIDE,
            ..compatible
        };
        assert_eq!(write(pcid, CR0_PE), Outcome::Fault);
    }

    #[test]
    fn cache_bits_never_reach_the_cpu() {
        let v = LONG.cr0 | CR0_CD | CR0_NW;
        let Outcome::Set { real, shadow, .. } = write(LONG, v) else {
            panic!()
        };
        assert_eq!(real & (CR0_CD | CR0_NW), 0);
        assert_eq!(visible(real, shadow), v);
        assert_eq!(write(LONG, LONG.cr0 | CR0_NW), Outcome::Fault);
    }

    #[test]
    fn wrong_values_fault() {
        assert_eq!(write(RESET, CR0_PG), Outcome::Fault);
        assert_eq!(write(RESET, 1 << 32 | CR0_PE), Outcome::Fault);
        let cet = Before {
            cr4: CR4_CET,
            ..RESET
        };
        assert_eq!(write(cet, CR0_PE), Outcome::Fault);
    }

    #[test]
    fn who_uses_pdptes() {
        assert!(uses_pdptes(CR0_PG | CR0_PE, CR4_PAE, 0));
        assert!(!uses_pdptes(CR0_PE, CR4_PAE, 0));
        assert!(!uses_pdptes(CR0_PG | CR0_PE, 0, 0));
        assert!(!uses_pdptes(LONG.cr0, LONG.cr4, LONG.efer));
    }
}
