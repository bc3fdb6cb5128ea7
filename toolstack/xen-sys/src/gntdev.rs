//! Pages that other domains granted: `/dev/xen/gntdev`.

use crate::call::{self, call};
use crate::page::SharedPage;
use rustix::fs::{Mode, OFlags, open};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use xen_abi::DomId;
use xen_abi::linux::gntdev::{MapGrantRef, UnmapGrantRef};

/// The device.
#[derive(Debug)]
pub struct Grants {
    fd: Rc<OwnedFd>,
}

/// A mapped page of another domain.
#[derive(Debug)]
pub struct GrantedPage {
    // Dropped in this order: the driver takes a grant back only once nothing maps it.
    page: SharedPage,
    _index: Index,
}

impl Grants {
    /// Opens the device for up to `most` mappings at a time.
    ///
    /// # Errors
    /// Those of `open`; without Xen there is no such device.
    pub fn open(most: u32) -> io::Result<Grants> {
        let fd = open(
            "/dev/xen/gntdev",
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // Kernels since 5.6 have no limit for a device and do not know the call.
        let _ = call::<call::SetMaxGrants>(&fd, &mut { most });
        Ok(Grants { fd: Rc::new(fd) })
    }

    /// Maps a page that a domain granted under this number.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn map(&self, domid: DomId, reference: u32) -> io::Result<GrantedPage> {
        let mut argument = MapGrantRef {
            count: 1,
            domid: domid.0.into(),
            reference,
            ..MapGrantRef::default()
        };
        call::<call::MapGrantRef>(&*self.fd, &mut argument)?;
        let index = Index {
            fd: self.fd.clone(),
            index: argument.index,
        };
        Ok(GrantedPage {
            page: SharedPage::map(&*self.fd, argument.index)?,
            _index: index,
        })
    }
}

impl GrantedPage {
    /// The memory.
    pub fn page(&self) -> &SharedPage {
        &self.page
    }
}

/// The number under which the driver knows a grant; gives it back when it is dropped.
#[derive(Debug)]
struct Index {
    fd: Rc<OwnedFd>,
    index: u64,
}

impl Drop for Index {
    fn drop(&mut self) {
        give_back(&self.fd, self.index);
    }
}

fn give_back(fd: &OwnedFd, index: u64) {
    // It is this program's mapping, so this cannot fail; and nothing better can be done than to go on.
    let _ = call::<call::UnmapGrantRef>(
        fd,
        &mut UnmapGrantRef {
            index,
            count: 1,
            pad: 0,
        },
    );
}
