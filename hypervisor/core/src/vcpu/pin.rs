//! A vCPU's stay on one pCPU for the length of a firmware call (`SCHEDOP_pin_override`).
//!
//! The affinity that it replaces is kept in the vCPU, under a lock of rank DEVICE that is held while the policy changes it.

use hv_hw::machine::CpuId;
use xen_abi::Errno;

use super::Vcpu;
use crate::hypervisor::Hypervisor;
use crate::sched::CpuMask;

impl Hypervisor {
    /// Keeps `vcpu` on `cpu`, or gives it back the affinity that it had (`None`). The vCPU moves when its pCPU chooses again.
    /// EBUSY: the policy never moves a vCPU.
    pub fn pin_override(&self, vcpu: &Vcpu, cpu: Option<CpuId>) -> Result<(), Errno> {
        let mut before = vcpu.pinned_from.lock();
        let moved = self.sched.with(|policy| {
            if policy.name() == "null" {
                return Err(Errno::EBUSY);
            }
            let mut params = policy.params(vcpu.key).ok_or(Errno::EINVAL)?;
            params.hard = match (cpu, *before) {
                (Some(cpu), kept) => {
                    *before = Some(kept.unwrap_or(params.hard));
                    CpuMask::single(cpu)
                }
                (None, Some(kept)) => {
                    *before = None;
                    kept
                }
                (None, None) => return Ok(None),
            };
            Ok(policy.set_params(vcpu.key, params))
        })?;
        drop(before);
        if let Some(cpu) = moved {
            self.resched(cpu);
        }
        Ok(())
    }
}
