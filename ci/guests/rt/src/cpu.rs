//! Instructions: CPUID, MSRs, ports, flags, and the block each processor finds through GS.
//!
//! The functions are safe although a guest can harm itself with them: it owns the whole machine, and a guest
//! that breaks itself is reported as a crash. `*_safe` functions recover from a fault.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::boot::MAX_CPUS;

/// State of one processor. `fixup` is first because assembly refers to it by offset.
#[repr(C, align(64))]
pub struct PerCpu {
    /// Where to resume when the next instruction faults; 0 = a fault ends the test.
    pub fixup: AtomicU64,
    /// Vector of the fault that was recovered, plus 1; 0 = none.
    pub fault: AtomicU64,
    /// Error code of that fault.
    pub fault_code: AtomicU64,
    /// Index of this processor in start order; 0 is the boot processor.
    pub index: AtomicU64,
    /// Interrupts taken, by vector.
    pub interrupts: [AtomicU32; 256],
}

impl PerCpu {
    const fn new() -> Self {
        Self {
            fixup: AtomicU64::new(0),
            fault: AtomicU64::new(0),
            fault_code: AtomicU64::new(0),
            index: AtomicU64::new(0),
            interrupts: [const { AtomicU32::new(0) }; 256],
        }
    }
}

static CPUS: [PerCpu; MAX_CPUS] = [const { PerCpu::new() }; MAX_CPUS];

/// The block of processor `index`.
pub fn block(index: usize) -> &'static PerCpu {
    &CPUS[index]
}

/// Points GS at the block of processor `index`; the first thing a processor does.
pub fn install(index: usize) {
    CPUS[index].index.store(index as u64, Ordering::Relaxed);
    wrmsr(
        0xc000_0101,
        core::ptr::from_ref(&CPUS[index]).expose_provenance() as u64,
    );
}

/// The block of the running processor.
pub fn this() -> &'static PerCpu {
    let index: u64;
    // SAFETY: GS points at a `PerCpu` since `install`; a plain load of the word at offset 24 (`index`).
    unsafe { asm!("mov {}, gs:[24]", out(reg) index, options(nostack, readonly, preserves_flags)) };
    &CPUS[index as usize]
}

/// Index of the running processor.
pub fn index() -> usize {
    this().index.load(Ordering::Relaxed) as usize
}

/// EAX, EBX, ECX, EDX of a CPUID leaf.
pub fn cpuid(leaf: u32, sub: u32) -> [u32; 4] {
    let r = core::arch::x86_64::__cpuid_count(leaf, sub);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// A fault that a `*_safe` function recovered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Exception vector.
    pub vector: u8,
    /// Error code, 0 where the vector has none.
    pub code: u32,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.vector {
            13 => write!(f, "#GP({:#x})", self.code),
            14 => write!(f, "#PF({:#x})", self.code),
            6 => write!(f, "#UD"),
            v => write!(f, "#{v}({:#x})", self.code),
        }
    }
}

pub(crate) fn take_fault() -> Result<(), Fault> {
    let block = this();
    match block.fault.swap(0, Ordering::Relaxed) {
        0 => Ok(()),
        v => Err(Fault {
            vector: (v - 1) as u8,
            code: block.fault_code.load(Ordering::Relaxed) as u32,
        }),
    }
}

/// Runs one instruction with recovery: sets the fix-up address, clears it afterwards.
macro_rules! guarded {
    ($insn:literal, $($operands:tt)*) => {
        // SAFETY: a fault resumes at the label with the registers as they were; the trap handler clears the
        // fix-up. The instruction is chosen by the caller in this file.
        unsafe {
            asm!(
                "lea {tmp}, [rip + 2f]",
                "mov gs:[0], {tmp}",
                $insn,
                "2:",
                "mov qword ptr gs:[0], 0",
                tmp = out(reg) _,
                $($operands)*
            )
        }
    };
}

/// Reads an MSR.
pub fn rdmsr_safe(msr: u32) -> Result<u64, Fault> {
    let (low, high): (u32, u32);
    guarded!("rdmsr", in("ecx") msr, inout("eax") 0 => low, inout("edx") 0 => high);
    take_fault().map(|()| u64::from(high) << 32 | u64::from(low))
}

/// Writes an MSR.
pub fn wrmsr_safe(msr: u32, value: u64) -> Result<(), Fault> {
    guarded!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32);
    take_fault()
}

/// Executes VMCALL whatever the vendor: #UD or a result.
pub fn vmcall_safe(nr: u64, first: u64) -> Result<u64, Fault> {
    let mut rax = nr;
    guarded!("vmcall", inout("rax") rax, in("rdi") first, in("rsi") 0u64, in("rdx") 0u64, in("r10") 0u64, in("r8") 0u64);
    take_fault().map(|()| rax)
}

/// Executes VMMCALL whatever the vendor: #UD or a result.
pub fn vmmcall_safe(nr: u64, first: u64) -> Result<u64, Fault> {
    let mut rax = nr;
    guarded!("vmmcall", inout("rax") rax, in("rdi") first, in("rsi") 0u64, in("rdx") 0u64, in("r10") 0u64, in("r8") 0u64);
    take_fault().map(|()| rax)
}

/// Executes UD2, to prove that recovery works.
pub fn ud2_safe() -> Result<(), Fault> {
    guarded!("ud2",);
    take_fault()
}

/// Writes XCR0.
pub fn xsetbv_safe(value: u64) -> Result<(), Fault> {
    guarded!("xsetbv", in("ecx") 0, in("eax") value as u32, in("edx") (value >> 32) as u32);
    take_fault()
}

