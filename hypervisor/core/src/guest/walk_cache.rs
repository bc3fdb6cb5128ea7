//! Recent translations of one vCPU, each with the page-table entries that it came from. A hit reads those entries again and
//! counts only if none has changed and the domain's map has not either: so it gives what a fresh walk would give, at any
//! time, without knowing when the guest flushes its TLB. It spares the look-up and the counting of each table's frame.
//!
//! Owned by the vCPU's local half. The cached frames are pinned until the vCPU gives up its pCPU ([`WalkCache::clear`]).

use core::sync::atomic::Ordering;

use hv_hw::mem::FrameRef;
use x86_model::walk::{Access, PagingInputs};

const SLOTS: usize = 4;
/// Most levels of a guest's tables.
pub const LEVELS: usize = 4;

/// What a translation depends on, apart from memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Registers.
    pub inputs: PagingInputs,
    /// Linear page number.
    pub page: u64,
    /// Kind of access.
    pub access: Access,
}

/// A page-table entry of eight bytes that a walk read.
pub struct Step {
    /// Frame of the table.
    pub frame: FrameRef,
    /// Offset in it.
    pub offset: usize,
    /// The value.
    pub entry: u64,
}

/// A translation.
pub struct Walked {
    /// Generation of the stage-2 tree before the walk.
    pub generation: u64,
    /// What was asked.
    pub key: Key,
    /// The entries on the way.
    pub steps: [Option<Step>; LEVELS],
    /// The frame that it led to; the access is allowed.
    pub frame: FrameRef,
}

/// The translations.
#[derive(Default)]
pub struct WalkCache {
    slots: [Option<Walked>; SLOTS],
}

impl WalkCache {
    /// The frame for `key`, if a cached walk is still what a new one would find.
    #[inline]
    pub fn get(&self, generation: u64, key: &Key) -> Option<&FrameRef> {
        let walked = self.slots[slot(key)].as_ref()?;
        let same = walked.generation == generation
            && walked.key == *key
            && walked
                .steps
                .iter()
                .map_while(Option::as_ref)
                .all(|s| s.frame.atomic_u64(s.offset).load(Ordering::Relaxed) == s.entry);
        same.then_some(&walked.frame)
    }

    /// Keeps a walk; gives its frame back.
    pub fn put(&mut self, walked: Walked) -> &FrameRef {
        let slot = &mut self.slots[slot(&walked.key)];
        &slot.insert(walked).frame
    }

    /// Forgets all, and with it the references to guest frames.
    pub fn clear(&mut self) {
        self.slots = Default::default();
    }
}

fn slot(key: &Key) -> usize {
    key.page as usize % SLOTS
}
