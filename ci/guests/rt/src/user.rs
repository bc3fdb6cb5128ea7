//! One hypercall from user mode: boot processor only, interrupts off.
//!
//! The way down is IRETQ to a stub, the way back is a software interrupt (or a recovered fault) on the stack that
//! the TSS names. State: one TSS and the saved kernel stack pointer; nobody else touches them.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::trap::Frame;

/// Vector of the software interrupt that ends user code.
pub const RETURN: u8 = 0x81;

static RESUME_RIP: AtomicU64 = AtomicU64::new(0);
static RESUME_RSP: AtomicU64 = AtomicU64::new(0);

/// Turns the frame of the trap from user mode into a return to the kernel code that waits in `hypercall`.
pub(crate) fn back(frame: &mut Frame) {
    frame.rip = RESUME_RIP.load(Ordering::Relaxed);
    frame.rsp = RESUME_RSP.load(Ordering::Relaxed);
    frame.cs = 0x08;
    frame.ss = 0;
    frame.rflags = 2;
}

/// Issues hypercall `nr` with first argument `first` from user mode: RAX, or the fault it ended in.
#[cfg(target_os = "none")]
pub fn hypercall(nr: u64, first: u64) -> Result<i64, crate::cpu::Fault> {
    use core::arch::asm;

    use crate::{Page, cpu};

    static TSS: Page = Page::new();
    static STACK: Page = Page::new();
    static TRAP_STACK: Page = Page::new();
    unsafe extern "C" {
        static tss_descriptor: [AtomicU64; 2];
    }
    let top = TRAP_STACK.address() + 4096;
    TSS.u32(4).store(top as u32, Ordering::Relaxed);
    TSS.u32(8).store((top >> 32) as u32, Ordering::Relaxed);
    let base = TSS.address();
    let low = 0x67 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
    // SAFETY: words of our GDT that only this function uses.
    unsafe {
        tss_descriptor[0].store(low, Ordering::Relaxed);
        tss_descriptor[1].store(base >> 32, Ordering::Relaxed);
    }
    let rax: i64;
    // The stub reads no memory. A fault in it goes back as well, because the fix-up is set to its own end.
    // SAFETY: interrupts are off; the trap handler resumes at label 3 with the saved stack pointer, and RBX and
    // RBP, which the compiler may need, are not touched by the stub.
    unsafe {
        asm!(
            "mov {tmp:e}, 0x30",
            "ltr {tmp:x}",
            "lea {tmp}, [rip + 3f]",
            "mov [{rip_slot}], {tmp}",
            "mov [{rsp_slot}], rsp",
            "lea {tmp}, [rip + 3f]",
            "mov gs:[0], {tmp}",
            "push 0x23",
            "push {stack}",
            "push 2",
            "push 0x2b",
            "lea {tmp}, [rip + 2f]",
            "push {tmp}",
            "iretq",
            "2:",
            "test {vmmcall:e}, {vmmcall:e}",
            "jz 4f",
            "vmmcall",
            "int 0x81",
            "4:",
            "vmcall",
            "int 0x81",
            "3:",
            "mov qword ptr gs:[0], 0",
            tmp = out(reg) _,
            rip_slot = in(reg) RESUME_RIP.as_ptr(),
            rsp_slot = in(reg) RESUME_RSP.as_ptr(),
            stack = in(reg) STACK.address() + 4096,
            vmmcall = in(reg) u32::from(crate::hypercall::uses_vmmcall()),
            inlateout("rax") nr => rax,
            inlateout("rdi") first => _,
            out("rsi") _, out("rdx") _, out("rcx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        )
    };
    cpu::take_fault().map(|()| rax)
}

/// No user mode on a host.
#[cfg(not(target_os = "none"))]
pub fn hypercall(_nr: u64, _first: u64) -> Result<i64, crate::cpu::Fault> {
    Ok(0)
}
