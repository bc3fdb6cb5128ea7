//! The interrupt descriptor table, one for all CPUs, and the entry stubs.
//!
//! Exceptions build a full frame and call [`super::traps::trap`]. External interrupts (vectors from 0x20) only record
//! their vector in the CPU block and return with interrupts off: the window in `take_interrupt` then yields exactly
//! one, and no Rust code ever runs in interrupt context.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use x86_model::regs::cr::RFLAGS_IF;

use super::gdt::{self, Ist};
use super::percpu::VECTOR_OFFSET;

/// A gate (APM vol. 2, 4.8.4).
#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    ist: u8,
    kind: u8,
    offset_mid: u16,
    offset_high: u32,
    reserved: u32,
}

/// Present, ring 0, 64-bit interrupt gate (clears IF).
const INTERRUPT_GATE: u8 = 0x8e;

#[repr(C, align(4096))]
struct Idt(UnsafeCell<[Gate; 256]>);
// SAFETY: written once by the boot CPU before any other CPU or interrupt uses it.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new(
    [Gate {
        offset_low: 0,
        selector: 0,
        ist: 0,
        kind: 0,
        offset_mid: 0,
        offset_high: 0,
        reserved: 0,
    }; 256],
));

// Stub n lies at `hv_trap_stubs + 16 * n`. Exceptions 8, 10-14, 17, 21, 29, 30 push an error code themselves.
global_asm!(
    ".pushsection .text.hv_trap_stubs, \"ax\"",
    ".balign 16",
    ".global hv_trap_stubs",
    "hv_trap_stubs:",
    ".set vec, 0",
    ".rept 256",
    ".balign 16",
    ".if vec >= 32",
    "push rax",
    // MOV EAX, imm32 and PUSH imm8 by hand: the assembler would read a bare symbol as a memory operand.
    ".byte 0xb8",
    ".long vec",
    "jmp hv_irq_common",
    ".else",
    ".if ((0x60227d00 >> vec) & 1) == 0",
    ".byte 0x6a, 0",
    ".endif",
    ".byte 0x6a, vec",
    "jmp hv_trap_common",
    ".endif",
    ".set vec, vec + 1",
    ".endr",
    ".balign 16",
    "hv_irq_common:",
    "mov gs:[{vector}], eax",
    "and qword ptr [rsp + 24], {not_if}",
    "pop rax",
    "iretq",
    ".balign 16",
    "hv_trap_common:",
    "push rax",
    "push rcx",
    "push rdx",
    "push rbx",
    "push rbp",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "cld",
    "mov rdi, rsp",
    "call {trap}",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rbp",
    "pop rbx",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "add rsp, 16",
    "iretq",
    ".popsection",
    vector = const VECTOR_OFFSET,
    not_if = const !(RFLAGS_IF as i64),
    trap = sym super::traps::trap,
);

unsafe extern "C" {
    static hv_trap_stubs: u8;
}

/// Fills the table. Boot CPU only, before the first [`load`].
pub(super) fn fill() {
    let base = (&raw const hv_trap_stubs) as u64;
    for n in 0..256usize {
        let offset = base + 16 * n as u64;
        let ist = match n {
            2 => Ist::Nmi as u8 + 1,
            8 => Ist::DoubleFault as u8 + 1,
            18 => Ist::MachineCheck as u8 + 1,
            _ => 0,
        };
        // SAFETY: single CPU, interrupts off, table not loaded yet.
        unsafe {
            (*IDT.0.get())[n] = Gate {
                offset_low: offset as u16,
                selector: gdt::CODE,
                ist,
                kind: INTERRUPT_GATE,
                offset_mid: (offset >> 16) as u16,
                offset_high: (offset >> 32) as u32,
                reserved: 0,
            };
        }
    }
}

/// Where the table is.
#[cfg(CONFIG_INTEL)]
pub(in crate::x86) fn base() -> u64 {
    IDT.0.get() as u64
}

/// Loads the table on this CPU.
pub(super) fn load() {
    let pointer = gdt::Pointer {
        limit: size_of::<[Gate; 256]>() as u16 - 1,
        base: IDT.0.get() as u64,
    };
    // SAFETY: the table is static and filled, its stubs keep every register.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags)) }
}
