//! What makes a domain: vCPUs, memory, parameters, state.

use super::{Xen, error};
use crate::hypercalls::{Call, Slot};
use std::io;
use std::ops::Range;
use xen_abi::domctl::{
    ArchDomainConfig, CreateDomain, CreateDomain17, HvmContext, MaxVcpus, PagingMempool,
    SetTimeOffset, TscInfo, op, version,
};
use xen_abi::event_channel::{self, EvtchnAllocUnbound};
use xen_abi::hvm::op::HvmParam;
use xen_abi::memory::{self, E820Entry, ForeignMemoryMap, MemoryReservation};
use xen_abi::{DomId, Errno, hypercall::nr};
use zerocopy::IntoBytes;

/// A domain to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDomain {
    /// Its identity.
    pub handle: [u8; 16],
    /// [`xen_abi::domctl::cdf`].
    pub flags: u32,
    /// How many vCPUs it can have.
    pub vcpus: u32,
    /// Its highest event channel.
    pub event_channels: u32,
    /// Pages of its grant table; `None`: the default.
    pub grant_frames: Option<u32>,
    /// Pages of its table of mapped grants; `None`: the default.
    pub maptrack_frames: Option<u32>,
    /// Highest version of its grant table.
    pub grant_version: u32,
    /// Its pool of CPUs.
    pub pool: u32,
    /// [`xen_abi::domctl::emu`].
    pub emulation: u32,
    /// [`xen_abi::domctl::misc`].
    pub misc: u32,
}

/// Number that lets the hypervisor choose one.
const ANY: DomId = DomId(0xffff);
/// Extents of a call.
const BATCH: usize = 1024;
/// Pages of superpages, as powers of two, large first.
const ORDERS: [u32; 3] = [18, 9, 0];

