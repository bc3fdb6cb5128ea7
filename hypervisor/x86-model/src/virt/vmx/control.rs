//! The control words, bit by bit, and how a wish for them is reconciled with what a CPU allows (SDM vol. 3, 26.6 to 26.8 and
//! appendix A.2 to A.5).

/// Pin-based controls.
pub mod pin {
    /// Physical interrupts exit.
    pub const EXTERNAL_INTERRUPT: u32 = 1 << 0;
    /// NMIs exit.
    pub const NMI: u32 = 1 << 3;
    /// The guest has an NMI mask of its own.
    pub const VIRTUAL_NMIS: u32 = 1 << 5;
    /// Exit when the preemption timer has run down.
    pub const PREEMPTION_TIMER: u32 = 1 << 6;
    /// Notifications of the posted-interrupt descriptor are processed without an exit.
    pub const POSTED_INTERRUPTS: u32 = 1 << 7;
    /// Reserved bits that must be 1.
    pub const RESERVED_ONES: u32 = 0x16;
}

/// Primary processor-based controls.
pub mod primary {
    /// Exit as soon as the guest can take an interrupt.
    pub const INTERRUPT_WINDOW: u32 = 1 << 2;
    /// The TSC offset applies.
    pub const TSC_OFFSET: u32 = 1 << 3;
    /// HLT exits.
    pub const HLT: u32 = 1 << 7;
    /// MWAIT exits.
    pub const MWAIT: u32 = 1 << 10;
    /// RDPMC exits.
    pub const RDPMC: u32 = 1 << 11;
    /// MOV to CR3 exits.
    pub const CR3_LOAD: u32 = 1 << 15;
    /// MOV from CR3 exits.
    pub const CR3_STORE: u32 = 1 << 16;
    /// The tertiary word applies.
    pub const TERTIARY: u32 = 1 << 17;
    /// MOV to CR8 exits.
    pub const CR8_LOAD: u32 = 1 << 19;
    /// MOV from CR8 exits.
    pub const CR8_STORE: u32 = 1 << 20;
    /// CR8 is the virtual APIC's task priority.
    pub const TPR_SHADOW: u32 = 1 << 21;
    /// Exit as soon as the guest can take an NMI.
    pub const NMI_WINDOW: u32 = 1 << 22;
    /// The port bitmaps apply.
    pub const IO_BITMAPS: u32 = 1 << 25;
    /// The MSR bitmap applies.
    pub const MSR_BITMAPS: u32 = 1 << 28;
    /// MONITOR exits.
    pub const MONITOR: u32 = 1 << 29;
    /// The secondary word applies.
    pub const SECONDARY: u32 = 1 << 31;
    /// Reserved bits that must be 1.
    pub const RESERVED_ONES: u32 = 0x0400_6172;
}

/// Secondary processor-based controls.
pub mod secondary {
    /// Accesses to the APIC-access page go to the virtual APIC.
    pub const APIC_ACCESSES: u32 = 1 << 0;
    /// Second-stage translation.
    pub const EPT: u32 = 1 << 1;
    /// RDTSCP and RDPID do not raise #UD.
    pub const RDTSCP: u32 = 1 << 3;
    /// x2APIC MSRs go to the virtual APIC.
    pub const X2APIC: u32 = 1 << 4;
    /// Translations are tagged.
    pub const VPID: u32 = 1 << 5;
    /// WBINVD exits.
    pub const WBINVD: u32 = 1 << 6;
    /// Real mode and protected mode without paging run natively.
    pub const UNRESTRICTED: u32 = 1 << 7;
    /// Most reads of APIC registers need no exit.
    pub const APIC_REGISTERS: u32 = 1 << 8;
    /// The CPU evaluates and delivers virtual interrupts.
    pub const INTERRUPT_DELIVERY: u32 = 1 << 9;
    /// INVPCID does not raise #UD.
    pub const INVPCID: u32 = 1 << 12;
    /// XSAVES and XRSTORS do not raise #UD.
    pub const XSAVES: u32 = 1 << 20;
}

