//! Virtual CPUs.

use super::{Xen, bitmap};
use crate::bits::BitSet;
use crate::hypercalls::Slot;
use std::io;
use xen_abi::DomId;
use xen_abi::domctl::{GetVcpuInfo, VcpuAffinity, affinity, op};

/// Where a vCPU may run, and where it had better run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// It runs nowhere else.
    pub hard: BitSet,
    /// It runs there if it can.
    pub soft: BitSet,
}

const HARD_FIELD: usize = 8;
const SOFT_FIELD: usize = 24;

impl Xen {
    /// State of a vCPU.
    ///
    /// # Errors
    /// The hypervisor's: `ESRCH` if the domain has no such vCPU.
    pub fn vcpu(&self, domid: DomId, vcpu: u32) -> io::Result<GetVcpuInfo> {
        let mut own = GetVcpuInfo {
            vcpu,
            ..GetVcpuInfo::default()
        };
        self.do_domctl(op::GETVCPUINFO, domid, &mut own, &mut [])?;
        Ok(own)
    }

    /// Where a vCPU may run.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn affinity(&self, domid: DomId, vcpu: u32) -> io::Result<Affinity> {
        let bound = self.cpu_bound()?;
        let mut found = Affinity {
            hard: BitSet::new(bound),
            soft: BitSet::new(bound),
        };
        self.vcpu_affinity(
            op::GETVCPUAFFINITY,
            domid,
            vcpu,
            affinity::HARD | affinity::SOFT,
            &mut found,
        )?;
        Ok(found)
    }

    /// Says where a vCPU may run; what is `None` stays. Returns what is in force: the CPUs of the domain's pool among those
    /// asked for. `force` ends what a driver in dom0 holds pinned.
    ///
    /// # Errors
    /// The hypervisor's: `EINVAL` if none is left to run on.
    pub fn set_affinity(
        &self,
        domid: DomId,
        vcpu: u32,
        hard: Option<&BitSet>,
        soft: Option<&BitSet>,
        force: bool,
    ) -> io::Result<Affinity> {
        let bound = self.cpu_bound()?;
        let fit = |wanted: Option<&BitSet>| {
            let mut set = BitSet::new(bound);
            wanted
                .into_iter()
                .flat_map(BitSet::iter)
                .for_each(|n| set.insert(n));
            set
        };
        let mut both = Affinity {
            hard: fit(hard),
            soft: fit(soft),
        };
        let mut flags = 0;
        for (wanted, flag) in [
            (hard.is_some(), affinity::HARD),
            (soft.is_some(), affinity::SOFT),
            (force, affinity::FORCE),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        self.vcpu_affinity(op::SETVCPUAFFINITY, domid, vcpu, flags, &mut both)?;
        Ok(both)
    }

    fn vcpu_affinity(
        &self,
        cmd: u32,
        domid: DomId,
        vcpu: u32,
        flags: u32,
        sets: &mut Affinity,
    ) -> io::Result<()> {
        let mut own = VcpuAffinity {
            vcpu,
            flags,
            cpumap_hard: bitmap(&sets.hard),
            cpumap_soft: bitmap(&sets.soft),
        };
        let slots = &mut [
            Slot {
                field: HARD_FIELD,
                bytes: sets.hard.bytes_mut(),
            },
            Slot {
                field: SOFT_FIELD,
                bytes: sets.soft.bytes_mut(),
            },
        ];
        self.do_domctl(cmd, domid, &mut own, slots).map(drop)
    }
}
