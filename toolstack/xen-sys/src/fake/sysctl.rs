//! `sysctl` of the machine.

use super::domctl::put;
use super::{Machine, read, set_bits, slot};
use crate::bits::BitSet;
use crate::hypercalls::Call;
use crate::xen::{PoolParameters, error};
use std::io;
use xen_abi::Errno;
use xen_abi::sysctl::{
    AvailHeap, CpuTopoInfo, CpupoolOp, Credit2Schedule, CreditSchedule, DebugKeys,
    GetDomainInfoList, NumaInfo, PciTopoInfo, ReadConsole, SchedId, SchedulerOp, Sysctl, cpupool,
    op, schedop,
};
use zerocopy::{Immutable, IntoBytes};

impl Machine {
    pub(super) fn sysctl(&mut self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let mut argument: Sysctl = read(call.argument)?;
        if argument.interface_version != self.sysctl {
            return Err(error(Errno::EACCES));
        }
        let result = self.sysctl_op(&mut argument, call);
        call.argument.copy_from_slice(argument.as_bytes());
        result.map(|()| 0)
    }

    fn sysctl_op(&mut self, argument: &mut Sysctl, call: &mut Call<'_, '_>) -> io::Result<()> {
        let u = &mut argument.u;
        match argument.cmd {
            op::PHYSINFO => put(u, &self.physinfo),
            op::SCHED_ID => put(
                u,
                &SchedId {
                    sched_id: self.scheduler,
                },
            ),
            op::AVAILHEAP => {
                let mut own: AvailHeap = read(u)?;
                own.avail_bytes = self.physinfo.free_pages * 4096;
                put(u, &own);
            }
            op::DEBUG_KEYS => {
                let own: DebugKeys = read(u)?;
                let keys = slot(call, 8)?[..own.nr_keys as usize].to_vec();
                self.log
                    .push(format!("keys {}", String::from_utf8_lossy(&keys)));
            }
            op::GETDOMAININFOLIST => {
                let mut own: GetDomainInfoList = read(u)?;
                let found: Vec<_> = self
                    .domains
                    .range(own.first_domain.0..)
                    .take(own.max_domains as usize)
                    .map(|(_, d)| d.info)
                    .collect();
                own.num_domains = found.len() as u32;
                fill(slot(call, 16)?, &found);
                put(u, &own);
            }
            op::CPUTOPOINFO => {
                let own: CpuTopoInfo = read(u)?;
                if own.num_cpus > 0 {
                    fill(slot(call, 16)?, &self.topology);
                }
                let num_cpus = self.topology.len() as u32;
                put(u, &CpuTopoInfo { num_cpus, ..own });
            }
            op::NUMAINFO => {
                let own: NumaInfo = read(u)?;
                if own.num_nodes > 0 {
                    fill(slot(call, 16)?, &self.nodes);
                    fill(slot(call, 24)?, &self.distances);
                }
                let num_nodes = self.nodes.len() as u32;
                put(u, &NumaInfo { num_nodes, ..own });
            }
            op::PCITOPOINFO => {
                // Two devices at a time, to see that the caller goes on.
                let mut own: PciTopoInfo = read(u)?;
                own.num_devs = own.num_devs.min(2);
                let nodes = vec![0u32; own.num_devs as usize];
                fill(slot(call, 24)?, &nodes);
                put(u, &own);
            }
            op::READCONSOLE => {
                let mut own: ReadConsole = read(u)?;
                let rest = self.console.get(own.index as usize..).unwrap_or(&[]);
                let part = rest[..rest.len().min(own.count as usize)].to_vec();
                own.count = part.len() as u32;
                own.index += own.count;
                slot(call, 16)?[..part.len()].copy_from_slice(&part);
                if own.clear != 0 {
                    self.console.drain(..own.index as usize);
                    own.index = 0;
                }
                put(u, &own);
            }
            op::CPUPOOL_OP => {
                let mut own: CpupoolOp = read(u)?;
                let cpus = match own.op {
                    cpupool::INFO if own.cpupool_id == 0 => BitSet::full(self.cpus()),
                    cpupool::FREEINFO => BitSet::new(self.cpus()),
                    cpupool::INFO => return Err(error(Errno::ENOENT)),
                    _ => return Err(error(Errno::EINVAL)),
                };
                own.sched_id = self.scheduler;
                own.n_dom = self.domains.len() as u32;
                set_bits(slot(call, 8 + 24)?, &cpus);
                put(u, &own);
            }
            op::SCHEDULER_OP => {
                let mut own: SchedulerOp = read(u)?;
                if own.sched_id != self.scheduler {
                    return Err(error(Errno::EINVAL));
                }
                self.pool_parameters(&mut own)?;
                put(u, &own);
            }
            _ => return Err(error(Errno::ENOSYS)),
        }
        Ok(())
    }

    fn pool_parameters(&mut self, own: &mut SchedulerOp) -> io::Result<()> {
        let change = own.cmd == schedop::PUTINFO;
        match &mut self.parameters {
            PoolParameters::Credit {
                tslice_ms,
                ratelimit_us,
                migration_delay_us,
            } => {
                if change {
                    let words: CreditSchedule = read(&own.u)?;
                    *tslice_ms = words.tslice_ms;
                    *ratelimit_us = words.ratelimit_us;
                    *migration_delay_us = words.vcpu_migr_delay_us;
                }
                let words = CreditSchedule {
                    tslice_ms: *tslice_ms,
                    ratelimit_us: *ratelimit_us,
                    vcpu_migr_delay_us: *migration_delay_us,
                };
                put(&mut own.u, &words);
            }
            PoolParameters::Credit2 { ratelimit_us } => {
                if change {
                    *ratelimit_us = read::<Credit2Schedule>(&own.u)?.ratelimit_us;
                }
                let words = Credit2Schedule {
                    ratelimit_us: *ratelimit_us,
                };
                put(&mut own.u, &words);
            }
        }
        Ok(())
    }
}

/// Copies a list to the start of the caller's memory.
fn fill<T: IntoBytes + Immutable>(to: &mut [u8], list: &[T]) {
    let bytes = list.as_bytes();
    to[..bytes.len()].copy_from_slice(bytes);
}
