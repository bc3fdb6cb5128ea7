//! The hypercall entry: number and arguments from registers, one table, one place for copying, restart and error return.
//!
//! Handlers name their sub-operations and call one method elsewhere. They return a value or an [`Errno`]; sleeping, ending
//! and restarting are asked for through [`Call`].

mod bitmap;
mod console;
mod dm;
mod domctl;
mod event_channel;
mod grant_table;
mod hvm;
mod hypfs;
mod memory;
mod memory_map;
mod multicall;
mod physdev;
mod physmap;
mod platform;
mod platform_screen;
mod resource;
mod sched;
mod sysctl;
mod vcpu;
mod vcpu_context;
mod version;
mod vm_assist;
mod width;

use hv_hw::GuestContext;
use x86_model::{Gpr, Gva};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::domain::DomainRef;
use crate::guest::GuestAccess;
use crate::hypervisor::Hypervisor;
use crate::privilege::{self, Rule};
use crate::vcpu::VcpuRef;
use crate::vcpu::exits::Next;
use crate::vcpu::run::Turn;

/// Result of a handler: what RAX gets, or the errno whose negative it gets.
pub type HcResult = Result<u64, Errno>;

/// A hypercall in progress.
pub struct Call<'t, 'a> {
    /// The caller's turn on its pCPU.
    pub turn: &'t mut Turn<'a>,
    /// What happens after the call.
    pub next: Next,
    /// Set to re-execute the instruction with these arguments instead of returning.
    restart: Option<[u64; 5]>,
    /// The second argument, where a restart must repeat it.
    pointer: u64,
    /// Work done since the call began, in units of about a microsecond, for [`Call::should_restart`].
    spent: u32,
}

/// Work units that one call may do before it must restart.
const BUDGET: u32 = 512;

impl<'a> Call<'_, 'a> {
    /// The system.
    pub fn hv(&self) -> &'a Hypervisor {
        self.turn.hv
    }
    /// The calling domain.
    pub fn domain(&self) -> &'a DomainRef {
        self.turn.domain
    }
    /// The calling vCPU.
    pub fn vcpu(&self) -> &'a VcpuRef {
        self.turn.vcpu
    }
    /// The caller's memory.
    pub fn memory(&self) -> GuestAccess<'_> {
        self.turn.memory()
    }
    /// Refuses domains other than the control domain.
    pub fn privileged(&self) -> Result<(), Errno> {
        privilege::check(Rule::Control, self.domain(), None)
    }
    /// The domain that `id` names, if the caller may act on it: itself, or any for the control domain.
    pub fn target(&self, id: DomId) -> Result<DomainRef, Errno> {
        let target = self.hv().resolve(self.domain(), id);
        privilege::check(Rule::Target, self.domain(), target.as_deref())?;
        target.ok_or(Errno::ESRCH)
    }
    /// Counts one unit of work; true when the call should restart to let interrupts in.
    pub fn should_restart(&mut self) -> bool {
        self.spent += 1;
        self.spent > BUDGET
    }
    /// Counts `units` of work, to be seen by the next [`Call::should_restart`].
    pub fn spend(&mut self, units: u32) {
        self.spent = self.spent.saturating_add(units);
    }
    /// Leaves RIP on the instruction: it runs again with `args`.
    pub fn restart(&mut self, args: [u64; 5]) -> HcResult {
        self.restart = Some(args);
        Ok(0)
    }
}

type Handler = fn(&mut Call<'_, '_>, [u64; 5]) -> HcResult;

/// One row of the table.
pub struct Row {
    /// Xen's name for the call.
    pub name: &'static str,
    handler: Option<Handler>,
}

const NONE: Row = Row {
    name: "",
    handler: None,
};
const fn row(name: &'static str, handler: Handler) -> Row {
    Row {
        name,
        handler: Some(handler),
    }
}
/// Defined in Xen but not for HVM/PVH callers, or answered ENOSYS by design.
const fn refused(name: &'static str) -> Row {
    Row {
        name,
        handler: None,
    }
}

/// Every hypercall number. The coverage page in `docs/abi` is checked against this table.
pub const TABLE: [Row; 64] = {
    let mut t = [NONE; 64];
    t[7] = row("platform_op", platform::handle);
    t[12] = row("memory_op", memory::handle);
    t[13] = row("multicall", multicall::handle);
    t[15] = row("set_timer_op", sched::set_timer);
    t[17] = row("xen_version", version::handle);
    t[18] = row("console_io", console::handle);
    t[20] = if cfg!(CONFIG_GRANT_TABLE) {
        row("grant_table_op", grant_table::handle)
    } else {
        refused("grant_table_op")
    };
    t[21] = row("vm_assist", vm_assist::handle);
    t[24] = row("vcpu_op", vcpu::handle);
    t[26] = refused("mmuext_op");
    t[27] = refused("xsm_op");
    t[29] = row("sched_op", sched::handle);
    t[32] = row("event_channel_op", event_channel::handle);
    t[33] = row("physdev_op", physdev::handle);
    t[34] = row("hvm_op", hvm::handle);
    t[35] = row("sysctl", sysctl::handle);
    t[36] = row("domctl", domctl::handle);
    t[37] = refused("kexec_op");
    t[38] = refused("tmem_op");
    t[39] = refused("argo_op");
    t[40] = row("xenpmu_op", no_pmu);
    t[41] = row("dm_op", dm::handle);
    t[42] = if cfg!(CONFIG_HYPFS) {
        row("hypfs_op", hypfs::handle)
    } else {
        refused("hypfs_op")
    };
    t[48] = refused("mca");
    t
};