/// Exit controls.
pub mod exit {
    /// DR7 and DEBUGCTL are saved.
    pub const SAVE_DEBUG: u32 = 1 << 2;
    /// The host is in 64-bit mode.
    pub const HOST_64: u32 = 1 << 9;
    /// The vector of an interrupt that exits is acknowledged and told.
    pub const ACKNOWLEDGE: u32 = 1 << 15;
    /// The guest's PAT is saved.
    pub const SAVE_PAT: u32 = 1 << 18;
    /// The host's PAT is loaded.
    pub const LOAD_PAT: u32 = 1 << 19;
    /// The guest's EFER is saved.
    pub const SAVE_EFER: u32 = 1 << 20;
    /// The host's EFER is loaded.
    pub const LOAD_EFER: u32 = 1 << 21;
    /// Reserved bits that must be 1.
    pub const RESERVED_ONES: u32 = 0x0003_6dfb;
}

/// Entry controls.
pub mod entry {
    /// DR7 and DEBUGCTL are loaded.
    pub const LOAD_DEBUG: u32 = 1 << 2;
    /// The guest is in long mode (EFER.LMA).
    pub const LONG_MODE: u32 = 1 << 9;
    /// The guest's PAT is loaded.
    pub const LOAD_PAT: u32 = 1 << 14;
    /// The guest's EFER is loaded.
    pub const LOAD_EFER: u32 = 1 << 15;
    /// Reserved bits that must be 1.
    pub const RESERVED_ONES: u32 = 0x0000_11fb;
}

/// What a CPU allows of a control word: a capability MSR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Bits that must be 1 (the manual's "allowed 0-settings", low half).
    pub ones: u32,
    /// Bits that may be 1 (the "allowed 1-settings", high half).
    pub settable: u32,
}

/// Why a control word cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// These bits are needed and cannot be set.
    Missing(u32),
    /// These bits are always set and nobody would handle what they do.
    Forced(u32),
}

impl Allowed {
    /// From the MSR.
    pub const fn new(msr: u64) -> Self {
        Allowed {
            ones: msr as u32,
            settable: (msr >> 32) as u32,
        }
    }

    /// The word with all of `needed`, and of `wanted` what there is. `harmless` are bits that may be forced to 1 without
    /// having been asked for; bits in `switched` are needed too, but left off: they are turned on at times.
    pub const fn settle(
        self,
        needed: u32,
        wanted: u32,
        switched: u32,
        harmless: u32,
    ) -> Result<u32, Conflict> {
        let missing = (needed | switched) & !self.settable;
        if missing != 0 {
            return Err(Conflict::Missing(missing));
        }
        let forced = self.ones & !(needed | wanted | harmless);
        if forced != 0 {
            return Err(Conflict::Forced(forced));
        }
        Ok(needed | wanted & self.settable | self.ones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_wanted_forced() {
        let allowed = Allowed::new(0x0000_00ff_0000_0016);
        assert_eq!(allowed.settle(1, 0x108, 0x20, 0x16), Ok(0x1f));
        assert_eq!(
            allowed.settle(0x101, 0, 0, 0x16),
            Err(Conflict::Missing(0x100))
        );
        assert_eq!(
            allowed.settle(1, 0, 0x200, 0x16),
            Err(Conflict::Missing(0x200))
        );
        assert_eq!(allowed.settle(1, 0, 0, 0x12), Err(Conflict::Forced(4)));
        assert_eq!(allowed.settle(1, 4, 0, 0x12), Ok(0x17));
    }

    #[test]
    fn reserved_ones_are_the_manuals() {
        // Appendix A.2: the default1 class without the bits that the "true" MSRs free (CR3 loads and stores, debug).
        assert_eq!(pin::RESERVED_ONES, 1 << 1 | 1 << 2 | 1 << 4);
        let default1 = primary::RESERVED_ONES | primary::CR3_LOAD | primary::CR3_STORE;
        assert_eq!(default1, 0x0401_e172);
        assert_eq!(exit::RESERVED_ONES | exit::SAVE_DEBUG, 0x0003_6dff);
        assert_eq!(entry::RESERVED_ONES | entry::LOAD_DEBUG, 0x11ff);
    }
}
