//! The tree of facts that `hypfs_op` shows. Read-only; names, types and places as in Xen (`hypfs-paths`).

use hv_hw::config;
use xen_abi::hypfs::{Direntry, NAME_OFFSET, encoding, kind};

use crate::exit_files::Folder;
use crate::hypervisor::Identity;

/// An entry.
pub struct Node {
    name: &'static str,
    body: Body,
}

enum Body {
    /// By name, ascending.
    Dir(&'static [Node]),
    Text(fn(&Identity) -> &str),
    Number(fn(&Identity) -> u32),
    Gzip(&'static [u8]),
    /// Made when it is read.
    Live,
}

/// Alignment of the entries of a directory's contents.
const ALIGN: usize = align_of::<Direntry>();

const fn dir(name: &'static str, nodes: &'static [Node]) -> Node {
    Node {
        name,
        body: Body::Dir(nodes),
    }
}
const fn text(name: &'static str, of: fn(&Identity) -> &str) -> Node {
    Node {
        name,
        body: Body::Text(of),
    }
}
const fn number(name: &'static str, of: fn(&Identity) -> u32) -> Node {
    Node {
        name,
        body: Body::Number(of),
    }
}

const COMPILE: Node = dir(
    "compileinfo",
    &[
        text("compile_by", |id| &id.compile[1]),
        text("compile_date", |id| &id.compile[3]),
        text("compile_domain", |id| &id.compile[2]),
        text("compiler", |id| &id.compile[0]),
    ],
);
const VERSION: Node = dir(
    "version",
    &[
        text("extra", |id| &id.extra),
        number("major", |id| u32::from(id.major)),
        number("minor", |id| u32::from(id.minor)),
    ],
);
const CHANGESET: Node = text("changeset", |id| &id.changeset);
const CONFIG: Node = Node {
    name: "config",
    body: Body::Gzip(config::FILE),
};

const BUILDINFO: &[Node] = if cfg!(CONFIG_HYPFS_CONFIG) {
    &[CHANGESET, COMPILE, CONFIG, VERSION]
} else {
    &[CHANGESET, COMPILE, VERSION]
};
const fn live(folder: Folder) -> Node {
    Node {
        name: folder.name(),
        body: Body::Live,
    }
}
const TOP: &[Node] = &[
    dir("buildinfo", BUILDINFO),
    live(Folder::Exits),
    live(Folder::Interrupts),
];
const ROOT: Node = dir("", TOP);

/// The entry of a path, which starts with `/`; a directory's may end with one.
pub fn find(path: &[u8]) -> Option<&'static Node> {
    let mut rest = path.strip_prefix(b"/")?;
    let mut at = const { &ROOT };
    loop {
        let Body::Dir(nodes) = &at.body else {
            return None;
        };
        if rest.is_empty() {
            return Some(at);
        }
        let end = rest.iter().position(|&b| b == b'/');
        let name = &rest[..end.unwrap_or(rest.len())];
        at = nodes.iter().find(|n| n.name.as_bytes() == name)?;
        match end {
            None => return Some(at),
            Some(end) => rest = &rest[end + 1..],
        }
    }
}

impl Node {
    /// The head of the entry.
    pub fn direntry(&self, id: &Identity) -> Direntry {
        let (kind, encoding) = match self.body {
            Body::Dir(_) | Body::Live => (kind::DIR, encoding::PLAIN),
            Body::Text(_) => (kind::STRING, encoding::PLAIN),
            Body::Number(_) => (kind::UINT, encoding::PLAIN),
            Body::Gzip(_) => (kind::STRING, encoding::GZIP),
        };
        let len = match &self.body {
            Body::Dir(nodes) => nodes.iter().map(|n| n.listed_len()).sum(),
            Body::Text(of) => of(id).len() + 1,
            Body::Number(_) => size_of::<u32>(),
            Body::Gzip(bytes) => bytes.len(),
            Body::Live => 0,
        };
        Direntry {
            kind,
            encoding,
            pad: 0,
            content_len: len as u32,
            max_write_len: 0,
        }
    }

    /// Bytes that it takes in its directory's contents.
    fn listed_len(&self) -> usize {
        NAME_OFFSET + (self.name.len() + 1).next_multiple_of(ALIGN)
    }

    /// Gives the contents in pieces, each with its offset. Bytes between pieces are left as they are, as by Xen.
    pub fn contents<E>(
        &self,
        id: &Identity,
        mut put: impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        use zerocopy::IntoBytes;
        match &self.body {
            Body::Gzip(bytes) => put(0, bytes),
            Body::Live => Ok(()),
            Body::Number(of) => put(0, &of(id).to_le_bytes()),
            Body::Text(of) => {
                let text = of(id);
                put(0, text.as_bytes())?;
                put(text.len(), &[0])
            }
            Body::Dir(nodes) => {
                let mut at = 0;
                for (n, node) in nodes.iter().enumerate() {
                    let len = node.listed_len();
                    let next = if n + 1 == nodes.len() { 0 } else { len as u16 };
                    put(at, node.direntry(id).as_bytes())?;
                    put(at + 12, &next.to_le_bytes())?;
                    put(at + NAME_OFFSET, node.name.as_bytes())?;
                    put(at + NAME_OFFSET + node.name.len(), &[0])?;
                    at += len;
                }
                Ok(())
            }
        }
    }
}
