//! `domctl` (36): the toolstack's control of domains. Layouts in `domctl.h`.
//!
//! Names the operations and their arguments; the work is in [`crate::domain`] and the files beside this one. One operation
//! runs at a time in the whole system, under the control lock; long ones do a piece and restart.

mod context;
mod cpu;
mod create;
mod life;
mod memory;
mod misc;
pub mod policy;
mod record;
mod registers;
mod xsave;

use hv_hw::sync::{SpinGuard, rank};
use xen_abi::domctl::{Domctl, op, version};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Call, HcResult, member, ptr, set_member};
use crate::domain::DomainRef;
use crate::hypervisor::Control;
use crate::privilege::{self, Rule};

/// What follows from an operation.
pub enum Done {
    /// Nothing is written back.
    Quiet,
    /// The argument is written back.
    Answer,
    /// The call runs again.
    Again,
}

type Result = core::result::Result<Done, Errno>;

/// An operation in progress.
pub struct Op<'c, 't, 'a> {
    /// The hypercall.
    pub call: &'c mut Call<'t, 'a>,
    /// Its argument.
    pub arg: Domctl,
    /// An error that comes with an answer.
    pub failed: Option<Errno>,
    /// What all operations share.
    pub control: SpinGuard<'a, Control, { rank::CONTROL }>,
}

impl Op<'_, '_, '_> {
    /// The operation's own structure.
    pub fn get<T: FromBytes>(&self) -> core::result::Result<T, Errno> {
        member(&self.arg.u)
    }

    /// Replaces it.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result {
        set_member(&mut self.arg.u, value)?;
        Ok(Done::Answer)
    }

    /// EINVAL for the caller's own domain, which cannot be held.
    pub fn not_self(&self, d: &DomainRef) -> core::result::Result<(), Errno> {
        if d.id == self.call.domain().id {
            Err(Errno::EINVAL)
        } else {
            Ok(())
        }
    }
}

/// Operations that may name a domain that does not exist.
fn finds_itself(cmd: u32) -> bool {
    matches!(cmd, op::CREATEDOMAIN | op::GETDOMAININFO)
}

/// `domctl(pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [at, ..]: [u64; 5]) -> HcResult {
    let arg: Domctl = call.memory().read(ptr(at))?;
    if !(version::XEN_4_17..=version::XEN_4_19).contains(&arg.interface_version) {
        hv_hw::guest_log!(
            Warning,
            "{}: domctl interface {:#x} asked for, {:#x} to {:#x} spoken: use tools of Xen 4.17 to 4.20",
            call.domain().id,
            arg.interface_version,
            version::XEN_4_17,
            version::XEN_4_19
        );
        return Err(Errno::EACCES);
    }
    let target = target(call, &arg)?;
    privilege::check(Rule::Control, call.domain(), target.as_deref())?;
    let hv = call.hv();
    let mut op = Op {
        call,
        arg,
        failed: None,
        control: hv.control.lock(),
    };
    let done = run(&mut op, target);
    let Op {
        call,
        arg,
        failed,
        control,
    } = op;
    drop(control);
    match done? {
        Done::Quiet => Ok(0),
        Done::Answer => {
            call.memory().write(ptr(at), &arg)?;
            failed.map_or(Ok(0), Err)
        }
        Done::Again => call.restart([at, 0, 0, 0, 0]),
    }
}

fn target(call: &Call<'_, '_>, arg: &Domctl) -> core::result::Result<Option<DomainRef>, Errno> {
    // The domain that passed-through devices wait in.
    let quarantine = matches!(arg.cmd, op::ASSIGN_DEVICE | op::DEASSIGN_DEVICE);
    let nobody = matches!(arg.cmd, op::TEST_ASSIGN_DEVICE | op::VM_EVENT_OP);
    match call.hv().domain(arg.domain) {
        Some(d) if arg.cmd != op::CREATEDOMAIN => Ok(Some(d)),
        _ if finds_itself(arg.cmd)
            || quarantine && arg.domain == DomId::IO
            || nobody && arg.domain == DomId::INVALID =>
        {
            Ok(None)
        }
        _ => Err(Errno::ESRCH),
    }
}

