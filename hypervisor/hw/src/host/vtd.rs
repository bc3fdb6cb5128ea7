//! A VT-d unit of the fake machine, as far as interrupts go: table, entry cache, source check, both formats of entries,
//! posting. Bit for bit as the specification has it (5.1, 5.2.3, 9.9 to 9.11), so that code which forgets an invalidation,
//! writes half an entry or gives a descriptor back too early is caught, where no emulator would.
//!
//! Devices may send from any thread. A message is worked on under a lock, and an invalidation waits for that lock, as the
//! unit completes a wait descriptor only when what came before is done.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use x86_model::Hpa;
use x86_model::iommu::vtd::posted::Entries;
use x86_model::iommu::vtd::{Irte, irte};
use x86_model::iommu::{RemappedMessage, Target};
use x86_model::posted::{Descriptor, Notice};

use super::arena;
use crate::mem::{FrameKind, frames, phys_to_virt};

/// Why a message was refused: reason codes of the specification's table of faults (7.1.3).
pub mod fault {
    /// The index is beyond the table.
    pub const INDEX: u8 = 0x21;
    /// The entry is not present.
    pub const NOT_PRESENT: u8 = 0x22;
    /// A reserved field of the entry is set.
    pub const RESERVED: u8 = 0x24;
    /// The message has the old format.
    pub const OLD_FORMAT: u8 = 0x25;
    /// The entry belongs to another device.
    pub const SOURCE: u8 = 0x26;
    /// The posted-interrupt descriptor cannot be used.
    pub const DESCRIPTOR: u8 = 0x27;
}

/// What a message led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An interrupt to a CPU.
    Remapped(Target),
    /// Posted, with the notification if one was sent.
    Posted(Option<Notice>),
    /// Refused.
    Fault(u8),
}

/// The unit.
#[derive(Debug)]
pub struct FakeVtd {
    table: Mutex<Vec<[u64; 2]>>,
    /// Entries that the unit remembers; used whatever stands in the table.
    cache: Mutex<BTreeMap<u16, Irte>>,
    extended: bool,
    /// The unit answers no invalidation.
    pub dead: std::sync::atomic::AtomicBool,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().expect("a test panicked while it held the unit")
}

impl FakeVtd {
    /// A unit with an empty table; `extended` for 32-bit destinations.
    pub fn new(entries: usize, extended: bool) -> Self {
        Self {
            table: Mutex::new(vec![[0; 2]; entries]),
            cache: Mutex::new(BTreeMap::new()),
            extended,
            dead: false.into(),
        }
    }

    /// A device sends a message, under this requester id.
    pub fn message(&self, id: u16, message: RemappedMessage) -> Outcome {
        let Some(index) = irte::message_index(message) else {
            return Outcome::Fault(fault::OLD_FORMAT);
        };
        let mut cache = lock(&self.cache);
        let entry = match cache.get(&index) {
            Some(&known) => known,
            None => {
                let Some(&words) = lock(&self.table).get(usize::from(index)) else {
                    return Outcome::Fault(fault::INDEX);
                };
                let entry = Irte(words);
                if !entry.present() {
                    return Outcome::Fault(fault::NOT_PRESENT);
                }
                cache.insert(index, entry);
                entry
            }
        };
        if !entry.is_valid(true) {
            return Outcome::Fault(fault::RESERVED);
        }
        if !entry.accepts(id) {
            return Outcome::Fault(fault::SOURCE);
        }
        if let Some(to) = entry.target(self.extended) {
            return Outcome::Remapped(to);
        }
        let Some(to) = entry.posted_target() else {
            return Outcome::Fault(fault::RESERVED);
        };
        match descriptor(Hpa(to.descriptor)) {
            Some(d) if d.is_valid() => Outcome::Posted(d.post_by_unit(to.vector, to.urgent)),
            _ => Outcome::Fault(fault::DESCRIPTOR),
        }
    }

    /// An access to the table by software, as the `cmpxchg16b` of one CPU.
    pub fn software(&self) -> Software<'_> {
        Software(self)
    }
}

/// The descriptor at an address, if that is the hypervisor's memory and in use.
fn descriptor(at: Hpa) -> Option<&'static Descriptor> {
    let inside = at.0 < (arena::frames() * 4096) as u64;
    if !inside || frames::kind(at.mfn()) != FrameKind::Hypervisor || !at.0.is_multiple_of(64) {
        return None;
    }
    // SAFETY: aligned and inside the fake RAM, which is never unmapped; the descriptor is made of atomics, for which any bits
    // are values. A frame that is given back meanwhile stays readable, and a wrong post into it is what tests look for.
    Some(unsafe { &*phys_to_virt(at).cast::<Descriptor>() })
}

/// Software's side of the table.
#[derive(Debug)]
pub struct Software<'a>(&'a FakeVtd);

impl Entries for Software<'_> {
    fn read(&self, index: u16) -> Irte {
        Irte(lock(&self.0.table)[usize::from(index)])
    }
    fn replace(&mut self, index: u16, old: Irte, new: Irte) -> bool {
        let mut table = lock(&self.0.table);
        let entry = &mut table[usize::from(index)];
        let same = *entry == old.0;
        if same {
            *entry = new.0;
        }
        same
    }
    fn forget(&mut self, index: u16) -> bool {
        if self.0.dead.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        lock(&self.0.cache).remove(&index);
        true
    }
}

#[cfg(test)]
#[path = "vtd_tests.rs"]
mod tests;