/// `xenpmu_op`: performance counters are not shared with guests, as on Xen unless `vpmu=` asks for it.
fn no_pmu(_: &mut Call<'_, '_>, _: [u64; 5]) -> HcResult {
    Err(Errno::EOPNOTSUPP)
}

/// Handles a VMCALL/VMMCALL of `len` bytes.
#[inline]
pub fn dispatch(turn: &mut Turn<'_>, len: u8) -> Next {
    let paging = turn.local.ctx.paging();
    let g = turn.local.ctx.gprs();
    let (number, args) = if paging.long {
        let args = [
            g.get(Gpr::Rdi),
            g.get(Gpr::Rsi),
            g.get(Gpr::Rdx),
            g.get(Gpr::R10),
            g.get(Gpr::R8),
        ];
        (g.get(Gpr::Rax), args)
    } else {
        let r = |r| u64::from(g.get32(r));
        (
            r(Gpr::Rax),
            [
                r(Gpr::Rbx),
                r(Gpr::Rcx),
                r(Gpr::Rdx),
                r(Gpr::Rsi),
                r(Gpr::Rdi),
            ],
        )
    };
    // Privilege level 0 only; VM86 counts as 3. Real mode is allowed.
    if paging.cpl != 0 || paging.rflags & 1 << 17 != 0 && paging.cr0 & 1 != 0 {
        finish(turn, paging.long, Errno::EPERM.to_ret(), len);
        return Next::Continue;
    }
    let mut call = Call {
        turn,
        next: Next::Continue,
        restart: None,
        pointer: args[1],
        spent: 0,
    };
    let result = call_number(&mut call, number, args, paging.long);
    let Call { next, restart, .. } = call;
    if let Some(args) = restart {
        restart_with(turn, paging.long, args);
        return next;
    }
    finish(turn, paging.long, ret(result), len);
    next
}

/// The value that RAX gets.
fn ret(result: HcResult) -> i64 {
    match result {
        Ok(v) => v as i64,
        Err(e) => e.to_ret(),
    }
}

/// Runs the handler of a number.
fn call_number(call: &mut Call<'_, '_>, number: u64, args: [u64; 5], long: bool) -> HcResult {
    let handler = TABLE
        .get(usize::try_from(number).unwrap_or(usize::MAX))
        .and_then(|r| r.handler);
    let Some(handler) = handler else {
        return Err(Errno::ENOSYS);
    };
    if !long && number == PLATFORM_OP {
        // A dom0's call, and dom0 kernels are 64-bit.
        hv_hw::guest_log!(
            Warning,
            "{}: 32-bit hypercall {number} refused",
            call.vcpu().key
        );
        return Err(Errno::ENOSYS);
    }
    handler(call, args)
}

/// The only call whose structures have no 32-bit form here.
const PLATFORM_OP: u64 = 7;

fn finish(turn: &mut Turn<'_>, long: bool, value: i64, len: u8) {
    let g = turn.local.ctx.gprs_mut();
    if long {
        g.set(Gpr::Rax, value as u64);
    } else {
        g.set32(Gpr::Rax, value as u32);
    }
    turn.skip(len);
}

fn restart_with(turn: &mut Turn<'_>, long: bool, args: [u64; 5]) {
    let g = turn.local.ctx.gprs_mut();
    let regs = if long {
        [Gpr::Rdi, Gpr::Rsi, Gpr::Rdx, Gpr::R10, Gpr::R8]
    } else {
        [Gpr::Rbx, Gpr::Rcx, Gpr::Rdx, Gpr::Rsi, Gpr::Rdi]
    };
    for (r, v) in regs.into_iter().zip(args) {
        if long {
            g.set(r, v)
        } else {
            g.set32(r, v as u32)
        }
    }
    // Interrupts get their chance between the pieces.
    turn.pcpu.check_clock();
}

/// Shorthand for handlers: a pointer argument.
const fn ptr(v: u64) -> Gva {
    Gva(v)
}

/// The member `T` of an operation's union. EFAULT if the union is shorter.
fn member<T: FromBytes>(union: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(union)
        .map(|(t, _)| t)
        .map_err(|_| Errno::EFAULT)
}

/// Replaces the member `T` of an operation's union. EFAULT if the union is shorter.
fn set_member<T: IntoBytes + Immutable>(union: &mut [u8], value: &T) -> Result<(), Errno> {
    let bytes = value.as_bytes();
    union
        .get_mut(..bytes.len())
        .ok_or(Errno::EFAULT)?
        .copy_from_slice(bytes);
    Ok(())
}