fn run(o: &mut Op<'_, '_, '_>, target: Option<DomainRef>) -> Result {
    match (o.arg.cmd, target) {
        (op::CREATEDOMAIN, _) => create::create(o),
        (op::GETDOMAININFO, d) => life::info(o, d),
        // There is no IOMMU to assign devices with.
        (
            op::ASSIGN_DEVICE | op::DEASSIGN_DEVICE | op::TEST_ASSIGN_DEVICE | op::GET_DEVICE_GROUP,
            _,
        ) => Err(Errno::EOPNOTSUPP),
        (_, Some(d)) => on_domain(o, &d),
        (_, None) => Err(Errno::ENOSYS),
    }
}

fn on_domain(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    match o.arg.cmd {
        op::DESTROYDOMAIN => life::destroy(o, d),
        op::PAUSEDOMAIN => life::pause(o, d),
        op::UNPAUSEDOMAIN => life::unpause(o, d),
        op::RESUMEDOMAIN => life::resume(o, d),
        op::SETDOMAINHANDLE => life::set_handle(o, d),
        op::SENDTRIGGER => life::trigger(o, d),
        op::MAX_VCPUS => cpu::max_vcpus(o, d),
        op::GETVCPUINFO => cpu::info(o, d),
        op::SETVCPUAFFINITY => cpu::set_affinity(o, d),
        op::GETVCPUAFFINITY => cpu::get_affinity(o, d),
        op::SETNODEAFFINITY => cpu::set_node_affinity(o),
        op::GETNODEAFFINITY => cpu::get_node_affinity(o),
        op::SCHEDULER_OP => cpu::scheduler(o, d),
        op::GET_CPU_POLICY => policy::get(o, d),
        op::SET_CPU_POLICY => policy::set(o, d),
        op::GETVCPUCONTEXT => registers::get(o, d),
        op::SETVCPUCONTEXT => registers::set(o, d),
        op::GETHVMCONTEXT => context::get(o, d),
        op::SETHVMCONTEXT => context::set(o, d),
        op::GETHVMCONTEXT_PARTIAL => context::get_one(o, d),
        op::MAX_MEM => memory::max_mem(o, d),
        op::GETPAGEFRAMEINFO3 => memory::frame_info(o, d),
        op::MEMORY_MAPPING => memory::map_device(o, d),
        op::SHADOW_OP => memory::shadow(o, d),
        op::GET_PAGING_MEMPOOL_SIZE => memory::get_pool(o, d),
        op::SET_PAGING_MEMPOOL_SIZE => memory::set_pool(o, d),
        op::HYPERCALL_INIT => memory::hypercall_page(o, d),
        op::IRQ_PERMISSION => Err(Errno::EPERM),
        op::IOMEM_PERMISSION => misc::iomem(o),
        op::IOPORT_PERMISSION => misc::ioport(o),
        op::IOPORT_MAPPING => misc::map_ports(o),
        op::SETTIMEOFFSET => misc::set_time_offset(o, d),
        op::GETTSCINFO => misc::get_tsc(o, d),
        op::SETTSCINFO => misc::set_tsc(o, d),
        op::SET_VIRQ_HANDLER => misc::set_virq_handler(o, d),
        op::SUBSCRIBE => misc::subscribe(o, d),
        // The size of a translated domain's addresses is its own business.
        op::SET_ADDRESS_SIZE | op::GET_ADDRESS_SIZE => Err(Errno::EOPNOTSUPP),
        op::BIND_PT_IRQ | op::UNBIND_PT_IRQ => Err(Errno::EPERM),
        // Device models of their own are for HVM.
        op::SET_TARGET => Err(Errno::EOPNOTSUPP),
        // For PV.
        op::GET_VCPU_MSRS | op::SET_VCPU_MSRS => misc::vcpu_msrs(o, d),
        op::DEBUG_OP => misc::single_step(o, d),
        // As a Xen on a processor without these features, or a domain that was not given them.
        op::PSR_CMT_OP | op::PSR_ALLOC => Err(Errno::ENODEV),
        op::VMTRACE_OP => Err(Errno::EINVAL),
        op::SET_LLC_COLORS => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::ENOSYS),
    }
}
