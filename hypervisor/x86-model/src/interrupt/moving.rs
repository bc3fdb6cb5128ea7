//! Moving a bound device interrupt to another CPU without losing one.
//!
//! The source is told the new place first; the vector at the old place stays bound. A device's messages arrive in the order
//! in which it sent them, so once one has arrived at the new place none is on its way to the old one: from then on the old
//! CPU's own request register knows whether one is left there. When it shows none, the old vector is given back. Until then
//! the interrupt does not move again; a wish for that is kept.
//!
//! This is the bookkeeping of one interrupt. Its owner keeps it under a lock, allots vectors and programs the source.
//! `tests/loom.rs` runs it against a device, two CPUs and a mover.

/// Where an interrupt arrives: a vector of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the CPU.
    pub cpu: u32,
    /// Vector.
    pub vector: u8,
}

/// What to do about a wish to have the interrupt on another CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is there.
    There,
    /// It can move now.
    Now,
    /// The last move is not over: the wish is kept, and this CPU should look whether its old vector is quiet.
    Later(u32),
}

/// What an arrival means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Where it should; nothing else to do.
    Settled,
    /// The first since the move: this CPU should look whether its old vector is quiet.
    First(u32),
    /// At the old place: it was under way during the move.
    Late,
    /// The interrupt has nothing to do with this place.
    Elsewhere,
}

/// Arrivals in a row for a vCPU that is at home on one other CPU after which the interrupt follows it. Fewer would make an
/// interrupt run after a vCPU that the scheduler moves about.
pub const PATIENCE: u8 = 16;

/// One interrupt's places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    at: Place,
    /// Places that may still see an interrupt: the last one, and one that the source passed through on the way.
    old: [Option<Place>; 2],
    /// The new place has seen an interrupt since the move.
    confirmed: bool,
    wanted: Option<u32>,
    /// A CPU that the target was found on, and how many times in a row.
    seen: (u32, u8),
}

impl Moving {
    /// At its first place.
    pub const fn new(at: Place) -> Self {
        Self {
            at,
            old: [None; 2],
            confirmed: true,
            wanted: None,
            seen: (at.cpu, 0),
        }
    }

    /// Where the source sends its interrupts.
    pub const fn at(&self) -> Place {
        self.at
    }

    /// All places that must be bound, the present one first.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        core::iter::once(self.at).chain(self.old.into_iter().flatten())
    }

    /// Old places that a CPU has.
    pub fn old_on(&self, cpu: u32) -> impl Iterator<Item = Place> + use<> {
        (self.old.into_iter().flatten()).filter(move |p| p.cpu == cpu)
    }

    /// Whether no old place is left.
    pub fn is_settled(&self) -> bool {
        self.old == [None; 2]
    }

    /// Whether an old place may be looked at: an interrupt has come to the new one.
    pub const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// The interrupt should be on this CPU.
    pub fn want(&mut self, cpu: u32) -> Wish {
        self.wanted = None;
        if self.at.cpu == cpu {
            return Wish::There;
        }
        match self.old.into_iter().flatten().next() {
            None => Wish::Now,
            Some(old) => {
                self.wanted = Some(cpu);
                Wish::Later(old.cpu)
            }
        }
    }

    /// The interrupt should be on this CPU as soon as one has arrived, and the last move is over.
    pub fn wish(&mut self, cpu: u32) {
        self.wanted = Some(cpu).filter(|&c| c != self.at.cpu);
    }

    /// Where it should go as soon as it can; taken once the last move is over.
    pub fn take_wish(&mut self) -> Option<u32> {
        if !self.is_settled() {
            return None;
        }
        self.wanted.take().filter(|&cpu| cpu != self.at.cpu)
    }

    /// It arrived for a target that is at home on `home`. True if it has been so for long enough to follow.
    pub fn follow(&mut self, home: u32) -> bool {
        if home == self.at.cpu {
            self.seen = (home, 0);
            return false;
        }
        let times = if self.seen.0 == home {
            self.seen.1.saturating_add(1)
        } else {
            1
        };
        self.seen = (home, times);
        times >= PATIENCE
    }

    /// The source is about to be told `to`, passing through `by` if it is told in two steps. False, and nothing happens, if
    /// the last move is not over.
    pub fn begin(&mut self, to: Place, by: Option<Place>) -> bool {
        if !self.is_settled() {
            return false;
        }
        self.old = [Some(self.at), by];
        self.at = to;
        self.confirmed = false;
        self.seen = (to.cpu, 0);
        true
    }

    /// An interrupt arrived.
    pub fn arrived(&mut self, at: Place) -> Arrival {
        if at == self.at {
            let first = !core::mem::replace(&mut self.confirmed, true);
            return match self.old.into_iter().flatten().next() {
                Some(old) if first => Arrival::First(old.cpu),
                _ => Arrival::Settled,
            };
        }
        if self.old.contains(&Some(at)) {
            Arrival::Late
        } else {
            Arrival::Elsewhere
        }
    }

    /// The interrupt can no longer be on its way to an old place, whatever has arrived: its source has answered a question
    /// that it was asked after the move, or it is off.
    pub fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// The CPU of this old place found that nothing waits there. True if the vector is to be given back now.
    pub fn quiet(&mut self, old: Place) -> bool {
        if !self.confirmed {
            return false;
        }
        let found = self.old.iter_mut().find(|o| **o == Some(old));
        found.and_then(Option::take).is_some()
    }
}

#[cfg(test)]
#[path = "moving_tests.rs"]
mod tests;
