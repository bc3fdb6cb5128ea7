//! The world switch. General-purpose registers move here; the control structure moves the rest that must change at once.
//! Extended state and the system-call MSRs stay in the CPU ([`crate::x86::virt::fpu`], [`super::registers`]).

use core::arch::naked_asm;
use core::mem::offset_of;

use x86_model::Gprs;
use x86_model::virt::vmx::field::HOST_RSP_NUMBER;

// The assembly below addresses the register file by these offsets: eight bytes a register, in encoding order.
const _: () = assert!(offset_of!(Gprs, 0) == 0 && size_of::<Gprs>() == 128);

unsafe extern "C" {
    /// Where the CPU goes on after an exit; inside [`enter`].
    static hv_vmx_exit: u8;
}

/// Value of the host's RIP field.
pub fn exit_address() -> u64 {
    (&raw const hv_vmx_exit) as u64
}

/// The guest ran and exited.
pub const EXITED: u64 = 0;
/// The entry failed with the carry flag; other values than these two: with the zero flag.
pub const FAILED_INVALID: u64 = 1;

/// Runs the guest of the current control structure until its next exit. RSP lives in the structure. `launched`: it was
/// entered before since it was cleared. Returns [`EXITED`] or how the entry failed.
///
/// An NMI can come at any instruction here and finds the host's GS base and task state: the CPU changes them together with
/// everything else. One that comes in the guest exits.
///
/// # Safety
/// Interrupts off. The current structure must keep its guest inside its second-stage tables, have all host interrupts exit
/// and its host fields set for this CPU.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn enter(gprs: &mut Gprs, launched: u64) -> u64 {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi",
        "mov eax, {host_rsp}",
        "vmwrite rax, rsp",
        "jna 3f",
        // The moves below leave the flags alone.
        "test rsi, rsi",
        "mov rax, [rdi + 0*8]",
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
        "jnz 2f",
        "vmlaunch",
        "jmp 3f",
        "2:",
        "vmresume",
        // Still here: the flags say how it failed. Nothing was changed but the registers above.
        "3:",
        "mov eax, 1",
        "jc 4f",
        "mov eax, 2",
        "4:",
        "pop rdi",
        "jmp 5f",
        // RSP is the value of HOST_RSP, all other registers are the guest's.
        ".global hv_vmx_exit",
        "hv_vmx_exit:",
        "push rax",
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
        "pop rcx",
        "mov [rax + 0*8], rcx",
        "pop rdi",
        "xor eax, eax",
        "5:",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "cld",
        "ret",
        host_rsp = const HOST_RSP_NUMBER,
    )
}