/// Reads a byte of memory that may be unmapped.
pub fn read8_safe(address: u64) -> Result<u8, Fault> {
    let value: u8;
    guarded!("mov {value}, [{address}]", value = out(reg_byte) value, address = in(reg) address);
    take_fault().map(|()| value)
}

/// Reads an MSR that exists; a fault ends the test.
pub fn rdmsr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a register; a missing MSR faults and ends the test.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high, options(nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes an MSR that exists; a fault ends the test.
pub fn wrmsr(msr: u32, value: u64) {
    // SAFETY: the guest owns its machine; callers keep the execution environment intact.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack))
    };
}

macro_rules! port {
    ($in:ident, $out:ident, $ty:ty, $reg:tt, $insn_in:literal, $insn_out:literal) => {
        /// Reads a port.
        pub fn $in(port: u16) -> $ty {
            let value: $ty;
            // SAFETY: port access does not touch memory.
            unsafe { asm!($insn_in, in("dx") port, out($reg) value, options(nostack, preserves_flags)) };
            value
        }

        /// Writes a port.
        pub fn $out(port: u16, value: $ty) {
            // SAFETY: the guest owns its machine.
            unsafe { asm!($insn_out, in("dx") port, in($reg) value, options(nostack, preserves_flags)) };
        }
    };
}

port!(in8, out8, u8, "al", "in al, dx", "out dx, al");
port!(in16, out16, u16, "ax", "in ax, dx", "out dx, ax");
port!(in32, out32, u32, "eax", "in eax, dx", "out dx, eax");

/// Time stamp counter.
pub fn rdtsc() -> u64 {
    // SAFETY: reads a register. LFENCE keeps earlier loads before it.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// Spin-loop hint.
pub fn pause() {
    core::hint::spin_loop();
}

/// `nop dword ptr [rax + D]`: see `ci/bench/exitcount.c`. Use the macros.
#[inline(always)]
pub fn marker<const D: i32>() {
    // SAFETY: a no-op; not `nomem`, so that the compiler keeps the measured code between the markers.
    unsafe { asm!("nop dword ptr [rax + {d}]", d = const D, options(nostack, preserves_flags)) };
}

/// Enables interrupts.
pub fn sti() {
    // SAFETY: the IDT is installed before any guest code runs.
    unsafe { asm!("sti", options(nostack)) };
}

/// Disables interrupts.
pub fn cli() {
    // SAFETY: changes a flag.
    unsafe { asm!("cli", options(nostack)) };
}

/// Enables interrupts and halts until one arrives; returns with interrupts disabled.
pub fn sti_hlt_cli() {
    // SAFETY: as `sti`; the shadow of STI keeps the wake-up from being lost.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Halts for ever with interrupts disabled: "this processor is down".
pub fn down() -> ! {
    loop {
        // SAFETY: nothing follows.
        unsafe { asm!("cli", "hlt", options(nostack)) };
    }
}

/// Reads control register 4.
pub fn cr4() -> u64 {
    let value;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nostack, nomem, preserves_flags)) };
    value
}

/// Writes control register 4 with recovery.
pub fn set_cr4_safe(value: u64) -> Result<(), Fault> {
    guarded!("mov cr4, {value}", value = in(reg) value);
    take_fault()
}

/// Reads the task priority class with recovery.
pub fn cr8_safe() -> Result<u64, Fault> {
    let value: u64;
    guarded!("mov {value}, cr8", value = out(reg) value);
    take_fault().map(|()| value)
}

/// Writes the task priority class (0 to 15). Interrupts may follow at once.
pub fn set_cr8(class: u64) {
    // SAFETY: delays interrupts, or lets handlers of the IDT run.
    unsafe { asm!("mov cr8, {}", in(reg) class, options(nostack, preserves_flags)) };
}

/// Writes control register 8 with recovery.
pub fn set_cr8_safe(value: u64) -> Result<(), Fault> {
    guarded!("mov cr8, {value}", value = in(reg) value);
    take_fault()
}

/// A locked addition across the end of a cache line: on an emulator, the rarest kind of atomic access.
pub fn split_lock() {
    #[repr(align(64))]
    struct Lines([AtomicU64; 16]);
    static LINES: Lines = Lines([const { AtomicU64::new(0) }; 16]);
    // SAFETY: bytes 60 to 67 of a static array of 128 bytes whose contents nobody reads.
    unsafe {
        asm!("lock add qword ptr [{} + 60], 1", in(reg) &LINES.0, options(nostack));
    }
}

/// Saves the FPU state and restores it so many times.
pub fn restore_fpu(times: u32) {
    #[repr(align(16))]
    struct Area([u8; 512]);
    let mut area = Area([0; 512]);
    // SAFETY: stores 512 bytes, to an area of that size and alignment, and reads them back into the same registers.
    unsafe {
        asm!("fxsave64 [{}]", in(reg) &mut area.0, options(nostack));
        for _ in 0..times {
            asm!("fxrstor64 [{}]", in(reg) &area.0, options(nostack, readonly));
        }
    }
}

/// Halts until the next interrupt; with interrupts off until INIT or NMI.
pub fn hlt() {
    // SAFETY: the guest owns its processor.
    unsafe { asm!("hlt", options(nomem, nostack, preserves_flags)) };
}

/// Ends the domain by a fault that cannot be delivered: the interrupt table is empty.
pub fn triple_fault() -> ! {
    static EMPTY: [u8; 10] = [0; 10];
    // SAFETY: nothing follows.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) &EMPTY, options(noreturn)) };
}
