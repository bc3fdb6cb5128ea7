//! Pages of 1 GiB. One takes long to zero: it is made in pieces, between which the caller's hypercall restarts.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hv_hw::mem::{Perms, RawRun};
use x86_model::Gfn;
use xen_abi::Errno;

use super::{Huge, P2m, P2mError, PageType, Removed};

/// Order of such a page.
pub const HUGE: u8 = 18;
/// Frames of a piece.
pub const PIECE: usize = 1024;
const FRAMES: usize = 1 << HUGE;

impl P2m {
    /// Does a piece of the work of giving the domain a page of 1 GiB at `first`, which is aligned and in range; true when
    /// it is there. ENOMEM as for [`P2m::populate`]: what was done is undone.
    pub fn populate_huge(
        &self,
        first: Gfn,
        max_pages: u64,
        removed: &mut Vec<Removed>,
    ) -> Result<bool, Errno> {
        let begun = self.huge.lock().take();
        let mut huge = match begun {
            Some(h) if h.at == first => h,
            other => {
                self.undo(other);
                self.begin(first, max_pages)?
            }
        };
        if !huge.run.zero(PIECE) {
            let other = self.huge.lock().replace(huge);
            // Two callers at a time: one of them begins anew.
            self.undo(other);
            return Ok(false);
        }
        let done = self.enter_huge(huge, removed);
        self.coming.fetch_sub(FRAMES, Ordering::Relaxed);
        if done.is_err() {
            self.pages.fetch_sub(FRAMES, Ordering::Relaxed);
        }
        done.map(|()| true)
    }

    fn begin(&self, first: Gfn, max_pages: u64) -> Result<Huge, Errno> {
        let end = first.0 + FRAMES as u64;
        let next = self.stage2.next_leaf(first);
        if next.is_some_and(|(gfn, _)| gfn.0 < end) {
            return Err(Errno::ENOMEM);
        }
        self.charge(FRAMES as u64, max_pages)?;
        let run = self.drawing(FRAMES, |draw| RawRun::alloc(self.owner, HUGE, draw));
        let Some(run) = run else {
            self.pages.fetch_sub(FRAMES, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        };
        self.coming.fetch_add(FRAMES, Ordering::Relaxed);
        Ok(Huge { at: first, run })
    }

    fn enter_huge(&self, huge: Huge, removed: &mut Vec<Removed>) -> Result<(), Errno> {
        let run = huge.run.finish().ok_or(Errno::ENOMEM)?;
        removed.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let tag = PageType::Ram as u8;
        // Tables of smaller pages from the past stay in the way: the caller takes smaller ones.
        let old = self
            .stage2
            .map(huge.at, run.first(), HUGE, Perms::RAM, tag)
            .map_err(P2mError::from)?;
        // From here on the tree owns the references.
        let _ = run.into_raw();
        self.note(huge.at, HUGE);
        removed.extend(self.take(old));
        Ok(())
    }

    fn undo(&self, huge: Option<Huge>) {
        if huge.is_some() {
            self.coming.fetch_sub(FRAMES, Ordering::Relaxed);
            self.pages.fetch_sub(FRAMES, Ordering::Relaxed);
        }
    }

    /// Gives up the page that is in the making.
    pub fn drop_huge(&self) {
        let huge = self.huge.lock().take();
        self.undo(huge);
    }
}
