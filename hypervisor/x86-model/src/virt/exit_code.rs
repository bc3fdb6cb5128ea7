//! Numbers of exits in trace records, which tools show by name: those of AMD's control block (APM volume 2, appendix C), whatever
//! the processor is.

use super::svm::exit_code as amd;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $of:ident;)*) => {
        $($(#[$doc])* pub const $name: u32 = amd::$of as u32;)*
    };
}

numbers! {
    /// A physical interrupt.
    INTERRUPT = INTR;
    /// An NMI.
    NMI = NMI;
    /// The guest can take an interrupt.
    INTERRUPT_WINDOW = VINTR;
    /// CPUID.
    CPUID = CPUID;
    /// A hypercall.
    HYPERCALL = VMMCALL;
    /// RDMSR or WRMSR.
    MSR = MSR;
    /// IN or OUT.
    IO = IOIO;
    /// HLT.
    HLT = HLT;
    /// No or insufficient mapping in the second stage.
    STAGE2 = NPF;
    /// XSETBV.
    XSETBV = XSETBV;
    /// MOV to CR4.
    CR4_WRITE = CR4_WRITE;
    /// WBINVD or INVD.
    WBINVD = WBINVD;
    /// Triple fault.
    SHUTDOWN = SHUTDOWN;
}

/// #UD.
pub const UD: u32 = amd::EXCEPTION as u32 + 6;
/// Anything else.
pub const OTHER: u32 = u32::MAX;
