//! The hypervisor's view of the machine and its domains, as typed questions and orders.
//!
//! The control interfaces have versions that differ between Xen's releases; the one that the hypervisor takes is found by
//! trying. A refused version has no effect, so any call can be the one that finds out.

mod core;
mod create;
mod domctl;
mod files;
mod machine;
mod memory;
mod policy;
mod pool;
#[cfg(test)]
mod tests;
mod vcpu;
mod version;

pub use create::NewDomain;
pub use domctl::Domain;
pub use files::File;
pub use pool::{Pool, PoolParameters, Weight};
pub use vcpu::Affinity;
pub use version::Version;

use crate::failed::{Named, errno_of};
use crate::hypercalls::{Call, Hypercalls, Privcmd, Slot};
use std::cell::Cell;
use std::io;
use xen_abi::domctl::{CtlBitmap, Domctl};
use xen_abi::sysctl::Sysctl;
use xen_abi::{DomId, Errno, hypercall::nr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::bits::BitSet;

/// Versions of `domctl` that this crate speaks, likely ones first: Xen 4.17, 4.19 to 4.21, 4.18, 4.22.
const DOMCTL: [u32; 4] = [0x15, 0x17, 0x16, 0x18];
/// Versions of `sysctl`: Xen 4.17 to 4.20, 4.21 and later.
const SYSCTL: [u32; 2] = [0x15, 0x16];
/// Where the operation's own structure begins.
const DOMCTL_U: usize = 16;
const SYSCTL_U: usize = 8;

/// A hypervisor to ask.
pub struct Xen {
    calls: Named,
    domctl: Cell<Option<u32>>,
    sysctl: Cell<Option<u32>>,
    cpus: Cell<Option<u32>>,
}

impl Xen {
    /// The hypervisor below this kernel.
    ///
    /// # Errors
    /// If there is none, or this program may not ask it.
    pub fn open() -> io::Result<Xen> {
        Ok(Xen::new(Box::new(Privcmd::open()?)))
    }

    /// Another one, for tests.
    pub fn new(calls: Box<dyn Hypercalls>) -> Xen {
        Xen {
            calls: Named(calls),
            domctl: Cell::new(None),
            sysctl: Cell::new(None),
            cpus: Cell::new(None),
        }
    }

    /// The version of `domctl` that the hypervisor takes; found with a harmless question if no call was made yet.
    ///
    /// # Errors
    /// Those of the question.
    pub fn domctl_version(&self) -> io::Result<u32> {
        if self.domctl.get().is_none() {
            self.domain(DomId::DOM0)?;
        }
        Ok(self.domctl.get().unwrap_or(DOMCTL[0]))
    }

    /// Makes a `domctl`. `own` is the operation's structure, replaced by the answer; `slots` name fields of it.
    fn do_domctl<T: FromBytes + IntoBytes + Immutable>(
        &self,
        cmd: u32,
        domain: DomId,
        own: &mut T,
        slots: &mut [Slot<'_>],
    ) -> io::Result<DomId> {
        slots.iter_mut().for_each(|s| s.field += DOMCTL_U);
        negotiate(&self.domctl, &DOMCTL, |interface_version| {
            let mut argument = Domctl {
                cmd,
                interface_version,
                domain,
                ..Domctl::default()
            };
            put(&mut argument.u, own);
            let result = self.calls.call(&mut Call {
                number: nr::DOMCTL,
                operation: None,
                argument: argument.as_mut_bytes(),
                rest: &[],
                slots,
            });
            take(&argument.u, own);
            result.map(|_| argument.domain)
        })
    }

    /// Makes a `sysctl`, likewise.
    fn do_sysctl<T: FromBytes + IntoBytes + Immutable>(
        &self,
        cmd: u32,
        own: &mut T,
        slots: &mut [Slot<'_>],
    ) -> io::Result<()> {
        slots.iter_mut().for_each(|s| s.field += SYSCTL_U);
        negotiate(&self.sysctl, &SYSCTL, |interface_version| {
            let mut argument = Sysctl {
                cmd,
                interface_version,
                ..Sysctl::default()
            };
            put(&mut argument.u, own);
            let result = self.calls.call(&mut Call {
                number: nr::SYSCTL,
                operation: None,
                argument: argument.as_mut_bytes(),
                rest: &[],
                slots,
            });
            take(&argument.u, own);
            result.map(drop)
        })
    }

    /// A bound for the numbers of CPUs: one more than the highest.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn cpu_bound(&self) -> io::Result<u32> {
        if let Some(cpus) = self.cpus.get() {
            return Ok(cpus);
        }
        let cpus = self.physinfo()?.max_cpu_id.saturating_add(1);
        self.cpus.set(Some(cpus));
        Ok(cpus)
    }
}

/// Tries versions until one is taken, the one that was taken last first.
fn negotiate<T>(
    known: &Cell<Option<u32>>,
    versions: &[u32],
    mut call: impl FnMut(u32) -> io::Result<T>,
) -> io::Result<T> {
    let first = known.get();
    let others = versions.iter().copied().filter(|v| Some(*v) != first);
    let mut refused = io::Error::from(io::ErrorKind::PermissionDenied);
    for version in first.into_iter().chain(others) {
        match call(version) {
            Err(e) if is(&e, Errno::EACCES) => refused = e,
            other => {
                known.set(Some(version));
                return other;
            }
        }
    }
    Err(refused)
}

/// Copies a structure into the union of `domctl` or `sysctl`, which is larger than all of them.
fn put<T: IntoBytes + Immutable>(union: &mut [u8], own: &T) {
    union[..size_of::<T>()].copy_from_slice(own.as_bytes());
}

/// Copies it back.
fn take<T: FromBytes + IntoBytes>(union: &[u8], own: &mut T) {
    own.as_mut_bytes().copy_from_slice(&union[..size_of::<T>()]);
}

/// The structure for a set; its address comes with a slot.
fn bitmap(set: &BitSet) -> CtlBitmap {
    CtlBitmap {
        nr_bits: set.bound(),
        ..CtlBitmap::default()
    }
}

/// Whether a call failed with this error.
fn is(error: &io::Error, errno: Errno) -> bool {
    errno_of(error) == Some(errno as i32)
}

/// An error of the hypervisor's kind.
pub(crate) fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno as i32)
}
