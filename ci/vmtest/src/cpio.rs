//! Writer of "newc" cpio archives, the format of Linux's initial RAM disk
//! (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! Everything belongs to root and carries no time stamp, so the same input gives the same bytes.

use std::collections::BTreeSet;

/// An archive being written.
#[derive(Default)]
pub struct Cpio {
    out: Vec<u8>,
    inode: u32,
    dirs: BTreeSet<String>,
}

const DIR: u32 = 0o040000;
const FILE: u32 = 0o100000;
const LINK: u32 = 0o120000;
const CHAR: u32 = 0o020000;

impl Cpio {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory and those above it; adding one twice is harmless.
    pub fn dir(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.dirs.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.dir(parent);
        }
        self.dirs.insert(path.to_owned());
        self.entry(path, DIR | 0o755, (0, 0), &[]);
    }

    /// Adds a regular file with permission bits `mode`, and the directories above it.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) {
        let path = self.parent_of(path);
        self.entry(&path, FILE | mode, (0, 0), data);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) {
        let path = self.parent_of(path);
        self.entry(&path, LINK | 0o777, (0, 0), to.as_bytes());
    }

    /// Adds a character device.
    pub fn char_device(&mut self, path: &str, major: u32, minor: u32) {
        let path = self.parent_of(path);
        self.entry(&path, CHAR | 0o600, (major, minor), &[]);
    }

    /// The finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.out
    }

    fn parent_of(&mut self, path: &str) -> String {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.dir(parent);
        }
        path.to_owned()
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inode += 1;
        let links = if mode & DIR != 0 { 2 } else { 1 };
        let size = u32::try_from(data.len()).expect("a file in an initial RAM disk is below 4 GiB");
        let name_size = name.len() as u32 + 1;
        self.out.extend_from_slice(b"070701");
        // inode, mode, uid, gid, links, mtime, size, device of the file system, device, name size, checksum
        for field in [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ] {
            self.out
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        self.pad();
        self.out.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.out.len().is_multiple_of(4) {
            self.out.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn headers_are_110_bytes_and_aligned() {
        let mut c = Cpio::new();
        c.file("/a/b", 0o644, b"hello");
        let out = c.finish();
        assert_eq!(&out[..6], b"070701");
        assert_eq!(&out[110..112], b"a\0");
        assert_eq!(out.len() % 4, 0);
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("a/b\0") && text.contains("hello") && text.contains("TRAILER!!!"));
    }

    #[test]
    fn busybox_reads_it_back() {
        let mut c = Cpio::new();
        c.dir("/x/y");
        c.dir("/x/y");
        c.file("/x/y/f", 0o755, b"data");
        c.link("/x/l", "y/f");
        c.char_device("/dev/console", 5, 1);
        let Ok(mut child) = Command::new("busybox")
            .args(["cpio", "-t"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            eprintln!("busybox is not installed: the archive was checked by the other test only");
            return;
        };
        child
            .stdin
            .take()
            .expect("piped")
            .write_all(&c.finish())
            .expect("busybox reads");
        let out = child.wait_with_output().expect("busybox ends");
        assert!(out.status.success());
        let names: Vec<_> = std::str::from_utf8(&out.stdout)
            .expect("ASCII")
            .lines()
            .map(String::from)
            .collect();
        assert_eq!(names, ["x", "x/y", "x/y/f", "x/l", "dev", "dev/console"]);
    }
}
