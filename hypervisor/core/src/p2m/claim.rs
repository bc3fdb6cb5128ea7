//! Free memory that is set aside for a domain which is being built (`XENMEM_claim_pages`).

use core::sync::atomic::Ordering;

use hv_hw::mem::frames;
use xen_abi::Errno;

use super::P2m;

impl P2m {
    /// Pages that are set aside for the domain and that it has not got yet.
    pub fn claimed(&self) -> usize {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Sets memory aside, so that the domain can get `pages` pages in all. EINVAL: there is a claim already, the domain has
    /// so many pages, or it may not have them. ENOMEM: there is not so much free memory.
    pub fn claim(&self, pages: u64, max_pages: u64) -> Result<(), Errno> {
        let has = self.pages() as u64;
        if self.claimed() != 0 || pages <= has || pages > max_pages {
            return Err(Errno::EINVAL);
        }
        let count = usize::try_from(pages - has).map_err(|_| Errno::ENOMEM)?;
        if !frames::reserve(count) {
            return Err(Errno::ENOMEM);
        }
        let other = self
            .claimed
            .compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed);
        if other.is_err() {
            frames::unreserve(count);
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Gives up what is left of a claim.
    pub fn end_claim(&self) {
        let left = self.claimed.swap(0, Ordering::Relaxed);
        if left != 0 {
            frames::unreserve(left);
        }
    }

    /// Calls `alloc` with how many of `count` frames that it allocates are set aside for the domain. Those that it gets are
    /// part of the claim no more.
    pub(super) fn drawing<R>(
        &self,
        count: usize,
        alloc: impl FnOnce(usize) -> Option<R>,
    ) -> Option<R> {
        let less = |now: usize| (now != 0).then(|| now - now.min(count));
        let draw = self
            .claimed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .map_or(0, |was| was.min(count));
        let got = alloc(draw);
        if got.is_none() && draw != 0 {
            self.claimed.fetch_add(draw, Ordering::Relaxed);
        }
        got
    }
}
