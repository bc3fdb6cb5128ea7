//! GDT and TSS of one CPU. Segments are flat; the TSS only serves the interrupt stack table.

use core::arch::asm;
use core::sync::atomic::Ordering;

use super::percpu::PerCpu;

/// 64-bit ring-0 code.
pub const CODE: u16 = 0x08;
/// Ring-0 data.
pub const DATA: u16 = 0x10;
/// The TSS.
pub const TSS: u16 = 0x18;

/// Interrupt stacks in the TSS; IDT entries name them by number plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Ist {
    /// NMI.
    Nmi = 0,
    /// Double fault.
    DoubleFault = 1,
    /// Machine check.
    MachineCheck = 2,
}

/// Number of interrupt stacks.
pub const IST_COUNT: usize = 3;

/// 64-bit task state segment (APM vol. 2, 12.2.5).
#[repr(C, packed(4))]
struct Tss {
    reserved0: u32,
    rsp: [u64; 3],
    reserved1: u64,
    ist: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    io_map: u16,
}
const _: () = assert!(size_of::<Tss>() == 104);

/// GDT and TSS together.
#[repr(C, align(16))]
pub struct Descriptors {
    gdt: [u64; 5],
    tss: Tss,
}

impl Descriptors {
    pub(super) const fn new() -> Self {
        Descriptors {
            // Null, code (L, P, S, execute-read), data (P, S, read-write), and two slots for the TSS.
            gdt: [0, 0x0020_9b00_0000_0000, 0x0000_9300_0000_0000, 0, 0],
            tss: Tss {
                reserved0: 0,
                rsp: [0; 3],
                reserved1: 0,
                ist: [0; 7],
                reserved2: 0,
                reserved3: 0,
                io_map: size_of::<Tss>() as u16,
            },
        }
    }
}

/// Operand of LGDT and LIDT.
#[repr(C, packed(2))]
pub(super) struct Pointer {
    pub limit: u16,
    pub base: u64,
}

/// Sets the top of an interrupt stack of `block`'s CPU.
///
/// # Safety
/// `top` must end a stack that nothing else uses, for ever. The CPU must be this one or not started yet.
pub(super) unsafe fn set_ist(block: &PerCpu, ist: Ist, top: usize) {
    // SAFETY: by the contract nobody else touches these descriptors now; the hardware reads them only on delivery,
    // and an aligned-enough 8-byte store in the TSS is seen whole by its own CPU.
    unsafe {
        let tss = &raw mut (*block.descriptors.get()).tss;
        let slot = (&raw mut (*tss).ist).cast::<u64>().add(ist as usize);
        slot.write_unaligned(top as u64);
    }
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Where a CPU's GDT and TSS are.
#[cfg(CONFIG_INTEL)]
pub(in crate::x86) fn bases(block: &PerCpu) -> (u64, u64) {
    let descriptors = block.descriptors.get();
    // SAFETY: only addresses of fields are formed, inside the block.
    unsafe {
        (
            (&raw const (*descriptors).gdt) as u64,
            (&raw const (*descriptors).tss) as u64,
        )
    }
}

/// Loads this CPU's GDT, segments and task register from `block`. The GS base is lost (the caller sets it next).
pub(super) fn load(block: &'static PerCpu) {
    let descriptors = block.descriptors.get();
    // SAFETY: the block belongs to this CPU and lives for ever. The descriptors are flat ring-0 segments like those in
    // use, so reloading them does not change how code runs; the TSS descriptor is made available (not busy) first.
    unsafe {
        let base = (&raw const (*descriptors).tss) as u64;
        let limit = size_of::<Tss>() as u64 - 1;
        (*descriptors).gdt[3] =
            limit | (base & 0x00ff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        (*descriptors).gdt[4] = base >> 32;
        let pointer = Pointer {
            limit: size_of::<[u64; 5]>() as u16 - 1,
            base: (&raw const (*descriptors).gdt) as u64,
        };
        asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:e}",
            "mov es, {data:e}",
            "mov ss, {data:e}",
            "mov fs, {zero:e}",
            "mov gs, {zero:e}",
            "lldt {zero:x}",
            "ltr {tss:x}",
            pointer = in(reg) &pointer,
            code = const CODE,
            scratch = out(reg) _,
            data = in(reg) u32::from(DATA),
            zero = in(reg) 0u32,
            tss = in(reg) TSS,
        );
    }
}
