//! What belongs to one CPU: its block, descriptor tables, trap entry, control registers.

pub mod checks;
pub mod features;
pub mod gdt;
pub mod idt;
pub mod msr;
pub mod nmi;
pub mod percpu;
pub mod stacks;
pub mod traps;

use x86_model::regs::{cr, msr as reg};

use super::asm;
pub use features::Features;

/// Readies the boot CPU for traps: block, GDT, TSS, IDT. Call once, as early as possible; needs no memory allocator.
/// Until [`percpu::set_apic_id`] the block says CPU 0, APIC ID from CPUID.
pub fn early_init() {
    super::time::mark_start();
    let block = percpu::boot_block();
    stacks::give_static(block);
    idt::fill();
    activate(block);
    block.set_apic_id(features::initial_apic_id());
}

/// Makes `block` this CPU's block and loads its tables. Interrupts must be off. A CPU that was asked to stop before it had
/// trap handlers stops here.
pub(super) fn activate(block: &'static percpu::PerCpu) {
    gdt::load(block);
    // SAFETY: the block lives for ever and belongs to this CPU alone; nothing used the GS base before.
    unsafe { asm::wrmsr(reg::GS_BASE, core::ptr::from_ref(block) as u64) };
    idt::load();
    if block.stop.traps_ready() {
        nmi::stop_here()
    }
    control_registers();
}

/// Sets the control bits that all CPUs share, beyond those of [`super::boot::init_cpu`] (which sets the PAT, paging and
/// protection bits): machine checks, SSE and XSAVE state for guests.
fn control_registers() {
    let f = features::get();
    super::boot::init_cpu();
    let mut cr4 = asm::read_cr4() | cr::CR4_OSFXSR | cr::CR4_OSXMMEXCPT | cr::CR4_DE;
    for (have, bit) in [(f.mce, cr::CR4_MCE), (f.xsave, cr::CR4_OSXSAVE)] {
        if have {
            cr4 |= bit;
        }
    }
    // SAFETY: only features that CPUID names are set, and none changes mappings.
    unsafe {
        asm::write_cr0(asm::read_cr0() | cr::CR0_MP);
        asm::write_cr4(cr4);
    }
    if f.xsave {
        // SAFETY: OSXSAVE was set above; x87 and SSE are always a valid choice. The virtualization backend widens it.
        unsafe { asm::xsetbv(3) };
    }
}
