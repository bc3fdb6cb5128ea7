//! The world switch. General-purpose registers move here; VMRUN and #VMEXIT move most of the rest, VMLOAD and VMSAVE the
//! segment bases and system-call registers. Extended state stays in the CPU ([`crate::x86::virt::fpu`]).

use core::arch::naked_asm;
use core::mem::offset_of;

use x86_model::Gprs;

// The assembly below addresses the register file by these offsets: eight bytes a register, in encoding order.
const _: () = assert!(offset_of!(Gprs, 0) == 0 && size_of::<Gprs>() == 128);

/// Runs the guest of the control block at physical address `vmcb` until its next exit. `host` is the physical address of
/// the page with this CPU's own VMLOAD state. RAX and RSP live in the control block.
///
/// The global interrupt flag is off from before the guest's segments are loaded until the host's are back, so that an NMI
/// never runs on the guest's GS base or task state. RFLAGS.IF is on at VMRUN because with V_INTR_MASKING the host's IF
/// decides whether a physical interrupt ends the guest; the interrupt itself then waits, as IF is off again before the
/// global flag is on.
///
/// # Safety
/// Interrupts off. Both pages must be valid and the control block one that keeps its guest inside its nested tables, with
/// all host interrupts intercepted. The CPU must be enabled for SVM.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn enter(gprs: &mut Gprs, vmcb: u64, host: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi",
        "push rdx",
        "mov rax, rsi",
        "clgi",
        "sti",
        "vmload rax",
        "mov rcx, [rdi + 1*8]",
        "mov rdx, [rdi + 2*8]",
        "mov rbx, [rdi + 3*8]",
        "mov rbp, [rdi + 5*8]",
        "mov rsi, [rdi + 6*8]",
        "mov r8, [rdi + 8*8]",
        "mov r9, [rdi + 9*8]",
        "mov r10, [rdi + 10*8]",
        "mov r11, [rdi + 11*8]",
        "mov r12, [rdi + 12*8]",
        "mov r13, [rdi + 13*8]",
        "mov r14, [rdi + 14*8]",
        "mov r15, [rdi + 15*8]",
        "mov rdi, [rdi + 7*8]",
        "vmrun rax",
        // RAX and RSP are ours again, all others the guest's.
        "vmsave rax",
        "mov rax, [rsp + 8]",
        "mov [rax + 1*8], rcx",
        "mov [rax + 2*8], rdx",
        "mov [rax + 3*8], rbx",
        "mov [rax + 5*8], rbp",
        "mov [rax + 6*8], rsi",
        "mov [rax + 7*8], rdi",
        "mov [rax + 8*8], r8",
        "mov [rax + 9*8], r9",
        "mov [rax + 10*8], r10",
        "mov [rax + 11*8], r11",
        "mov [rax + 12*8], r12",
        "mov [rax + 13*8], r13",
        "mov [rax + 14*8], r14",
        "mov [rax + 15*8], r15",
        "pop rax",
        "vmload rax",
        "cli",
        "stgi",
        "pop rax",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}
