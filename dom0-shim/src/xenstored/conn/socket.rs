//! Clients over a Unix socket: programs of the control domain.

use super::{Fault, Moved, Transport};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// One client.
#[derive(Debug)]
pub struct Socket(UnixStream);

impl Socket {
    /// Takes a connection over.
    ///
    /// # Errors
    /// If it cannot be made to never wait.
    pub fn new(stream: UnixStream) -> std::io::Result<Socket> {
        stream.set_nonblocking(true)?;
        Ok(Socket(stream))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn moved(result: std::io::Result<usize>) -> Moved {
    match result {
        Ok(0) => Moved::Closed,
        Ok(n) => Moved::Bytes(n),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Moved::Nothing,
            _ => Moved::Closed,
        },
    }
}

impl Transport for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> Moved {
        moved(self.0.read(bytes))
    }

    fn write(&mut self, bytes: &[u8]) -> Moved {
        moved(self.0.write(bytes))
    }

    fn wants_reset(&mut self) -> bool {
        false
    }

    fn refuse(&mut self, _: Fault) {}
}
