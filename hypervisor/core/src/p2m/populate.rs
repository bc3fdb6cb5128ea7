//! Giving a domain RAM, in pages and superpages, and taking its whole memory apart when it dies.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hv_hw::mem::{FrameRef, FrameRun, Perms, Stage2Error};
use x86_model::{Gfn, Mfn};
use xen_abi::Errno;

use super::{P2m, P2mError, PageType, Removed};

/// Order of a superpage that [`P2m::populate`] makes.
pub const SUPERPAGE: u8 = 9;

/// What unmapping a superpage costs, in the units of [`P2m::release`].
const SUPERPAGE_COST: u32 = 64;

impl P2m {
    /// Gives the domain `1 << order` zeroed pages at `first`, which is aligned and in range, if it then has at most
    /// `max_pages`. ENOMEM: more than that, no memory, a page is there already, or it is an identity page whose frame
    /// another domain has; nothing is changed then, but what the domain itself put there meanwhile comes into `removed`.
    /// Identity pages come one at a time.
    pub fn populate(
        &self,
        first: Gfn,
        order: u8,
        max_pages: u64,
        removed: &mut Vec<Removed>,
    ) -> Result<(), Errno> {
        let count = 1u64 << order;
        if (first.0..first.0 + count).any(|gfn| self.page_type(Gfn(gfn)).is_some()) {
            return Err(Errno::ENOMEM);
        }
        self.charge(count, max_pages)?;
        let result = self.fill(first, order, removed);
        if result.is_err() {
            self.pages.fetch_sub(count as usize, Ordering::Relaxed);
        }
        result
    }

    /// Counts `count` more pages of RAM, if the domain may have them.
    pub(super) fn charge(&self, count: u64, max_pages: u64) -> Result<(), Errno> {
        let more = |now: usize| {
            let new = (now as u64).checked_add(count)?;
            (new <= max_pages).then_some(new as usize)
        };
        self.pages
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map(|_| ())
            .map_err(|_| Errno::ENOMEM)
    }

    fn fill(&self, first: Gfn, order: u8, removed: &mut Vec<Removed>) -> Result<(), Errno> {
        if order == 0 {
            let frame = self.drawing(1, |draw| match self.is_identity(first) {
                true => FrameRef::take(Mfn(first.0), self.owner, draw),
                false => FrameRef::alloc_drawing(self.owner, draw),
            });
            let frame = frame.ok_or(Errno::ENOMEM)?;
            return Ok(self.enter(first, frame, removed)?);
        }
        let run = self.drawing(1 << order, |draw| FrameRun::alloc(self.owner, order, draw));
        let run = run.ok_or(Errno::ENOMEM)?;
        let leaf_order = if order == SUPERPAGE { order } else { 0 };
        let mapped = if leaf_order == 0 {
            Err(Stage2Error::Occupied)
        } else {
            let tag = PageType::Ram as u8;
            self.stage2
                .map(first, run.first(), leaf_order, Perms::RAM, tag)
        };
        match mapped {
            Ok(old) => {
                // From here on the tree owns the references.
                let _ = run.into_raw();
                self.note(first, order);
                removed.extend(self.take(old));
                Ok(())
            }
            // A table stands there, from smaller pages of the past.
            Err(Stage2Error::Occupied) => Ok(self.enter_pages(first, order, run, removed)?),
            Err(e) => Err(P2mError::from(e).into()),
        }
    }

    /// Enters one page of RAM that has been counted.
    fn enter(&self, gfn: Gfn, frame: FrameRef, removed: &mut Vec<Removed>) -> Result<(), P2mError> {
        removed
            .try_reserve(1)
            .map_err(|_| P2mError(Errno::ENOMEM))?;
        let tag = PageType::Ram as u8;
        let old = self.stage2.map(gfn, frame.mfn(), 0, Perms::RAM, tag)?;
        // From here on the tree owns the reference.
        let _ = frame.into_raw();
        self.note(gfn, 0);
        removed.extend(self.take(old));
        Ok(())
    }

    /// Enters a run page by page: all of it or nothing.
    fn enter_pages(
        &self,
        first: Gfn,
        order: u8,
        run: FrameRun,
        removed: &mut Vec<Removed>,
    ) -> Result<(), P2mError> {
        let count = 1u64 << order;
        // A guest may use the pages as soon as they are there: those that must go again wait for the flush.
        removed
            .try_reserve(2 * count as usize)
            .map_err(|_| P2mError(Errno::ENOMEM))?;
        let start = run.into_raw();
        for i in 0..count {
            let frame = FrameRef::from_raw(Mfn(start.0 + i));
            if let Err(e) = self.enter(Gfn(first.0 + i), frame, removed) {
                for rest in i + 1..count {
                    drop(FrameRef::from_raw(Mfn(start.0 + rest)));
                }
                for done in first.0..first.0 + i {
                    if let Ok(Some(undone)) = self.unmap(Gfn(done)) {
                        // The caller takes all of the count back.
                        if undone.ty == PageType::Ram {
                            self.pages.fetch_add(1, Ordering::Relaxed);
                        }
                        removed.push(undone);
                    }
                }
                return Err(e);
            }
        }
        Ok(())
    }

    /// Takes the mappings from `from` on out of a map that no CPU uses any more, at about `budget` units of work. `None`
    /// when all are gone, else where to go on.
    pub fn release(&self, from: Gfn, budget: u32) -> Option<Gfn> {
        let mut at = from;
        let mut left = budget;
        while let Some((gfn, leaf)) = self.stage2.next_leaf(at) {
            let cost = if leaf.order == 0 { 1 } else { SUPERPAGE_COST };
            if left == 0 {
                return Some(gfn);
            }
            left = left.saturating_sub(cost);
            // In pieces if there is a frame for the table that this takes; at once else.
            let _ = self.stage2.split(gfn);
            let old = self.stage2.unmap_leaf(gfn);
            drop(self.take(old));
            let order = old.map_or(leaf.order, |l| l.order);
            at = Gfn((gfn.0 | ((1 << order) - 1)) + 1);
        }
        None
    }
}
