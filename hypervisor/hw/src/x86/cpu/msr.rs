//! MSR access that survives an unknown index: the #GP handler knows the addresses of these two instructions.

use core::arch::global_asm;

// u64 hv_rdmsr(u32 index, u32 *ok), u32 hv_wrmsr(u32 index, u64 value). The fault handler continues at `*_fault`.
global_asm!(
    ".pushsection .text.hv_msr, \"ax\"",
    ".global hv_rdmsr_at, hv_rdmsr_fault, hv_wrmsr_at, hv_wrmsr_fault",
    "hv_rdmsr:",
    "mov ecx, edi",
    "hv_rdmsr_at:",
    "rdmsr",
    "shl rdx, 32",
    "mov eax, eax",
    "or rax, rdx",
    "mov dword ptr [rsi], 1",
    "ret",
    "hv_rdmsr_fault:",
    "xor eax, eax",
    "mov dword ptr [rsi], 0",
    "ret",
    "hv_wrmsr:",
    "mov ecx, edi",
    "mov rax, rsi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "hv_wrmsr_at:",
    "wrmsr",
    "mov eax, 1",
    "ret",
    "hv_wrmsr_fault:",
    "xor eax, eax",
    "ret",
    ".popsection",
);

unsafe extern "sysv64" {
    fn hv_rdmsr(index: u32, ok: &mut u32) -> u64;
    fn hv_wrmsr(index: u32, value: u64) -> u32;
    static hv_rdmsr_at: u8;
    static hv_rdmsr_fault: u8;
    static hv_wrmsr_at: u8;
    static hv_wrmsr_fault: u8;
}

/// Reads an MSR; `None` if the CPU refuses.
pub fn rdmsr_safe(index: u32) -> Option<u64> {
    let mut ok = 0;
    // SAFETY: the routine follows the calling convention, and a fault in it returns through `failure_exit`.
    let value = unsafe { hv_rdmsr(index, &mut ok) };
    (ok != 0).then_some(value)
}

/// Writes an MSR; false if the CPU refuses the index or the value.
///
/// # Safety
/// As for [`crate::x86::asm::wrmsr`], if the CPU accepts it.
pub unsafe fn wrmsr_safe(index: u32, value: u64) -> bool {
    // SAFETY: the caller's contract; a fault returns through `failure_exit`.
    unsafe { hv_wrmsr(index, value) != 0 }
}

/// Where to go on if an instruction of this module faulted.
pub(super) fn failure_exit(rip: u64) -> Option<u64> {
    [
        (&raw const hv_rdmsr_at, &raw const hv_rdmsr_fault),
        (&raw const hv_wrmsr_at, &raw const hv_wrmsr_fault),
    ]
    .into_iter()
    .find(|&(at, _)| at as u64 == rip)
    .map(|(_, exit)| exit as u64)
}
