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
use xen_abi::grant_table::{GrantEntryV1, gntcopy, gtf, status};
use xen_abi::linux::gntdev::{CopySegment, GRANT_COPY, GrantCopy, granted};
use xen_abi::linux::privcmd::{MMAP_RESOURCE, MMAPBATCH_V2, MmapBatch, MmapResource};
use xen_abi::memory::resource;
use zerocopy::IntoBytes;

/// The driver that copies.
const GRANT_DRIVER: &str = "/dev/xen/gntdev";

/// The device.
#[derive(Debug)]
pub struct ForeignMemory {
    fd: OwnedFd,
}

/// Pages that are mapped at a time.
const BATCH: usize = 512;
/// Grants from this one on serve for copies; those below have meanings of their own.
const FIRST_GRANT: u32 = 8;
/// How many there are in the table's first page.
const GRANTS: usize = PAGE_SIZE / size_of::<GrantEntryV1>() - FIRST_GRANT as usize;
/// Fewer pages are not worth the preparations.
const FEW: usize = 16;

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

    /// Copies bytes into the memory of a domain that has not run yet, at a guest address. The memory must be fresh, that is zero:
    /// pages of zeros are left out, since to copy a page takes much longer than to look at it. Its grant table must not be in use.
    ///
    /// # Errors
    /// The hypervisor's, for the first page that cannot be written.
    pub fn write_fresh(&self, domid: DomId, address: u64, bytes: &[u8]) -> io::Result<()> {
        let pieces: Vec<Piece> = sparse::pieces(address, bytes).collect();
        let far = |p: &Piece| u32::try_from(p.frame).is_err();
        if pieces.len() >= FEW && !pieces.iter().any(far) {
            // The driver may not be loaded.
            if let Ok(driver) = open(GRANT_DRIVER, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                return self.copy_granted(&driver, domid, &pieces, bytes);
            }
        }
        self.copy_mapped(domid, &pieces, bytes)
    }

    fn copy_mapped(&self, domid: DomId, pieces: &[Piece], bytes: &[u8]) -> io::Result<()> {
        for batch in pieces.chunks(BATCH) {
            let frames: Vec<u64> = batch.iter().map(|p| p.frame).collect();
            let window = self.map(domid, &frames)?;
            for (page, piece) in batch.iter().enumerate() {
                window.copy_in(page * PAGE_SIZE + piece.offset, &bytes[piece.range.clone()]);
            }
        }
        Ok(())
    }

    /// Copies through grants that the domain seems to make: the kernel has a hypercall copy many pages, where a mapping costs two
    /// for each.
    fn copy_granted(
        &self,
        driver: &OwnedFd,
        domid: DomId,
        pieces: &[Piece],
        bytes: &[u8],
    ) -> io::Result<()> {
        let table = self.grant_table(domid)?;
        let at = FIRST_GRANT as usize * size_of::<GrantEntryV1>();
        for batch in pieces.chunks(GRANTS) {
            let entry = |p: &Piece| GrantEntryV1 {
                flags: gtf::PERMIT_ACCESS,
                domid: DomId::DOM0,
                frame: p.frame as u32,
            };
            let entries: Vec<GrantEntryV1> = batch.iter().map(entry).collect();
            table.copy_in(at, entries.as_bytes());
            let result = copy(driver, domid, batch, bytes);
            // No grant stays.
            table.copy_in(at, &vec![0; entries.as_bytes().len()]);
            result?;
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
        self.grant_table(domid)?.copy_in(0, entries);
        Ok(())
    }

    /// The first page of a domain's grant table.
    fn grant_table(&self, domid: DomId) -> io::Result<Window> {
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
        Ok(window)
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

/// Copies pieces into pages that the grants from the first on are for.
fn copy(driver: &OwnedFd, domid: DomId, pieces: &[Piece], bytes: &[u8]) -> io::Result<()> {
    let segment = |(reference, piece): (u32, &Piece)| {
        let source = &bytes[piece.range.clone()];
        CopySegment {
            source: source.as_ptr() as u64,
            dest: granted(reference, piece.offset as u16, domid.0),
            len: source.len() as u16,
            flags: gntcopy::DEST_GREF,
            ..CopySegment::default()
        }
    };
    let mut segments: Vec<CopySegment> = (FIRST_GRANT..).zip(pieces).map(segment).collect();
    let mut argument = GrantCopy {
        count: segments.len() as u32,
        pad: 0,
        segments: segments.as_mut_ptr() as u64,
    };
    // SAFETY: the structure is that of the number, and so many segments lie at the address. Each is read from bytes that live for
    // the call, which writes nothing but the segments' results.
    unsafe { linux_call(driver, GRANT_COPY, &mut argument) }?;
    let failed = segments.iter().find(|s| s.status != status::OKAY);
    failed.map_or(Ok(()), |s| {
        let text = format!("a page cannot be copied: grant status {}", s.status);
        Err(io::Error::other(text))
    })
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
