//! vCPUs: making them, what they do, where they may run, their share.

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use xen_abi::Errno;
use xen_abi::domctl::{
    GetVcpuInfo, MaxVcpus, NodeAffinity, SchedCredit, SchedulerOp, VcpuAffinity, affinity, schedop,
};
use zerocopy::{FromBytes, IntoBytes};

use super::super::bitmap;
use super::{Done, Op, Result};
use crate::domain::DomainRef;
use crate::hypervisor::Hypervisor;
use crate::sched::CpuMask;
use crate::vcpu::runstate::State;
use crate::vcpu::{NO_CPU, Sleep, VcpuRef};

/// vCPUs that are made between two looks at the clock.
const BATCH: u32 = 4;
/// What a batch costs, in the units of [`super::super::Call::should_restart`].
const BATCH_COST: u32 = 200;
/// Value of [`SchedCredit::cap`] that leaves the cap as it is.
const KEEP_CAP: u16 = u16::MAX;

/// `max_vcpus`: makes the vCPUs, of which there are as many as the domain was created for.
pub fn max_vcpus(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: MaxVcpus = o.get()?;
    o.not_self(d)?;
    if a.max != d.max_vcpus() {
        return Err(Errno::EINVAL);
    }
    while !o.call.hv().make_vcpus(d, BATCH)? {
        o.call.spend(BATCH_COST);
        if o.call.should_restart() {
            return Ok(Done::Again);
        }
    }
    Ok(Done::Quiet)
}

fn vcpu(d: &DomainRef, index: u32) -> core::result::Result<&VcpuRef, Errno> {
    if index >= d.max_vcpus() {
        return Err(Errno::EINVAL);
    }
    d.vcpu(index).ok_or(Errno::ESRCH)
}

/// `getvcpuinfo`.
pub fn info(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: GetVcpuInfo = o.get()?;
    let v = vcpu(d, a.vcpu)?;
    a.online = v.up.load(Ordering::SeqCst).into();
    a.blocked = (v.sleep.load(Ordering::SeqCst) != Sleep::Awake as u8).into();
    a.running = (v.running_on.load(Ordering::SeqCst) != NO_CPU).into();
    a.cpu_time = v.runstate.time_in(State::Running, o.call.hv().hw.now_ns());
    a.cpu = match v.home.load(Ordering::SeqCst) {
        NO_CPU => 0,
        cpu => cpu,
    };
    o.put(&a)
}

/// The pCPUs that work.
fn online(hv: &Hypervisor) -> CpuMask {
    let mut all = CpuMask::NONE;
    for cpu in (0..hv.hw.cpu_count()).map(CpuId) {
        if hv.hw.is_online(cpu) {
            all.set(cpu);
        }
    }
    all
}

fn affinity_of(o: &Op<'_, '_, '_>) -> core::result::Result<VcpuAffinity, Errno> {
    let a: VcpuAffinity = o.get()?;
    // What is asked for needs a place.
    if a.flags == 0
        || a.flags & affinity::HARD != 0 && a.cpumap_hard.bitmap == 0
        || a.flags & affinity::SOFT != 0 && a.cpumap_soft.bitmap == 0
    {
        return Err(Errno::EINVAL);
    }
    Ok(a)
}

/// `setvcpuaffinity`: tells the effective sets back.
pub fn set_affinity(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let index = o.get::<VcpuAffinity>()?.vcpu;
    let v = vcpu(d, index)?;
    let a = affinity_of(o)?;
    let hv = o.call.hv();
    let online = online(hv);
    if a.flags & affinity::FORCE != 0 {
        hv.pin_override(v, None)?;
    }
    let hard = match a.flags & affinity::HARD {
        0 => None,
        _ => Some(bitmap::read(o.call, &a.cpumap_hard)?),
    };
    let soft = match a.flags & affinity::SOFT {
        0 => None,
        _ => Some(bitmap::read(o.call, &a.cpumap_soft)?),
    };
    if let Some(hard) = hard {
        if hard.and(&online).is_empty() {
            return Err(Errno::EINVAL);
        }
        hv.set_affinity(v, hard)?;
        bitmap::write(o.call, &a.cpumap_hard, &hard.and(&online))?;
    }
    if let Some(soft) = soft {
        *v.soft_affinity.lock() = soft;
        let hard = hv.affinity(v);
        bitmap::write(o.call, &a.cpumap_soft, &soft.and(&online).and(&hard))?;
    }
    Ok(Done::Quiet)
}

/// `getvcpuaffinity`.
pub fn get_affinity(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let index = o.get::<VcpuAffinity>()?.vcpu;
    let v = vcpu(d, index)?;
    let a = affinity_of(o)?;
    if a.flags & affinity::HARD != 0 {
        let hard = o.call.hv().affinity(v);
        bitmap::write(o.call, &a.cpumap_hard, &hard)?;
    }
    if a.flags & affinity::SOFT != 0 {
        let soft = *v.soft_affinity.lock();
        bitmap::write(o.call, &a.cpumap_soft, &soft)?;
    }
    Ok(Done::Quiet)
}

/// `setnodeaffinity`: all memory is one node, which must be among those named.
pub fn set_node_affinity(o: &mut Op<'_, '_, '_>) -> Result {
    let a: NodeAffinity = o.get()?;
    let nodes = bitmap::read(o.call, &a.nodemap)?;
    if !nodes.contains(CpuId(0)) {
        return Err(Errno::EINVAL);
    }
    Ok(Done::Quiet)
}

/// `getnodeaffinity`.
pub fn get_node_affinity(o: &mut Op<'_, '_, '_>) -> Result {
    let a: NodeAffinity = o.get()?;
    bitmap::write(o.call, &a.nodemap, &CpuMask::single(CpuId(0)))?;
    Ok(Done::Quiet)
}

/// `scheduler_op`: weight and cap of all the domain's vCPUs. The cap is kept and told, but not enforced.
pub fn scheduler(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: SchedulerOp = o.get()?;
    let hv = o.call.hv();
    let id = hv.sched.id();
    if a.sched_id != id {
        return Err(Errno::EINVAL);
    }
    // The null scheduler has no parameters.
    if id == xen_abi::domctl::scheduler::NULL {
        return if a.cmd <= schedop::GETVCPUINFO {
            Ok(Done::Answer)
        } else {
            Err(Errno::EINVAL)
        };
    }
    let (mut p, _) = SchedCredit::read_from_prefix(&a.u).map_err(|_| Errno::EFAULT)?;
    match a.cmd {
        schedop::PUTINFO => {
            if p.weight != 0 {
                hv.set_weight(d, p.weight);
            }
            if p.cap != KEEP_CAP {
                d.sched_cap.store(p.cap, Ordering::Relaxed);
            }
        }
        schedop::GETINFO => {
            p.weight = hv.weight(d);
            p.cap = d.sched_cap.load(Ordering::Relaxed);
            a.u[..size_of::<SchedCredit>()].copy_from_slice(p.as_bytes());
        }
        _ => return Err(Errno::EINVAL),
    }
    o.put(&a)
}
