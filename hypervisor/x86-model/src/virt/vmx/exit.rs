//! Exit reasons (SDM vol. 3, appendix C) and the qualifications that go with them (29.2.1).

use crate::Width;

/// The entry failed; the reason below says how.
pub const ENTRY_FAILED: u32 = 1 << 31;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        $($(#[$doc])* pub const $name: u32 = $number;)*
        /// A basic reason in words.
        pub const fn name(reason: u32) -> &'static str {
            match reason & 0xffff {
                $($number => $text,)*
                _ => "unknown reason",
            }
        }
    };
}
reasons! {
    /// An exception of the bitmap, or an NMI.
    EXCEPTION = 0, "exception or NMI";
    /// A physical interrupt.
    INTERRUPT = 1, "external interrupt";
    /// Triple fault.
    TRIPLE_FAULT = 2, "triple fault";
    /// INIT.
    INIT = 3, "INIT";
    /// SIPI.
    SIPI = 4, "SIPI";
    /// Interrupt window.
    INTERRUPT_WINDOW = 7, "interrupt window";
    /// NMI window.
    NMI_WINDOW = 8, "NMI window";
    /// Task switch.
    TASK_SWITCH = 9, "task switch";
    /// CPUID.
    CPUID = 10, "CPUID";
    /// GETSEC.
    GETSEC = 11, "GETSEC";
    /// HLT.
    HLT = 12, "HLT";
    /// INVD.
    INVD = 13, "INVD";
    /// INVLPG.
    INVLPG = 14, "INVLPG";
    /// RDPMC.
    RDPMC = 15, "RDPMC";
    /// RDTSC.
    RDTSC = 16, "RDTSC";
    /// RSM.
    RSM = 17, "RSM";
    /// VMCALL.
    VMCALL = 18, "VMCALL";
    /// VMCLEAR.
    VMCLEAR = 19, "VMCLEAR";
    /// VMLAUNCH.
    VMLAUNCH = 20, "VMLAUNCH";
    /// VMPTRLD.
    VMPTRLD = 21, "VMPTRLD";
    /// VMPTRST.
    VMPTRST = 22, "VMPTRST";
    /// VMREAD.
    VMREAD = 23, "VMREAD";
    /// VMRESUME.
    VMRESUME = 24, "VMRESUME";
    /// VMWRITE.
    VMWRITE = 25, "VMWRITE";
    /// VMXOFF.
    VMXOFF = 26, "VMXOFF";
    /// VMXON.
    VMXON = 27, "VMXON";
    /// Access to a control register.
    CONTROL_REGISTER = 28, "control register";
    /// Access to a debug register.
    DEBUG_REGISTER = 29, "debug register";
    /// Port access.
    IO = 30, "port access";
    /// RDMSR.
    RDMSR = 31, "RDMSR";
    /// WRMSR.
    WRMSR = 32, "WRMSR";
    /// Entry failed: guest state.
    GUEST_STATE = 33, "invalid guest state";
    /// Entry failed: MSR loading.
    MSR_LOADING = 34, "MSR loading";
    /// MWAIT.
    MWAIT = 36, "MWAIT";
    /// Monitor trap.
    MONITOR_TRAP = 37, "monitor trap";
    /// MONITOR.
    MONITOR = 39, "MONITOR";
    /// PAUSE.
    PAUSE = 40, "PAUSE";
    /// Entry failed: machine check.
    MACHINE_CHECK = 41, "machine check at the entry";
    /// The task priority fell below the threshold.
    TPR_THRESHOLD = 43, "TPR below threshold";
    /// Access to the APIC page.
    APIC_ACCESS = 44, "APIC access";
    /// EOI of a vector whose EOI exits; comes after the instruction.
    VIRTUAL_EOI = 45, "virtualized EOI";
    /// Descriptor tables.
    GDTR_IDTR = 46, "access to GDTR or IDTR";
    /// LDTR or TR.
    LDTR_TR = 47, "access to LDTR or TR";
    /// Second-stage fault.
    EPT_VIOLATION = 48, "EPT violation";
    /// Second-stage tables that the CPU does not understand.
    EPT_MISCONFIGURED = 49, "EPT misconfiguration";
    /// INVEPT.
    INVEPT = 50, "INVEPT";
    /// RDTSCP.
    RDTSCP = 51, "RDTSCP";
    /// Preemption timer.
    PREEMPTION_TIMER = 52, "preemption timer";
    /// INVVPID.
    INVVPID = 53, "INVVPID";
    /// WBINVD.
    WBINVD = 54, "WBINVD";
    /// XSETBV.
    XSETBV = 55, "XSETBV";
    /// A write to a virtual APIC register; comes after the instruction.
    APIC_WRITE = 56, "APIC write";
    /// RDRAND.
    RDRAND = 57, "RDRAND";
    /// INVPCID.
    INVPCID = 58, "INVPCID";
    /// VMFUNC.
    VMFUNC = 59, "VMFUNC";
    /// ENCLS.
    ENCLS = 60, "ENCLS";
    /// RDSEED.
    RDSEED = 61, "RDSEED";
    /// XSAVES.
    XSAVES = 63, "XSAVES";
    /// XRSTORS.
    XRSTORS = 64, "XRSTORS";
}

