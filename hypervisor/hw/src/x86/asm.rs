//! Instructions that Rust has no word for, each wrapped once. Nothing here keeps state.
//!
//! A wrapper is safe where no argument can break memory safety by itself: reading a register, ports and MSRs included
//! (an MSR that does not exist ends in #GP and so in a panic), and the serialising and hint instructions.

use core::arch::asm;

/// Reads an MSR. An unknown index faults and panics; see [`super::cpu::msr::rdmsr_safe`] for the other kind.
#[inline(always)]
pub fn rdmsr(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: RDMSR changes nothing but its outputs; a fault panics.
    unsafe {
        asm!("rdmsr", in("ecx") index, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes an MSR.
///
/// # Safety
/// The value must keep what the compiler and the rest of the hypervisor rely on: mappings, entry points, GS base.
#[inline(always)]
pub unsafe fn wrmsr(index: u32, value: u64) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("wrmsr", in("ecx") index, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// CPUID as EAX, EBX, ECX, EDX.
#[inline]
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let r = core::arch::x86_64::__cpuid_count(leaf, subleaf);
    [r.eax, r.ebx, r.ecx, r.edx]
}

/// Whether CPUID knows a leaf of its range (basic, or extended from 0x8000_0000).
pub fn has_leaf(leaf: u32) -> bool {
    let max = cpuid(leaf & 0xc000_0000, 0)[0];
    max >= leaf && max & 0xc000_0000 == leaf & 0xc000_0000
}

/// Time stamp counter; may be read ahead of earlier loads.
#[inline(always)]
pub fn rdtsc() -> u64 {
    // SAFETY: RDTSC only reads the counter (CR4.TSD does not bind ring 0).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Time stamp counter, after all earlier instructions are complete.
#[inline(always)]
pub fn rdtsc_ordered() -> u64 {
    // SAFETY: LFENCE and RDTSC touch no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// Full memory fence.
#[inline(always)]
pub fn mfence() {
    // SAFETY: MFENCE only orders.
    unsafe { core::arch::x86_64::_mm_mfence() }
}

/// Keeps later instructions from starting before all earlier ones are complete.
#[inline(always)]
pub fn lfence() {
    // SAFETY: LFENCE only orders.
    unsafe { core::arch::x86_64::_mm_lfence() }
}

/// Writes the cache line that holds the word back to memory, ordered with other flushes and stores.
#[inline]
pub fn flush_line(word: &core::sync::atomic::AtomicU64) {
    let at = core::ptr::from_ref(word);
    // SAFETY: CLFLUSH changes no value in memory, and the address is a live word's.
    unsafe { asm!("clflush [{}]", "mfence", in(reg) at, options(nostack, preserves_flags)) };
}

/// Replaces 128 bits (low word first) if they are `old`; whether they were.
///
/// # Safety
/// `at` must be 16-byte aligned and point to 16 bytes that are only accessed atomically; the CPU must have CMPXCHG16B.
#[inline]
pub unsafe fn compare_exchange_128(
    at: *mut core::sync::atomic::AtomicU64,
    old: [u64; 2],
    new: [u64; 2],
) -> bool {
    let (low, high): (u64, u64);
    // SAFETY: the caller's contract. RBX, which the compiler keeps for itself, is restored from RSI.
    unsafe {
        asm!(
            "xchg rbx, rsi",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            in("rdi") at,
            inout("rsi") new[0] => _,
            in("rcx") new[1],
            inout("rax") old[0] => low,
            inout("rdx") old[1] => high,
            options(nostack),
        );
    }
    [low, high] == old
}

/// Start of a stretch whose instructions the emulator's counter counts (`ci/bench/exitcount.c`): a no-op.
#[inline(always)]
pub fn count_from() {
    // SAFETY: a no-op whose operand is not accessed. Not `nomem`: what is measured must not move across it.
    unsafe {
        asm!(
            "nop dword ptr [rax + 0x7e000001]",
            options(nostack, preserves_flags)
        )
    }
}

/// End of such a stretch.
#[inline(always)]
pub fn count_to() {
    // SAFETY: as in `count_from`.
    unsafe {
        asm!(
            "nop dword ptr [rax + 0x7e010001]",
            options(nostack, preserves_flags)
        )
    }
}

/// Spin-loop hint.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

macro_rules! control_register {
    ($read:ident, $write:ident, $name:literal) => {
        #[doc = concat!("Reads ", $name, ".")]
        #[inline(always)]
        pub fn $read() -> u64 {
            let value: u64;
            // SAFETY: reading a control register changes nothing.
            unsafe { asm!(concat!("mov {}, ", $name), out(reg) value, options(nomem, nostack, preserves_flags)) }
            value
        }
        #[doc = concat!("Writes ", $name, ".")]
        ///
        /// # Safety
        /// The new value must keep the running code, its stack and its data mapped and usable.
        #[inline(always)]
        pub unsafe fn $write(value: u64) {
            // SAFETY: the caller's contract.
            unsafe { asm!(concat!("mov ", $name, ", {}"), in(reg) value, options(nostack, preserves_flags)) }
        }
    };
}
control_register!(read_cr0, write_cr0, "cr0");
control_register!(read_cr3, write_cr3, "cr3");
control_register!(read_cr4, write_cr4, "cr4");

/// Reads CR2, the address of the last page fault.
#[inline(always)]
pub fn read_cr2() -> u64 {
    let value: u64;
    // SAFETY: reading a control register changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Drops this CPU's translation of one page.
#[inline(always)]
pub fn invlpg(address: usize) {
    // SAFETY: forgetting a cached translation is always allowed.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
}

/// Sets XCR0.
///
/// # Safety
/// CR4.OSXSAVE must be set and the value be a valid combination of supported bits.
#[inline(always)]
pub unsafe fn xsetbv(value: u64) {
    // SAFETY: the caller's contract; the hypervisor itself uses no extended state.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nomem, nostack, preserves_flags));
    }
}

/// Reads XCR0. CR4.OSXSAVE must be set (else #UD, a panic).
#[inline(always)]
pub fn xgetbv() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: XGETBV only reads.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes back and drops all caches.
pub fn wbinvd() {
    // SAFETY: caches are invisible to the memory model; only slow.
    unsafe { asm!("wbinvd", options(nostack, preserves_flags)) }
}

/// RFLAGS.
#[inline(always)]
pub fn rflags() -> u64 {
    let value: u64;
    // SAFETY: pushes and pops one word of the own stack.
    unsafe { asm!("pushfq", "pop {}", out(reg) value, options(nomem, preserves_flags)) }
    value
}

/// Maskable interrupts off.
#[inline(always)]
pub fn cli() {
    // SAFETY: fewer interrupts never break memory safety. Not `nomem`: memory accesses must not move across it.
    unsafe { asm!("cli", options(nostack)) }
}

/// Opens the interrupt window for exactly one pending interrupt. The entry stub records the vector in the CPU block
/// and returns with IF clear, so no second one is taken; without a pending one the CLI closes the window.
#[inline(always)]
pub fn interrupt_window() {
    // SAFETY: the IDT of this CPU is loaded before interrupts are first enabled; stubs keep all registers. The stack
    // is used below RSP by the interrupt frame, hence no `nostack`.
    unsafe { asm!("sti", "nop", "cli") }
}

/// Sets and clears the interrupt flag, with no instruction between at which an interrupt could come.
#[inline(always)]
pub fn settle_interrupt_flag() {
    // SAFETY: STI holds interrupts off until the next instruction is done, and that clears the flag again. Should one come
    // all the same, it is handled as in `interrupt_window`, hence no `nostack`.
    unsafe { asm!("sti", "cli") }
}

/// Halts with interrupts on until an interrupt or NMI was handled. STI holds interrupts off until HLT has started,
/// so one that is already pending ends the halt at once.
#[inline(always)]
pub fn halt_for_interrupt() {
    // SAFETY: as in `interrupt_window`.
    unsafe { asm!("sti", "hlt", "cli") }
}

/// Stops this CPU for ever; NMIs are handled and sleep again.
pub fn stop() -> ! {
    loop {
        // SAFETY: nothing runs on this CPU after this.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

macro_rules! port {
    ($read:ident, $write:ident, $ty:ty, $reg:tt, $name:literal) => {
        /// Port input.
        #[inline(always)]
        pub fn $read(port: u16) -> $ty {
            let value: $ty;
            // SAFETY: port input reaches devices only; which ports may be read is the caller's policy.
            unsafe {
                asm!(concat!("in ", $name, ", dx"), in("dx") port, out($reg) value,
                    options(nomem, nostack, preserves_flags));
            }
            value
        }
        /// Port output.
        ///
        /// # Safety
        /// The device behind the port must not be made to overwrite the hypervisor's memory.
        #[inline(always)]
        pub unsafe fn $write(port: u16, value: $ty) {
            // SAFETY: the caller's contract.
            unsafe {
                asm!(concat!("out dx, ", $name), in("dx") port, in($reg) value,
                    options(nostack, preserves_flags));
            }
        }
    };
}
port!(inb, outb, u8, "al", "al");
port!(inw, outw, u16, "ax", "ax");
port!(inl, outl, u32, "eax", "eax");
