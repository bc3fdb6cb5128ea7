//! Second-stage address translation (guest-physical to machine): one four-level radix tree over two entry formats.
//!
//! Look-ups take no lock: entries are read and written as whole words, and tables live until the tree is dropped.
//! Writers are serialised by the tree's lock. The tree does not count references to leaf frames; its user does.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use alloc::vec::Vec;
use x86_model::{Gfn, Mfn};
use xen_abi::DomId;

use super::frames::{self, FrameKind};
use super::phys_to_virt;
use crate::sync::{SpinLock, rank};

/// Entry encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// AMD nested paging: ordinary long-mode entries with the user bit set (APM vol. 2, 15.25).
    Npt,
    /// Intel EPT (SDM vol. 3, 29.3).
    Ept,
}

/// Rights and cacheability of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perms {
    /// Writes allowed.
    pub write: bool,
    /// Instruction fetches allowed.
    pub exec: bool,
    /// Device memory: uncached unless the guest's own type says otherwise (EPT only; NPT combines with the guest PAT).
    pub device: bool,
}

impl Perms {
    /// Ordinary RAM.
    pub const RAM: Perms = Perms {
        write: true,
        exec: true,
        device: false,
    };
    /// Read-only RAM.
    pub const RO: Perms = Perms {
        write: false,
        exec: true,
        device: false,
    };
    /// Device registers.
    pub const MMIO: Perms = Perms {
        write: true,
        exec: true,
        device: true,
    };
}

/// Why a mapping could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage2Error {
    /// No frame for a table, or the tree's limit is reached.
    NoMemory,
    /// The frame number is beyond 48 bits of address, or not aligned to the order.
    BadFrame,
    /// A superpage was asked for where smaller mappings exist.
    Occupied,
}

/// One translation: `mfn` backs the looked-up frame; the whole leaf covers `1 << order` frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Machine frame of the frame asked for.
    pub mfn: Mfn,
    /// 0 (4 KiB), 9 (2 MiB) or 18 (1 GiB).
    pub order: u8,
    /// Rights.
    pub perms: Perms,
    /// The user's own 3-bit note (page type).
    pub tag: u8,
}

const ADDR: u64 = 0x000f_ffff_ffff_f000;
const LARGE: u64 = 1 << 7;
const TAG_SHIFT: u32 = 52;
const NX: u64 = 1 << 63;

impl Format {
    const fn leaf(self, mfn: Mfn, order: u8, p: Perms, tag: u8) -> u64 {
        let large = if order > 0 { LARGE } else { 0 };
        let common = mfn.0 << 12 | (tag as u64 & 7) << TAG_SHIFT | large;
        match self {
            // P, US, A, D set: hardware then never writes the entry.
            Format::Npt => common | 0x65 | (p.write as u64) << 1 | if p.exec { 0 } else { NX },
            // Memory type write-back (6) or uncached (0), never "ignore PAT".
            Format::Ept => {
                common
                    | 1
                    | (p.write as u64) << 1
                    | (p.exec as u64) << 2
                    | if p.device { 0 } else { 6 << 3 }
            }
        }
    }
    const fn table(self, mfn: Mfn) -> u64 {
        mfn.0 << 12 | 0x7
    }
    const fn present(self, e: u64) -> bool {
        e & 7 != 0
    }
    const fn perms(self, e: u64) -> Perms {
        match self {
            Format::Npt => Perms {
                write: e & 2 != 0,
                exec: e & NX == 0,
                device: false,
            },
            Format::Ept => Perms {
                write: e & 2 != 0,
                exec: e & 4 != 0,
                device: e >> 3 & 7 == 0,
            },
        }
    }
}

/// A translation tree.
pub struct Stage2 {
    root: Mfn,
    format: Format,
    writer: SpinLock<(), { rank::P2M }>,
    generation: AtomicU64,
    /// Table frames, the root included; only writers add to it.
    tables: AtomicUsize,
    /// Most table frames.
    limit: AtomicUsize,
}

const fn index(gfn: Gfn, level: u32) -> usize {
    (gfn.0 >> (9 * level) & 511) as usize
}

