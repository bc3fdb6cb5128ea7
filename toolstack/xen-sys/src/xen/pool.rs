//! Pools of CPUs, and the parameters of their schedulers.

use super::{Xen, bitmap, is};
use crate::bits::BitSet;
use crate::hypercalls::Slot;
use std::io;
use xen_abi::domctl::{self, SchedCredit};
use xen_abi::sysctl::{
    CpupoolOp, Credit2Schedule, CreditSchedule, SchedulerOp, cpupool, op, schedop,
};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, IntoBytes};

/// A pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Its number.
    pub id: u32,
    /// One of [`domctl::scheduler`].
    pub scheduler: u32,
    /// How many domains are in it.
    pub domains: u32,
    /// Its CPUs.
    pub cpus: BitSet,
}

/// A domain's share under the schedulers credit and credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Relative to others, 1 to 65535; 256 is usual.
    pub weight: u16,
    /// Most of a CPU that it gets, in percent; 0: no limit.
    pub cap: u16,
}

/// Parameters of a pool's scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolParameters {
    /// Of credit.
    Credit {
        /// Time slice in ms.
        tslice_ms: u32,
        /// Shortest run in µs.
        ratelimit_us: u32,
        /// How long a vCPU counts as warm in a cache, in µs.
        migration_delay_us: u32,
    },
    /// Of credit2.
    Credit2 {
        /// Shortest run in µs.
        ratelimit_us: u32,
    },
}

const CPUMAP_FIELD: usize = 24;

impl Xen {
    /// All pools in the order of their numbers.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn pools(&self) -> io::Result<Vec<Pool>> {
        let mut pools: Vec<Pool> = Vec::new();
        loop {
            let first = pools.last().map_or(0, |p| p.id + 1);
            // It answers with the first pool from this number on.
            let pool = match self.pool_info(cpupool::INFO, first) {
                Err(e) if is(&e, Errno::ENOENT) => return Ok(pools),
                other => other?,
            };
            if pool.id < first {
                return Ok(pools);
            }
            pools.push(pool);
        }
    }

    /// CPUs that are in no pool.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn free_cpus(&self) -> io::Result<BitSet> {
        Ok(self.pool_info(cpupool::FREEINFO, 0)?.cpus)
    }

    fn pool_info(&self, wanted: u32, id: u32) -> io::Result<Pool> {
        let mut cpus = BitSet::new(self.cpu_bound()?);
        let mut own = CpupoolOp {
            op: wanted,
            cpupool_id: id,
            cpumap: bitmap(&cpus),
            ..CpupoolOp::default()
        };
        let slot = Slot {
            field: CPUMAP_FIELD,
            bytes: cpus.bytes_mut(),
        };
        self.do_sysctl(op::CPUPOOL_OP, &mut own, &mut [slot])?;
        Ok(Pool {
            id: own.cpupool_id,
            scheduler: own.sched_id,
            domains: own.n_dom,
            cpus,
        })
    }

    /// Parameters of a pool that runs credit or credit2.
    ///
    /// # Errors
    /// The hypervisor's: `EINVAL` if it runs something else.
    pub fn pool_parameters(&self, pool: &Pool) -> io::Result<PoolParameters> {
        let mut own = request(pool, schedop::GETINFO);
        self.do_sysctl(op::SCHEDULER_OP, &mut own, &mut [])?;
        decode(pool.scheduler, &own.u).ok_or_else(|| super::error(Errno::EINVAL))
    }

    /// Changes them.
    ///
    /// # Errors
    /// The hypervisor's: `EINVAL` if one is out of range.
    pub fn set_pool_parameters(&self, pool: &Pool, parameters: PoolParameters) -> io::Result<()> {
        let mut own = request(pool, schedop::PUTINFO);
        match parameters {
            PoolParameters::Credit {
                tslice_ms,
                ratelimit_us,
                migration_delay_us,
            } => {
                let words = CreditSchedule {
                    tslice_ms,
                    ratelimit_us,
                    vcpu_migr_delay_us: migration_delay_us,
                };
                super::put(&mut own.u, &words);
            }
            PoolParameters::Credit2 { ratelimit_us } => {
                super::put(&mut own.u, &Credit2Schedule { ratelimit_us });
            }
        }
        self.do_sysctl(op::SCHEDULER_OP, &mut own, &mut [])
    }

    /// A domain's share. `scheduler` is that of its pool, credit or credit2.
    ///
    /// # Errors
    /// The hypervisor's: `EINVAL` if its pool runs something else.
    pub fn weight(&self, domid: DomId, scheduler: u32) -> io::Result<Weight> {
        let none = Weight { weight: 0, cap: 0 };
        self.domain_share(domid, scheduler, domctl::schedop::GETINFO, none)
    }

    /// Changes it.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn set_weight(&self, domid: DomId, scheduler: u32, share: Weight) -> io::Result<()> {
        self.domain_share(domid, scheduler, domctl::schedop::PUTINFO, share)
            .map(drop)
    }

    fn domain_share(
        &self,
        domid: DomId,
        sched_id: u32,
        cmd: u32,
        share: Weight,
    ) -> io::Result<Weight> {
        let mut own = domctl::SchedulerOp {
            sched_id,
            cmd,
            ..domctl::SchedulerOp::default()
        };
        let words = SchedCredit {
            weight: share.weight,
            cap: share.cap,
        };
        own.u[..size_of::<SchedCredit>()].copy_from_slice(words.as_bytes());
        self.do_domctl(domctl::op::SCHEDULER_OP, domid, &mut own, &mut [])?;
        let mut words = words;
        super::take(&own.u, &mut words);
        Ok(Weight {
            weight: words.weight,
            cap: words.cap,
        })
    }
}

fn request(pool: &Pool, cmd: u32) -> SchedulerOp {
    SchedulerOp {
        cpupool_id: pool.id,
        sched_id: pool.scheduler,
        cmd,
        ..SchedulerOp::default()
    }
}

fn decode(scheduler: u32, u: &[u8]) -> Option<PoolParameters> {
    match scheduler {
        domctl::scheduler::CREDIT => {
            let (words, _) = CreditSchedule::read_from_prefix(u).ok()?;
            Some(PoolParameters::Credit {
                tslice_ms: words.tslice_ms,
                ratelimit_us: words.ratelimit_us,
                migration_delay_us: words.vcpu_migr_delay_us,
            })
        }
        domctl::scheduler::CREDIT2 => {
            let (words, _) = Credit2Schedule::read_from_prefix(u).ok()?;
            Some(PoolParameters::Credit2 {
                ratelimit_us: words.ratelimit_us,
            })
        }
        _ => None,
    }
}
