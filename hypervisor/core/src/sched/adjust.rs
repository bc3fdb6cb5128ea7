//! What the toolstack changes about scheduling: where vCPUs may run, and a domain's share.

use xen_abi::Errno;

use super::{CpuMask, Params};
use crate::domain::Domain;
use crate::hypervisor::Hypervisor;
use crate::vcpu::Vcpu;

impl Hypervisor {
    /// Lets a vCPU run on these pCPUs only. EBUSY while an override pins it.
    pub fn set_affinity(&self, vcpu: &Vcpu, hard: CpuMask) -> Result<(), Errno> {
        let pinned = vcpu.pinned_from.lock();
        if pinned.is_some() {
            return Err(Errno::EBUSY);
        }
        let moved = self.sched.with(|p| {
            let params = p.params(vcpu.key)?;
            p.set_params(vcpu.key, Params { hard, ..params })
        });
        drop(pinned);
        if let Some(cpu) = moved {
            self.resched(cpu);
        }
        Ok(())
    }

    /// The pCPUs that a vCPU may run on.
    pub fn affinity(&self, vcpu: &Vcpu) -> CpuMask {
        let params = self.sched.with(|p| p.params(vcpu.key));
        params.map_or(CpuMask::ALL, |p| p.hard)
    }

    /// Gives a domain's vCPUs this weight.
    pub fn set_weight(&self, domain: &Domain, weight: u16) {
        for v in domain.vcpus() {
            let moved = self.sched.with(|p| {
                let params = p.params(v.key)?;
                p.set_params(v.key, Params { weight, ..params })
            });
            if let Some(cpu) = moved {
                self.resched(cpu);
            }
        }
    }

    /// The weight of a domain's vCPUs.
    pub fn weight(&self, domain: &Domain) -> u16 {
        let first = domain.vcpus().first();
        first
            .and_then(|v| self.sched.with(|p| p.params(v.key)))
            .map_or(super::NORMAL_WEIGHT, |p| p.weight)
    }
}
