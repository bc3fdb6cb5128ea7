//! One CPU's trace buffer: pages that dom0 maps. Only its CPU writes; there is no lock. The reader's place is the one word of it
//! that is believed, and only after a check: a reader that writes nonsense, or nothing, loses records and does no other harm.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hv_hw::mem::FrameRef;
use x86_model::PAGE_SIZE;
use xen_abi::DomId;
use xen_abi::trace::{Buffer, general, head};

/// Bytes before the records.
const START: u32 = size_of::<Buffer>() as u32;
const CONS: usize = 0;
const PROD: usize = 4;
/// Most words of a record: head, time stamp, data.
const WORDS: usize = 1 + 2 + head::EXTRA_MAX as usize;
/// Bytes of a record about lost ones.
const LOST: u32 = 4 * (1 + 2 + 4);

/// The buffer.
pub struct Ring {
    pages: Box<[FrameRef]>,
    /// Bytes for records.
    room: u32,
    /// As in the page, where nobody can change it.
    prod: AtomicU32,
    lost: AtomicU32,
    first_lost: AtomicU64,
}

/// What is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The event.
    pub event: u32,
    /// Whether the time stamp is recorded.
    pub timed: bool,
    /// Time stamp.
    pub tsc: u64,
    /// At most seven words; more are cut off.
    pub extra: &'a [u32],
    /// Who runs here, for the record about lost ones: domain and vCPU.
    pub who: (DomId, u32),
}

/// Words of a record under construction.
#[derive(Default)]
struct Words {
    words: [u32; WORDS],
    len: usize,
}

impl Words {
    fn new(event: u32, tsc: Option<u64>, extra: &[u32]) -> Self {
        let extra = &extra[..extra.len().min(head::EXTRA_MAX as usize)];
        let mut w = Words::default();
        let flag = if tsc.is_some() { head::CYCLES } else { 0 };
        w.push(event | flag | (extra.len() as u32) << head::EXTRA_SHIFT);
        if let Some(tsc) = tsc {
            w.push(tsc as u32);
            w.push((tsc >> 32) as u32);
        }
        extra.iter().for_each(|word| w.push(*word));
        w
    }
    fn push(&mut self, word: u32) {
        self.words[self.len] = word;
        self.len += 1;
    }
    fn bytes(&self) -> u32 {
        4 * self.len as u32
    }
}

impl Ring {
    /// An empty buffer in these pages, of which there must be at least one.
    pub fn new(pages: Box<[FrameRef]>) -> Self {
        let room = pages.len() as u32 * PAGE_SIZE as u32 - START;
        Ring {
            pages,
            room,
            prod: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            first_lost: AtomicU64::new(0),
        }
    }

    /// Its pages.
    pub fn pages(&self) -> &[FrameRef] {
        &self.pages
    }

    /// Bytes that the reader has not read; all of them if what it says of itself cannot be.
    fn used(&self) -> u32 {
        let cons = self.pages[0].atomic_u32(CONS).load(Ordering::Acquire);
        let prod = self.prod.load(Ordering::Relaxed);
        if !cons.is_multiple_of(4) || cons >= 2 * self.room {
            return self.room;
        }
        let used = if prod >= cons {
            prod - cons
        } else {
            prod + 2 * self.room - cons
        };
        used.min(self.room)
    }

    /// Bytes to be filled before a record of this length, which does not go across the end, can stand at `at`.
    fn padding(&self, at: u32, len: u32) -> u32 {
        let rest = self.room - at;
        if len > rest { rest } else { 0 }
    }

    fn after(&self, at: u32, len: u32) -> u32 {
        (at + len) % self.room
    }

    /// Writes a record, by the ring's CPU alone. True if the buffer has just become half full: the reader should be told.
    pub fn record(&self, r: &Record<'_>) -> bool {
        let words = Words::new(r.event, r.timed.then_some(r.tsc), r.extra);
        let lost = self.lost.load(Ordering::Relaxed);
        let used = self.used();
        let mut at = self.prod.load(Ordering::Relaxed) % self.room;
        let mut total = 0;
        if lost != 0 {
            let padding = self.padding(at, LOST);
            total += padding + LOST;
            at = self.after(at, padding + LOST);
        }
        total += self.padding(at, words.bytes()) + words.bytes();
        if total > self.room - used {
            if self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
                self.first_lost.store(r.tsc, Ordering::Relaxed);
            }
            return false;
        }
        if lost != 0 {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            let first = self.first_lost.load(Ordering::Relaxed);
            let who = u32::from(r.who.0.0) | r.who.1 << 16;
            let extra = [lost, who, first as u32, (first >> 32) as u32];
            self.put(&Words::new(general::LOST, Some(r.tsc), &extra));
        }
        self.put(&words);
        let half = self.room / 2;
        used < half && used + total >= half
    }

    /// Forgets that records were lost; by anybody.
    pub fn forget_lost(&self) {
        self.lost.store(0, Ordering::Relaxed);
    }

    /// Writes words for which there is room, after what fills the end of the buffer if they do not fit there.
    fn put(&self, words: &Words) {
        let prod = self.prod.load(Ordering::Relaxed);
        let at = prod % self.room;
        let padding = self.padding(at, words.bytes());
        if padding != 0 {
            let zeroes = [0; WORDS];
            let extra = padding as usize / 4 - 1;
            let most = head::EXTRA_MAX as usize;
            let wrap = if extra > most {
                Words::new(general::WRAP, Some(0), &zeroes[..extra - 2])
            } else {
                Words::new(general::WRAP, None, &zeroes[..extra])
            };
            self.copy(at, &wrap);
        }
        self.copy(self.after(at, padding), words);
        let next = (prod + padding + words.bytes()) % (2 * self.room);
        self.prod.store(next, Ordering::Relaxed);
        self.pages[0]
            .atomic_u32(PROD)
            .store(next, Ordering::Release);
    }

    fn copy(&self, at: u32, words: &Words) {
        for (n, word) in (0..).zip(&words.words[..words.len]) {
            let byte = (START + at + 4 * n) as usize;
            let page = &self.pages[byte / PAGE_SIZE as usize];
            page.atomic_u32(byte % PAGE_SIZE as usize)
                .store(*word, Ordering::Relaxed);
        }
    }
}
