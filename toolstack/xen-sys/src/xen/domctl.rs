//! Domains as wholes.

use super::{Xen, bitmap, is};
use crate::bits::BitSet;
use crate::hypercalls::Slot;
use std::io;
use xen_abi::domctl::{GetDomainInfo, MaxMem, NodeAffinity, SendTrigger, dominf, op};
use xen_abi::sysctl::{self, GetDomainInfoList};
use xen_abi::{DomId, Errno};
use zerocopy::{FromZeros, IntoBytes};

/// What the hypervisor knows of a domain.
#[derive(Clone, Copy, Debug)]
pub struct Domain(
    /// As it says it.
    pub GetDomainInfo,
);

impl Domain {
    /// Its number.
    pub fn id(&self) -> DomId {
        self.0.domain
    }

    /// One of [`dominf`] is set.
    pub fn is(&self, flag: u32) -> bool {
        self.0.flags & flag != 0
    }

    /// Why it shut down, if it did: one of `xen_abi::sched::shutdown`.
    pub fn shutdown_reason(&self) -> Option<u8> {
        self.is(dominf::SHUTDOWN)
            .then_some((self.0.flags >> dominf::SHUTDOWN_SHIFT) as u8)
    }

    /// How many vCPUs it has, online or not.
    pub fn vcpus(&self) -> u32 {
        // All ones without any.
        self.0.max_vcpu_id.wrapping_add(1)
    }

    /// Memory in KiB.
    pub fn memory_kib(&self) -> u64 {
        self.0.tot_pages.saturating_mul(4)
    }

    /// Claimed and not yet used, in KiB.
    pub fn outstanding_kib(&self) -> u64 {
        self.0.outstanding_pages.saturating_mul(4)
    }

    /// Shared with other domains, in KiB.
    pub fn shared_kib(&self) -> u64 {
        self.0.shr_pages.saturating_mul(4)
    }

    /// Its handle as text.
    pub fn uuid(&self) -> String {
        let hex: String = self.0.handle.iter().map(|b| format!("{b:02x}")).collect();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
        parts.map(|p| &hex[p]).join("-")
    }
}

/// How many domains are asked for at a time.
const BATCH: usize = 256;

impl Xen {
    /// All domains in the order of their numbers.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn domains(&self) -> io::Result<Vec<Domain>> {
        let mut all: Vec<Domain> = Vec::new();
        let mut buffer = vec![GetDomainInfo::new_zeroed(); BATCH];
        loop {
            let first = all.last().map_or(0, |d| d.id().0 + 1);
            let mut list = GetDomainInfoList {
                first_domain: DomId(first),
                max_domains: BATCH as u32,
                ..GetDomainInfoList::default()
            };
            let slot = Slot {
                field: 8,
                bytes: buffer.as_mut_bytes(),
            };
            self.do_sysctl(sysctl::op::GETDOMAININFOLIST, &mut list, &mut [slot])?;
            let found = (list.num_domains as usize).min(BATCH);
            // A hypervisor that answers with others would be asked for ever.
            let new = buffer[..found].iter().filter(|d| d.domain.0 >= first);
            all.extend(new.copied().map(Domain));
            if found < BATCH {
                return Ok(all);
            }
        }
    }

    /// One domain; `None` if there is none of this number.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn domain(&self, domid: DomId) -> io::Result<Option<Domain>> {
        let mut info = GetDomainInfo::default();
        match self.do_domctl(op::GETDOMAININFO, domid, &mut info, &mut []) {
            // The first versions answer with the next domain if there is none of this number.
            Ok(_) => Ok((info.domain == domid).then_some(Domain(info))),
            Err(e) if is(&e, Errno::ESRCH) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Stops a domain's vCPUs until [`Xen::unpause`]; each needs its counterpart.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn pause(&self, domid: DomId) -> io::Result<()> {
        self.do_domctl(op::PAUSEDOMAIN, domid, &mut [0u8; 0], &mut [])
            .map(drop)
    }

    /// Lets them run again.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn unpause(&self, domid: DomId) -> io::Result<()> {
        self.do_domctl(op::UNPAUSEDOMAIN, domid, &mut [0u8; 0], &mut [])
            .map(drop)
    }

    /// Ends a domain and frees its memory; returns when that is done.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn destroy(&self, domid: DomId) -> io::Result<()> {
        self.do_domctl(op::DESTROYDOMAIN, domid, &mut [0u8; 0], &mut [])
            .map(drop)
    }

    /// Limits a domain's memory, in KiB.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_max_memory(&self, domid: DomId, kib: u64) -> io::Result<()> {
        let mut own = MaxMem { max_memkb: kib };
        self.do_domctl(op::MAX_MEM, domid, &mut own, &mut [])
            .map(drop)
    }

    /// Sends one of [`xen_abi::domctl::trigger`] to a vCPU.
    ///
    /// # Errors
    /// The hypervisor's: `ENOSYS` for one that this kind of domain does not take.
    pub fn trigger(&self, domid: DomId, trigger: u32, vcpu: u32) -> io::Result<()> {
        let mut own = SendTrigger { trigger, vcpu };
        self.do_domctl(op::SENDTRIGGER, domid, &mut own, &mut [])
            .map(drop)
    }

    /// The memory nodes that a domain's memory comes from.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn node_affinity(&self, domid: DomId) -> io::Result<BitSet> {
        let nodes = self.physinfo()?.max_node_id.saturating_add(1);
        let mut set = BitSet::new(nodes);
        let mut own = NodeAffinity {
            nodemap: bitmap(&set),
        };
        let slot = Slot {
            field: 0,
            bytes: set.bytes_mut(),
        };
        self.do_domctl(op::GETNODEAFFINITY, domid, &mut own, &mut [slot])?;
        Ok(set)
    }
}
