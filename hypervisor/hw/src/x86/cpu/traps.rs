//! Exceptions of the hypervisor itself. All but NMI and the MSR fix-ups are fatal: dump and panic.

use core::sync::atomic::Ordering;

use x86_model::regs::msr as reg;

use super::super::{asm, boot, panic};
use super::{msr, nmi, percpu, stacks};
use crate::error;

/// Registers as the entry stub pushed them.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

const NMI: u64 = 2;
const GENERAL_PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;
const MACHINE_CHECK: u64 = 18;

/// Short and long name of an exception.
fn name(vector: u64) -> &'static str {
    const NAMES: [&str; 32] = [
        "#DE divide error",
        "#DB debug",
        "NMI",
        "#BP breakpoint",
        "#OF overflow",
        "#BR bound range",
        "#UD invalid opcode",
        "#NM no FPU",
        "#DF double fault",
        "coprocessor overrun",
        "#TS invalid TSS",
        "#NP segment not present",
        "#SS stack fault",
        "#GP general protection",
        "#PF page fault",
        "reserved 15",
        "#MF x87 error",
        "#AC alignment check",
        "#MC machine check",
        "#XF SIMD error",
        "#VE virtualization",
        "#CP control protection",
        "reserved 22",
        "reserved 23",
        "reserved 24",
        "reserved 25",
        "reserved 26",
        "reserved 27",
        "#HV hypervisor injection",
        "#VC VMM communication",
        "#SX security",
        "reserved 31",
    ];
    NAMES.get(vector as usize).copied().unwrap_or("?")
}

/// Called by the entry stub for vectors below 32.
pub(super) extern "sysv64" fn trap(frame: &mut TrapFrame) {
    match frame.vector {
        NMI => nmi::taken(frame),
        GENERAL_PROTECTION => match msr::failure_exit(frame.rip) {
            Some(exit) => frame.rip = exit,
            None => fatal(frame),
        },
        _ => fatal(frame),
    }
}

fn fatal(frame: &TrapFrame) -> ! {
    let cpu = percpu::this();
    match cpu.fatal_depth.fetch_add(1, Ordering::Relaxed) {
        0 => {}
        1 => {
            // The dump itself faulted: say the least possible, once more.
            crate::log::break_locks();
            error!(
                "{} at {:#x} while reporting a fault on {}; stopping",
                name(frame.vector),
                frame.rip,
                percpu::Name(cpu)
            );
            asm::stop()
        }
        _ => asm::stop(),
    }
    crate::log::break_locks();
    dump(frame);
    panic!(
        "{} on {} at {:#x}",
        name(frame.vector),
        percpu::Name(cpu),
        frame.rip
    )
}

/// Prints all registers, the fault's cause and the calls that led there.
pub fn dump(f: &TrapFrame) {
    error!(
        "{} (vector {}, error code {:#x}) on {}",
        name(f.vector),
        f.vector,
        f.error,
        percpu::Name(percpu::this())
    );
    error!(
        "rip {:04x}:{:016x}  rflags {:016x}  rsp {:04x}:{:016x}",
        f.cs, f.rip, f.rflags, f.ss, f.rsp
    );
    error!(
        "rax {:016x}  rbx {:016x}  rcx {:016x}  rdx {:016x}",
        f.rax, f.rbx, f.rcx, f.rdx
    );
    error!(
        "rsi {:016x}  rdi {:016x}  rbp {:016x}  r8  {:016x}",
        f.rsi, f.rdi, f.rbp, f.r8
    );
    error!(
        "r9  {:016x}  r10 {:016x}  r11 {:016x}  r12 {:016x}",
        f.r9, f.r10, f.r11, f.r12
    );
    error!("r13 {:016x}  r14 {:016x}  r15 {:016x}", f.r13, f.r14, f.r15);
    error!(
        "cr0 {:08x}  cr2 {:016x}  cr3 {:016x}  cr4 {:08x}  efer {:x}  gs {:016x}",
        asm::read_cr0(),
        asm::read_cr2(),
        asm::read_cr3(),
        asm::read_cr4(),
        asm::rdmsr(reg::EFER),
        asm::rdmsr(reg::GS_BASE)
    );
    match f.vector {
        PAGE_FAULT => error!(
            "page fault: {} of {:#x}, {}{}",
            if f.error & 16 != 0 {
                "fetch"
            } else if f.error & 2 != 0 {
                "write"
            } else {
                "read"
            },
            asm::read_cr2(),
            if f.error & 1 != 0 {
                "protected"
            } else {
                "not mapped"
            },
            if stacks::is_guard(asm::read_cr2()) {
                ": stack overflow"
            } else {
                ""
            }
        ),
        8 if stacks::is_guard(asm::read_cr2()) => {
            error!("stack overflow: guard page hit at {:#x}", asm::read_cr2());
        }
        MACHINE_CHECK => machine_check(),
        _ => {}
    }
    code(f.rip);
    error!("called from:");
    error!("  {}", panic::Address(f.rip));
    panic::back_trace(f.rbp);
}

fn code(rip: u64) {
    let text = boot::text();
    if rip < text.start || rip + 16 > text.end {
        return;
    }
    // SAFETY: the image's text is mapped and readable, and both ends lie in it.
    let bytes = unsafe { core::slice::from_raw_parts(rip as *const u8, 16) };
    error!("code at rip: {bytes:02x?}");
}

fn machine_check() {
    let banks = msr::rdmsr_safe(reg::MCG_CAP).unwrap_or(0) & 0xff;
    error!(
        "machine check: global status {:#x}",
        msr::rdmsr_safe(reg::MCG_STATUS).unwrap_or(0)
    );
    for bank in 0..banks as u32 {
        let base = reg::MC0_CTL + 4 * bank;
        let status = msr::rdmsr_safe(base + 1).unwrap_or(0);
        if status >> 63 == 0 {
            continue;
        }
        let address = if status >> 58 & 1 != 0 {
            msr::rdmsr_safe(base + 2).unwrap_or(0)
        } else {
            0
        };
        error!("machine check: bank {bank} status {status:#x} address {address:#x}");
    }
}
