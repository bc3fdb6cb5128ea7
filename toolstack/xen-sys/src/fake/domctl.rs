//! `domctl` of the machine.

use super::{FakeDomain, Machine, read, set_bits, slot};
use crate::bits::BitSet;
use crate::hypercalls::Call;
use crate::xen::{Weight, error};
use std::io;
use xen_abi::domctl::{
    Domctl, GetVcpuInfo, HvmContextPartial, MaxMem, SchedCredit, SchedulerOp, SendTrigger,
    VcpuAffinity, affinity, dominf, op, pfinfo, schedop, version,
};
use xen_abi::{DomId, Errno};
use zerocopy::{Immutable, IntoBytes};

impl Machine {
    pub(super) fn domctl(&mut self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let mut argument: Domctl = read(call.argument)?;
        if argument.interface_version != self.domctl {
            return Err(error(Errno::EACCES));
        }
        let result = self.domctl_op(&mut argument, call);
        call.argument.copy_from_slice(argument.as_bytes());
        result
    }

    fn domctl_op(&mut self, argument: &mut Domctl, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let id = argument.domain.0;
        let next = self.domctl == version::XEN_4_17;
        if argument.cmd == op::GETDOMAININFO {
            let found = self
                .domains
                .range(id..)
                .next()
                .filter(|(n, _)| next || **n == id);
            let (n, domain) = found.ok_or_else(|| error(Errno::ESRCH))?;
            argument.domain = DomId(*n);
            put(&mut argument.u, &domain.info);
            return Ok(0);
        }
        let cpus = self.cpus();
        let log = &mut self.log;
        let domain = self
            .domains
            .get_mut(&id)
            .ok_or_else(|| error(Errno::ESRCH))?;
        match argument.cmd {
            op::PAUSEDOMAIN => domain.info.flags |= dominf::PAUSED,
            op::UNPAUSEDOMAIN => domain.info.flags &= !dominf::PAUSED,
            op::DESTROYDOMAIN => {
                self.domains.remove(&id);
            }
            op::MAX_MEM => domain.info.max_pages = read::<MaxMem>(&argument.u)?.max_memkb / 4,
            op::SENDTRIGGER => {
                let own: SendTrigger = read(&argument.u)?;
                log.push(format!("trigger {} of d{id}v{}", own.trigger, own.vcpu));
            }
            op::GETVCPUINFO => {
                let own: GetVcpuInfo = read(&argument.u)?;
                let (info, _) = vcpu(domain, own.vcpu)?;
                put(&mut argument.u, info);
            }
            op::GETVCPUAFFINITY | op::SETVCPUAFFINITY => {
                let own: VcpuAffinity = read(&argument.u)?;
                let (_, sets) = vcpu(domain, own.vcpu)?;
                let fields = [
                    (affinity::HARD, 16 + 8, &mut sets.hard),
                    (affinity::SOFT, 16 + 24, &mut sets.soft),
                ];
                for (_, field, set) in fields.into_iter().filter(|f| own.flags & f.0 != 0) {
                    let memory = slot(call, field)?;
                    if argument.cmd == op::SETVCPUAFFINITY {
                        let mut wanted = BitSet::new(cpus);
                        let length = wanted.bytes().len();
                        wanted.bytes_mut().copy_from_slice(&memory[..length]);
                        if wanted.is_empty() {
                            return Err(error(Errno::EINVAL));
                        }
                        *set = wanted;
                    }
                    set_bits(memory, set);
                }
            }
            op::GETPAGEFRAMEINFO3 => {
                for kind in slot(call, 16 + 8)?.chunks_mut(8) {
                    let frame: u64 = read(kind)?;
                    let there = domain.frames.contains(&frame);
                    let answer = if there { pfinfo::NOTAB } else { pfinfo::XTAB };
                    kind.copy_from_slice(&u64::from(answer).to_ne_bytes());
                }
            }
            op::GETHVMCONTEXT_PARTIAL => {
                let own: HvmContextPartial = read(&argument.u)?;
                vcpu(domain, own.instance)?;
            }
            op::GETNODEAFFINITY => set_bits(slot(call, 16)?, &BitSet::full(1)),
            op::SCHEDULER_OP => {
                let own: SchedulerOp = read(&argument.u)?;
                if own.sched_id != self.scheduler {
                    return Err(error(Errno::EINVAL));
                }
                let words: SchedCredit = read(&own.u)?;
                if own.cmd == schedop::PUTINFO {
                    domain.share = Weight {
                        weight: words.weight,
                        cap: words.cap,
                    };
                }
                let mut answer = own;
                put(
                    &mut answer.u,
                    &SchedCredit {
                        weight: domain.share.weight,
                        cap: domain.share.cap,
                    },
                );
                put(&mut argument.u, &answer);
            }
            _ => return Err(error(Errno::ENOSYS)),
        }
        Ok(0)
    }
}

fn vcpu(
    domain: &mut FakeDomain,
    number: u32,
) -> io::Result<&mut (GetVcpuInfo, crate::xen::Affinity)> {
    let found = domain.vcpus.get_mut(number as usize);
    found.ok_or_else(|| error(Errno::ESRCH))
}

pub(super) fn put<T: IntoBytes + Immutable>(u: &mut [u8], own: &T) {
    u[..size_of::<T>()].copy_from_slice(own.as_bytes());
}
