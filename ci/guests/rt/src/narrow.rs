//! Hypercalls and MSR writes from 32-bit code: a far call into a segment of 32-bit code and back. Everything that the boot code
//! maps below 4 GiB is where it was.

use core::arch::asm;

use crate::hypercall::uses_vmmcall;

/// Selectors of the boot code's table.
const CODE_32: u32 = 0x10;
const DATA: u32 = 0x18;

#[cfg(target_os = "none")]
core::arch::global_asm!(
    r#"
    .pushsection .text, "ax"
    .code32
    .global narrow_vmmcall, narrow_vmcall, narrow_wrmsr
narrow_vmmcall:
    vmmcall
    lret
narrow_vmcall:
    vmcall
    lret
narrow_wrmsr:
    wrmsr
    lret
    .code64
    .popsection
    "#,
    options(att_syntax)
);

unsafe extern "C" {
    static narrow_vmmcall: u8;
    static narrow_vmcall: u8;
    static narrow_wrmsr: u8;
}

/// Calls 32-bit code that takes EAX, EBX, ECX, EDX, ESI and EDI and answers in EAX.
fn far_call(to: *const u8, eax: u32, [ebx, ecx, edx, esi, edi]: [u32; 5]) -> u32 {
    // Offset and selector; the image is below 4 GiB.
    let gate = [to.expose_provenance() as u32, CODE_32];
    let answer: u32;
    // SAFETY: `to` is one of the stubs above. They leave all registers but EAX alone; those that the change of mode may cut are
    // outputs or saved. A stack segment is needed in 32-bit mode only; interrupts that come there return to it.
    unsafe {
        asm!(
            "pushq %rbx",
            "pushq %rbp",
            "movl ${data}, %ebx",
            "movl %ebx, %ss",
            "movl %r8d, %ebx",
            "lcall *(%r9)",
            "xorl %ebx, %ebx",
            "movl %ebx, %ss",
            "popq %rbp",
            "popq %rbx",
            data = const DATA,
            inlateout("eax") eax => answer,
            inlateout("r8") u64::from(ebx) => _,
            inlateout("ecx") ecx => _,
            inlateout("edx") edx => _,
            inlateout("esi") esi => _,
            inlateout("edi") edi => _,
            inlateout("r9") gate.as_ptr() => _,
            lateout("r10") _, lateout("r11") _, lateout("r12") _,
            lateout("r13") _, lateout("r14") _, lateout("r15") _,
            options(att_syntax)
        )
    };
    answer
}

/// Issues hypercall `nr` from 32-bit code.
pub fn call(nr: u32, args: [u32; 5]) -> i32 {
    let stub = if uses_vmmcall() {
        &raw const narrow_vmmcall
    } else {
        &raw const narrow_vmcall
    };
    far_call(stub, nr, args).cast_signed()
}

/// Writes an MSR from 32-bit code. One that does not exist ends the guest.
pub fn wrmsr(msr: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    far_call(&raw const narrow_wrmsr, low, [0, msr, high, 0, 0]);
}
