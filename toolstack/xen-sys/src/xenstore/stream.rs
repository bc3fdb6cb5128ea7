//! The bytes of a connection: a socket, or the kernel's device.

use super::{Error, Result};
use crate::fake::FakeStore;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use xen_abi::io::xs_wire::{HEADER_LEN, SockMsg, limit};
use zerocopy::{FromBytes, IntoBytes};

/// Where the daemon's socket is if no variable says otherwise.
pub const SOCKET: &str = "/run/xenstored/socket";
/// The kernel's devices, in the order in which they are tried.
const DEVICES: [&str; 2] = ["/dev/xen/xenbus", "/proc/xen/xenbus"];

#[derive(Debug)]
pub(super) enum Stream {
    Socket(UnixStream),
    Device(File),
    Fake(FakeStore),
}

impl Stream {
    /// Opens what `XENSTORED_PATH` or `XENSTORED_RUNDIR` name, the usual socket or the kernel's device; with the last, why it is
    /// not the socket.
    pub fn open() -> io::Result<(Stream, Option<String>)> {
        let named = std::env::var_os("XENSTORED_PATH").map(std::path::PathBuf::from);
        let beside = || {
            std::env::var_os("XENSTORED_RUNDIR").map(|d| std::path::Path::new(&d).join("socket"))
        };
        let socket = named.or_else(beside).unwrap_or_else(|| SOCKET.into());
        let refused = match UnixStream::connect(&socket) {
            Ok(stream) => return Ok((Stream::Socket(stream), None)),
            Err(error) => error,
        };
        let device = |path: &&str| OpenOptions::new().read(true).write(true).open(path).ok();
        let why = format!("{}: {refused}", socket.display());
        match DEVICES.iter().find_map(device) {
            Some(file) => Ok((Stream::Device(file), Some(why))),
            None => {
                let text = format!("cannot reach xenstored: {why}; is it running?");
                Err(io::Error::new(refused.kind(), text))
            }
        }
    }

    /// What to wait for; nothing for a store in this process.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Stream::Socket(s) => Some(s.as_fd()),
            Stream::Device(f) => Some(f.as_fd()),
            Stream::Fake(_) => None,
        }
    }

    pub fn send(&mut self, header: SockMsg, payload: &[u8]) -> Result<()> {
        let message = [header.as_bytes(), payload].concat();
        match self {
            Stream::Socket(s) => s.write_all(&message)?,
            Stream::Device(f) => f.write_all(&message)?,
            Stream::Fake(store) => store.take(header, payload),
        }
        Ok(())
    }

    pub fn receive(&mut self) -> Result<(SockMsg, Vec<u8>)> {
        if let Stream::Fake(store) = self {
            return store.give().ok_or(Error::Protocol("it does not answer"));
        }
        let mut header = [0; HEADER_LEN];
        self.read_exact(&mut header)?;
        let header = SockMsg::read_from_bytes(&header)
            .map_err(|_| Error::Protocol("a header of another size"))?;
        if header.len > limit::PAYLOAD_MAX {
            return Err(Error::Protocol("a message that is too long"));
        }
        let mut payload = vec![0; header.len as usize];
        self.read_exact(&mut payload)?;
        Ok((header, payload))
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Stream::Socket(s) => s.read_exact(bytes),
            Stream::Device(f) => f.read_exact(bytes),
            Stream::Fake(_) => Ok(()),
        }
    }

    /// Waits until there is something to receive; false if the time is over.
    pub fn readable(&self, wait: Option<Duration>) -> io::Result<bool> {
        let timeout = wait.and_then(|w| Timespec::try_from(w).ok());
        loop {
            if let Stream::Fake(store) = self {
                return Ok(store.readable());
            }
            let Some(fd) = self.fd() else {
                return Ok(false);
            };
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(n) => return Ok(n > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
