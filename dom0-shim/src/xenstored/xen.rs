//! Xen as the daemon reaches it through the kernel's devices.

use super::host::DomainState;
use super::machine::Xen;
use crate::shared::BoxedPage;
use std::io;
use std::rc::Rc;
use xen_abi::linux::gntdev::RESERVED_XENSTORE;
use xen_abi::{DomId, domid, virq};
use xen_sys::domctl::Control;
use xen_sys::evtchn::{EventChannels, LocalPort};
use xen_sys::gntdev::Grants;
use xen_sys::xsd;

/// The devices.
pub struct XenDevices {
    channels: Rc<EventChannels>,
    grants: Grants,
    control: Control,
    /// Fires when some domain shuts down or goes.
    virq: LocalPort,
}

impl XenDevices {
    /// Opens them.
    ///
    /// # Errors
    /// Which device, and why not.
    pub fn open() -> Result<XenDevices, String> {
        let channels = EventChannels::open().map_err(|e| format!("/dev/xen/evtchn: {e}"))?;
        let grants = Grants::open(domid::value::FIRST_RESERVED.into())
            .map_err(|e| format!("/dev/xen/gntdev: {e}"))?;
        let control = Control::open().map_err(|e| format!("/dev/xen/privcmd: {e}"))?;
        let virq = channels
            .bind_virq(virq::nr::DOM_EXC)
            .map_err(|e| format!("VIRQ_DOM_EXC cannot be bound: {e}"))?;
        Ok(XenDevices {
            channels: Rc::new(channels),
            grants,
            control,
            virq,
        })
    }

    /// The device that says which ports fired.
    pub fn channels(&self) -> Rc<EventChannels> {
        self.channels.clone()
    }

    /// The port that fires when some domain shuts down or goes.
    pub fn virq(&self) -> LocalPort {
        self.virq
    }
}

impl Xen for XenDevices {
    fn map(&mut self, domid: DomId) -> io::Result<BoxedPage> {
        if domid == DomId::DOM0 {
            return Ok(Box::new(xsd::page()?));
        }
        Ok(Box::new(self.grants.map(domid, RESERVED_XENSTORE)?))
    }

    fn bind(&mut self, domid: DomId, port: u32) -> io::Result<LocalPort> {
        self.channels.bind_interdomain(domid, port)
    }

    fn unbind(&mut self, port: LocalPort) {
        // It fails only if the port is closed already, which is what is wanted.
        let _ = self.channels.unbind(port);
    }

    fn notify(&mut self, port: LocalPort) {
        // It fails only if the other side is gone, which the hypervisor tells in its own way.
        let _ = self.channels.notify(port);
    }

    fn state(&mut self, domid: DomId) -> io::Result<DomainState> {
        Ok(match self.control.status(domid)? {
            None => DomainState::Gone,
            Some(status) if status.dying => DomainState::Gone,
            Some(status) if status.shutdown => DomainState::Shutdown,
            Some(_) => DomainState::Running,
        })
    }
}
