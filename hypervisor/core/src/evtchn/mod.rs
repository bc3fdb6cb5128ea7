//! Event channels: ports, the two formats in which guests see events, virtual interrupts, connections between domains.
//!
//! Owned by the domain as one [`Evtchn`]; its lock has rank PORT, and a pair of domains is locked in ascending order of
//! identifiers. Nothing here calls upwards: operations answer with the vCPUs that have news ([`Notify`]), and the caller
//! tells them after the lock is released. Pages shared with the guest are only touched by atomic operations.

mod abi_2l;
mod abi_2l_32;
mod abi_fifo;
mod notify;
mod pair;
mod polling;
mod ports;
mod table;
mod virq;

#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use core::sync::atomic::Ordering;

use hv_hw::mem::FrameRef;
use hv_hw::sync::{SpinLock, rank};
use xen_abi::event_channel::EvtchnStatus;
use xen_abi::shared_info::offset;
use xen_abi::{DomId, Errno};

pub use notify::{MAX_VCPUS, Notify, VcpuSet};
pub use pair::{Sent, bind_interdomain, close, reset, send};
pub use polling::{NONE as POLL_NONE, SEVERAL as POLL_SEVERAL};
pub use virq::{Scope, scope as virq_scope};

use polling::Polling;
use ports::State;
use table::EvtchnTable;

/// Ports of an ordinary domain by default, port 0 included (as xl's `max_event_channels`).
pub const DEFAULT_MAX_PORTS: u32 = 1024;
/// Ports of the control domain: all that a format can have.
pub const CONTROL_MAX_PORTS: u32 = abi_fifo::PORTS;

/// Where a domain's vCPUs have their vcpu_info. Asked under the port lock: the answer must not take a lock of rank PORT or
/// below.
pub trait VcpuPages {
    /// Frame and offset (a multiple of 4) of a vCPU's vcpu_info; `None` while it has none.
    fn vcpu_info(&self, vcpu: u32) -> Option<(&FrameRef, usize)>;
}

/// A domain, as far as event channels are concerned.
pub trait PortOwner: VcpuPages {
    /// Its identifier.
    fn id(&self) -> DomId;
    /// Its event channels.
    fn evtchn(&self) -> &Evtchn;
}

/// A domain's event channels.
pub struct Evtchn {
    table: SpinLock<EvtchnTable, { rank::PORT }>,
    polling: Polling,
}

/// Sets `evtchn_upcall_pending`; the vCPU needs an upcall if it was clear.
fn mark_upcall(pages: &dyn VcpuPages, vcpu: u32, out: &mut Notify) {
    if let Some((frame, at)) = pages.vcpu_info(vcpu)
        && frame
            .atomic_u8(at + offset::UPCALL_PENDING)
            .swap(1, Ordering::SeqCst)
            == 0
    {
        out.upcalls.insert(vcpu);
    }
}

impl Evtchn {
    /// No ports, 2-level format in `shared_info`. `vcpus` above [`MAX_VCPUS`] are cut off; `max_ports` counts port 0.
    /// ENOMEM without memory.
    pub fn new(shared_info: FrameRef, vcpus: u32, max_ports: u32) -> Result<Self, Errno> {
        let vcpus = vcpus.min(MAX_VCPUS);
        Ok(Evtchn {
            table: SpinLock::new(EvtchnTable::new(shared_info, vcpus, max_ports)?),
            polling: Polling::new(vcpus),
        })
    }

    /// Whether the 2-level format is that of 32-bit guests from now on. What is pending stays so, what is masked does not.
    pub fn set_narrow(&self, narrow: bool) {
        self.table.lock().set_narrow(narrow);
    }

    /// `EVTCHNOP_alloc_unbound`: a port that `remote` may bind to. ENOSPC, ENOMEM.
    pub fn alloc_unbound(&self, remote: DomId) -> Result<u32, Errno> {
        self.table.lock().alloc_unbound(remote)
    }

    /// `EVTCHNOP_bind_virq`. EINVAL: no such interrupt, or a global one on another vCPU than 0; ENOENT: no such vCPU;
    /// EEXIST: bound already.
    pub fn bind_virq(&self, virq: u32, vcpu: u32) -> Result<u32, Errno> {
        self.table.lock().bind_virq(virq, vcpu)
    }

    /// A port for a device's interrupt, at vCPU 0.
    pub fn bind_pirq(&self, pirq: u32) -> Result<u32, Errno> {
        self.table.lock().allocate(ports::State::Pirq(pirq), 0)
    }

    /// Whether a port is that of a device's interrupt (it may have been closed, and another thing be on it).
    pub fn is_pirq(&self, port: u32, pirq: u32) -> bool {
        let table = self.table.lock();
        let state = table.ports.get(port).map(|p| p.state);
        state == Ok(ports::State::Pirq(pirq))
    }

    /// Raises a device's interrupt. `None` if the port is not that interrupt's.
    pub fn raise_pirq(&self, pages: &dyn VcpuPages, port: u32, pirq: u32) -> Option<Notify> {
        let mut table = self.table.lock();
        let state = table.ports.get(port).map(|p| p.state);
        (state == Ok(ports::State::Pirq(pirq))).then(|| {
            let mut out = Notify::default();
            table.raise(pages, &self.polling, port, &mut out);
            out
        })
    }

