//! Exit codes (APM vol. 2, appendix C). From 0x60 to 0xbf an exit code also names its intercept bit: see
//! [`super::intercept`].
#![allow(missing_docs, reason = "the names are the manual's")]

/// Writes to control registers: this plus the register.
pub const CR_WRITE: u64 = 0x10;
/// Write to CR4.
pub const CR4_WRITE: u64 = CR_WRITE + 4;
/// Write to CR8.
pub const CR8_WRITE: u64 = CR_WRITE + 8;
/// Exceptions: this plus the vector.
pub const EXCEPTION: u64 = 0x40;
pub const EXCEPTION_LAST: u64 = 0x5f;
pub const INTR: u64 = 0x60;
pub const NMI: u64 = 0x61;
pub const INIT: u64 = 0x63;
pub const VINTR: u64 = 0x64;
pub const RDPMC: u64 = 0x6f;
pub const CPUID: u64 = 0x72;
pub const IRET: u64 = 0x74;
pub const INVD: u64 = 0x76;
pub const HLT: u64 = 0x78;
pub const INVLPGA: u64 = 0x7a;
pub const IOIO: u64 = 0x7b;
pub const MSR: u64 = 0x7c;
pub const TASK_SWITCH: u64 = 0x7d;
pub const SHUTDOWN: u64 = 0x7f;
pub const VMRUN: u64 = 0x80;
pub const VMMCALL: u64 = 0x81;
pub const VMLOAD: u64 = 0x82;
pub const VMSAVE: u64 = 0x83;
pub const STGI: u64 = 0x84;
pub const CLGI: u64 = 0x85;
pub const SKINIT: u64 = 0x86;
pub const ICEBP: u64 = 0x88;
pub const WBINVD: u64 = 0x89;
pub const MONITOR: u64 = 0x8a;
pub const MWAIT: u64 = 0x8b;
pub const MWAIT_ARMED: u64 = 0x8c;
pub const XSETBV: u64 = 0x8d;
pub const RDPRU: u64 = 0x8e;
pub const INVLPGB: u64 = 0xa0;
pub const INVLPGB_ILLEGAL: u64 = 0xa1;
pub const MCOMMIT: u64 = 0xa3;
pub const TLBSYNC: u64 = 0xa4;
/// Nested page fault.
pub const NPF: u64 = 0x400;
/// VMRUN refused the state. Some implementations store it zero-extended from 32 bits.
pub const INVALID: u64 = u64::MAX;
