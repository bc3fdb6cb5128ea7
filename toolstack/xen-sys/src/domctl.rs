//! The few questions about domains that services ask the hypervisor: `/dev/xen/privcmd`.

#![allow(unsafe_code, reason = "hands the hypervisor the address of a buffer")]

use crate::call::hypercall;
use rustix::fs::{Mode, OFlags, open};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use xen_abi::linux::privcmd::Hypercall;
use xen_abi::{DomId, hypercall::nr};

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

/// `XEN_DOMCTL_getdomaininfo`.
const GETDOMAININFO: u32 = 5;
/// Versions of the control interface in which that call has the layout used here, newest Xen last asked first by those
/// who have it: 4.17 (0x15) to 4.22 (0x18).
const VERSIONS: [u32; 4] = [0x15, 0x17, 0x16, 0x18];
/// Bytes of the structure: command, version, domain, then 128 bytes of what belongs to the command.
const DOMCTL_SIZE: usize = 144;
const ARGUMENT: usize = 16;

/// Aligned as the hypervisor wants it.
#[repr(C, align(8))]
struct Domctl([u8; DOMCTL_SIZE]);

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
        const ESRCH: i32 = 3;
        const DYING: u32 = 1 << 0;
        const SHUTDOWN: u32 = 1 << 2;
        let mut domctl = Domctl([0; DOMCTL_SIZE]);
        domctl.0[..4].copy_from_slice(&GETDOMAININFO.to_ne_bytes());
        domctl.0[4..8].copy_from_slice(&version.to_ne_bytes());
        domctl.0[8..10].copy_from_slice(&domid.0.to_ne_bytes());
        let address = std::ptr::from_mut(&mut domctl) as u64;
        let call = Hypercall {
            op: nr::DOMCTL.into(),
            arg: [address, 0, 0, 0, 0],
        };
        // SAFETY: the one address is that of a structure of the size that all these versions have, which the hypervisor
        // may read and write until the call returns; this command has no pointers in it.
        match unsafe { hypercall(&self.fd, call) } {
            Err(error) if error.raw_os_error() == Some(ESRCH) => return Ok(None),
            other => other?,
        };
        let word = |at: usize| {
            u32::from_ne_bytes([
                domctl.0[at],
                domctl.0[at + 1],
                domctl.0[at + 2],
                domctl.0[at + 3],
            ])
        };
        // The first versions answer with the next domain if there is none of this number.
        let answered = word(ARGUMENT) as u16;
        let flags = word(ARGUMENT + 4);
        Ok((answered == domid.0).then_some(Status {
            shutdown: flags & SHUTDOWN != 0,
            dying: flags & DYING != 0,
        }))
    }
}
