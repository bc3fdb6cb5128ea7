//! Names of nodes and of what can be watched.

use std::rc::Rc;
use xen_abi::{DomId, Errno, io::xs_wire::limit};

/// Prefix of a watchable name that is no node.
const SPECIAL: char = '@';

/// The absolute, checked name of a node: starts with `/`, has no empty part and only the characters that are allowed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path(Rc<str>);

impl Path {
    /// The root.
    pub fn root() -> Path {
        Path("/".into())
    }

    /// Checks what a client sent. A name that does not start with `/` lies below the home of domain `from`. `max` limits
    /// the length in bytes below a domain's home, or of the whole name outside any home.
    ///
    /// # Errors
    /// `EINVAL` for every name that cannot be a node's.
    pub fn parse(name: &[u8], from: DomId, max: usize) -> Result<Path, Errno> {
        let text = str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
        let absolute = if text.starts_with('/') {
            text.to_owned()
        } else {
            format!("{}/{text}", home(from))
        };
        let fits = absolute.len() <= home_prefix_len(&absolute) + max
            && absolute.len() <= limit::ABS_PATH_MAX as usize;
        let shaped = absolute == "/" || (!absolute.ends_with('/') && !absolute.contains("//"));
        if text.is_empty() || !fits || !shaped || !absolute.bytes().all(allowed) {
            return Err(Errno::EINVAL);
        }
        Ok(Path(absolute.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The node that contains this one; `None` for the root.
    pub fn parent(&self) -> Option<Path> {
        match self.0.rfind('/')? {
            _ if self.is_root() => None,
            0 => Some(Path::root()),
            at => Some(Path(self.0[..at].into())),
        }
    }

    /// The last part; empty for the root.
    pub fn leaf(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or("")
    }

    /// The node of that name in this one. `leaf` is a part that the store itself holds.
    pub fn child(&self, leaf: &str) -> Path {
        let prefix = if self.is_root() { "" } else { &*self.0 };
        Path(format!("{prefix}/{leaf}").into())
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// This name and those of all nodes around it, innermost first, the root last.
    pub fn with_ancestors(&self) -> impl Iterator<Item = &str> {
        let text: &str = &self.0;
        let cuts = text.rmatch_indices('/').map(|(at, _)| at);
        let outer = cuts
            .map(move |at| if at == 0 { "/" } else { &text[..at] })
            .filter(move |_| text != "/");
        std::iter::once(text).chain(outer)
    }
}

/// Where a domain's own nodes are.
pub fn home(domid: DomId) -> String {
    format!("/local/domain/{}", domid.0)
}

/// What a watch is set on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchPath {
    /// A node's absolute name, or a special name.
    pub key: Rc<str>,
    /// Bytes at the start of an event's path that its receiver does not get to see: the home of a relative watch.
    pub hidden: usize,
}

impl WatchPath {
    /// Checks what a client sent, as [`Path::parse`] does; names with `@` pass as they are.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn parse(name: &[u8], from: DomId, max: usize) -> Result<WatchPath, Errno> {
        if name.starts_with(&[SPECIAL as u8]) {
            let text = str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
            if text.len() > limit::REL_PATH_MAX as usize {
                return Err(Errno::EINVAL);
            }
            return Ok(WatchPath {
                key: text.into(),
                hidden: 0,
            });
        }
        let path = Path::parse(name, from, max)?;
        let relative = !name.starts_with(b"/");
        let hidden = if relative { home(from).len() + 1 } else { 0 };
        Ok(WatchPath {
            key: path.0,
            hidden,
        })
    }
}

/// Whether clients may use this byte in a name.
fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-/_@".contains(&byte)
}

/// The length of `/local/domain/<digits>/` at the start of `path`, 0 without it.
fn home_prefix_len(path: &str) -> usize {
    const HOMES: &str = "/local/domain/";
    let Some(rest) = path.strip_prefix(HOMES) else {
        return 0;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let closed = rest.as_bytes().get(digits) == Some(&b'/');
    if (1..=5).contains(&digits) && closed {
        HOMES.len() + digits + 1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<String, Errno> {
        Path::parse(name.as_bytes(), DomId(7), 2048).map(|p| p.as_str().to_owned())
    }

    #[test]
    fn names_that_are_accepted() {
        assert_eq!(parse("/").as_deref(), Ok("/"));
        assert_eq!(parse("/a-b/C_d/@1").as_deref(), Ok("/a-b/C_d/@1"));
        assert_eq!(
            parse("device/vbd").as_deref(),
            Ok("/local/domain/7/device/vbd")
        );
        assert_eq!(parse("@x").as_deref(), Ok("/local/domain/7/@x"));
    }

    #[test]
    fn names_that_are_refused() {
        for bad in [
            "", "//", "/a/", "/a//b", "/a b", "/a.b", "/\u{e4}", "a/", "/a\n",
        ] {
            assert_eq!(parse(bad), Err(Errno::EINVAL), "{bad:?}");
        }
        assert_eq!(Path::parse(b"/\xff", DomId(0), 2048), Err(Errno::EINVAL));
    }

    #[test]
    fn length_counts_from_the_home() {
        let part = "x".repeat(2047);
        assert!(parse(&format!("/{part}")).is_ok());
        assert!(parse(&format!("/{part}y")).is_err());
        assert!(parse(&format!("{part}y")).is_ok());
        assert!(parse(&format!("{part}yz")).is_err());
        assert!(parse(&format!("/local/domain/123456/{part}")).is_err());
    }

    #[test]
    fn family() {
        let path = Path::parse(b"/a/b/c", DomId(0), 2048).unwrap();
        assert_eq!(
            path.with_ancestors().collect::<Vec<_>>(),
            ["/a/b/c", "/a/b", "/a", "/"]
        );
        assert_eq!(Path::root().with_ancestors().collect::<Vec<_>>(), ["/"]);
        assert_eq!(path.parent().unwrap().as_str(), "/a/b");
        assert_eq!(path.leaf(), "c");
        assert_eq!(Path::root().parent(), None);
        assert_eq!(Path::root().child("a").as_str(), "/a");
        assert_eq!(path.child("d").as_str(), "/a/b/c/d");
    }

    #[test]
    fn a_relative_watch_hides_the_home() {
        let watch = WatchPath::parse(b"device", DomId(3), 2048).unwrap();
        assert_eq!(&watch.key[watch.hidden..], "device");
        let special = WatchPath::parse(b"@releaseDomain", DomId(3), 2048).unwrap();
        assert_eq!((&*special.key, special.hidden), ("@releaseDomain", 0));
    }
}