    /// `EVTCHNOP_bind_ipi`. ENOENT: no such vCPU.
    pub fn bind_ipi(&self, vcpu: u32) -> Result<u32, Errno> {
        self.table.lock().bind_ipi(vcpu)
    }

    /// `EVTCHNOP_bind_vcpu`. ENOENT: no such vCPU; EINVAL: no such port, or one that cannot move.
    pub fn bind_vcpu(&self, port: u32, vcpu: u32) -> Result<(), Errno> {
        self.table.lock().bind_vcpu(port, vcpu)
    }

    /// A line for each port that is bound, for people; at most `most`. Returns the number of bound ports.
    pub fn dump(&self, most: usize, line: &mut dyn FnMut(String)) -> usize {
        let table = self.table.lock();
        let mut bound = 0;
        for number in 0..table.ports.len() {
            let Ok(port) = table.ports.get(number) else {
                break;
            };
            if !port.state.in_use() {
                continue;
            }
            bound += 1;
            if bound <= most {
                let pending = if table.is_pending(number) == Ok(true) {
                    ", pending"
                } else {
                    ""
                };
                line(format!(
                    "  port {number}: {:?}, vCPU {}{pending}",
                    port.state, port.vcpu
                ));
            }
        }
        bound
    }

    /// `EVTCHNOP_status`; `query` has the port and gets the answer.
    pub fn status(&self, query: &mut EvtchnStatus) -> Result<(), Errno> {
        use xen_abi::event_channel::status;
        let table = self.table.lock();
        let port = table.ports.get(query.port)?;
        query.u = [0; 2];
        query.vcpu = port.vcpu;
        match port.state {
            State::Free | State::Reserved => query.status = status::CLOSED,
            State::Unbound { remote } => query.set_unbound(remote),
            State::Interdomain { remote, port } => query.set_interdomain(remote, port),
            State::Virq(virq) => query.set_virq(virq),
            State::Pirq(pirq) => query.set_pirq(pirq),
            State::Ipi => query.status = status::IPI,
        }
        Ok(())
    }

    /// `EVTCHNOP_unmask`. EINVAL: no such port.
    pub fn unmask(&self, pages: &dyn VcpuPages, port: u32) -> Result<Notify, Errno> {
        let mut out = Notify::default();
        self.table.lock().unmask(pages, port, &mut out)?;
        Ok(out)
    }

    /// `EVTCHNOP_init_control`: gives a vCPU its control block; the first one switches the domain to the FIFO format.
    /// `frame` is the writable RAM page that the guest named, if it did name one. ENOENT: no such vCPU; EINVAL: bad
    /// offset or page, or the vCPU has a control block. Returns the number of link bits.
    pub fn init_control(
        &self,
        vcpu: u32,
        frame: Option<FrameRef>,
        offset: u32,
    ) -> Result<u8, Errno> {
        self.table.lock().init_control(vcpu, frame, offset)?;
        Ok(xen_abi::event_channel::fifo::LINK_BITS as u8)
    }

    /// `EVTCHNOP_expand_array`: adds a page of event words. EOPNOTSUPP in the 2-level format; ENOSPC: all pages are
    /// there; EINVAL: bad page.
    pub fn expand_array(
        &self,
        pages: &dyn VcpuPages,
        frame: Option<FrameRef>,
    ) -> Result<Notify, Errno> {
        let mut out = Notify::default();
        self.table
            .lock()
            .expand_array(pages, &self.polling, frame, &mut out)?;
        Ok(out)
    }

    /// `EVTCHNOP_set_priority` (0 is highest, 15 lowest). ENOSYS in the 2-level format; EACCES: the
    /// port is not in use; EINVAL.
    pub fn set_priority(&self, port: u32, priority: u32) -> Result<(), Errno> {
        self.table.lock().set_priority(port, priority)
    }

    /// Raises a vCPU's own virtual interrupt. Nothing happens if it is not bound.
    pub fn raise_virq(&self, pages: &dyn VcpuPages, vcpu: u32, virq: u32) -> Notify {
        let mut out = Notify::default();
        self.table
            .lock()
            .raise_virq(pages, &self.polling, vcpu, virq, &mut out);
        out
    }

    /// Raises a global virtual interrupt. Nothing happens if it is not bound.
    pub fn raise_global_virq(&self, pages: &dyn VcpuPages, virq: u32) -> Notify {
        self.raise_virq(pages, 0, virq)
    }

    /// Announces what a vCPU polls for: a port, [`POLL_SEVERAL`], or [`POLL_NONE`] any more. Announce first, then look
    /// with [`Evtchn::any_pending`], then fall asleep, then look with [`Evtchn::polls`]: a raise in between took the
    /// announcement back.
    pub fn set_polling(&self, vcpu: u32, port: u32) {
        self.polling.set(vcpu, port);
    }

    /// Whether what a vCPU polls for has not been raised yet.
    pub fn polls(&self, vcpu: u32) -> bool {
        self.polling.waits(vcpu)
    }

    /// Whether one of the ports is pending, masked or not. EINVAL if one before it does not exist.
    pub fn any_pending(&self, ports: &[u32]) -> Result<bool, Errno> {
        let table = self.table.lock();
        for &port in ports {
            if table.is_pending(port)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
