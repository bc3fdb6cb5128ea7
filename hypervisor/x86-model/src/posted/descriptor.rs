//! The descriptor: 64 bytes that a processor, the units and other CPUs change at any time, each by atomic operations.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Word64;

/// Fields of the control word (bits 319:256 of the descriptor).
pub mod control {
    /// ON: a notification is outstanding.
    pub const ON: u64 = 1;
    /// SN: notifications are suppressed, but for urgent ones.
    pub const SN: u64 = 1 << 1;
    /// Bits that must be zero.
    pub const RESERVED: u64 = 0xff00_fffc;
    pub(super) const VECTOR_SHIFT: u32 = 16;
    pub(super) const DEST_SHIFT: u32 = 32;
}
use control::{DEST_SHIFT, ON, SN, VECTOR_SHIFT};

/// NDST: the APIC ID of a notification's destination, as the descriptor holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ndst(u32);

impl Ndst {
    /// Of the CPU with this APIC ID; `x2apic` says in which mode the local APICs are. `None` for an ID that the mode cannot
    /// address (in xAPIC mode above 254).
    pub const fn new(apic_id: u32, x2apic: bool) -> Option<Self> {
        match (x2apic, apic_id) {
            (true, u32::MAX) => None,
            (true, id) => Some(Self(id)),
            (false, id @ 0..=0xfe) => Some(Self(id << 8)),
            (false, _) => None,
        }
    }
    /// The APIC ID.
    pub const fn apic_id(self, x2apic: bool) -> u32 {
        if x2apic { self.0 } else { self.0 >> 8 & 0xff }
    }
    /// As it stands in the descriptor.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

/// A notification to be sent: a fixed, edge-triggered interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Physical vector.
    pub vector: u8,
    /// Destination.
    pub dest: Ndst,
}

impl Notice {
    const fn of(control: u64) -> Self {
        Self {
            vector: (control >> VECTOR_SHIFT) as u8,
            dest: Ndst((control >> DEST_SHIFT) as u32),
        }
    }
    const fn bits(self) -> u64 {
        (self.vector as u64) << VECTOR_SHIFT | (self.dest.0 as u64) << DEST_SHIFT
    }
}

/// What follows from posting a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    /// The vector was posted already and not taken yet: whoever did it also sees to the notification.
    Already,
    /// A notification is outstanding: the receiver will look.
    Pending,
    /// The receiver does not run and does not sleep: it looks before it runs.
    Suppressed,
    /// The caller must send this notification.
    Notify(Notice),
}

/// A posted-interrupt descriptor.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Descriptor<W = AtomicU64> {
    pir: [W; 4],
    control: W,
    /// Zero: a unit refuses anything else.
    reserved: [W; 3],
}

const _: () = assert!(size_of::<Descriptor>() == 64 && align_of::<Descriptor>() == 64);

/// Word and bit of a vector.
const fn place(vector: u8) -> (usize, u64) {
    (vector as usize / 64, 1 << (vector % 64))
}

impl Descriptor {
    /// An empty one, with notifications suppressed until [`Descriptor::run_on`].
    pub const fn suppressed() -> Self {
        Self {
            pir: [const { AtomicU64::new(0) }; 4],
            control: AtomicU64::new(SN),
            reserved: [const { AtomicU64::new(0) }; 3],
        }
    }
}

impl<W> Descriptor<W> {
    /// From cells: the four request words, the control word and three that hold 0.
    pub const fn new(pir: [W; 4], control: W, reserved: [W; 3]) -> Self {
        Self {
            pir,
            control,
            reserved,
        }
    }
}

