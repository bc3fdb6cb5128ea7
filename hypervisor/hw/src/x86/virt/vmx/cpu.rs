//! What VT-x needs per physical CPU: the VMXON region, which control structure is current, and the TLB tags. All of it belongs
//! to that CPU and is only touched by it, with interrupts off.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;

use x86_model::regs::{cr, msr};
use x86_model::virt::svm::{AsidPool, AsidTag};
use x86_model::virt::vmx::capability::{Controls, MSR_CR0_FIXED0, MSR_CR4_FIXED0, fix};
use x86_model::virt::vmx::{FEATURE_LOCKED, FEATURE_VMXON};
use x86_model::{Hpa, PAGE_SIZE};

use super::CONTROLS;
use super::instr;
use crate::error;
use crate::mem::phys_to_virt;
use crate::x86::asm::{rdmsr, read_cr0, read_cr4, write_cr0, write_cr4, wrmsr};
use crate::x86::cpu::percpu::{self, PerCpu};
use crate::x86::virt::{fpu, pages::Pages};

/// Tags 1 to 0xffff; 0 is the host's.
const VPIDS: u32 = 1 << 16;
/// INVVPID of all tags.
const ALL_TAGS: u64 = 2;

/// A CPU's block. It lies in the page behind the VMXON region.
pub struct CpuBlock {
    /// VMX operation is on.
    on: Cell<bool>,
    /// The current control structure; 0 if none is.
    current: Cell<Hpa>,
    /// The generation whose tags are valid on this CPU.
    pub generation: Cell<u64>,
    pool: RefCell<AsidPool>,
}

impl CpuBlock {
    /// A fresh tag for this CPU.
    #[cold]
    pub fn take_tag(&self) -> AsidTag {
        let mut pool = self.pool.borrow_mut();
        let (tag, flush) = pool.take();
        self.generation.set(pool.generation());
        if flush && let Err(why) = instr::invvpid(ALL_TAGS, [0; 2]) {
            panic!("INVVPID: {why}");
        }
        tag
    }

    /// Makes `structure` current and returns what was.
    ///
    /// # Safety
    /// As for [`instr::vmptrld`].
    pub unsafe fn load(&self, structure: Hpa) -> Hpa {
        // SAFETY: the caller's contract.
        if let Err(why) = unsafe { instr::vmptrld(structure) } {
            panic!("VMPTRLD {structure:?}: {why}");
        }
        self.current.replace(structure)
    }

    /// Writes `structure` back; then `previous` is current again, if it is one.
    ///
    /// # Safety
    /// As for [`instr::vmclear`]; `previous` came from [`CpuBlock::load`].
    pub unsafe fn unload(&self, structure: Hpa, previous: Hpa) {
        // SAFETY: the caller's contract.
        if let Err(why) = unsafe { instr::vmclear(structure) } {
            panic!("VMCLEAR {structure:?}: {why}");
        }
        self.current.set(Hpa(0));
        if previous != Hpa(0) && previous != structure {
            // SAFETY: it was current here before, and nobody else could take it meanwhile.
            unsafe { self.load(previous) };
        }
    }
}

/// Turns VMX on for this CPU; again is harmless.
pub fn enable_this_cpu() -> Result<(), &'static str> {
    fpu::enable_this_cpu();
    let cpu = percpu::this();
    if cpu.virt.load(Ordering::Relaxed) == 0 {
        prepare(cpu)?;
    }
    let block = this_cpu();
    if block.on.get() {
        return Ok(());
    }
    let feature = rdmsr(msr::FEATURE_CONTROL);
    if feature & FEATURE_LOCKED == 0 {
        // SAFETY: permits VMXON and locks that choice, as the firmware should have done.
        unsafe {
            wrmsr(
                msr::FEATURE_CONTROL,
                feature | FEATURE_LOCKED | FEATURE_VMXON,
            );
        }
    } else if feature & FEATURE_VMXON == 0 {
        return Err("VT-x is disabled and locked by the firmware on one CPU (FEATURE_CONTROL)");
    }
    if CONTROLS.get().map(|c| Ok(*c)) != Some(Controls::choose(rdmsr)) {
        return Err("its VT-x can do other things than the boot CPU's");
    }
    let fixed = |value, first| fix(value, rdmsr(first), rdmsr(first + 1));
    let cr0 = fixed(read_cr0(), MSR_CR0_FIXED0);
    let cr4 = fixed(read_cr4() | cr::CR4_VMXE, MSR_CR4_FIXED0);
    if cr4 & cr::CR4_VMXE == 0 || cr4 & read_cr4() != read_cr4() {
        return Err("the CPU does not allow VT-x with the control bits in use");
    }
    // SAFETY: NE and VMXE are added, which do not change mappings or running code; the CPU says that it needs them.
    unsafe {
        write_cr0(cr0);
        write_cr4(cr4);
    }
    let region = Hpa(cpu.virt.load(Ordering::Relaxed) as u64);
    // SAFETY: a page that `prepare` made for this CPU with the revision in it, and that nothing else uses.
    if let Err(why) = unsafe { instr::vmxon(region) } {
        error!("VMXON on {}: {why}", percpu::Name(cpu));
        return Err("VMXON failed");
    }
    block.on.set(true);
    Ok(())
}

/// Turns VMX off for this CPU: in VMX operation it would not take INIT. No control structure is active on it.
pub fn disable_this_cpu() {
    let block = this_cpu();
    if block.on.replace(false) {
        block.current.set(Hpa(0));
        // SAFETY: no vCPU is on this CPU; `enable_this_cpu` turns it on again.
        if let Err(why) = unsafe { instr::vmxoff() } {
            error!("VMXOFF on {}: {why}", percpu::Name(percpu::this()));
        }
    }
}

/// Makes the pages of a CPU that has not started, so that it need not take the allocator's lock; or of this one.
pub fn prepare(cpu: &PerCpu) -> Result<(), &'static str> {
    let controls = CONTROLS.get().ok_or("VT-x was not detected")?;
    let mut pages = Pages::new(2, 0).ok_or("no memory for the VMXON region")?;
    pages.bytes_mut()[..4].copy_from_slice(&controls.revision.to_le_bytes());
    let area = pages.hpa();
    // The CPU keeps it for ever.
    core::mem::forget(pages);
    let pool = AsidPool::new(VPIDS);
    let block = CpuBlock {
        on: Cell::new(false),
        current: Cell::new(Hpa(0)),
        generation: Cell::new(pool.generation()),
        pool: RefCell::new(pool),
    };
    // SAFETY: the second page is ours, aligned, larger than the block, and from here on only used as the block.
    unsafe { block_at(area).write(block) };
    cpu.virt.store(area.0 as usize, Ordering::Relaxed);
    Ok(())
}

fn block_at(area: Hpa) -> *mut CpuBlock {
    const { assert!(size_of::<CpuBlock>() <= PAGE_SIZE as usize) }
    phys_to_virt(Hpa(area.0 + PAGE_SIZE)).cast()
}

/// The calling CPU's block. Panics if [`prepare`] was not called for it.
#[inline]
pub fn this_cpu() -> &'static CpuBlock {
    let area = percpu::this().virt.load(Ordering::Relaxed);
    assert!(area != 0, "VT-x is not enabled on this CPU");
    // SAFETY: the word is only set to what `prepare` made, an area with an initialised block behind it that is never freed.
    // The block is not `Sync`: the reference stays on this CPU because vCPUs drop it in `leave`.
    unsafe { &*block_at(Hpa(area as u64)) }
}
