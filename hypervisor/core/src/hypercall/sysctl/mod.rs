//! `sysctl` (35): the toolstack's view of the machine. Layouts in `sysctl.h`.

mod cpu;
mod host;
mod log;
mod pool;
mod trace;

use xen_abi::Errno;
use xen_abi::sysctl::{Sysctl, op, version};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Call, HcResult, member, ptr, set_member};
use crate::hotplug::Progress;
use crate::privilege::{self, Rule};

/// An operation in progress.
pub struct Op<'c, 't, 'a> {
    /// The hypercall.
    pub call: &'c mut Call<'t, 'a>,
    /// Its argument.
    pub arg: Sysctl,
}

type Result = core::result::Result<(), Errno>;

impl Op<'_, '_, '_> {
    /// The operation's own structure.
    pub fn get<T: FromBytes>(&self) -> core::result::Result<T, Errno> {
        member(&self.arg.u)
    }

    /// Replaces it; it is written back when the operation succeeds.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result {
        set_member(&mut self.arg.u, value)?;
        Ok(())
    }
}

/// `sysctl(pointer)`.
pub fn handle(call: &mut Call<'_, '_>, args: [u64; 5]) -> HcResult {
    let [at, ..] = args;
    let arg: Sysctl = call.memory().read(ptr(at))?;
    if !(version::XEN_4_17..=version::XEN_4_21).contains(&arg.interface_version) {
        hv_hw::guest_log!(
            Warning,
            "{}: sysctl interface {:#x} asked for, {:#x} to {:#x} spoken: use tools of Xen 4.17 to 4.21",
            call.domain().id,
            arg.interface_version,
            version::XEN_4_17,
            version::XEN_4_21
        );
        return Err(Errno::EACCES);
    }
    privilege::check(Rule::Control, call.domain(), None)?;
    let mut op = Op { call, arg };
    if op.arg.cmd == op::CPU_HOTPLUG {
        return match host::hotplug(&mut op)? {
            Progress::Done => Ok(0),
            Progress::Again => op.call.restart(args),
        };
    }
    let result = run(&mut op);
    let Op { call, arg } = op;
    // A list that was cut short is an error with an answer.
    if matches!(result, Ok(()) | Err(Errno::ENOBUFS)) {
        call.memory().write(ptr(at), &arg)?;
    }
    result.map(|()| 0)
}

fn run(o: &mut Op<'_, '_, '_>) -> Result {
    match o.arg.cmd {
        op::READCONSOLE => log::read(o),
        op::DEBUG_KEYS => log::keys(o),
        op::TBUF_OP => trace::control(o),
        op::PHYSINFO => host::physinfo(o),
        op::GETDOMAININFOLIST => host::domains(o),
        op::GETCPUINFO => host::idle_times(o),
        op::AVAILHEAP => host::free_memory(o),
        op::CPUTOPOINFO => host::topology(o),
        op::NUMAINFO => host::nodes(o),
        op::PCITOPOINFO => host::devices(o),
        op::SCHED_ID => pool::scheduler(o),
        op::CPUPOOL_OP => pool::pool(o),
        op::SCHEDULER_OP => pool::parameters(o),
        op::GET_CPU_FEATURESET => cpu::featureset(o),
        op::GET_CPU_POLICY => cpu::policy(o),
        // No processor's own CPUID can be changed.
        op::GET_CPU_LEVELLING_CAPS if o.arg.interface_version < version::XEN_4_21 => o.put(&0u32),
        // As a Xen on a processor without these features, or built without them.
        op::PSR_CMT_OP | op::PSR_ALLOC => Err(Errno::ENODEV),
        // Nothing is known of the processors' power states.
        op::GET_PMSTAT => Err(Errno::ENODEV),
        op::PAGE_OFFLINE_OP => host::offline_pages(o),
        op::COVERAGE_OP => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::ENOSYS),
    }
}
