//! Foreign pages that a domain took out of its map while other vCPUs of it may still reach them.
//!
//! A toolstack unmaps tens of thousands of a guest's pages one by one. Making every pCPU forget each of them at once would
//! cost an interrupt and a wait per page; here the frames are kept until all vCPUs have entered the guest anew by themselves,
//! or there are many. A domain that maps something again, and the end of any domain, clear the list at once, so nothing is
//! mapped where an old translation lingers and no frame of a dead domain stays.
//!
//! Only for pages that the domain mapped by privilege: for those it could have kept the mapping. What was mapped by grant is
//! gone for every vCPU before its owner is told so.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hv_hw::sync::{SpinLock, rank};

use super::Domain;
use crate::hypervisor::Hypervisor;
use crate::p2m::Removed;

/// Pages that are kept at most.
pub const MOST: usize = 512;

/// The list.
pub struct Limbo {
    /// Pages that some vCPU may still reach, also while the flush that ends this is on its way: whoever looks then must wait
    /// for a flush of its own.
    reachable: AtomicUsize,
    removed: SpinLock<Vec<Removed>, { rank::DEVICE }>,
}

impl Default for Limbo {
    fn default() -> Self {
        Self {
            reachable: AtomicUsize::new(0),
            removed: SpinLock::new(Vec::new()),
        }
    }
}

impl Limbo {
    fn push(&self, removed: Removed) -> Result<usize, Removed> {
        let mut list = self.removed.lock();
        if list.try_reserve(1).is_err() {
            return Err(removed);
        }
        list.push(removed);
        self.reachable.fetch_add(1, Ordering::SeqCst);
        Ok(list.len())
    }

    fn take(&self) -> Vec<Removed> {
        core::mem::take(&mut *self.removed.lock())
    }

    fn flushed(&self, pages: usize) {
        self.reachable.fetch_sub(pages, Ordering::SeqCst);
    }
}

impl Hypervisor {
    /// Keeps a foreign page that was taken out of the domain's map until no vCPU can reach it. Hold no lock.
    pub fn put_off(&self, domain: &Domain, removed: Removed) {
        let surplus = match domain.limbo.push(removed) {
            Ok(n) if n < MOST && self.has_stale_vcpu(domain) => return,
            Ok(_) => None,
            Err(removed) => Some(removed),
        };
        self.clear_limbo(domain);
        if surplus.is_some() {
            self.flush_domain(domain);
        }
    }

    /// Makes every vCPU forget the pages that are kept and lets them go. Hold no lock.
    pub fn clear_limbo(&self, domain: &Domain) {
        if domain.limbo.reachable.load(Ordering::SeqCst) != 0 {
            let list = domain.limbo.take();
            self.flush_domain(domain);
            domain.limbo.flushed(list.len());
            drop(list);
        }
    }
}
