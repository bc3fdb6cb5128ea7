//! The one pool of pCPUs and its scheduler.

use xen_abi::domctl::scheduler;
use xen_abi::sysctl::{
    CpupoolOp, Credit2Schedule, CreditSchedule, SchedId, SchedulerOp, cpupool, schedop,
};
use xen_abi::{DomId, Errno};
use zerocopy::IntoBytes;

use hv_hw::Machine;
use hv_hw::machine::CpuId;

use super::super::bitmap;
use super::{Op, Result};
use crate::sched::{CpuMask, RATE_LIMIT_NS};

/// Number of the pool.
const POOL: u32 = 0;

/// `sched_id`.
pub fn scheduler(o: &mut Op<'_, '_, '_>) -> Result {
    let sched_id = o.call.hv().sched.id();
    o.put(&SchedId { sched_id })
}

/// `cpupool_op`: pool 0 has all pCPUs and all domains. EOPNOTSUPP: other pools cannot be made, and it gives no pCPU up.
pub fn pool(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: CpupoolOp = o.get()?;
    let hv = o.call.hv();
    match a.op {
        cpupool::INFO => {
            // The first pool from the number on.
            if a.cpupool_id != POOL {
                return Err(Errno::ENOENT);
            }
            a.sched_id = hv.sched.id();
            a.n_dom = hv.domain_count() as u32;
            let mut all = CpuMask::NONE;
            for cpu in (0..hv.hw.cpu_count()).map(CpuId) {
                if hv.hw.is_online(cpu) {
                    all.set(cpu);
                }
            }
            bitmap::write(o.call, &a.cpumap, &all)?;
            o.put(&a)
        }
        cpupool::FREEINFO => bitmap::write(o.call, &a.cpumap, &CpuMask::NONE),
        cpupool::MOVEDOMAIN => {
            let id = u16::try_from(a.domid).map_err(|_| Errno::ESRCH)?;
            let d = hv.domain(DomId(id)).ok_or(Errno::ESRCH)?;
            if d.id == o.call.domain().id {
                return Err(Errno::EPERM);
            }
            if a.cpupool_id == POOL {
                Ok(())
            } else {
                Err(Errno::ENOENT)
            }
        }
        cpupool::DESTROY | cpupool::ADDCPU | cpupool::RMCPU if a.cpupool_id != POOL => {
            Err(Errno::ENOENT)
        }
        // It has domains; no pCPU is free.
        cpupool::DESTROY => Err(Errno::EBUSY),
        cpupool::ADDCPU => Err(Errno::ENODEV),
        cpupool::CREATE | cpupool::RMCPU => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::ENOSYS),
    }
}

/// `scheduler_op`: the parameters of the pool's scheduler, which are set at boot. EOPNOTSUPP: others than those in force.
pub fn parameters(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: SchedulerOp = o.get()?;
    if a.cmd != schedop::PUTINFO && a.cmd != schedop::GETINFO {
        return Err(Errno::EINVAL);
    }
    if a.cpupool_id != POOL {
        return Err(Errno::ESRCH);
    }
    let sched = &o.call.hv().sched;
    if a.sched_id != sched.id() {
        return Err(Errno::EINVAL);
    }
    let ratelimit_us = (RATE_LIMIT_NS / 1000) as u32;
    let credit = CreditSchedule {
        tslice_ms: (sched.slice_ns() / 1_000_000) as u32,
        ratelimit_us,
        vcpu_migr_delay_us: 0,
    };
    let credit2 = Credit2Schedule { ratelimit_us };
    let now: &[u8] = match a.sched_id {
        scheduler::CREDIT => credit.as_bytes(),
        scheduler::CREDIT2 => credit2.as_bytes(),
        _ => &[],
    };
    let field = &mut a.u[..now.len()];
    if a.cmd == schedop::PUTINFO && field != now {
        return Err(Errno::EOPNOTSUPP);
    }
    field.copy_from_slice(now);
    o.put(&a)
}
