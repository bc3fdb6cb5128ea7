//! Allow-lists of CPUID feature bits. A bit is shown if the machine has it and the list here has it; everything else is
//! hidden, so that a new processor feature with new state or MSRs does not leak to guests untested.

/// Registers of one leaf, in the order EAX, EBX, ECX, EDX.
pub type Regs = [u32; 4];

/// Processor families that differ in what their leaves mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// AMD and Hygon.
    Amd,
    /// Everyone else reads like Intel.
    Intel,
}

impl Vendor {
    /// From leaf 0.
    pub const fn of(leaf0: Regs) -> Self {
        match [leaf0[1], leaf0[3], leaf0[2]] {
            // "AuthenticAMD", "HygonGenuine"
            [0x6874_7541, 0x6974_6e65, 0x444d_4163] | [0x6f67_7948, 0x6e65_476e, 0x656e_6975] => {
                Self::Amd
            }
            _ => Self::Intel,
        }
    }
}

/// Sets the listed bits.
const fn bits(list: &[u32]) -> u32 {
    let mut v = 0;
    let mut i = 0;
    while i < list.len() {
        v |= 1 << list[i];
        i += 1;
    }
    v
}

/// Leaf 1 ECX. Hidden: DTES64, MONITOR, DS-CPL, VMX, SMX, EIST, TM2, CNXT-ID, SDBG, xTPR, PDCM, DCA, TSC-deadline.
pub const LEAF1_ECX: u32 = bits(&[0, 1, 9, 12, 13, 17, 19, 20, 22, 23, 25, 26, 28, 29, 30]);
/// Leaf 1 ECX: x2APIC, emulated on every machine.
pub const X2APIC: u32 = 1 << 21;
/// Leaf 1 ECX: the TSC-deadline timer.
pub const TSC_DEADLINE: u32 = 1 << 24;
/// Leaf 1 ECX: XSAVE.
pub const XSAVE: u32 = 1 << 26;
/// Leaf 1 ECX: CR4.OSXSAVE is set.
pub const OSXSAVE: u32 = 1 << 27;
/// Leaf 1 ECX: a hypervisor is present.
pub const HYPERVISOR: u32 = 1 << 31;
/// Leaf 1 EDX. Hidden: PSN, DS, ACPI, TM, PBE. HTT follows the topology.
pub const LEAF1_EDX: u32 = bits(&[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 19, 23, 24, 25, 26, 27,
]);
/// Leaf 1 EDX: local APIC, follows IA32_APIC_BASE.
pub const APIC: u32 = 1 << 9;
/// Leaf 1 EDX: more than one logical processor in the package.
pub const HTT: u32 = 1 << 28;

/// Leaf 7 EBX. Hidden: TSC_ADJUST, SGX, HLE, RTM, MPX, RDT, PT.
pub const LEAF7_EBX: u32 = bits(&[
    0, 3, 5, 6, 7, 8, 9, 10, 13, 16, 17, 18, 19, 20, 21, 23, 24, 28, 29, 30, 31,
]);
/// Leaf 7 ECX. Hidden: WAITPKG, CET, TME, LA57, key locker, bus lock, ENQCMD, SGX-LC, PKS.
pub const LEAF7_ECX: u32 = bits(&[1, 2, 6, 8, 9, 10, 11, 12, 14, 22, 25, 27, 28]);
/// Leaf 7 ECX: protection keys.
pub const PKU: u32 = 1 << 3;
/// Leaf 7 ECX: CR4.PKE is set.
pub const OSPKE: u32 = 1 << 4;
/// Leaf 7 EDX. Hidden: speculation controls (no MSR behind them), CET, AMX, UINTR, HYBRID, ARCH_LBR.
pub const LEAF7_EDX: u32 = bits(&[2, 3, 4, 8, 10, 14, 23]);
/// Leaf 7 subleaf 1 EAX: AVX-VNNI, AVX512-BF16, fast string operations.
pub const LEAF7_1_EAX: u32 = bits(&[4, 5, 10, 11, 12]);
/// Bits of leaf 7 EBX that need the AVX-512 states.
pub const LEAF7_EBX_AVX512: u32 = bits(&[16, 17, 21, 26, 27, 28, 30, 31]);
/// Bits of leaf 7 ECX that need the AVX-512 states.
pub const LEAF7_ECX_AVX512: u32 = bits(&[1, 6, 11, 12, 14]);
/// Bits of leaf 7 EDX that need the AVX-512 states.
pub const LEAF7_EDX_AVX512: u32 = bits(&[2, 3, 8, 23]);
/// Bits of leaf 1 ECX that need the AVX state: FMA, AVX, F16C.
pub const LEAF1_ECX_AVX: u32 = bits(&[12, 28, 29]);
/// Bits of leaf 7 that need the AVX state: AVX2 in EBX, VAES and VPCLMULQDQ in ECX.
pub const LEAF7_AVX: (u32, u32) = (bits(&[5]), bits(&[9, 10]));

