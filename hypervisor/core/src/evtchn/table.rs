//! One domain's event channels under its port lock: the operations that concern this domain alone.

use alloc::vec::Vec;

use hv_hw::mem::FrameRef;
use xen_abi::event_channel::fifo;
use xen_abi::{DomId, Errno};

use super::abi_fifo::Fifo;
use super::polling::Polling;
use super::ports::{Ports, State};
use super::virq::{self, Scope};
use super::{Notify, VcpuPages, abi_2l, abi_2l_32, abi_fifo};

/// How events are shown to the guest.
enum Abi {
    TwoLevel,
    TwoLevel32,
    Fifo(Fifo),
}

/// The state behind the lock.
pub struct EvtchnTable {
    pub(super) ports: Ports,
    abi: Abi,
    /// The 2-level format is that of 32-bit guests.
    narrow: bool,
    shared_info: FrameRef,
    /// Port of each virtual interrupt, by vCPU; global ones are at vCPU 0. 0: not bound.
    virqs: Vec<[u32; virq::COUNT]>,
}

impl EvtchnTable {
    /// A table in the 2-level format without ports.
    pub(super) fn new(shared_info: FrameRef, vcpus: u32, max_ports: u32) -> Result<Self, Errno> {
        let mut virqs = Vec::new();
        virqs
            .try_reserve_exact(vcpus as usize)
            .map_err(|_| Errno::ENOMEM)?;
        virqs.resize(vcpus as usize, [0; virq::COUNT]);
        Ok(EvtchnTable {
            ports: Ports::new(max_ports)?,
            abi: Abi::TwoLevel,
            narrow: false,
            shared_info,
            virqs,
        })
    }

    fn vcpus(&self) -> u32 {
        self.virqs.len() as u32
    }

    fn has_vcpu(&self, vcpu: u32) -> Result<(), Errno> {
        if vcpu < self.vcpus() {
            Ok(())
        } else {
            Err(Errno::ENOENT)
        }
    }

    /// Takes a free port.
    pub(super) fn allocate(&mut self, state: State, vcpu: u32) -> Result<u32, Errno> {
        match &self.abi {
            Abi::TwoLevel => self.ports.allocate(abi_2l::PORTS, state, vcpu, |_| false),
            Abi::TwoLevel32 => self
                .ports
                .allocate(abi_2l_32::PORTS, state, vcpu, |_| false),
            Abi::Fifo(fifo) => self
                .ports
                .allocate(abi_fifo::PORTS, state, vcpu, |p| fifo.is_linked(p)),
        }
    }

    /// Raises a port's event at its vCPU.
    pub(super) fn raise(
        &mut self,
        pages: &dyn VcpuPages,
        polling: &Polling,
        port: u32,
        out: &mut Notify,
    ) {
        let Ok(p) = self.ports.get_mut(port) else {
            return;
        };
        // One comparison for the format with the shortest path.
        let news = if matches!(self.abi, Abi::TwoLevel) {
            abi_2l::raise(&self.shared_info, pages, port, p.vcpu, out)
        } else if let Abi::Fifo(fifo) = &mut self.abi {
            fifo.raise(pages, port, p, out)
        } else {
            abi_2l_32::raise(&self.shared_info, pages, port, p.vcpu, out)
        };
        if news {
            polling.wake(port, &mut out.pollers);
        }
    }

    /// Whether a port's event is pending, masked or not. EINVAL for ports that do not exist.
    pub(super) fn is_pending(&self, port: u32) -> Result<bool, Errno> {
        let in_use = self.ports.get(port)?.state.in_use();
        Ok(in_use
            && match &self.abi {
                Abi::TwoLevel => abi_2l::is_pending(&self.shared_info, port),
                Abi::TwoLevel32 => abi_2l_32::is_pending(&self.shared_info, port),
                Abi::Fifo(fifo) => fifo.is_pending(port),
            })
    }

    /// Frees a port whose binding elsewhere has been undone.
    pub(super) fn free(&mut self, port: u32) {
        match &self.abi {
            Abi::TwoLevel => abi_2l::clear_pending(&self.shared_info, port),
            Abi::TwoLevel32 => abi_2l_32::clear_pending(&self.shared_info, port),
            Abi::Fifo(fifo) => fifo.clear_pending(port),
        }
        self.ports.free(port);
    }

    /// Undoes what a port of this domain alone is bound to, and frees it.
    pub(super) fn close_own(&mut self, port: u32) {
        let Ok(p) = self.ports.get(port) else { return };
        if let (State::Virq(virq), vcpu) = (p.state, p.vcpu) {
            let at = match virq::scope(virq) {
                Some(Scope::Global) | None => 0,
                Some(Scope::Vcpu) => vcpu,
            };
            if let Some(slot) = self
                .virqs
                .get_mut(at as usize)
                .and_then(|v| v.get_mut(virq as usize))
            {
                *slot = 0;
            }
        }
        self.free(port);
    }

    pub(super) fn alloc_unbound(&mut self, remote: DomId) -> Result<u32, Errno> {
        self.allocate(State::Unbound { remote }, 0)
    }

