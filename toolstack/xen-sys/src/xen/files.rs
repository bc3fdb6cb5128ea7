//! The hypervisor's file system (`hypfs_op`).

use super::{Xen, error};
use crate::hypercalls::{Call, Rest};
use std::io;
use xen_abi::hypfs::{Direntry, NAME_OFFSET, encoding, kind, limit, op};
use xen_abi::{Errno, hypercall::nr};
use zerocopy::FromBytes;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// The names in a folder.
    Folder(Vec<String>),
    /// A text, without its NUL.
    Text(String),
    /// Anything else, as it is stored.
    Bytes(Vec<u8>),
}

const HEAD: usize = size_of::<Direntry>();
/// Room for contents in the first attempt.
const ROOM: usize = 16 << 10;
/// How often a file is read again that has outgrown the room it asked for.
const ATTEMPTS: u32 = 8;

impl Xen {
    /// Reads a path, which starts with `/`.
    ///
    /// # Errors
    /// The hypervisor's: `ENOENT` if there is no such path, `ENOSYS` if there is no file system; `EINVAL` if the path is too
    /// long or has a NUL in it.
    pub fn file(&self, path: &str) -> io::Result<File> {
        let length = path.len() + 1;
        if length > limit::MAX_PATHLEN as usize || path.contains('\0') {
            return Err(error(Errno::EINVAL));
        }
        let at = length.next_multiple_of(8);
        let mut room = ROOM;
        for _ in 0..ATTEMPTS {
            let mut memory = vec![0; at + HEAD + room];
            memory[..path.len()].copy_from_slice(path.as_bytes());
            let result = self.calls.call(&mut Call {
                number: nr::HYPFS_OP,
                operation: Some(op::READ),
                argument: &mut memory,
                rest: &[
                    Rest::Number(length as u64),
                    Rest::Within(at),
                    Rest::Number((HEAD + room) as u64),
                ],
                slots: &mut [],
            });
            let (head, contents) = Direntry::read_from_prefix(&memory[at..])
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            let length = head.content_len as usize;
            match result {
                // With some to spare: counters grow.
                Err(e) if super::is(&e, Errno::ENOBUFS) && length > room => room = length + 1024,
                Err(e) => return Err(e),
                Ok(_) => {
                    let whole = contents.get(..length);
                    return parse(&head, whole.ok_or_else(|| error(Errno::EIO))?);
                }
            }
        }
        Err(error(Errno::ENOBUFS))
    }
}

fn parse(head: &Direntry, contents: &[u8]) -> io::Result<File> {
    Ok(match head.kind {
        kind::DIR => File::Folder(names(contents).ok_or_else(|| error(Errno::EIO))?),
        kind::STRING if head.encoding == encoding::PLAIN => {
            let end = contents.iter().position(|b| *b == 0);
            let text = &contents[..end.unwrap_or(contents.len())];
            File::Text(String::from_utf8_lossy(text).into_owned())
        }
        _ => File::Bytes(contents.to_vec()),
    })
}

/// Names of the entries; `None` if they do not hold together.
fn names(mut contents: &[u8]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    while !contents.is_empty() {
        let next = contents.get(HEAD..NAME_OFFSET)?;
        let next = usize::from(u16::from_ne_bytes([next[0], next[1]]));
        let name = contents.get(NAME_OFFSET..)?;
        let end = name.iter().position(|b| *b == 0)?;
        names.push(String::from_utf8_lossy(&name[..end]).into_owned());
        if next == 0 {
            break;
        }
        contents = contents.get(next.max(NAME_OFFSET)..)?;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    fn xen(files: &[(&str, &str)]) -> Xen {
        let mut machine = Machine::new(1, 64);
        for (path, text) in files {
            machine.files.insert((*path).into(), (*text).into());
        }
        Xen::new(machine.share().1)
    }

    #[test]
    fn folders_and_texts_of_any_length() {
        let long = "x".repeat(3 * ROOM);
        let xen = xen(&[("/a/b/0", "one\n"), ("/a/b/17", &long), ("/a/c", "")]);
        let folder = |names: &[&str]| File::Folder(names.iter().map(|n| (*n).into()).collect());
        assert_eq!(xen.file("/a").unwrap(), folder(&["b", "c"]));
        assert_eq!(xen.file("/a/b/").unwrap(), folder(&["0", "17"]));
        assert_eq!(xen.file("/a/b/0").unwrap(), File::Text("one\n".into()));
        assert_eq!(xen.file("/a/b/17").unwrap(), File::Text(long));
        assert_eq!(xen.file("/a/c").unwrap(), File::Text(String::new()));
        for (path, errno) in [("/a/d", Errno::ENOENT), ("/a\0", Errno::EINVAL)] {
            assert!(super::super::is(&xen.file(path).unwrap_err(), errno));
        }
        assert!(xen.file(&"/x".repeat(600)).is_err());
    }

    #[test]
    fn broken_folders_are_refused() {
        let mut entry = [0u8; 24];
        entry[NAME_OFFSET..NAME_OFFSET + 2].copy_from_slice(b"ab");
        assert_eq!(names(&entry).unwrap(), ["ab"]);
        // The next one is beyond the end, or has no end of its name.
        entry[HEAD] = 200;
        assert_eq!(names(&entry), None);
        entry[HEAD] = 0;
        assert_eq!(names(&entry[..NAME_OFFSET + 2]), None);
        assert_eq!(names(&entry[..5]), None);
    }
}