/// Leaf 0xd subleaf 1 EAX: XSAVEOPT, XSAVEC, XGETBV with ECX 1.
pub const LEAFD_1_EAX: u32 = 0b0111;
/// Leaf 0xd subleaf 1 EAX: XSAVES.
pub const XSAVES: u32 = 1 << 3;

/// Leaf 0x80000001 ECX. Hidden: SVM, extended APIC space, OSVW, IBS, SKINIT, WDT, LWP, node-id MSR, performance counters,
/// DBEXT, MONITORX. CMP_LEGACY follows the topology.
pub const EXT1_ECX: u32 = bits(&[0, 4, 5, 6, 7, 8, 11, 16, 21, 22]);
/// Leaf 0x80000001 ECX: threads of the package are cores.
pub const CMP_LEGACY: u32 = 1 << 1;
/// Leaf 0x80000001 EDX on AMD, which repeats leaf 1 EDX in part.
pub const EXT1_EDX_AMD: u32 = bits(&[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 20, 22, 23, 24, 25, 26, 27, 29, 30,
    31,
]);
/// Leaf 0x80000001 EDX on Intel.
pub const EXT1_EDX_INTEL: u32 = bits(&[11, 20, 26, 27, 29]);
/// Leaf 0x80000007 EDX: invariant TSC.
pub const INVARIANT_TSC: u32 = 1 << 8;
/// Leaf 0x80000008 EBX: CLZERO, error-pointer restore, WBNOINVD, SSB_NO, BTC_NO.
pub const EXT8_EBX: u32 = bits(&[0, 2, 9, 26, 29]);
/// Leaf 0x80000021 EAX: no nested data breakpoints, LFENCE serialises, null selector clears the base.
pub const EXT21_EAX: u32 = bits(&[0, 2, 6]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors() {
        assert_eq!(
            Vendor::of([13, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
            Vendor::Amd
        );
        assert_eq!(
            Vendor::of([22, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]),
            Vendor::Intel
        );
    }

    #[test]
    fn lists_keep_out_what_has_no_emulation() {
        // MONITOR, VMX, PDCM, TSC-deadline; LA57; SVM, OSVW, IBS.
        assert_eq!(LEAF1_ECX & (1 << 3 | 1 << 5 | 1 << 15 | 1 << 24), 0);
        assert_eq!(LEAF7_ECX & (1 << 5 | 1 << 16), 0);
        assert_eq!(EXT1_ECX & (1 << 2 | 1 << 9 | 1 << 10), 0);
        // What Linux cannot start without.
        assert_eq!(LEAF1_EDX & 0x0700_9b79, 0x0700_9b79 & !(1 << 10));
        assert_ne!(EXT1_EDX_AMD & EXT1_EDX_INTEL & 1 << 29, 0);
    }
}
