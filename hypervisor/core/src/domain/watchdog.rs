//! A domain's watchdogs (`SCHEDOP_watchdog`): if it does not wind one up again in time, it is stopped.
//!
//! Owned by the domain, all atomic. The system keeps the earliest deadline of all domains, for which every pCPU arms its
//! timer; so a watchdog bites whatever state the domain's vCPUs are in.

use core::sync::atomic::{AtomicU64, Ordering};

use hv_hw::Machine;
use xen_abi::Errno;

use super::ShutdownReason;
use crate::hypervisor::Hypervisor;
use crate::vcpu::NEVER;

/// Watchdogs that a domain has (as Xen: `NR_DOMAIN_WATCHDOG_TIMERS`).
pub const COUNT: usize = 2;

/// Value of one that is not in use.
const FREE: u64 = NEVER;

/// The watchdogs of one domain: system times at which they bite.
pub struct Watchdogs([AtomicU64; COUNT]);

impl Default for Watchdogs {
    fn default() -> Self {
        Watchdogs([const { AtomicU64::new(FREE) }; COUNT])
    }
}

impl Watchdogs {
    /// Starts a new one that bites at `deadline_ns`; its number, from 1 up. ENOSPC if all are in use.
    pub fn start(&self, deadline_ns: u64) -> Result<u64, Errno> {
        for (number, slot) in (1..).zip(&self.0) {
            let taken = slot.compare_exchange(
                FREE,
                deadline_ns.min(FREE - 1),
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Ok(number);
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Winds number `id` up again, or frees it (`None`). EINVAL if it is not in use.
    pub fn rewind(&self, id: u32, deadline_ns: Option<u64>) -> Result<(), Errno> {
        let slot = (id as usize)
            .checked_sub(1)
            .and_then(|i| self.0.get(i))
            .ok_or(Errno::EINVAL)?;
        let new = deadline_ns.map_or(FREE, |d| d.min(FREE - 1));
        slot.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |old| {
            (old != FREE).then_some(new)
        })
        .map(|_| ())
        .map_err(|_| Errno::EINVAL)
    }

    /// The earliest deadline, [`NEVER`] if none is in use.
    pub fn deadline(&self) -> u64 {
        let times = self.0.iter().map(|slot| slot.load(Ordering::SeqCst));
        times.min().unwrap_or(NEVER)
    }
}

impl Hypervisor {
    /// A domain's watchdog bites at `deadline_ns`. The caller looks at its clock before it enters a guest again.
    pub fn watch(&self, deadline_ns: u64) {
        self.watchdog_at.fetch_min(deadline_ns, Ordering::SeqCst);
    }

    /// The earliest time at which [`Hypervisor::bite`] may have something to do.
    pub fn watchdog_at(&self) -> u64 {
        self.watchdog_at.load(Ordering::Relaxed)
    }

    /// Stops the domains whose watchdog was not wound up in time. Every pCPU calls this when it looks at its clock.
    #[inline]
    pub fn bite(&self, now_ns: u64) {
        if self.watchdog_at() <= now_ns {
            self.bite_late(now_ns);
        }
    }

    #[cold]
    fn bite_late(&self, now_ns: u64) {
        // Forget first, look second: a deadline that is set in between is found or noted again.
        self.watchdog_at.store(NEVER, Ordering::SeqCst);
        for domain in self.domains() {
            if domain.shutdown_reason().is_some() {
                continue;
            }
            let deadline = domain.watchdogs.deadline();
            if deadline <= now_ns {
                hv_hw::warn!("Watchdog timer fired for domain {}", domain.id.0);
                self.domain_stopped(&domain, ShutdownReason::Watchdog);
            } else {
                self.watch(deadline);
            }
        }
    }

    /// `SCHEDOP_watchdog` for `watchdogs`: see [`Watchdogs::start`] and [`Watchdogs::rewind`].
    pub fn set_watchdog(
        &self,
        watchdogs: &Watchdogs,
        id: u32,
        timeout_s: u32,
    ) -> Result<u64, Errno> {
        let deadline = (timeout_s != 0).then(|| {
            self.hw
                .now_ns()
                .saturating_add(u64::from(timeout_s) * 1_000_000_000)
        });
        let result = match (id, deadline) {
            (0, None) => Err(Errno::EINVAL),
            (0, Some(at)) => watchdogs.start(at),
            (id, at) => watchdogs.rewind(id, at).map(|()| 0),
        };
        if let (Ok(_), Some(at)) = (result, deadline) {
            self.watch(at);
        }
        result
    }
}
