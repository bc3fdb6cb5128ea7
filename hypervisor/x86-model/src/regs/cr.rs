//! Bits of the control registers and of RFLAGS (APM vol. 2, 3.1).

/// CR0: protected mode.
pub const CR0_PE: u64 = 1 << 0;
/// CR0: WAIT obeys TS.
pub const CR0_MP: u64 = 1 << 1;
/// CR0: no FPU.
pub const CR0_EM: u64 = 1 << 2;
/// CR0: FPU use faults with #NM.
pub const CR0_TS: u64 = 1 << 3;
/// CR0: extension type, always 1.
pub const CR0_ET: u64 = 1 << 4;
/// CR0: FPU errors by #MF.
pub const CR0_NE: u64 = 1 << 5;
/// CR0: supervisor writes obey read-only pages.
pub const CR0_WP: u64 = 1 << 16;
/// CR0: alignment checks in user mode.
pub const CR0_AM: u64 = 1 << 18;
/// CR0: not write-through.
pub const CR0_NW: u64 = 1 << 29;
/// CR0: caches off.
pub const CR0_CD: u64 = 1 << 30;
/// CR0: paging.
pub const CR0_PG: u64 = 1 << 31;

/// CR4: virtual-8086 extensions.
pub const CR4_VME: u64 = 1 << 0;
/// CR4: virtual interrupts in protected mode.
pub const CR4_PVI: u64 = 1 << 1;
/// CR4: RDTSC is privileged.
pub const CR4_TSD: u64 = 1 << 2;
/// CR4: debug extensions.
pub const CR4_DE: u64 = 1 << 3;
/// CR4: 4 MiB pages.
pub const CR4_PSE: u64 = 1 << 4;
/// CR4: physical address extension.
pub const CR4_PAE: u64 = 1 << 5;
/// CR4: machine checks are delivered.
pub const CR4_MCE: u64 = 1 << 6;
/// CR4: global pages.
pub const CR4_PGE: u64 = 1 << 7;
/// CR4: RDPMC in user mode.
pub const CR4_PCE: u64 = 1 << 8;
/// CR4: FXSAVE and SSE.
pub const CR4_OSFXSR: u64 = 1 << 9;
/// CR4: SSE exceptions by #XF.
pub const CR4_OSXMMEXCPT: u64 = 1 << 10;
/// CR4: user-mode instruction prevention.
pub const CR4_UMIP: u64 = 1 << 11;
/// CR4: five-level paging.
pub const CR4_LA57: u64 = 1 << 12;
/// CR4: VMX.
pub const CR4_VMXE: u64 = 1 << 13;
/// CR4: RDFSBASE and its kin.
pub const CR4_FSGSBASE: u64 = 1 << 16;
/// CR4: process-context identifiers.
pub const CR4_PCIDE: u64 = 1 << 17;
/// CR4: XSAVE and XCR0.
pub const CR4_OSXSAVE: u64 = 1 << 18;
/// CR4: no execution of user pages in supervisor mode.
pub const CR4_SMEP: u64 = 1 << 20;
/// CR4: no access to user pages in supervisor mode.
pub const CR4_SMAP: u64 = 1 << 21;
/// CR4: protection keys.
pub const CR4_PKE: u64 = 1 << 22;
/// CR4: shadow stacks.
pub const CR4_CET: u64 = 1 << 23;

/// RFLAGS: carry.
pub const RFLAGS_CF: u64 = 1 << 0;
/// RFLAGS: always 1.
pub const RFLAGS_FIXED: u64 = 1 << 1;
/// RFLAGS: zero.
pub const RFLAGS_ZF: u64 = 1 << 6;
/// RFLAGS: single step.
pub const RFLAGS_TF: u64 = 1 << 8;
/// RFLAGS: maskable interrupts enabled.
pub const RFLAGS_IF: u64 = 1 << 9;
/// RFLAGS: string instructions go down.
pub const RFLAGS_DF: u64 = 1 << 10;
/// RFLAGS: nested task.
pub const RFLAGS_NT: u64 = 1 << 14;
/// RFLAGS: instruction breakpoints are ignored once.
pub const RFLAGS_RF: u64 = 1 << 16;
/// RFLAGS: virtual-8086 mode.
pub const RFLAGS_VM: u64 = 1 << 17;
/// RFLAGS: alignment check, access control.
pub const RFLAGS_AC: u64 = 1 << 18;
