//! What a domain does with its pirqs (`PHYSDEVOP_*`, `EVTCHNOP_bind_pirq`), and how one is raised. A domain has them if its
//! creator says so (`XEN_X86_EMU_USE_PIRQ`): the control domain those of its devices, others those of messages that their
//! device model sends.

use hv_hw::Machine;
use xen_abi::Errno;

use super::pirq::{Kind, Pirqs};
use crate::domain::Domain;
use crate::hypervisor::Hypervisor;

impl Domain {
    /// Works on the numbers of interrupts. ENOSYS: the domain has none.
    pub fn pirqs<R>(&self, f: impl FnOnce(&mut Pirqs) -> Result<R, Errno>) -> Result<R, Errno> {
        f(&mut self.pirqs.as_ref().ok_or(Errno::ENOSYS)?.lock())
    }

    /// `EVTCHNOP_bind_pirq`: a port for a numbered interrupt; a line is routed and opened with it. EINVAL: no such number.
    /// EEXIST: it has a port.
    pub fn bind_pirq(&self, hv: &Hypervisor, pirq: u32) -> Result<u32, Errno> {
        let old = self.pirqs(|p| match p.exists(pirq) {
            true => Ok(p.get(pirq).map_or(0, |(_, port)| port)),
            false => Err(Errno::EINVAL),
        })?;
        if old != 0 && self.evtchn.is_pirq(old, pirq) {
            return Err(Errno::EEXIST);
        }
        let port = self.evtchn.bind_pirq(pirq)?;
        if let Kind::Gsi(gsi) = self.pirqs(|p| p.set_port(pirq, port))?
            && let Some(p) = &self.platform
        {
            p.open_line(hv, self, gsi);
        }
        Ok(port)
    }

    /// `PHYSDEVOP_unmap_pirq`. EINVAL: the number stands for nothing.
    pub fn unmap_pirq(&self, hv: &Hypervisor, pirq: u32) -> Result<(), Errno> {
        if let Kind::Gsi(gsi) = self.pirqs(|p| p.unmap(pirq))?
            && let Some(p) = &self.platform
        {
            p.close_line(hv, gsi);
        }
        Ok(())
    }

    /// `PHYSDEVOP_eoi`: the guest has served the device. EINVAL: the number stands for nothing.
    pub fn end_pirq(&self, hv: &Hypervisor, pirq: u32) -> Result<(), Errno> {
        let (kind, port) = self.pirqs(|p| p.get(pirq))?;
        if let Kind::Gsi(gsi) = kind
            && self.platform.is_some()
            && self.evtchn.is_pirq(port, pirq)
        {
            hv.hw.mask_gsi(gsi, false);
        }
        Ok(())
    }
}

impl Hypervisor {
    /// A message that names a pirq arrived. Nothing happens if that is not bound.
    pub fn raise_pirq(&self, domain: &Domain, pirq: u32) {
        if let Ok((_, port)) = domain.pirqs(|p| p.get(pirq)) {
            self.pirq_event(domain, pirq, port);
        }
    }

    /// A line was raised: its event, if it is one; else false.
    pub fn raise_line_pirq(&self, domain: &Domain, gsi: u32) -> bool {
        let of_line = domain.pirqs(|p| Ok(p.of_line(gsi)));
        matches!(of_line, Ok(Some((pirq, port))) if self.pirq_event(domain, pirq, port))
    }

    /// Raises the event of a pirq; false if the port is not its own any more.
    fn pirq_event(&self, domain: &Domain, pirq: u32, port: u32) -> bool {
        let notify = domain.evtchn.raise_pirq(domain, port, pirq);
        notify.map(|n| self.notified(domain, n)).is_some()
    }
}