impl Xen {
    /// Makes a domain without vCPUs and memory; returns its number.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn create(&self, new: &NewDomain) -> io::Result<DomId> {
        let frames = |n: Option<u32>| n.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        let arch = ArchDomainConfig {
            emulation_flags: new.emulation,
            misc_flags: new.misc,
        };
        if self.domctl_version()? < version::XEN_4_19 {
            let mut own = CreateDomain {
                ssidref: 0,
                handle: new.handle,
                flags: new.flags,
                iommu_opts: 0,
                max_vcpus: new.vcpus,
                max_evtchn_port: new.event_channels,
                max_grant_frames: frames(new.grant_frames),
                max_maptrack_frames: frames(new.maptrack_frames),
                grant_opts: new.grant_version,
                vmtrace_size: 0,
                cpupool_id: new.pool,
                arch,
            };
            return self.do_domctl(op::CREATEDOMAIN, ANY, &mut own, &mut []);
        }
        let mut own = CreateDomain17 {
            ssidref: 0,
            handle: new.handle,
            flags: new.flags,
            iommu_opts: 0,
            max_vcpus: new.vcpus,
            max_evtchn_port: new.event_channels,
            max_grant_frames: frames(new.grant_frames),
            max_maptrack_frames: frames(new.maptrack_frames),
            grant_opts: new.grant_version,
            altp2m_opts: 0,
            vmtrace_size: 0,
            cpupool_id: new.pool,
            arch,
        };
        self.do_domctl(op::CREATEDOMAIN, ANY, &mut own, &mut [])
    }

    /// Makes its vCPUs, as many as it was created for.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn make_vcpus(&self, domid: DomId, count: u32) -> io::Result<()> {
        let mut own = MaxVcpus { max: count };
        self.do_domctl(op::MAX_VCPUS, domid, &mut own, &mut [])
            .map(drop)
    }

    /// Chooses how its TSC works.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_tsc_mode(&self, domid: DomId, tsc_mode: u32) -> io::Result<()> {
        let mut own = TscInfo {
            tsc_mode,
            ..TscInfo::default()
        };
        self.do_domctl(op::SETTSCINFO, domid, &mut own, &mut [])
            .map(drop)
    }

    /// Sets how many seconds its clock is ahead.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_time_offset(&self, domid: DomId, seconds: i64) -> io::Result<()> {
        let mut own = SetTimeOffset {
            time_offset_seconds: seconds,
        };
        self.do_domctl(op::SETTIMEOFFSET, domid, &mut own, &mut [])
            .map(drop)
    }

    /// Gives it a pool of memory for address-translation tables: bytes, whole pages.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_paging_pool(&self, domid: DomId, bytes: u64) -> io::Result<()> {
        let mut own = PagingMempool { size: bytes };
        self.do_domctl(op::SET_PAGING_MEMPOOL_SIZE, domid, &mut own, &mut [])
            .map(drop)
    }

    /// Sets one of [`xen_abi::hvm::params::index`].
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_param(&self, domid: DomId, index: u32, value: u64) -> io::Result<()> {
        let mut own = HvmParam {
            domid,
            index,
            value,
            ..HvmParam::default()
        };
        self.with_operation(
            nr::HVM_OP,
            xen_abi::hvm::op::op::SET_PARAM,
            own.as_mut_bytes(),
            &mut [],
        )
        .map(drop)
    }

    /// Makes a port in a domain that another one may bind to; returns its number.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn alloc_unbound(&self, dom: DomId, remote_dom: DomId) -> io::Result<u32> {
        let mut own = EvtchnAllocUnbound {
            dom,
            remote_dom,
            port: 0,
        };
        self.with_operation(
            nr::EVENT_CHANNEL_OP,
            event_channel::op::ALLOC_UNBOUND,
            own.as_mut_bytes(),
            &mut [],
        )?;
        Ok(own.port)
    }

    /// Sets pages aside for a domain that is about to get them; 0 gives them back. A hypervisor without claims takes any.
    ///
    /// # Errors
    /// The hypervisor's: `ENOMEM` if there are not that many free.
    pub fn claim(&self, domid: DomId, pages: u64) -> io::Result<()> {
        let mut own = MemoryReservation {
            nr_extents: pages,
            domid,
            ..MemoryReservation::default()
        };
        let result = self.with_operation(
            nr::MEMORY_OP,
            memory::op::CLAIM_PAGES,
            own.as_mut_bytes(),
            &mut [],
        );
        match result {
            Err(e) if super::is(&e, Errno::ENOSYS) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Gives a domain memory at these frames, in pages as large as can be had.
    ///
    /// # Errors
    /// The hypervisor's: `ENOMEM` if there is not enough.
    pub fn populate(&self, domid: DomId, frames: Range<u64>) -> io::Result<()> {
        self.populate_by(domid, frames, &ORDERS)
    }

    fn populate_by(&self, domid: DomId, frames: Range<u64>, orders: &[u32]) -> io::Result<()> {
        let Some((&order, smaller)) = orders.split_first() else {
            return match frames.is_empty() {
                true => Ok(()),
                false => Err(error(Errno::ENOMEM)),
            };
        };
        let size = 1u64 << order;
        let (first, last) = (
            frames.start.next_multiple_of(size),
            frames.end & !(size - 1),
        );
        if first >= last {
            return self.populate_by(domid, frames, smaller);
        }
        self.populate_by(domid, frames.start..first, smaller)?;
        let all: Vec<u64> = (first..last).step_by(size as usize).collect();
        let mut done = first;
        for batch in all.chunks(BATCH) {
            let got = self.populate_extents(domid, order, batch);
            // The last size must succeed; others are only better.
            let count = match got {
                Err(e) if smaller.is_empty() => return Err(e),
                other => other.unwrap_or(0).min(batch.len() as u64),
            };
            done += count * size;
            if count < batch.len() as u64 {
                break;
            }
        }
        self.populate_by(domid, done..frames.end, smaller)
    }

    fn populate_extents(&self, domid: DomId, order: u32, extents: &[u64]) -> io::Result<u64> {
        let mut own = MemoryReservation {
            nr_extents: extents.len() as u64,
            extent_order: order,
            domid,
            ..MemoryReservation::default()
        };
        let mut extents = extents.to_vec();
        let slot = Slot {
            field: 0,
            bytes: extents.as_mut_bytes(),
        };
        self.with_operation(
            nr::MEMORY_OP,
            memory::op::POPULATE_PHYSMAP,
            own.as_mut_bytes(),
            &mut [slot],
        )
    }

    /// Tells a domain its memory map: start, length, type of each range.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_memory_map(&self, domid: DomId, map: &[(u64, u64, u32)]) -> io::Result<()> {
        let entry = |&(addr, size, kind): &(u64, u64, u32)| E820Entry {
            addr: addr.into(),
            size: size.into(),
            kind: kind.into(),
        };
        let mut entries: Vec<E820Entry> = map.iter().map(entry).collect();
        let mut own = ForeignMemoryMap {
            domid,
            ..ForeignMemoryMap::default()
        };
        own.map.nr_entries = entries.len() as u32;
        let slot = Slot {
            field: 16,
            bytes: entries.as_mut_bytes(),
        };
        self.with_operation(
            nr::MEMORY_OP,
            memory::op::SET_MEMORY_MAP,
            own.as_mut_bytes(),
            &mut [slot],
        )
        .map(drop)
    }

    /// The hardware state of a domain, as records of `xen_abi::hvm::save`.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn context(&self, domid: DomId) -> io::Result<Vec<u8>> {
        // Without a buffer the answer is the size.
        let mut own = HvmContext::default();
        self.do_domctl(op::GETHVMCONTEXT, domid, &mut own, &mut [])?;
        let mut state = vec![0; own.size as usize];
        let mut own = HvmContext {
            size: own.size,
            ..HvmContext::default()
        };
        let slot = Slot {
            field: 8,
            bytes: &mut state,
        };
        self.do_domctl(op::GETHVMCONTEXT, domid, &mut own, &mut [slot])?;
        state.truncate(own.size as usize);
        Ok(state)
    }

    /// Sets parts of it.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_context(&self, domid: DomId, records: &[u8]) -> io::Result<()> {
        let mut records = records.to_vec();
        let mut own = HvmContext {
            size: records.len() as u32,
            ..HvmContext::default()
        };
        let slot = Slot {
            field: 8,
            bytes: &mut records,
        };
        self.do_domctl(op::SETHVMCONTEXT, domid, &mut own, &mut [slot])
            .map(drop)
    }

    /// A hypercall that takes the number of an operation and its structure.
    fn with_operation(
        &self,
        number: u32,
        operation: u32,
        argument: &mut [u8],
        slots: &mut [Slot<'_>],
    ) -> io::Result<u64> {
        self.calls.call(&mut Call {
            number,
            operation: Some(operation),
            argument,
            rest: &[],
            slots,
        })
    }
}
