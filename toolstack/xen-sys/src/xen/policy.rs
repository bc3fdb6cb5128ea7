//! What CPUID says to domains.

use super::Xen;
use crate::hypercalls::Slot;
use std::io;
use xen_abi::DomId;
use xen_abi::domctl::{self, CpuidLeaf};
use xen_abi::sysctl::{self, CpuPolicy};
use zerocopy::IntoBytes;

impl Xen {
    /// The leaves of one of [`xen_abi::sysctl::cpu_policy`], ascending.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn cpu_policy(&self, index: u32) -> io::Result<Vec<CpuidLeaf>> {
        // Without lists the answer is how much room they need.
        let mut size = CpuPolicy {
            index,
            ..CpuPolicy::default()
        };
        self.do_sysctl(sysctl::op::GET_CPU_POLICY, &mut size, &mut [])?;
        let mut leaves = vec![CpuidLeaf::default(); size.nr_leaves as usize];
        let mut own = CpuPolicy {
            index,
            nr_leaves: size.nr_leaves,
            ..CpuPolicy::default()
        };
        let slot = Slot {
            field: 16,
            bytes: leaves.as_mut_bytes(),
        };
        self.do_sysctl(sysctl::op::GET_CPU_POLICY, &mut own, &mut [slot])?;
        leaves.truncate(own.nr_leaves as usize);
        Ok(leaves)
    }

    /// Says what a domain that has not run yet may see.
    ///
    /// # Errors
    /// The hypervisor's: `EINVAL` for more than it has.
    pub fn set_cpu_policy(&self, domid: DomId, leaves: &[CpuidLeaf]) -> io::Result<()> {
        let mut leaves = leaves.to_vec();
        let mut own = domctl::CpuPolicy {
            nr_leaves: leaves.len() as u32,
            ..domctl::CpuPolicy::default()
        };
        let slot = Slot {
            field: 8,
            bytes: leaves.as_mut_bytes(),
        };
        self.do_domctl(domctl::op::SET_CPU_POLICY, domid, &mut own, &mut [slot])
            .map(drop)
    }
}
