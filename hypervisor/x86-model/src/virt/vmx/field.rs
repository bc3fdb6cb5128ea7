//! Fields of the virtual-machine control structure (SDM vol. 3, appendix B). Each field has a type that says how wide it is
//! and whether software may write it, so that a wrong access does not compile.

/// A field that can be read.
pub trait Readable: Copy {
    /// What it holds.
    type Value: Copy;
    /// Its number for VMREAD and VMWRITE.
    fn encoding(self) -> u32;
    /// Cuts a register down to the field.
    fn narrow(raw: u64) -> Self::Value;
}

/// A field that can also be written.
pub trait Writable: Readable {
    /// Extends a value to a register.
    fn widen(value: Self::Value) -> u64;
}

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $value:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(u16);

        impl Readable for $name {
            type Value = $value;
            #[inline(always)]
            fn encoding(self) -> u32 {
                self.0 as u32
            }
            #[inline(always)]
            fn narrow(raw: u64) -> $value {
                raw as $value
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $value:ty, writable) => {
        kind!($(#[$doc])* $name, $value);
        impl Writable for $name {
            #[inline(always)]
            fn widen(value: $value) -> u64 {
                value as u64
            }
        }
    };
}
kind!(
    /// 16 bits.
    Field16,
    u16,
    writable
);
kind!(
    /// 32 bits.
    Field32,
    u32,
    writable
);
kind!(
    /// 64 bits.
    Field64,
    u64,
    writable
);
kind!(
    /// As wide as a register: 64 bits on every CPU that we run on.
    FieldNat,
    u64,
    writable
);
kind!(
    /// 32 bits, written by the CPU at exits.
    Exit32,
    u32
);
kind!(
    /// 64 bits, written by the CPU at exits.
    Exit64,
    u64
);
kind!(
    /// Register-wide, written by the CPU at exits.
    ExitNat,
    u64
);

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $kind:ident = $number:literal;)*) => {
        $($(#[$doc])* pub const $name: $kind = $kind($number);)*
        #[cfg(test)]
        const ALL: &[(&str, &str, u16)] = &[$((stringify!($name), stringify!($kind), $number)),*];
    };
}
fields! {
    /// Tag of the guest's translations.
    VPID: Field16 = 0x0000;
    /// Vector that means "look at the posted-interrupt descriptor".
    POSTED_VECTOR: Field16 = 0x0002;
    /// Guest ES; CS, SS, DS, FS, GS, LDTR and TR follow in steps of 2.
    GUEST_ES_SELECTOR: Field16 = 0x0800;
    /// RVI in the low byte, SVI in the high one.
    GUEST_INTERRUPT_STATUS: Field16 = 0x0810;
    /// Host ES.
    HOST_ES: Field16 = 0x0c00;
    /// Host CS.
    HOST_CS: Field16 = 0x0c02;
    /// Host SS.
    HOST_SS: Field16 = 0x0c04;
    /// Host DS.
    HOST_DS: Field16 = 0x0c06;
    /// Host FS.
    HOST_FS: Field16 = 0x0c08;
    /// Host GS.
    HOST_GS: Field16 = 0x0c0a;
    /// Host TR.
    HOST_TR: Field16 = 0x0c0c;

    /// Ports 0 to 0x7fff: one page.
    IO_BITMAP_A: Field64 = 0x2000;
    /// Ports 0x8000 to 0xffff: one page.
    IO_BITMAP_B: Field64 = 0x2002;
    /// MSR bitmap page.
    MSR_BITMAP: Field64 = 0x2004;
    /// Added to the guest's TSC.
    TSC_OFFSET: Field64 = 0x2010;
    /// Page of the virtual APIC's registers.
    VIRTUAL_APIC: Field64 = 0x2012;
    /// Page whose accesses go to the virtual APIC.
    APIC_ACCESS: Field64 = 0x2014;
    /// The posted-interrupt descriptor.
    POSTED_DESCRIPTOR: Field64 = 0x2016;
    /// Root of the second-stage tables, with their format.
    EPT_POINTER: Field64 = 0x201a;
    /// EOIs of vectors 0 to 63 that exit; three more words follow in steps of 2.
    EOI_EXIT_0: Field64 = 0x201c;
    /// Vectors 64 to 127.
    EOI_EXIT_1: Field64 = 0x201e;
    /// Vectors 128 to 191.
    EOI_EXIT_2: Field64 = 0x2020;
    /// Vectors 192 to 255.
    EOI_EXIT_3: Field64 = 0x2022;
    /// Where a second-stage fault happened.
    GUEST_PHYSICAL_ADDRESS: Exit64 = 0x2400;
    /// No shadow structure: all ones.
    VMCS_LINK: Field64 = 0x2800;
    /// Guest DEBUGCTL.
    GUEST_DEBUGCTL: Field64 = 0x2802;
    /// Guest PAT.
    GUEST_PAT: Field64 = 0x2804;
    /// Guest EFER.
    GUEST_EFER: Field64 = 0x2806;
    /// First of the four entries of a guest with PAE paging.
    GUEST_PDPTE_0: Field64 = 0x280a;
    /// Second.
    GUEST_PDPTE_1: Field64 = 0x280c;
    /// Third.
    GUEST_PDPTE_2: Field64 = 0x280e;
    /// Fourth.
    GUEST_PDPTE_3: Field64 = 0x2810;
    /// Host PAT.
    HOST_PAT: Field64 = 0x2c00;
    /// Host EFER.
    HOST_EFER: Field64 = 0x2c02;

    /// Pin-based controls.
    PIN_CONTROLS: Field32 = 0x4000;
    /// Primary processor-based controls.
    PRIMARY_CONTROLS: Field32 = 0x4002;
    /// Exceptions that exit.
    EXCEPTION_BITMAP: Field32 = 0x4004;
    /// Page-fault error codes: mask.
    PAGE_FAULT_MASK: Field32 = 0x4006;
    /// Page-fault error codes: match.
    PAGE_FAULT_MATCH: Field32 = 0x4008;
    /// CR3 values that need no exit.
    CR3_TARGETS: Field32 = 0x400a;
    /// Exit controls.
    EXIT_CONTROLS: Field32 = 0x400c;
    /// MSRs stored at exits.
    EXIT_MSR_STORES: Field32 = 0x400e;
    /// MSRs loaded at exits.
    EXIT_MSR_LOADS: Field32 = 0x4010;
    /// Entry controls.
    ENTRY_CONTROLS: Field32 = 0x4012;
    /// MSRs loaded at entries.
    ENTRY_MSR_LOADS: Field32 = 0x4014;
    /// Event to inject.
    ENTRY_EVENT: Field32 = 0x4016;
    /// Its error code.
    ENTRY_ERROR_CODE: Field32 = 0x4018;
    /// Length of the instruction that raises it.
    ENTRY_LENGTH: Field32 = 0x401a;
    /// TPR class below which there is an exit.
    TPR_THRESHOLD: Field32 = 0x401c;
    /// Secondary processor-based controls.
    SECONDARY_CONTROLS: Field32 = 0x401e;
    /// Why the last VMX instruction failed.
    INSTRUCTION_ERROR: Exit32 = 0x4400;
    /// Why the guest stopped.
    EXIT_REASON: Exit32 = 0x4402;
    /// The event that stopped it.
    EXIT_EVENT: Exit32 = 0x4404;
    /// Its error code.
    EXIT_ERROR_CODE: Exit32 = 0x4406;
    /// The event whose delivery was interrupted.
    VECTORING_EVENT: Exit32 = 0x4408;
    /// Its error code.
    VECTORING_ERROR_CODE: Exit32 = 0x440a;
    /// Length of the instruction that exited.
    EXIT_LENGTH: Exit32 = 0x440c;
    /// Guest ES limit; the other segments in steps of 2, then GDTR and IDTR.
    GUEST_ES_LIMIT: Field32 = 0x4800;
    /// Guest GDTR limit.
    GUEST_GDTR_LIMIT: Field32 = 0x4810;
    /// Guest IDTR limit.
    GUEST_IDTR_LIMIT: Field32 = 0x4812;
    /// Guest ES access rights; the other segments in steps of 2.
    GUEST_ES_ACCESS: Field32 = 0x4814;
    /// What holds interrupts back.
    GUEST_INTERRUPTIBILITY: Field32 = 0x4824;
    /// Active, halted, waiting.
    GUEST_ACTIVITY: Field32 = 0x4826;
    /// What the preemption timer starts from.
    GUEST_PREEMPTION_TIMER: Field32 = 0x482e;
    /// Guest SYSENTER_CS.
    GUEST_SYSENTER_CS: Field32 = 0x482a;
    /// Host SYSENTER_CS.
    HOST_SYSENTER_CS: Field32 = 0x4c00;

    /// CR0 bits that the host owns.
    CR0_MASK: FieldNat = 0x6000;
    /// CR4 bits that the host owns.
    CR4_MASK: FieldNat = 0x6002;
    /// What the guest reads of the owned CR0 bits.
    CR0_SHADOW: FieldNat = 0x6004;
    /// What the guest reads of the owned CR4 bits.
    CR4_SHADOW: FieldNat = 0x6006;
    /// Details of the exit.
    EXIT_QUALIFICATION: ExitNat = 0x6400;
    /// Guest CR0.
    GUEST_CR0: FieldNat = 0x6800;
    /// Guest CR3.
    GUEST_CR3: FieldNat = 0x6802;
    /// Guest CR4.
    GUEST_CR4: FieldNat = 0x6804;
    /// Guest ES base; the other segments in steps of 2.
    GUEST_ES_BASE: FieldNat = 0x6806;
    /// Guest GDTR base.
    GUEST_GDTR_BASE: FieldNat = 0x6816;
    /// Guest IDTR base.
    GUEST_IDTR_BASE: FieldNat = 0x6818;
    /// Guest DR7.
    GUEST_DR7: FieldNat = 0x681a;
    /// Guest RSP.
    GUEST_RSP: FieldNat = 0x681c;
    /// Guest RIP.
    GUEST_RIP: FieldNat = 0x681e;
    /// Guest RFLAGS.
    GUEST_RFLAGS: FieldNat = 0x6820;
    /// Debug exceptions that wait.
    GUEST_PENDING_DEBUG: FieldNat = 0x6822;
    /// Guest SYSENTER_ESP.
    GUEST_SYSENTER_ESP: FieldNat = 0x6824;
    /// Guest SYSENTER_EIP.
    GUEST_SYSENTER_EIP: FieldNat = 0x6826;
    /// Host CR0.
    HOST_CR0: FieldNat = 0x6c00;
    /// Host CR3.
    HOST_CR3: FieldNat = 0x6c02;
    /// Host CR4.
    HOST_CR4: FieldNat = 0x6c04;
    /// Host FS base.
    HOST_FS_BASE: FieldNat = 0x6c06;
    /// Host GS base.
    HOST_GS_BASE: FieldNat = 0x6c08;
    /// Host TSS.
    HOST_TR_BASE: FieldNat = 0x6c0a;
    /// Host GDT.
    HOST_GDTR_BASE: FieldNat = 0x6c0c;
    /// Host IDT.
    HOST_IDTR_BASE: FieldNat = 0x6c0e;
    /// Host SYSENTER_ESP.
    HOST_SYSENTER_ESP: FieldNat = 0x6c10;
    /// Host SYSENTER_EIP.
    HOST_SYSENTER_EIP: FieldNat = 0x6c12;
    /// Host RSP.
    HOST_RSP: FieldNat = 0x6c14;
    /// Where the host goes on after an exit.
    HOST_RIP: FieldNat = 0x6c16;
}

/// Number of [`HOST_RSP`], for the entry code.
pub const HOST_RSP_NUMBER: u32 = HOST_RSP.0 as u32;

/// The field at place `n` of a run of fields that begins with `first`.
macro_rules! nth {
    ($name:ident, $kind:ident) => {
        /// The field `n` places behind `first`.
        #[inline]
        pub const fn $name(first: $kind, n: u16) -> $kind {
            $kind(first.0 + 2 * n)
        }
    };
}
nth!(nth16, Field16);
nth!(nth32, Field32);
nth!(nth64, Field64);
nth!(nth_nat, FieldNat);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits 14:13 of a number are the width, bits 11:10 the area (1: read-only), bit 0 selects a high half.
    #[test]
    fn types_agree_with_the_numbers() {
        for &(name, kind, number) in ALL {
            let width = number >> 13 & 3;
            let area = number >> 10 & 3;
            let expected = match (width, area) {
                (0, 0 | 2 | 3) => "Field16",
                (1, 1) => "Exit64",
                (1, _) => "Field64",
                (2, 1) => "Exit32",
                (2, _) => "Field32",
                (3, 1) => "ExitNat",
                (3, _) => "FieldNat",
                _ => "none",
            };
            assert_eq!(kind, expected, "{name}");
            let prefix = match area {
                2 => name.starts_with("GUEST_") || name == "VMCS_LINK",
                3 => name.starts_with("HOST_"),
                _ => !name.starts_with("HOST_"),
            };
            assert!(prefix && number & 1 == 0 && number >> 15 == 0, "{name}");
        }
    }

    #[test]
    fn no_number_twice() {
        let mut numbers: std::vec::Vec<u16> = ALL.iter().map(|f| f.2).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|w| w[0] != w[1]));
    }

    #[test]
    fn runs_reach_their_ends() {
        assert_eq!(nth32(GUEST_ES_LIMIT, 8), GUEST_GDTR_LIMIT);
        assert_eq!(nth_nat(GUEST_ES_BASE, 8), GUEST_GDTR_BASE);
        assert_eq!(nth32(GUEST_ES_ACCESS, 8), GUEST_INTERRUPTIBILITY);
        assert_eq!(nth16(GUEST_ES_SELECTOR, 8), GUEST_INTERRUPT_STATUS);
        assert_eq!(nth64(EOI_EXIT_0, 3), EOI_EXIT_3);
        assert_eq!(Field32::narrow(0x1_8000_0000), 0x8000_0000);
        assert_eq!(Field16::widen(0xffff), 0xffff);
    }
}