impl<W: Word64> Descriptor<W> {
    /// Posts a vector as another CPU does. Never urgent.
    #[inline]
    pub fn post(&self, vector: u8) -> Post {
        let (word, bit) = place(vector);
        if self.pir[word].fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            return Post::Already;
        }
        self.notify(false)
    }

    /// Posts a vector as a unit does. The unit does it in one exclusive access to the whole line; here a receiver may come
    /// between, so what holds for this holds for the unit.
    pub fn post_by_unit(&self, vector: u8, urgent: bool) -> Option<Notice> {
        let (word, bit) = place(vector);
        self.pir[word].fetch_or(bit, Ordering::SeqCst);
        match self.notify(urgent) {
            Post::Notify(notice) => Some(notice),
            _ => None,
        }
    }

    #[inline]
    fn notify(&self, urgent: bool) -> Post {
        let mut now = self.control.load(Ordering::SeqCst);
        loop {
            if now & ON != 0 {
                return Post::Pending;
            }
            if now & SN != 0 && !urgent {
                return Post::Suppressed;
            }
            match self.control.exchange(now, now | ON) {
                Ok(()) => return Post::Notify(Notice::of(now)),
                Err(found) => now = found,
            }
        }
    }

    /// Takes what is posted, if a notification is outstanding; asked at each entry. `None` leaves the line unwritten.
    #[inline]
    pub fn sync(&self) -> Option<[u64; 4]> {
        if self.control.load(Ordering::Relaxed) & ON == 0 {
            return None;
        }
        self.control.fetch_and(!ON, Ordering::SeqCst);
        Some(self.take())
    }

    /// Takes the request words. All four are read before the first is exchanged, and words without a bit are not.
    #[inline]
    pub fn take(&self) -> [u64; 4] {
        let mut words = self.words();
        for (word, cell) in words.iter_mut().zip(&self.pir) {
            if *word != 0 {
                *word = cell.swap(0, Ordering::AcqRel);
            }
        }
        words
    }

    /// The request words as they are.
    #[inline]
    pub fn words(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|n: usize| self.pir[n].load(Ordering::SeqCst))
    }

    /// Takes one request word (0 to 3) alone.
    #[inline]
    pub fn exchange(&self, word: usize) -> u64 {
        self.pir[word].swap(0, Ordering::AcqRel)
    }

    /// Clears ON without taking anything: whoever posts from now on notifies again. The words must be looked at once more
    /// after it.
    #[inline]
    pub fn clear_on(&self) {
        self.control.fetch_and(!ON, Ordering::SeqCst);
    }

    /// Whether [`Descriptor::sync`] would find something, also while notifications are suppressed.
    pub fn is_pending(&self) -> bool {
        let now = self.control.load(Ordering::SeqCst);
        now & ON != 0 || now & SN != 0 && self.words() != [0; 4]
    }

    /// Whether a notification is outstanding.
    pub fn is_notified(&self) -> bool {
        self.control.load(Ordering::SeqCst) & ON != 0
    }

    /// Where notifications go now.
    pub fn notice(&self) -> Notice {
        Notice::of(self.control.load(Ordering::SeqCst))
    }

    /// Changes the control word; the values before and after.
    fn change(&self, to: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut now = self.control.load(Ordering::Relaxed);
        loop {
            let new = to(now);
            match self.control.exchange(now, new) {
                Ok(()) => return (now, new),
                Err(found) => now = found,
            }
        }
    }

    /// The receiver starts to run on the CPU of this notice: from now on posts notify it there. True if something is posted
    /// already, for the next [`Descriptor::sync`].
    pub fn run_on(&self, at: Notice) -> bool {
        let (before, after) = self.change(|now| now & ON | at.bits());
        if after & ON != 0 {
            return true;
        }
        // Posts that came while SN was set have not set ON.
        if before & SN != 0 && self.words() != [0; 4] {
            self.control.fetch_or(ON, Ordering::SeqCst);
            return true;
        }
        false
    }

    /// The receiver stops running but wants to go on: it looks by itself when it does, and is left alone until then.
    pub fn preempt(&self) {
        self.control.fetch_or(SN, Ordering::SeqCst);
    }

    /// The running receiver wants to sleep, to be woken by this notice. False if something has been posted: it must not.
    /// It has to be where the wake-up looks for it (see [`super::WakeList`]) before this.
    pub fn block(&self, wake: Notice) -> bool {
        let mut now = self.control.load(Ordering::Relaxed);
        loop {
            if now & ON != 0 {
                return false;
            }
            match self.control.exchange(now, wake.bits()) {
                Ok(()) => return true,
                Err(found) => now = found,
            }
        }
    }

    /// Sends notifications to another CPU from now on, leaving the rest: for a sleeper whose CPU goes away. True if one is
    /// outstanding, which may have gone to the old CPU: then the caller wakes the sleeper.
    pub fn retarget(&self, dest: Ndst) -> bool {
        let (_, after) = self.change(|now| now & 0xffff_ffff | u64::from(dest.0) << DEST_SHIFT);
        after & ON != 0
    }

    /// Empties the descriptor and suppresses notifications, for a receiver that is reset or gone. Entries that name it must
    /// have been changed and invalidated before its memory is given back.
    pub fn reset(&self) {
        self.change(|_| SN);
        for word in &self.pir {
            word.swap(0, Ordering::AcqRel);
        }
    }

    /// Whether every reserved bit is clear.
    pub fn is_valid(&self) -> bool {
        self.control.load(Ordering::Relaxed) & control::RESERVED == 0
            && self.reserved.iter().all(|w| w.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod tests;
