//! Translations of a vCPU: which tree, which tag, what is stale; and the four entries that a guest with PAE paging has in its
//! CPU.

use x86_model::virt::vmx::field::*;
use x86_model::virt::vmx::{cr0, ept};
use x86_model::{Gfn, Mfn};

use super::cpu::CpuBlock;
use super::instr::{self, read, write};
use super::state;
use super::vcpu::VmxVcpu;
use crate::mem::{FrameRef, Stage2};

/// INVEPT of one tree, and of all.
const ONE_TREE: u64 = 1;
const ALL_TREES: u64 = 2;

impl VmxVcpu {
    /// Settles translation for the coming entry: the tree that the caller keeps alive, and no stale translations.
    #[inline]
    pub(super) fn settle_translations(&mut self, cpu: &CpuBlock, stage2: &Stage2) {
        let generation = stage2.generation();
        if self.tag.generation == cpu.generation.get()
            && self.flushed == generation
            && self.root == stage2.root()
        {
            return;
        }
        self.renew_translations(cpu, stage2.root(), generation);
    }

    #[cold]
    fn renew_translations(&mut self, cpu: &CpuBlock, root: Mfn, generation: u64) {
        self.flushed = generation;
        self.root = root;
        let pointer = ept::pointer(root.hpa());
        // SAFETY: the root of a tree that the caller keeps alive while the guest runs.
        unsafe { write(EPT_POINTER, pointer) };
        let kind = if self.one_tree { ONE_TREE } else { ALL_TREES };
        if let Err(why) = instr::invept(kind, [pointer, 0]) {
            panic!("INVEPT: {why}");
        }
        if self.tagged {
            // A fresh tag has no translations of its own.
            self.tag = cpu.take_tag();
            // SAFETY: a tag of this CPU that nobody else uses; never 0.
            unsafe { write(VPID, self.tag.asid as u16) };
        } else {
            self.tag.generation = cpu.generation.get();
        }
    }

    /// Makes the next entry forget translations.
    pub(super) fn drop_translations(&mut self) {
        // No generation is that high.
        self.flushed = u64::MAX;
    }

    /// What follows from changed paging registers; their structure is current.
    pub(super) fn paging_changed(&mut self) {
        self.drop_translations();
        let efer = read(GUEST_EFER);
        self.pdptes_stale = cr0::uses_pdptes(state::guest_cr0(), state::guest_cr4(), efer);
    }

    /// Reads the four entries that a guest with PAE paging has in its CPU. A table outside of RAM reads as empty: the guest
    /// then faults at its next access, as with such a table on hardware.
    #[cold]
    pub(super) fn load_pdptes(&mut self, stage2: &Stage2) {
        self.pdptes_stale = false;
        let at = read(GUEST_CR3) & 0xffff_ffe0;
        let mut bytes = [0; 32];
        let frame = stage2
            .lookup(Gfn(at >> 12))
            .and_then(|leaf| FrameRef::get(leaf.mfn));
        if let Some(frame) = frame {
            frame.read((at & 0xfff) as usize, &mut bytes);
        }
        for (n, entry) in (0..).zip(bytes.chunks_exact(8)) {
            let entry = entry.try_into().map_or(0, u64::from_le_bytes);
            // SAFETY: guest state; addresses in it are guest-physical.
            unsafe { write(nth64(GUEST_PDPTE_0, n), entry) };
        }
    }
}