    pub(super) fn bind_virq(&mut self, virq: u32, vcpu: u32) -> Result<u32, Errno> {
        let scope = virq::scope(virq).ok_or(Errno::EINVAL)?;
        if scope == Scope::Global && vcpu != 0 {
            return Err(Errno::EINVAL);
        }
        self.has_vcpu(vcpu)?;
        if self.virq_port(vcpu, virq) != 0 {
            return Err(Errno::EEXIST);
        }
        let port = self.allocate(State::Virq(virq), vcpu)?;
        self.virqs[vcpu as usize][virq as usize] = port;
        Ok(port)
    }

    fn virq_port(&self, vcpu: u32, virq: u32) -> u32 {
        self.virqs
            .get(vcpu as usize)
            .and_then(|v| v.get(virq as usize))
            .copied()
            .unwrap_or(0)
    }

    /// Raises a virtual interrupt if it is bound.
    pub(super) fn raise_virq(
        &mut self,
        pages: &dyn VcpuPages,
        polling: &Polling,
        vcpu: u32,
        virq: u32,
        out: &mut Notify,
    ) {
        match self.virq_port(vcpu, virq) {
            0 => {}
            port => self.raise(pages, polling, port, out),
        }
    }

    pub(super) fn bind_ipi(&mut self, vcpu: u32) -> Result<u32, Errno> {
        self.has_vcpu(vcpu)?;
        self.allocate(State::Ipi, vcpu)
    }

    pub(super) fn bind_vcpu(&mut self, port: u32, vcpu: u32) -> Result<(), Errno> {
        self.has_vcpu(vcpu)?;
        let p = self.ports.get_mut(port)?;
        match p.state {
            State::Virq(virq) if virq::scope(virq) == Some(Scope::Global) => {}
            State::Unbound { .. } | State::Interdomain { .. } | State::Pirq(_) => {}
            _ => return Err(Errno::EINVAL),
        }
        p.vcpu = vcpu;
        Ok(())
    }

    pub(super) fn unmask(
        &mut self,
        pages: &dyn VcpuPages,
        port: u32,
        out: &mut Notify,
    ) -> Result<(), Errno> {
        let p = self.ports.get_mut(port)?;
        if p.state.in_use() {
            match &mut self.abi {
                Abi::TwoLevel => abi_2l::unmask(&self.shared_info, pages, port, p.vcpu, out),
                Abi::TwoLevel32 => abi_2l_32::unmask(&self.shared_info, pages, port, p.vcpu, out),
                Abi::Fifo(fifo) => fifo.unmask(pages, port, p, out),
            }
        }
        Ok(())
    }

    pub(super) fn init_control(
        &mut self,
        vcpu: u32,
        frame: Option<FrameRef>,
        offset: u32,
    ) -> Result<(), Errno> {
        self.has_vcpu(vcpu)?;
        let offset = Fifo::check_offset(offset)?;
        match &mut self.abi {
            Abi::Fifo(fifo) => fifo.set_control(vcpu, frame.ok_or(Errno::EINVAL)?, offset),
            Abi::TwoLevel | Abi::TwoLevel32 => {
                let mut fifo = Fifo::new(self.vcpus())?;
                fifo.set_control(vcpu, frame.ok_or(Errno::EINVAL)?, offset)?;
                self.switch_to(fifo);
                Ok(())
            }
        }
    }

    /// Takes the new format into use. What is pending in the old one is remembered for the time when the ports get their
    /// event words.
    fn switch_to(&mut self, fifo: Fifo) {
        for port in 1..self.ports.len().min(abi_2l::PORTS) {
            let pending = self.is_pending(port) == Ok(true);
            if let Ok(p) = self.ports.get_mut(port) {
                p.remembered = pending;
                p.priority = fifo::PRIORITY_DEFAULT as u8;
            }
        }
        self.abi = Abi::Fifo(fifo);
    }

    pub(super) fn expand_array(
        &mut self,
        pages: &dyn VcpuPages,
        polling: &Polling,
        frame: Option<FrameRef>,
        out: &mut Notify,
    ) -> Result<(), Errno> {
        let Abi::Fifo(fifo) = &mut self.abi else {
            return Err(Errno::EOPNOTSUPP);
        };
        for port in fifo.add_page(frame)? {
            match self.ports.get_mut(port) {
                Err(_) => break,
                Ok(p) if p.remembered => {
                    p.remembered = false;
                    self.raise(pages, polling, port, out);
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn set_priority(&mut self, port: u32, priority: u32) -> Result<(), Errno> {
        let p = self.ports.get_mut(port)?;
        if !matches!(self.abi, Abi::Fifo(_)) {
            return Err(Errno::ENOSYS);
        }
        if !p.state.in_use() {
            return Err(Errno::EACCES);
        }
        if priority > fifo::PRIORITY_MIN {
            return Err(Errno::EINVAL);
        }
        p.priority = priority as u8;
        Ok(())
    }

    fn two_level(&self) -> Abi {
        if self.narrow {
            Abi::TwoLevel32
        } else {
            Abi::TwoLevel
        }
    }

    pub(super) fn set_narrow(&mut self, narrow: bool) {
        self.narrow = narrow;
        if !matches!(self.abi, Abi::Fifo(_)) {
            self.abi = self.two_level();
        }
    }

    /// Goes back to the 2-level format, once every port is closed.
    pub(super) fn reset_abi(&mut self) {
        self.abi = self.two_level();
        for port in 1..self.ports.len() {
            if let Ok(p) = self.ports.get_mut(port) {
                p.last_queue = (0, fifo::PRIORITY_DEFAULT as u8);
            }
        }
    }
}