/// A port access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port.
    pub port: u16,
    /// Width.
    pub width: Width,
    /// IN or INS.
    pub input: bool,
    /// INS or OUTS.
    pub string: bool,
    /// With REP.
    pub rep: bool,
}

/// Reads the qualification of [`IO`].
pub const fn port(qualification: u64) -> Port {
    Port {
        port: (qualification >> 16) as u16,
        width: match qualification & 7 {
            0 => Width::B1,
            1 => Width::B2,
            _ => Width::B4,
        },
        input: qualification & 1 << 3 != 0,
        string: qualification & 1 << 4 != 0,
        rep: qualification & 1 << 5 != 0,
    }
}

/// An access to a control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRegister {
    /// MOV to the register from a GPR.
    Write {
        /// 0, 3, 4 or 8.
        register: u8,
        /// The GPR.
        gpr: u8,
    },
    /// MOV from the register to a GPR.
    Read {
        /// 3 or 8.
        register: u8,
        /// The GPR.
        gpr: u8,
    },
    /// CLTS.
    Clts,
    /// LMSW with this source.
    Lmsw(u16),
}

/// Reads the qualification of [`CONTROL_REGISTER`].
pub const fn control_register(qualification: u64) -> ControlRegister {
    let register = (qualification & 15) as u8;
    let gpr = (qualification >> 8 & 15) as u8;
    match qualification >> 4 & 3 {
        0 => ControlRegister::Write { register, gpr },
        1 => ControlRegister::Read { register, gpr },
        2 => ControlRegister::Clts,
        _ => ControlRegister::Lmsw((qualification >> 16) as u16),
    }
}

/// DR6 after a #DB that exited, which leaves the register as it was: the qualification has the new bits (B0 to B3, BD, BS).
pub const fn dr6_after(dr6: u64, qualification: u64) -> u64 {
    const CAUSES: u64 = 0xf | 1 << 13 | 1 << 14;
    dr6 & !0xf | qualification & CAUSES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_number() {
        assert_eq!(name(IO), "port access");
        assert_eq!(name(ENTRY_FAILED | GUEST_STATE), "invalid guest state");
        for unknown in [5, 6, 35, 38, 42, 62, 100] {
            assert_eq!(name(unknown), "unknown reason", "{unknown}");
        }
    }

    #[test]
    fn ports() {
        // rep insw from 0x1f0
        let p = port(0x01f0_0000 | 1 << 5 | 1 << 4 | 1 << 3 | 1);
        assert_eq!((p.port, p.width), (0x1f0, Width::B2));
        assert!(p.input && p.string && p.rep);
        let p = port(0x0cf8_0003);
        assert_eq!((p.port, p.width), (0xcf8, Width::B4));
        assert!(!p.input && !p.string && !p.rep);
        assert_eq!(port(0x80 << 16).width, Width::B1);
    }

    #[test]
    fn control_registers() {
        assert_eq!(
            control_register(0xb04),
            ControlRegister::Write {
                register: 4,
                gpr: 11
            }
        );
        assert_eq!(
            control_register(0x13),
            ControlRegister::Read {
                register: 3,
                gpr: 0
            }
        );
        assert_eq!(control_register(0x20), ControlRegister::Clts);
        assert_eq!(control_register(0x8_0030), ControlRegister::Lmsw(8));
    }

    #[test]
    fn debug_status() {
        assert_eq!(dr6_after(0xffff_0ff1, 0x4002), 0xffff_4ff2);
        assert_eq!(dr6_after(0xffff_0ff0, 0x2000 | 1 << 16), 0xffff_2ff0);
    }
}
