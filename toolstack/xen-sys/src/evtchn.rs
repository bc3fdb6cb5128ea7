//! Event channels: `/dev/xen/evtchn`.

use crate::call::{self, call};
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use xen_abi::DomId;
use xen_abi::linux::evtchn::BindInterdomain;

/// The device, with the ports that were bound through it. Closing it closes them.
#[derive(Debug)]
pub struct EventChannels {
    fd: OwnedFd,
}

/// A port of this domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LocalPort(
    /// Its number.
    pub u32,
);

impl EventChannels {
    /// Opens the device; reading it never waits.
    ///
    /// # Errors
    /// Those of `open`; without Xen there is no such device.
    pub fn open() -> io::Result<EventChannels> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(EventChannels {
            fd: open("/dev/xen/evtchn", flags, Mode::empty())?,
        })
    }

    /// Binds a port that another domain holds ready for this one.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn bind_interdomain(&self, domid: DomId, port: u32) -> io::Result<LocalPort> {
        let mut argument = BindInterdomain {
            remote_domain: domid.0.into(),
            remote_port: port,
        };
        call::<call::BindInterdomain>(&self.fd, &mut argument).map(LocalPort)
    }

    /// Binds a virtual interrupt.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn bind_virq(&self, virq: u32) -> io::Result<LocalPort> {
        call::<call::BindVirq>(&self.fd, &mut { virq }).map(LocalPort)
    }

    /// Closes a port.
    ///
    /// # Errors
    /// If it is not bound through this device.
    pub fn unbind(&self, port: LocalPort) -> io::Result<()> {
        call::<call::Unbind>(&self.fd, &mut { port.0 }).map(drop)
    }

    /// Sends an event.
    ///
    /// # Errors
    /// If the port is not bound through this device.
    pub fn notify(&self, port: LocalPort) -> io::Result<()> {
        call::<call::Notify>(&self.fd, &mut { port.0 }).map(drop)
    }

    /// The ports that have fired since the last call; they can fire again from now on. After a flood that the driver could
    /// not keep up with, ports may be missing from the list, and the second value is true.
    ///
    /// # Errors
    /// Those of the device.
    pub fn fired(&self) -> io::Result<(Vec<LocalPort>, bool)> {
        let (ports, lost) = self.take()?;
        self.unmask(&ports)?;
        Ok((ports, lost))
    }

    /// As [`EventChannels::fired`], but each port stays silent until it is unmasked.
    ///
    /// # Errors
    /// Those of the device.
    pub fn take(&self) -> io::Result<(Vec<LocalPort>, bool)> {
        let mut bytes = [0; 1024];
        let read = match rustix::io::read(&self.fd, &mut bytes) {
            Ok(n) => n,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
            Err(rustix::io::Errno::FBIG) => {
                call::<call::Reset>(&self.fd, &mut ())?;
                return Ok((Vec::new(), true));
            }
            Err(error) => return Err(error.into()),
        };
        let words = bytes[..read]
            .chunks_exact(4)
            .map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
        Ok((words.map(LocalPort).collect(), false))
    }

    /// Lets ports fire again.
    ///
    /// # Errors
    /// Those of the device.
    pub fn unmask(&self, ports: &[LocalPort]) -> io::Result<()> {
        let bytes: Vec<u8> = ports.iter().flat_map(|p| p.0.to_ne_bytes()).collect();
        if !bytes.is_empty() {
            rustix::io::write(&self.fd, &bytes)?;
        }
        Ok(())
    }
}

impl AsFd for EventChannels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
