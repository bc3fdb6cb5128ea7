//! The end of a domain: everything it has is given back, piece by piece, and it leaves the list.
//!
//! The toolstack calls again until it is done; each call does a bounded piece. Nothing of the domain runs any more, but
//! other domains may still look at it meanwhile, and keep it in memory a little longer than the list does.

use core::sync::atomic::Ordering;

use hv_hw::machine::CpuId;
use x86_model::Gfn;

use super::grants::GrantSide;
use super::{Domain, DomainRef, Life};
use crate::hypervisor::Hypervisor;
use crate::vcpu::{NEVER, NO_CPU};
use crate::{evtchn, grant};

/// Ports that are closed at a time.
const PORTS: u32 = 256;
/// Handles that are looked at at a time.
const HANDLES: u32 = 256;
/// Work on the memory map at a time, in units of [`crate::p2m::P2m::release`].
const PAGES: u32 = 512;

/// The stages, in order.
mod stage {
    pub const PORTS: u8 = 0;
    pub const GRANTS: u8 = 1;
    pub const MEMORY: u8 = 2;
    pub const VCPUS: u8 = 3;
}

impl Hypervisor {
    /// `XEN_DOMCTL_destroydomain`: does the next piece; true when the domain is gone. Under the control lock, and not for
    /// the caller's own domain.
    pub fn kill_domain(&self, domain: &DomainRef) -> bool {
        if domain.life() == Life::Alive {
            domain.set_life(Life::Dying);
            domain.p2m.end_claim();
            self.hold_vcpus(domain);
        }
        self.wait_until_off(domain);
        let state = &domain.control;
        let cursor = state.cursor.load(Ordering::Relaxed);
        let at = state.stage.load(Ordering::Relaxed);
        let next = match at {
            stage::PORTS => self.close_ports(domain, cursor as u32).map(u64::from),
            stage::GRANTS => {
                let side = GrantSide::new(self, domain.clone());
                grant::release(&side, cursor as u32, HANDLES).map(u64::from)
            }
            stage::MEMORY => {
                domain.p2m.drop_huge();
                // Whatever its limit: taking large pages apart may need a table.
                domain.p2m.stage2().set_table_limit(usize::MAX);
                domain.p2m.release(Gfn(cursor), PAGES).map(|gfn| gfn.0)
            }
            stage::VCPUS => {
                // Who had mapped the domain's memory may keep it a little; it is wanted now.
                for other in self.domains() {
                    self.clear_limbo(&other);
                }
                self.forget_vcpus(domain);
                None
            }
            _ => {
                domain.set_life(Life::Dead);
                self.remove_domain(domain.id);
                hv_hw::guest_log!(Info, "{} destroyed", domain.id);
                self.raise_global_virq(xen_abi::virq::nr::DOM_EXC);
                return true;
            }
        };
        state.cursor.store(next.unwrap_or(0), Ordering::Relaxed);
        if next.is_none() {
            state.stage.store(at + 1, Ordering::Relaxed);
        }
        false
    }

    fn close_ports(&self, domain: &DomainRef, from: u32) -> Option<u32> {
        match evtchn::reset(&**domain, from, PORTS, |id| self.domain(id)) {
            Ok(next) => next,
            // A peer keeps changing a port: its own calls end, so this is tried again.
            Err(_) => Some(from),
        }
    }

    /// Takes the vCPUs from the scheduler, from the pCPUs that watch their timers, and from their areas.
    fn forget_vcpus(&self, domain: &Domain) {
        for v in domain.vcpus() {
            self.sched.with(|p| p.remove(v.key));
            self.unlist(v);
            v.up.store(false, Ordering::SeqCst);
            v.stop_timers();
            v.wake_at.store(NEVER, Ordering::SeqCst);
            *v.areas.runstate.lock() = None;
            *v.areas.time.lock() = None;
            let home = v.home.swap(NO_CPU, Ordering::SeqCst);
            if home != NO_CPU {
                self.resched(CpuId(home));
            }
        }
    }
}
