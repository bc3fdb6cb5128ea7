//! Memory of this program that the hypervisor may read and write for the time of a hypercall.

#![allow(unsafe_code, reason = "the one place that makes memory for hypercalls")]

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};

/// Whole pages, zeroed, that stay where they are while the hypervisor looks at them.
#[derive(Debug)]
pub struct Locked {
    at: NonNull<u8>,
    len: usize,
}

impl Locked {
    /// At least `len` bytes: from the kernel's device for this purpose if there is one, else locked memory.
    ///
    /// # Errors
    /// Those of `mmap` and `mlock`, for example if too much memory is locked already.
    pub fn new(len: usize, device: Option<&OwnedFd>) -> io::Result<Locked> {
        let len = len.max(1).next_multiple_of(crate::page::PAGE_SIZE);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlays nothing.
        let at = unsafe {
            match device {
                Some(fd) => mmap(null_mut(), len, access, MapFlags::SHARED, fd, 0),
                None => mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE),
            }
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Locked { at, len };
        if device.is_none() {
            // SAFETY: the range is the mapping just made, which this value owns.
            unsafe { mlock(at.as_ptr().cast(), len) }?;
        }
        Ok(memory)
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.at.as_ptr() as u64
    }

    /// Its bytes. The exclusive borrow is what keeps a hypercall and this program apart: calls borrow it too.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this value's own, of this length, readable, writable and initialised; nobody else in
        // this process has its address, and the hypervisor uses it only during a call, which holds `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no borrow of it can outlive the value. An error leaves it mapped,
        // which harms nobody.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::Locked;

    #[test]
    fn it_is_zeroed_whole_pages_that_keep_what_is_written() {
        let mut memory = Locked::new(4097, None).unwrap();
        assert_eq!(memory.bytes().len(), 8192);
        assert!(memory.bytes().iter().all(|b| *b == 0));
        memory.bytes()[8191] = 7;
        assert_eq!(memory.bytes()[8191], 7);
        assert_eq!(memory.address() % 4096, 0);
    }
}
