//! Terminals: pseudo-terminals that pass bytes as they are.

use super::host::Terminal;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A pseudo-terminal.
#[derive(Debug)]
pub struct Pty {
    ours: OwnedFd,
    /// Held open: the terminal keeps what is in it while nobody else has it open.
    theirs: OwnedFd,
    path: String,
}

impl Pty {
    /// Makes one.
    ///
    /// # Errors
    /// The kernel's, for example because there are too many.
    pub fn new() -> io::Result<Pty> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let path = ptsname(&ours, Vec::new())?;
        let path = path.into_string().map_err(|_| io::ErrorKind::InvalidData)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = open(&*path, flags, Mode::empty())?;
        let mut attributes = tcgetattr(&theirs)?;
        attributes.make_raw();
        tcsetattr(&theirs, OptionalActions::Now, &attributes)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok(Pty { ours, theirs, path })
    }
}

impl Terminal for Pty {
    fn path(&self) -> &str {
        &self.path
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        none_yet(rustix::io::write(&self.ours, bytes))
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        none_yet(rustix::io::read(&self.ours, bytes))
    }

    fn unread(&self) -> usize {
        // If it cannot be asked, nobody can read it either.
        rustix::io::ioctl_fionread(&self.theirs).unwrap_or(0) as usize
    }
}

impl AsFd for Pty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }
}

fn none_yet(result: Result<usize, Errno>) -> io::Result<usize> {
    match result {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    /// The kernel passes bytes on in its own time.
    fn soon(mut is: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !is() {
            assert!(Instant::now() < until, "it does not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn bytes_pass_as_they_are_and_wait_for_a_reader() {
        let mut pty = Pty::new().unwrap();
        let text = b"a\n\x03\x04\r\xff\0";
        assert_eq!(pty.write(text).unwrap(), text.len());
        soon(|| pty.unread() == text.len());
        let mut other = OpenOptions::new()
            .read(true)
            .write(true)
            .open(pty.path())
            .unwrap();
        let mut bytes = [0; 7];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, text);
        soon(|| pty.unread() == 0);
        other.write_all(b"typed\r").unwrap();
        let mut typed = Vec::new();
        soon(|| {
            let mut bytes = [0; 16];
            let count = pty.read(&mut bytes).unwrap();
            typed.extend_from_slice(&bytes[..count]);
            typed == b"typed\r"
        });
        // A reader that goes does not break it.
        drop(other);
        assert_eq!(pty.read(&mut bytes).unwrap(), 0);
        assert_eq!(pty.write(b"x").unwrap(), 1);
        soon(|| pty.unread() == 1);
        // Nobody reads: it takes only so much.
        let mut total = 0;
        for _ in 0..100 {
            total += pty.write(&[b'y'; 4096]).unwrap();
        }
        assert!(total < 300_000, "{total}");
    }
}
