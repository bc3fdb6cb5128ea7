//! Changing a remapping entry against a unit that works on a message of it: in every interleaving the message goes where
//! the old or the new entry says, and once the change is complete nothing goes where the old one said, so that what it
//! named can be given back. The entry's 128 bits are one cell here, as the exchange makes them; the unit remembers
//! entries and finishes a message before it completes an invalidation.

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use x86_model::iommu::vtd::Irte;
use x86_model::iommu::vtd::posted::{Entries, PostedTarget, change};
use x86_model::iommu::{Requester, Target};

const A: u64 = 0x1000;
const B: u64 = 0x2000;
const HOST: u64 = 0;

struct Machine {
    entry: Mutex<[u64; 2]>,
    /// What the unit remembers; held while it works on a message.
    unit: Mutex<Option<Irte>>,
    /// Messages seen by the host and by the two descriptors, and whether those are still there.
    seen: [AtomicU64; 3],
    freed: [AtomicBool; 3],
    /// Without invalidation: a wrong post is noted and not an error, since the checker cannot go on after a panic.
    forgetful: bool,
}

/// The broken variant has posted into memory that was given back.
static WILD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

struct Table(Arc<Machine>);

impl Entries for Table {
    fn read(&self, _: u16) -> Irte {
        Irte(*self.0.entry.lock().unwrap())
    }
    fn replace(&mut self, _: u16, old: Irte, new: Irte) -> bool {
        let mut entry = self.0.entry.lock().unwrap();
        let same = *entry == old.0;
        if same {
            *entry = new.0;
        }
        same
    }
    fn forget(&mut self, _: u16) -> bool {
        if !self.0.forgetful {
            *self.0.unit.lock().unwrap() = None;
        }
        true
    }
}

impl Machine {
    fn new(first: Irte, forgetful: bool) -> Arc<Self> {
        Arc::new(Self {
            entry: Mutex::new(first.0),
            unit: Mutex::new(None),
            seen: std::array::from_fn(|_| AtomicU64::new(0)),
            freed: std::array::from_fn(|_| AtomicBool::new(false)),
            forgetful,
        })
    }
    /// A device sends.
    fn message(&self) {
        let mut known = self.unit.lock().unwrap();
        let entry = *known.get_or_insert_with(|| Irte(*self.entry.lock().unwrap()));
        let valid = entry.is_valid(true);
        let place = match (entry.posted_target(), entry.target(true)) {
            (Some(to), _) => (to.descriptor / 0x1000) as usize,
            (None, Some(_)) => 0,
            (None, None) => return,
        };
        let freed = self.freed[place].load(Ordering::Acquire);
        // The checker cannot open a lock while it unwinds.
        drop(known);
        assert!(valid, "half an entry");
        if self.forgetful && freed {
            WILD.store(true, Ordering::Relaxed);
            return;
        }
        assert!(!freed, "posted into memory that was given back");
        self.seen[place].fetch_add(1, Ordering::Relaxed);
    }
    fn seen(&self) -> [u64; 3] {
        std::array::from_fn(|n| self.seen[n].load(Ordering::Relaxed))
    }
}

fn entry(descriptor: u64) -> Irte {
    let who = Requester::Exact(8);
    let vector = 0x41;
    if descriptor == HOST {
        let target = Target {
            dest: 0,
            logical: false,
            lowest: false,
            vector,
            level: false,
        };
        return Irte::new(&target, who, true).unwrap();
    }
    let target = PostedTarget {
        descriptor,
        vector,
        urgent: false,
    };
    Irte::posted(&target, who).unwrap()
}

/// A message before and one at any time during a change; then the old receiver is given back and one more is sent.
fn race(from: u64, to: u64, forgetful: bool) {
    loom::model(move || {
        let m = Machine::new(entry(from), forgetful);
        m.message();
        let device = {
            let m = m.clone();
            thread::spawn(move || m.message())
        };
        let mut table = Table(m.clone());
        assert!(change(&mut table, 0, entry(to)));
        // The host's vector stays; a descriptor is given back.
        if from != HOST {
            m.freed[(from / 0x1000) as usize].store(true, Ordering::Release);
        }
        m.message();
        device.join().unwrap();
        if forgetful {
            return;
        }
        let seen = m.seen();
        let (old, new) = (seen[(from / 0x1000) as usize], seen[(to / 0x1000) as usize]);
        assert!(old >= 1 && new >= 1 && old + new == 3, "{seen:?}");
    });
}

#[test]
fn from_the_host_to_a_vcpu() {
    race(HOST, A, false);
}

#[test]
fn from_one_vcpu_to_another() {
    race(A, B, false);
}

#[test]
fn from_a_vcpu_back_to_the_host() {
    race(B, HOST, false);
}

/// Without the invalidation the unit goes on with what it remembers. Shows that the checks above can fail.
#[test]
fn without_invalidation_memory_is_posted_into_that_was_given_back() {
    race(A, B, true);
    assert!(WILD.load(Ordering::Relaxed));
}
