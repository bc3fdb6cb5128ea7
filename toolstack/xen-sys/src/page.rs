//! A page of memory that someone else may change at any time.

#![allow(unsafe_code, reason = "the one place that touches shared memory")]

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// A mapped page. All access is atomic, byte by byte or in aligned words, and by value: whatever the other side does
/// meanwhile, this program has values, never references.
#[derive(Debug)]
pub struct SharedPage {
    at: NonNull<u8>,
}

impl SharedPage {
    /// Maps a page of a file or device, shared.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn map(fd: impl AsFd, offset: u64) -> io::Result<SharedPage> {
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe {
            mmap(
                null_mut(),
                PAGE_SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                offset,
            )
        }?;
        SharedPage::new(at.cast())
    }

    /// A zeroed page of this program alone, for tests of what runs on shared ones.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn private() -> io::Result<SharedPage> {
        // SAFETY: as in `map`.
        let at = unsafe {
            mmap_anonymous(
                null_mut(),
                PAGE_SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        SharedPage::new(at.cast())
    }

    fn new(at: *mut u8) -> io::Result<SharedPage> {
        let at =
            NonNull::new(at).ok_or_else(|| io::Error::other("a page was mapped at address 0"))?;
        Ok(SharedPage { at })
    }

    /// Where it is mapped.
    pub(crate) fn address(&self) -> u64 {
        self.at.as_ptr() as u64
    }

    /// A word at an offset in bytes; everything read afterwards is at least as new.
    ///
    /// # Panics
    /// If the word is not aligned or not in the page.
    pub fn load(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Writes a word at an offset in bytes, after everything written before.
    ///
    /// # Panics
    /// If the word is not aligned or not in the page.
    pub fn store(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they are not in the page.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.bytes(offset, bytes.len());
        bytes
            .iter_mut()
            .zip(from)
            .for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they are not in the page.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.bytes(offset, bytes.len());
        bytes
            .iter()
            .zip(to)
            .for_each(|(from, to)| to.store(*from, Ordering::Relaxed));
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset < PAGE_SIZE,
            "no word of the page at {offset}"
        );
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and is aligned as the page is. All access
        // to it in this program is atomic.
        unsafe { self.at.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn bytes(&self, offset: usize, len: usize) -> &[AtomicU8] {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|e| e <= PAGE_SIZE),
            "{len} bytes at {offset} leave the page"
        );
        // SAFETY: as in `word`; a byte needs no alignment.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(offset).cast::<AtomicU8>(), len) }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value. Failure can only mean that
        // the address is wrong, which it is not.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), PAGE_SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes() {
        let page = SharedPage::private().unwrap();
        page.store(4092, 0x0403_0201);
        let mut bytes = [0; 5];
        page.copy_out(4091, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 4]);
        page.copy_in(0, &[1, 0, 0, 0]);
        assert_eq!(page.load(0), 1);
    }

    #[test]
    #[should_panic(expected = "leave the page")]
    fn bounds_of_bytes() {
        SharedPage::private().unwrap().copy_in(4095, &[0, 0]);
    }

    #[test]
    #[should_panic(expected = "no word")]
    fn bounds_of_words() {
        SharedPage::private().unwrap().load(4096);
    }
}
