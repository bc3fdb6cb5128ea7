//! The few questions about domains that services ask the hypervisor: `/dev/xen/privcmd`.

#![allow(unsafe_code, reason = "hands the hypervisor the address of a buffer")]

use crate::call::hypercall;
use rustix::fs::{Mode, OFlags, open};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use xen_abi::domctl::{Domctl, GetDomainInfo, dominf, op};
use xen_abi::linux::privcmd::Hypercall;
use xen_abi::{DomId, Errno, hypercall::nr};
use zerocopy::FromBytes;

/// The device.
#[derive(Debug)]
pub struct Control {
    fd: OwnedFd,
    /// The interface version that the hypervisor took last.
    version: Cell<u32>,
}

/// What a domain is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// It has shut down or crashed.
    pub shutdown: bool,
    /// It is being destroyed.
    pub dying: bool,
}

/// Versions of the control interface in which [`op::GETDOMAININFO`] has the layout used here: those of Xen 4.17 to 4.22.
const VERSIONS: [u32; 4] = [0x15, 0x17, 0x16, 0x18];

impl Control {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of `open`; without Xen there is no such device.
    pub fn open() -> io::Result<Control> {
        let fd = open(
            "/dev/xen/privcmd",
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Control {
            fd,
            version: Cell::new(VERSIONS[0]),
        })
    }

    /// What a domain is doing; `None` if there is no such domain.
    ///
    /// # Errors
    /// The hypervisor's: `EACCES` if it speaks none of the versions known here.
    pub fn status(&self, domid: DomId) -> io::Result<Option<Status>> {
        let first = self.version.get();
        let others = VERSIONS.iter().copied().filter(|v| *v != first);
        let mut last = io::Error::from(io::ErrorKind::PermissionDenied);
        for version in std::iter::once(first).chain(others) {
            match self.status_in(version, domid) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => last = error,
                other => {
                    self.version.set(version);
                    return other;
                }
            }
        }
        Err(last)
    }

    fn status_in(&self, version: u32, domid: DomId) -> io::Result<Option<Status>> {
        let mut domctl = Domctl {
            cmd: op::GETDOMAININFO,
            interface_version: version,
            domain: domid,
            ..Domctl::default()
        };
        let address = std::ptr::from_mut(&mut domctl) as u64;
        let call = Hypercall {
            op: nr::DOMCTL.into(),
            arg: [address, 0, 0, 0, 0],
        };
        // SAFETY: the one address is that of a structure of the size that all these versions have, which the hypervisor
        // may read and write until the call returns; this command has no pointers in it.
        match unsafe { hypercall(&self.fd, call) } {
            Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => return Ok(None),
            other => other?,
        };
        let (info, _) = GetDomainInfo::read_from_prefix(&domctl.u)
            .map_err(|_| io::Error::other("no room for the answer"))?;
        // The first versions answer with the next domain if there is none of this number.
        Ok((info.domain == domid).then_some(Status {
            shutdown: info.flags & dominf::SHUTDOWN != 0,
            dying: info.flags & dominf::DYING != 0,
        }))
    }
}
