//! What the image knows of its own making: revision, compiler, date.
//!
//! The linker reserves the section `.origin` (zeroes) and the build tool fills it afterwards with what [`pack`] makes, so
//! that another commit is no reason to compile. The texts stand one behind the other, each NUL-terminated.

use crate::bootinfo::bytes::c_string;

/// Room in the image, bytes.
pub const ROOM: usize = 256;

/// The texts; empty where the build tool knows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Date and short hash of the commit.
    pub changeset: &'a str,
    /// Name and version.
    pub compiler: &'a str,
    /// When; the commit's date, so that the same source gives the same image.
    pub date: &'a str,
}

impl<'a> Origin<'a> {
    /// Reads the section. An image that was not completed has zeroes: all texts are empty.
    pub fn parse(section: &'a [u8]) -> Self {
        let mut rest = section;
        let mut next = || {
            let text = c_string(rest)?;
            rest = &rest[text.len() + 1..];
            core::str::from_utf8(text).ok()
        };
        let mut text = || next().unwrap_or_default();
        Self {
            changeset: text(),
            compiler: text(),
            date: text(),
        }
    }

    /// The section's content; `None` if the texts do not fit.
    #[cfg(not(target_os = "none"))]
    pub fn pack(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for text in [self.changeset, self.compiler, self.date] {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        (bytes.len() <= ROOM).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_read() {
        let origin = Origin {
            changeset: "Tue Dec 1 git:0123456",
            compiler: "rustc 1.90.0",
            date: "Tue Dec 1",
        };
        let mut section = [0; ROOM];
        let bytes = origin.pack().unwrap();
        section[..bytes.len()].copy_from_slice(&bytes);
        assert_eq!(Origin::parse(&section), origin);
        assert_eq!(Origin::parse(&[0; ROOM]), Origin::default());
        assert_eq!(Origin::parse(b"cut"), Origin::default());
        let long = "x".repeat(ROOM);
        assert!(
            Origin {
                compiler: &long,
                ..origin
            }
            .pack()
            .is_none()
        );
    }
}
