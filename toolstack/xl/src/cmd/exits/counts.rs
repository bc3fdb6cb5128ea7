//! The counters of `/exits/<domain>/<vCPU>`, read and added up.

use crate::cmd::failure::{Failure, Result};
use serde::{Deserialize, Serialize};

/// What is no exit: work before the first entry of a turn on a CPU.
const SCHEDULE: &str = "schedule";

/// A file, read.
pub(super) struct Sample {
    /// Cycles per millisecond.
    pub tsc_khz: u64,
    /// Its figures.
    pub counts: Counts,
}

/// Figures of a vCPU or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// All exits.
    pub exits_total: u64,
    /// All injections.
    pub injected_total: u64,
    /// By reason, in the order of the names.
    pub exits: Vec<Event>,
    /// Turns on a CPU.
    pub schedule: Option<Event>,
    /// By vector.
    pub injected: Vec<Injected>,
}

/// How often something happened, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Event {
    /// The hypervisor's name of it.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// Cycles in all; `None` if the hypervisor was built without times.
    pub cycles: Option<u64>,
    /// Times in powers of two; likewise.
    pub histogram: Option<Vec<Bucket>>,
}

/// Times from 2^`log2` cycles to twice that.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Bucket {
    /// The power.
    pub log2: u8,
    /// How many.
    pub count: u64,
}

/// A vector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Injected {
    /// Its number; 2 is the NMI.
    pub vector: u8,
    /// How often.
    pub count: u64,
}

/// Reads a file of the hypervisor. Lines of a kind that is not known are skipped.
pub(super) fn parse(text: &str) -> Result<Sample> {
    let mut sample = Sample {
        tsc_khz: 0,
        counts: Counts::default(),
    };
    let mut format = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let good = match words[..] {
            ["format", n] => {
                format = Some(n);
                Some(())
            }
            ["tsc_khz", n] => n.parse().ok().map(|n| sample.tsc_khz = n),
            ["exit", name, count, cycles, ref buckets @ ..] => {
                let event = event(name, count, cycles, buckets);
                event.map(|e| match name {
                    SCHEDULE => sample.counts.schedule = Some(e),
                    _ => sample.counts.exits.push(e),
                })
            }
            ["inject", vector, count] => injected(vector, count).map(|i| {
                sample.counts.injected.push(i);
            }),
            _ => Some(()),
        };
        if good.is_none() {
            let message = format!("the hypervisor's line of exits '{line}' has no meaning");
            return Err(Failure::new(message));
        }
    }
    if format != Some("1") {
        return Err(Failure::new(format!(
            "the hypervisor counts exits in format {}; this xl knows 1",
            format.unwrap_or("(none)")
        )));
    }
    sample.counts.tidy();
    Ok(sample)
}

fn event(name: &str, count: &str, cycles: &str, buckets: &[&str]) -> Option<Event> {
    let bucket = |text: &&str| {
        let (log2, count) = text.split_once(':')?;
        let log2 = log2.parse().ok().filter(|n| *n < 64)?;
        Some(Bucket {
            log2,
            count: count.parse().ok()?,
        })
    };
    let timed = !buckets.is_empty();
    let cycles: u64 = cycles.parse().ok()?;
    let histogram: Option<Vec<Bucket>> = buckets.iter().map(bucket).collect();
    Some(Event {
        reason: name.into(),
        count: count.parse().ok()?,
        cycles: timed.then_some(cycles),
        histogram: if timed { Some(histogram?) } else { None },
    })
}

fn injected(vector: &str, count: &str) -> Option<Injected> {
    let vector = u8::from_str_radix(vector.strip_prefix("0x")?, 16).ok()?;
    Some(Injected {
        vector,
        count: count.parse().ok()?,
    })
}

