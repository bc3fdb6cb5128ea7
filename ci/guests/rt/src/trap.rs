//! Exceptions and interrupts.
//!
//! One IDT for all processors. Exceptions recover through [`crate::cpu::PerCpu::fixup`] or end the test.
//! Interrupts are counted per processor, then handed to the hook of their vector, then acknowledged at the
//! local APIC if the vector asks for it.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::{cpu, lapic, report};

/// What the stubs push. Lowest address first.
#[repr(C)]
#[allow(missing_docs, reason = "register names")]
pub struct Frame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

#[cfg(target_os = "none")]
core::arch::global_asm!(
    r#"
    .pushsection .text.traps, "ax"
    .balign 16
    .global trap_stubs
trap_stubs:
    .set vector, 0
    .rept 256
    .balign 16
    .if !((vector == 8) || (vector >= 10 && vector <= 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30))
    pushq $0
    .endif
    pushq $vector
    jmp trap_common
    .set vector, vector + 1
    .endr
trap_common:
    pushq %rax
    pushq %rbx
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %rbp
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    cld
    movq %rsp, %rdi
    call rt_trap
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rbp
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rbx
    popq %rax
    addq $16, %rsp
    iretq
    .popsection
    "#,
    options(att_syntax)
);

const RFLAGS_IF: u64 = 1 << 9;

/// Interrupts taken while the processor had them off; must stay 0.
static UNASKED: AtomicU64 = AtomicU64::new(0);

static IDT: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];
static HOOKS: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
static EOI: [AtomicBool; 256] = [const { AtomicBool::new(false) }; 256];

/// Fills the IDT; once, on the boot processor.
#[cfg(target_os = "none")]
pub fn init() {
    unsafe extern "C" {
        static trap_stubs: u8;
    }
    let base = (&raw const trap_stubs).expose_provenance() as u64;
    for vector in 0..256 {
        let at = base + 16 * vector as u64;
        // Interrupt gates; the one that user code ends with is open to it.
        let kind = if vector == usize::from(crate::user::RETURN) {
            0xee00
        } else {
            0x8e00
        };
        let low = (at & 0xffff) | 0x08 << 16 | kind << 32 | (at >> 16 & 0xffff) << 48;
        IDT[2 * vector].store(low, Ordering::Relaxed);
        IDT[2 * vector + 1].store(at >> 32, Ordering::Relaxed);
    }
}

/// Loads the IDT on the running processor.
pub fn load() {
    #[repr(C, packed)]
    struct Pointer(u16, u64);
    let pointer = Pointer(4095, core::ptr::from_ref(&IDT).expose_provenance() as u64);
    // SAFETY: `IDT` is static, 4096 bytes, filled by `init`.
    unsafe {
        core::arch::asm!("lidt [{}]", in(reg) &pointer, options(nostack, preserves_flags, readonly))
    };
}

/// Calls `hook(vector)` on each interrupt of `vector`, before the acknowledgement.
pub fn hook(vector: u8, hook: fn(u8)) {
    HOOKS[usize::from(vector)].store(hook as usize, Ordering::Release);
}

/// Says whether interrupts of `vector` are acknowledged at the local APIC (default: no).
pub fn acknowledge(vector: u8, yes: bool) {
    EOI[usize::from(vector)].store(yes, Ordering::Release);
}

/// Interrupts of `vector` that processor `cpu` has taken.
pub fn count(cpu: usize, vector: u8) -> u32 {
    cpu::block(cpu).interrupts[usize::from(vector)].load(Ordering::Acquire)
}

/// Interrupts that came to any processor while its interrupt flag was clear.
pub fn unasked() -> u64 {
    UNASKED.load(Ordering::Relaxed)
}

/// Called by the stubs.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "called by assembly only")
)]
extern "C" fn rt_trap(frame: &mut Frame) {
    let block = cpu::this();
    let vector = frame.vector as u8;
    if vector < 32 && vector != 2 {
        let fixup = block.fixup.swap(0, Ordering::Relaxed);
        if fixup == 0 {
            report::die(format_args!(
                "exception {vector} code {:#x} at {:#x} on cpu {}",
                frame.error,
                frame.rip,
                cpu::index()
            ));
        }
        block.fault.store(u64::from(vector) + 1, Ordering::Relaxed);
        block.fault_code.store(frame.error, Ordering::Relaxed);
        frame.rip = fixup;
        if frame.cs & 3 != 0 {
            crate::user::back(frame);
        }
        return;
    }
    if vector == crate::user::RETURN {
        crate::user::back(frame);
        return;
    }
    if vector != 2 && frame.rflags & RFLAGS_IF == 0 {
        // Recorded, not printed: the interrupted code may hold the console.
        UNASKED.fetch_add(1, Ordering::Relaxed);
    }
    block.interrupts[usize::from(vector)].fetch_add(1, Ordering::AcqRel);
    let hook = HOOKS[usize::from(vector)].load(Ordering::Acquire);
    if hook != 0 {
        // SAFETY: only `hook` stores here, always a `fn(u8)`.
        let hook: fn(u8) = unsafe { core::mem::transmute(hook) };
        hook(vector);
    }
    if EOI[usize::from(vector)].load(Ordering::Acquire) {
        lapic::eoi();
    }
}