fn table(mfn: Mfn) -> &'static [AtomicU64; 512] {
    // SAFETY: `mfn` is a table frame of a live tree: allocated here, zeroed, only accessed as atomic words, and freed
    // only when the tree is dropped.
    unsafe { &*phys_to_virt(mfn.hpa()).cast::<[AtomicU64; 512]>() }
}

fn new_table() -> Result<Mfn, Stage2Error> {
    let mfn = frames::alloc_contiguous(1, 1, None, FrameKind::Hypervisor, DomId::XEN)
        .ok_or(Stage2Error::NoMemory)?;
    // SAFETY: a frame just allocated and not shared yet.
    unsafe { core::ptr::write_bytes(phys_to_virt(mfn.hpa()), 0, 4096) };
    Ok(mfn)
}

impl Stage2 {
    /// An empty tree.
    pub fn new(format: Format) -> Result<Self, Stage2Error> {
        Ok(Stage2 {
            root: new_table()?,
            format,
            writer: SpinLock::new(()),
            generation: AtomicU64::new(1),
            tables: AtomicUsize::new(1),
            limit: AtomicUsize::new(usize::MAX),
        })
    }

    /// Frames that the tables take, and the most that they may take.
    pub fn table_frames(&self) -> (usize, usize) {
        (
            self.tables.load(Ordering::Relaxed),
            self.limit.load(Ordering::Relaxed),
        )
    }

    /// Sets the most frames that tables may take. Tables that are there stay.
    pub fn set_table_limit(&self, frames: usize) {
        self.limit.store(frames, Ordering::Relaxed);
    }

    /// A frame for a table of this tree. Under the writer's lock.
    fn add_table(&self) -> Result<Mfn, Stage2Error> {
        let (used, limit) = self.table_frames();
        if used >= limit {
            return Err(Stage2Error::NoMemory);
        }
        let frame = new_table()?;
        self.tables.store(used + 1, Ordering::Relaxed);
        Ok(frame)
    }

    /// Frame of the top-level table, for hardware.
    pub fn root(&self) -> Mfn {
        self.root
    }

    /// Entry format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rises whenever a mapping is removed or reduced: a CPU that last flushed at an older value must flush before
    /// it enters the guest again.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes every CPU flush its translations before it enters the guest again.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The translation of `gfn`.
    #[inline]
    pub fn lookup(&self, gfn: Gfn) -> Option<Leaf> {
        if gfn.0 >> 36 != 0 {
            return None;
        }
        let mut at = self.root;
        let mut level = 3;
        loop {
            let e = table(at)[index(gfn, level)].load(Ordering::Acquire);
            if !self.format.present(e) {
                return None;
            }
            if level == 0 || e & LARGE != 0 {
                let order = (9 * level) as u8;
                let within = gfn.0 & ((1 << order) - 1);
                return Some(Leaf {
                    mfn: Mfn(((e & ADDR) >> 12) + within),
                    order,
                    perms: self.format.perms(e),
                    tag: (e >> TAG_SHIFT & 7) as u8,
                });
            }
            at = Mfn((e & ADDR) >> 12);
            level -= 1;
        }
    }

    /// The first frame at or after `from` that is translated, and its translation. For taking a tree apart.
    pub fn next_leaf(&self, from: Gfn) -> Option<(Gfn, Leaf)> {
        let mut gfn = from.0;
        while gfn >> 36 == 0 {
            if let Some(leaf) = self.lookup(Gfn(gfn)) {
                return Some((Gfn(gfn), leaf));
            }
            // Pass over all that the empty entry covers.
            let mut at = self.root;
            let mut level = 3;
            loop {
                let e = table(at)[index(Gfn(gfn), level)].load(Ordering::Acquire);
                if level == 0 || !self.format.present(e) || e & LARGE != 0 {
                    break;
                }
                at = Mfn((e & ADDR) >> 12);
                level -= 1;
            }
            gfn = ((gfn >> (9 * level)) + 1) << (9 * level);
        }
        None
    }

