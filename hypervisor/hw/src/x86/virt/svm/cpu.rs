//! What SVM needs per physical CPU: the save area that VMRUN uses, a copy of the host state that VMLOAD restores, and the
//! TLB tags. All of it belongs to that CPU and is only touched by it, with interrupts off.
//!
//! The block lies beside the save area, whose address the CPU itself keeps in an MSR: so it is found from there.

use core::arch::asm;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;

use x86_model::virt::svm::{
    AsidPool, AsidTag, EFER_SVME, MSR_VM_CR, MSR_VM_HSAVE_PA, VM_CR_SVMDIS,
};
use x86_model::{Hpa, PAGE_SIZE};

use super::CAPABILITIES;
use crate::mem::phys_to_virt;
use crate::x86::asm::{rdmsr, wrmsr};
use crate::x86::cpu::percpu::{self, PerCpu};
use crate::x86::virt::{fpu, pages::Pages};

const MSR_EFER: u32 = 0xc000_0080;
/// Page of the block behind the save area: 0 is the save area, 1 the host's VMLOAD state, 2 the block.
const HOST_PAGE: u64 = 1;
const BLOCK_PAGE: u64 = 2;

/// A CPU's block.
pub struct CpuBlock {
    /// Control block page for VMLOAD of the host's state.
    pub host_vmcb: Hpa,
    /// The generation whose tags are valid on this CPU.
    pub generation: Cell<u64>,
    pool: RefCell<AsidPool>,
}

impl CpuBlock {
    /// A fresh tag for this CPU, and whether its whole TLB must be flushed at the entry.
    #[cold]
    pub fn take_asid(&self) -> (AsidTag, bool) {
        let mut pool = self.pool.borrow_mut();
        let taken = pool.take();
        self.generation.set(pool.generation());
        taken
    }
}

/// Turns SVM on for this CPU; again is harmless.
pub fn enable_this_cpu() -> Result<(), &'static str> {
    fpu::enable_this_cpu();
    let vm_cr = rdmsr(MSR_VM_CR);
    if vm_cr & VM_CR_SVMDIS != 0 {
        // SAFETY: only permits SVM. `detect` refused machines where the bit is locked; a CPU that differs faults, which
        // ends in a panic with this address.
        unsafe { wrmsr(MSR_VM_CR, vm_cr & !VM_CR_SVMDIS) };
    }
    // SAFETY: EFER keeps all other bits.
    unsafe { wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME) };
    if rdmsr(MSR_VM_HSAVE_PA) == 0 {
        let cpu = percpu::this();
        if cpu.virt.load(Ordering::Relaxed) == 0 {
            prepare(cpu)?;
        }
        // SAFETY: a page that `prepare` made for this CPU and that nothing else uses.
        unsafe { wrmsr(MSR_VM_HSAVE_PA, cpu.virt.load(Ordering::Relaxed) as u64) };
    }
    let area = Hpa(rdmsr(MSR_VM_HSAVE_PA));
    let host_vmcb = area.0 + HOST_PAGE * PAGE_SIZE;
    // SAFETY: VMSAVE writes one page that `prepare` allocated for it.
    unsafe { asm!("vmsave rax", in("rax") host_vmcb, options(nostack, preserves_flags)) };
    Ok(())
}

/// Turns SVM off for this CPU.
pub fn disable_this_cpu() {
    // SAFETY: EFER keeps all other bits; no guest runs here, and none will before `enable_this_cpu`.
    unsafe { wrmsr(MSR_EFER, rdmsr(MSR_EFER) & !EFER_SVME) };
}

/// Makes the pages of a CPU that has not started, so that it need not take the allocator's lock; or of this one.
pub fn prepare(cpu: &PerCpu) -> Result<(), &'static str> {
    let capabilities = CAPABILITIES.get().ok_or("AMD-V was not detected")?;
    let pages = Pages::new(3, 0).ok_or("no memory for the AMD-V save area")?;
    let area = pages.hpa();
    // The CPU keeps it for ever.
    core::mem::forget(pages);
    let block = CpuBlock {
        host_vmcb: Hpa(area.0 + HOST_PAGE * PAGE_SIZE),
        generation: Cell::new(0),
        pool: RefCell::new(AsidPool::new(capabilities.asids)),
    };
    block.generation.set(block.pool.borrow().generation());
    // SAFETY: the third page is ours, aligned, larger than the block, and from here on only used as the block.
    unsafe { block_at(area).write(block) };
    cpu.virt.store(area.0 as usize, Ordering::Relaxed);
    Ok(())
}

fn block_at(area: Hpa) -> *mut CpuBlock {
    const { assert!(size_of::<CpuBlock>() <= PAGE_SIZE as usize) }
    phys_to_virt(Hpa(area.0 + BLOCK_PAGE * PAGE_SIZE)).cast()
}

/// The calling CPU's block. Panics if [`enable_this_cpu`] was not called on it.
pub fn this_cpu() -> &'static CpuBlock {
    let area = rdmsr(MSR_VM_HSAVE_PA);
    assert!(area != 0, "AMD-V is not enabled on this CPU");
    // SAFETY: the MSR is only set to what `prepare` made, an area with an initialised block behind it that is never freed. The
    // block is not `Sync`: the reference stays on this CPU because vCPUs drop it in `leave`.
    unsafe { &*block_at(Hpa(area)) }
}