impl Counts {
    /// Those of several vCPUs together.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Counts>) -> Counts {
        let mut sum = Counts::default();
        for counts in all {
            for event in &counts.exits {
                match sum.exits.iter_mut().find(|e| e.reason == event.reason) {
                    Some(to) => to.add(event),
                    None => sum.exits.push(event.clone()),
                }
            }
            if let Some(event) = &counts.schedule {
                match &mut sum.schedule {
                    Some(to) => to.add(event),
                    to => *to = Some(event.clone()),
                }
            }
            for i in &counts.injected {
                match sum.injected.iter_mut().find(|e| e.vector == i.vector) {
                    Some(to) => to.count = to.count.saturating_add(i.count),
                    None => sum.injected.push(*i),
                }
            }
        }
        sum.tidy();
        sum
    }

    /// Whether all counters are at least what they were.
    pub fn follows(&self, earlier: &Counts) -> bool {
        let events =
            |c: &Counts| -> Vec<Event> { c.exits.iter().chain(&c.schedule).cloned().collect() };
        let now = events(self);
        events(earlier).iter().all(|old| {
            let new = now.iter().find(|e| e.reason == old.reason);
            new.is_some_and(|new| new.count >= old.count)
        })
    }

    /// Takes off what had happened before.
    pub fn subtract(&mut self, earlier: &Counts) {
        for event in &mut self.exits {
            if let Some(old) = earlier.exits.iter().find(|e| e.reason == event.reason) {
                event.subtract(old);
            }
        }
        if let (Some(event), Some(old)) = (&mut self.schedule, &earlier.schedule) {
            event.subtract(old);
        }
        for i in &mut self.injected {
            if let Some(old) = earlier.injected.iter().find(|e| e.vector == i.vector) {
                i.count = i.count.saturating_sub(old.count);
            }
        }
        self.tidy();
    }

    /// Order, sums, nothing that never happened.
    fn tidy(&mut self) {
        self.exits.retain(|e| e.count > 0);
        self.schedule.take_if(|e| e.count == 0);
        self.exits.sort_by(|a, b| a.reason.cmp(&b.reason));
        self.injected.retain(|i| i.count > 0);
        self.injected.sort_by_key(|i| i.vector);
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
        self.exits_total = sum(&mut self.exits.iter().map(|e| e.count));
        self.injected_total = sum(&mut self.injected.iter().map(|i| i.count));
    }
}

impl Event {
    fn add(&mut self, other: &Event) {
        self.count = self.count.saturating_add(other.count);
        self.cycles = match (self.cycles, other.cycles) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        let more = other.histogram.iter().flatten();
        for bucket in more {
            let to = self.histogram.get_or_insert_default();
            match to.iter_mut().find(|b| b.log2 == bucket.log2) {
                Some(b) => b.count = b.count.saturating_add(bucket.count),
                None => to.push(*bucket),
            }
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.sort_by_key(|b| b.log2);
        }
    }

    fn subtract(&mut self, old: &Event) {
        self.count = self.count.saturating_sub(old.count);
        if let (Some(to), Some(old)) = (&mut self.cycles, old.cycles) {
            *to = to.saturating_sub(old);
        }
        if let (Some(to), Some(old)) = (&mut self.histogram, &old.histogram) {
            for bucket in old {
                if let Some(b) = to.iter_mut().find(|b| b.log2 == bucket.log2) {
                    b.count = b.count.saturating_sub(bucket.count);
                }
            }
            to.retain(|b| b.count > 0);
        }
    }

    /// Cycles of one, on average; `None` without times.
    pub fn mean(&self) -> Option<u64> {
        self.cycles?.checked_div(self.timed())
    }

    /// The number of cycles that this share of them (per mille) stays below, as a power of two; `None` without times.
    pub fn below(&self, share: u64) -> Option<u64> {
        let rank = self.timed().checked_mul(share)?.div_ceil(1000);
        let mut seen = 0;
        for bucket in self.histogram.as_ref()? {
            seen += bucket.count;
            if seen >= rank && rank > 0 {
                return 1u64.checked_shl(u32::from(bucket.log2) + 1);
            }
        }
        None
    }

    /// How many were timed: one may be under way.
    fn timed(&self) -> u64 {
        let buckets = self.histogram.iter().flatten();
        buckets.fold(0, |sum, b| sum.saturating_add(b.count))
    }
}