    /// Maps `1 << order` frames (order 0, 9 or 18) and returns the leaf that was there, if any. Base-page mappings split
    /// a superpage in their way; superpages need an empty slot or a leaf of the same size.
    pub fn map(
        &self,
        gfn: Gfn,
        mfn: Mfn,
        order: u8,
        perms: Perms,
        tag: u8,
    ) -> Result<Option<Leaf>, Stage2Error> {
        let mask = (1u64 << order) - 1;
        if gfn.0 >> 36 != 0
            || mfn.0 >> 40 != 0
            || (gfn.0 | mfn.0) & mask != 0
            || !matches!(order, 0 | 9 | 18)
        {
            return Err(Stage2Error::BadFrame);
        }
        let _writer = self.writer.lock();
        let slot = self.slot(gfn, u32::from(order) / 9)?;
        let old = slot.load(Ordering::Acquire);
        if order > 0 && self.format.present(old) && old & LARGE == 0 {
            return Err(Stage2Error::Occupied);
        }
        slot.store(self.format.leaf(mfn, order, perms, tag), Ordering::Release);
        Ok(self.replaced(old, order))
    }

    /// Removes the mapping of one base page (splitting a superpage) and returns it.
    pub fn unmap(&self, gfn: Gfn) -> Result<Option<Leaf>, Stage2Error> {
        if self.lookup(gfn).is_none() {
            return Ok(None);
        }
        let _writer = self.writer.lock();
        let slot = self.slot(gfn, 0)?;
        let old = slot.swap(0, Ordering::AcqRel);
        Ok(self.replaced(old, 0))
    }

    /// Splits a 1 GiB leaf that `gfn` lies in into 2 MiB ones; nothing else changes. NoMemory: there is no frame for the
    /// table.
    pub fn split(&self, gfn: Gfn) -> Result<(), Stage2Error> {
        if self.lookup(gfn).is_some_and(|l| l.order == 18) {
            let _writer = self.writer.lock();
            self.slot(gfn, 1)?;
        }
        Ok(())
    }

    /// Removes the whole leaf that `gfn` lies in, whatever its size, and returns it (its first frame and its order).
    pub fn unmap_leaf(&self, gfn: Gfn) -> Option<Leaf> {
        let _writer = self.writer.lock();
        let order = u32::from(self.lookup(gfn)?.order);
        let first = Gfn(gfn.0 & !((1 << order) - 1));
        // The leaf stands there, so no table has to be made on the way to it.
        let slot = self.slot(first, order / 9).ok()?;
        let old = slot.swap(0, Ordering::AcqRel);
        self.replaced(old, order as u8)
    }

    fn replaced(&self, old: u64, order: u8) -> Option<Leaf> {
        if !self.format.present(old) {
            return None;
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        Some(Leaf {
            mfn: Mfn((old & ADDR) >> 12),
            order,
            perms: self.format.perms(old),
            tag: (old >> TAG_SHIFT & 7) as u8,
        })
    }

    /// The entry for `gfn` at `target` level (0 = base page), making tables and splitting superpages above it.
    fn slot(&self, gfn: Gfn, target: u32) -> Result<&'static AtomicU64, Stage2Error> {
        let mut at = self.root;
        for level in (target + 1..=3).rev() {
            let slot = &table(at)[index(gfn, level)];
            let e = slot.load(Ordering::Acquire);
            at = if !self.format.present(e) {
                let new = self.add_table()?;
                slot.store(self.format.table(new), Ordering::Release);
                new
            } else if e & LARGE != 0 {
                let new = self.add_table()?;
                let order = (9 * (level - 1)) as u8;
                let (first, perms, tag) = (
                    Mfn((e & ADDR) >> 12),
                    self.format.perms(e),
                    (e >> TAG_SHIFT & 7) as u8,
                );
                for (i, sub) in table(new).iter().enumerate() {
                    let mfn = Mfn(first.0 + ((i as u64) << order));
                    sub.store(self.format.leaf(mfn, order, perms, tag), Ordering::Relaxed);
                }
                slot.store(self.format.table(new), Ordering::Release);
                new
            } else {
                Mfn((e & ADDR) >> 12)
            };
        }
        Ok(&table(at)[index(gfn, target)])
    }
}

