//! AMD-V (SVM): the virtual machine control block and the encodings in it. Source of all numbers: AMD64 Architecture
//! Programmer's Manual, volume 2, chapter 15 and appendices B and C.

pub mod asid;
pub mod event;
pub mod exit_code;
pub mod exit_info;
pub mod intercept;
pub mod msrpm;
pub mod segment;
pub mod twice;
pub mod vmcb;

pub use asid::{AsidPool, AsidTag};
pub use vmcb::Vmcb;

/// VM_CR: SVM control and lock bits.
pub const MSR_VM_CR: u32 = 0xc001_0114;
/// VM_CR.LOCK: SVMDIS cannot be changed.
pub const VM_CR_LOCK: u64 = 1 << 3;
/// VM_CR.SVMDIS: EFER.SVME cannot be set.
pub const VM_CR_SVMDIS: u64 = 1 << 4;
/// VM_HSAVE_PA: physical address of the host save area.
pub const MSR_VM_HSAVE_PA: u32 = 0xc001_0117;
/// EFER.SVME: SVM instructions enabled. Must also be set in a guest's EFER, where we hide it.
pub const EFER_SVME: u64 = 1 << 12;

/// CPUID Fn8000_0001 ECX: the CPU has SVM.
pub const CPUID_ECX_SVM: u32 = 1 << 2;
/// CPUID leaf of the SVM features (EBX: number of ASIDs; EDX: the bits below).
pub const CPUID_SVM_LEAF: u32 = 0x8000_000a;

bitflags::bitflags! {
    /// CPUID Fn8000_000A EDX, as far as we use it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SvmFeatures: u32 {
        /// Nested paging.
        const NESTED_PAGING = 1 << 0;
        /// Virtualization of the last-branch MSRs.
        const LBR_VIRT = 1 << 1;
        /// #VMEXIT saves the address of the next instruction.
        const NEXT_RIP = 1 << 3;
        /// VMCB clean bits.
        const VMCB_CLEAN = 1 << 5;
        /// TLB control 3 flushes one ASID.
        const FLUSH_BY_ASID = 1 << 6;
        /// Decode assists: instruction bytes on faults, register numbers on CR and DR exits.
        const DECODE_ASSISTS = 1 << 7;
    }
}
