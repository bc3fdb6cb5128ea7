//! Memory of other domains: `/dev/xen/privcmd`.

#![allow(unsafe_code, reason = "the one place that maps other domains' memory")]

use crate::call::linux_call;
use crate::page::{PAGE_SIZE, SharedPage};
use crate::sparse::{self, Piece};
use rustix::fs::{Mode, OFlags, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use xen_abi::DomId;
use xen_abi::linux::privcmd::{MMAP_RESOURCE, MMAPBATCH_V2, MmapBatch, MmapResource};
use xen_abi::memory::resource;

/// The device.
#[derive(Debug)]
pub struct ForeignMemory {
    fd: OwnedFd,
}

/// Pages that are mapped at a time.
const BATCH: usize = 512;

impl ForeignMemory {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of `open`; without Xen there is no such device.
    pub fn open() -> io::Result<ForeignMemory> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(ForeignMemory {
            fd: open("/dev/xen/privcmd", flags, Mode::empty())?,
        })
    }

    /// Copies bytes into a domain's memory at a guest address. The memory must be fresh, that is zero: pages of zeros are left
    /// out, since to map a page takes much longer than to look at it.
    ///
    /// # Errors
    /// The hypervisor's, for the first page that cannot be mapped.
    pub fn write_fresh(&self, domid: DomId, address: u64, bytes: &[u8]) -> io::Result<()> {
        let mut pieces = sparse::pieces(address, bytes).peekable();
        while pieces.peek().is_some() {
            let batch: Vec<Piece> = pieces.by_ref().take(BATCH).collect();
            let frames: Vec<u64> = batch.iter().map(|p| p.frame).collect();
            let window = self.map(domid, &frames)?;
            for (page, piece) in batch.into_iter().enumerate() {
                window.copy_in(page * PAGE_SIZE + piece.offset, &bytes[piece.range]);
            }
        }
        Ok(())
    }

    /// Copies bytes out of a domain's memory.
    ///
    /// # Errors
    /// As [`ForeignMemory::write_fresh`].
    pub fn read(&self, domid: DomId, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let page = PAGE_SIZE as u64;
        let mut done = 0;
        while done < bytes.len() {
            let at = address + done as u64;
            let offset = (at % page) as usize;
            let len = (bytes.len() - done).min(BATCH * PAGE_SIZE - offset);
            let count = (offset + len).div_ceil(PAGE_SIZE) as u64;
            let frames: Vec<u64> = (at / page..at / page + count).collect();
            let window = self.map(domid, &frames)?;
            window.copy_out(offset, &mut bytes[done..done + len]);
            done += len;
        }
        Ok(())
    }

    /// Writes entries of version 1 at the start of a domain's grant table.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn write_grants(&self, domid: DomId, entries: &[u8]) -> io::Result<()> {
        let window = Window::new(&self.fd, 1)?;
        let mut argument = MmapResource {
            domid,
            kind: resource::GRANT_TABLE,
            id: resource::GRANT_TABLE_ID_SHARED,
            pad: 0,
            first: 0,
            num: 1,
            addr: window.at.as_ptr() as u64,
        };
        // SAFETY: the structure is that of the number; the address is a mapping of this device of one page.
        unsafe { linux_call(&self.fd, MMAP_RESOURCE, &mut argument) }?;
        window.copy_in(0, entries);
        Ok(())
    }

    /// Maps one page of a domain for as long as the value lives.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn page(&self, domid: DomId, frame: u64) -> io::Result<SharedPage> {
        let page = SharedPage::map(&self.fd, 0)?;
        self.fill(domid, &[frame], page.address())?;
        Ok(page)
    }

    fn map(&self, domid: DomId, frames: &[u64]) -> io::Result<Window> {
        let window = Window::new(&self.fd, frames.len())?;
        self.fill(domid, frames, window.at.as_ptr() as u64)?;
        Ok(window)
    }

    /// Puts a domain's pages into a mapping of this device, which must be as long as the list.
    fn fill(&self, domid: DomId, frames: &[u64], address: u64) -> io::Result<()> {
        let mut errors = vec![0i32; frames.len()];
        let mut argument = MmapBatch {
            num: frames.len() as u32,
            domid,
            pad: 0,
            addr: address,
            frames: frames.as_ptr() as u64,
            errors: errors.as_mut_ptr() as u64,
        };
        // SAFETY: the structure is that of the number; the address is a mapping of this device of as many pages as there
        // are frames, and both lists have that length and live for the call.
        unsafe { linux_call(&self.fd, MMAPBATCH_V2, &mut argument) }?;
        match errors.iter().find(|e| **e != 0) {
            Some(error) => Err(io::Error::from_raw_os_error(-*error)),
            None => Ok(()),
        }
    }
}

/// A mapping of the device.
struct Window {
    at: NonNull<u8>,
    len: usize,
}

impl Window {
    fn new(fd: &OwnedFd, pages: usize) -> io::Result<Window> {
        let len = pages * PAGE_SIZE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, fd, 0) }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Window { at, len })
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "outside of the mapping");
        // SAFETY: the target lies in the mapping, which lives as long as `self` and was filled with pages; no reference
        // to it exists. What the other domain does with its memory meanwhile changes bytes, nothing else.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.at.add(offset).as_ptr(),
                bytes.len(),
            );
        }
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.len, "outside of the mapping");
        // SAFETY: as in `copy_in`, the other way.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.at.add(offset).as_ptr(),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it exists.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}
