//! Model-specific registers: numbers, and the bits that the hypervisor uses. Names follow the manuals (AMD APM vol. 2
//! appendix A, Intel SDM vol. 4), without the vendors' `IA32_` or `MSR_` prefixes.

/// Time stamp counter.
pub const TSC: u32 = 0x10;
/// Base and mode of the local APIC.
pub const APIC_BASE: u32 = 0x1b;
/// This CPU is the boot CPU.
pub const APIC_BASE_BSP: u64 = 1 << 8;
/// x2APIC mode.
pub const APIC_BASE_X2APIC: u64 = 1 << 10;
/// The local APIC is enabled at all.
pub const APIC_BASE_ENABLE: u64 = 1 << 11;
/// Physical address of the register page.
pub const APIC_BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Intel's feature control (VMX lock).
pub const FEATURE_CONTROL: u32 = 0x3a;
/// Adds to the TSC of this CPU.
pub const TSC_ADJUST: u32 = 0x3b;
/// Speculation control (IBRS, STIBP, SSBD).
pub const SPEC_CTRL: u32 = 0x48;
/// Prediction commands (IBPB).
pub const PRED_CMD: u32 = 0x49;
/// Microcode revision.
pub const UCODE_REV: u32 = 0x8b;
/// Counts at the rate of the TSC while in C0.
pub const MPERF: u32 = 0xe7;
/// Counts at the actual rate while in C0.
pub const APERF: u32 = 0xe8;
/// MTRR capabilities.
pub const MTRR_CAP: u32 = 0xfe;
/// Architectural capabilities (Intel; also offered by hypervisors on AMD).
pub const ARCH_CAPABILITIES: u32 = 0x10a;
/// Cache flush commands.
pub const FLUSH_CMD: u32 = 0x10b;
/// SYSENTER code segment.
pub const SYSENTER_CS: u32 = 0x174;
/// SYSENTER stack pointer.
pub const SYSENTER_ESP: u32 = 0x175;
/// SYSENTER instruction pointer.
pub const SYSENTER_EIP: u32 = 0x176;
/// Machine-check capabilities: bits 7:0 count the banks.
pub const MCG_CAP: u32 = 0x179;
/// Machine-check status.
pub const MCG_STATUS: u32 = 0x17a;
/// Machine-check control.
pub const MCG_CTL: u32 = 0x17b;
/// Miscellaneous enables (Intel).
pub const MISC_ENABLE: u32 = 0x1a0;
/// Debug control.
pub const DEBUGCTL: u32 = 0x1d9;
/// First variable-range MTRR base; masks are the odd numbers.
pub const MTRR_PHYS_BASE0: u32 = 0x200;
/// Fixed-range MTRRs: 64 KiB, two of 16 KiB, eight of 4 KiB.
pub const MTRR_FIX: [u32; 11] = [
    0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f,
];
/// Page attribute table.
pub const PAT: u32 = 0x277;
/// MTRR default type and enables.
pub const MTRR_DEF_TYPE: u32 = 0x2ff;
/// First machine-check bank control; then status, address, misc; four numbers a bank.
pub const MC0_CTL: u32 = 0x400;
/// TSC value at which the local APIC timer fires; 0 stops it.
pub const TSC_DEADLINE: u32 = 0x6e0;
/// First x2APIC register: the MMIO offset divided by 16 is added.
pub const X2APIC_FIRST: u32 = 0x800;
/// Last number of the x2APIC range.
pub const X2APIC_LAST: u32 = 0x8ff;
/// Supervisor state components of XSAVES.
pub const XSS: u32 = 0xda0;
/// Extended features: long mode, NX, SVM.
pub const EFER: u32 = 0xc000_0080;
/// SYSCALL segments.
pub const STAR: u32 = 0xc000_0081;
/// SYSCALL entry, 64-bit callers.
pub const LSTAR: u32 = 0xc000_0082;
/// SYSCALL entry, compatibility-mode callers.
pub const CSTAR: u32 = 0xc000_0083;
/// SYSCALL flag mask.
pub const SFMASK: u32 = 0xc000_0084;
/// FS base.
pub const FS_BASE: u32 = 0xc000_0100;
/// GS base.
pub const GS_BASE: u32 = 0xc000_0101;
/// What SWAPGS exchanges with the GS base.
pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
/// What RDTSCP and RDPID return in ECX.
pub const TSC_AUX: u32 = 0xc000_0103;
/// AMD TSC ratio, 8.32 fixed point.
pub const TSC_RATIO: u32 = 0xc000_0104;
/// AMD system configuration.
pub const SYSCFG: u32 = 0xc001_0010;
/// AMD hardware configuration.
pub const HWCR: u32 = 0xc001_0015;
/// HWCR: the TSC counts at the P0 frequency.
pub const HWCR_TSC_FREQ_SEL: u64 = 1 << 24;
/// AMD top of memory below 4 GiB.
pub const TOP_MEM: u32 = 0xc001_001a;
/// AMD top of memory above 4 GiB.
pub const TOP_MEM2: u32 = 0xc001_001d;
/// AMD patch level (same number as [`UCODE_REV`] reads).
pub const AMD_PATCH_LOADER: u32 = 0xc001_0020;
/// AMD northbridge configuration.
pub const NB_CFG: u32 = 0xc001_001f;
/// AMD interrupt pending and C1E.
pub const INT_PENDING_MSG: u32 = 0xc001_0055;
/// AMD MMIO configuration base.
pub const MMIO_CONF_BASE: u32 = 0xc001_0058;
/// AMD SVM control.
pub const VM_CR: u32 = 0xc001_0114;
/// VM_CR: EFER.SVME cannot be set.
pub const VM_CR_SVMDIS: u64 = 1 << 4;
/// AMD physical address of the host save area.
pub const VM_HSAVE_PA: u32 = 0xc001_0117;
/// AMD virtualized speculation control.
pub const VIRT_SPEC_CTRL: u32 = 0xc001_011f;
/// AMD load-store configuration.
pub const LS_CFG: u32 = 0xc001_1020;
/// AMD decode configuration (LFENCE serialising is bit 1).
pub const DE_CFG: u32 = 0xc001_1029;
/// AMD OS-visible workarounds: length.
pub const OSVW_ID_LENGTH: u32 = 0xc001_0140;
/// AMD OS-visible workarounds: status.
pub const OSVW_STATUS: u32 = 0xc001_0141;

/// EFER: SYSCALL enabled.
pub const EFER_SCE: u64 = 1 << 0;
/// EFER: long mode enabled.
pub const EFER_LME: u64 = 1 << 8;
/// EFER: long mode active.
pub const EFER_LMA: u64 = 1 << 10;
/// EFER: no-execute pages.
pub const EFER_NXE: u64 = 1 << 11;
/// EFER: SVM enabled.
pub const EFER_SVME: u64 = 1 << 12;
/// EFER: no segment limits in long mode.
pub const EFER_LMSLE: u64 = 1 << 13;
/// EFER: fast FXSAVE.
pub const EFER_FFXSR: u64 = 1 << 14;
/// EFER: translation cache extension.
pub const EFER_TCE: u64 = 1 << 15;
/// EFER: upper address ignore (not offered).
pub const EFER_UAIE: u64 = 1 << 20;
/// EFER: automatic IBRS.
pub const EFER_AIBRSE: u64 = 1 << 21;

/// PAT after reset: WB, WT, UC-, UC, twice.
pub const PAT_RESET: u64 = 0x0007_0406_0007_0406;