impl Drop for Stage2 {
    fn drop(&mut self) {
        let mut pending: Vec<(Mfn, u32)> = Vec::new();
        pending.push((self.root, 3));
        while let Some((mfn, level)) = pending.pop() {
            if level > 0 {
                for e in table(mfn).iter().map(|e| e.load(Ordering::Relaxed)) {
                    if self.format.present(e) && e & LARGE == 0 {
                        pending.push((Mfn((e & ADDR) >> 12), level - 1));
                    }
                }
            }
            frames::free_contiguous(mfn, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superpage_splits_and_keeps_its_neighbours() {
        crate::host::arena::init();
        for format in [Format::Npt, Format::Ept] {
            let t = Stage2::new(format).unwrap();
            assert_eq!(t.map(Gfn(0x200), Mfn(0x400), 9, Perms::RAM, 3), Ok(None));
            assert_eq!(t.lookup(Gfn(0x2ff)).unwrap().mfn, Mfn(0x4ff));
            let old = t.unmap(Gfn(0x210)).unwrap().unwrap();
            assert_eq!((old.mfn, old.order, old.tag), (Mfn(0x410), 0, 3));
            assert_eq!(t.lookup(Gfn(0x210)), None);
            let next = |from| {
                t.next_leaf(Gfn(from))
                    .map(|(gfn, leaf)| (gfn.0, leaf.mfn.0))
            };
            assert_eq!(next(0), Some((0x200, 0x400)));
            assert_eq!(next(0x210), Some((0x211, 0x411)));
            assert_eq!(next(0x400), None);
            assert_eq!(next(1 << 36), None);
            assert_eq!(t.lookup(Gfn(0x211)).unwrap().mfn, Mfn(0x411));
            assert_eq!(t.map(Gfn(0x600), Mfn(0x800), 9, Perms::RAM, 3), Ok(None));
            let whole = t.unmap_leaf(Gfn(0x7ff)).unwrap();
            assert_eq!((whole.mfn, whole.order), (Mfn(0x800), 9));
            assert_eq!(t.unmap_leaf(Gfn(0x600)), None);
            assert_eq!(t.unmap_leaf(Gfn(0x2ff)).unwrap().mfn, Mfn(0x4ff));
            assert_eq!(t.lookup(Gfn(0x2fe)).unwrap().mfn, Mfn(0x4fe));
            assert_eq!(t.map(Gfn(0x2ff), Mfn(0x4ff), 0, Perms::RAM, 3), Ok(None));
            // Root, two levels of tables, and the one that the split made.
            assert_eq!(t.table_frames().0, 4);
            t.set_table_limit(4);
            assert_eq!(
                t.map(Gfn(0x4000_0000), Mfn(1), 0, Perms::RAM, 3),
                Err(Stage2Error::NoMemory)
            );
            assert_eq!(
                t.map(Gfn(0x201), Mfn(1), 0, Perms::RAM, 3)
                    .map(|l| l.is_some()),
                Ok(true)
            );
            assert_eq!(
                t.map(Gfn(0x200), Mfn(0x400), 9, Perms::RAM, 3),
                Err(Stage2Error::Occupied)
            );
            t.set_table_limit(9);
            assert_eq!(
                t.map(Gfn(1 << 18), Mfn(1 << 18), 18, Perms::RAM, 3),
                Ok(None)
            );
            assert_eq!(t.split(Gfn((1 << 18) + 700)), Ok(()));
            let part = t.lookup(Gfn((1 << 18) + 700)).unwrap();
            assert_eq!((part.mfn, part.order), (Mfn((1 << 18) + 700), 9));
            assert_eq!(t.split(Gfn((1 << 18) + 700)), Ok(()));
            assert_eq!(
                t.map(Gfn(1 << 36), Mfn(1), 0, Perms::RAM, 0),
                Err(Stage2Error::BadFrame)
            );
        }
    }
}
