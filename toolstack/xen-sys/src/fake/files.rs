//! The machine's file system: texts by path, folders as the paths make them.

use super::Machine;
use crate::hypercalls::{Call, Rest};
use crate::xen::error;
use std::collections::BTreeSet;
use std::io;
use xen_abi::Errno;
use xen_abi::hypfs::{Direntry, NAME_OFFSET, kind, op};
use zerocopy::IntoBytes;

impl Machine {
    pub(super) fn hypfs(&self, call: &mut Call<'_, '_>) -> io::Result<u64> {
        let invalid = || error(Errno::EINVAL);
        let (Some(op::READ), &[Rest::Number(length), Rest::Within(at), Rest::Number(size)]) =
            (call.operation, call.rest)
        else {
            return Err(invalid());
        };
        let path = call.argument.get(..length as usize).ok_or_else(invalid)?;
        let (0, path) = path.split_last().ok_or_else(invalid)? else {
            return Err(invalid());
        };
        let path = String::from_utf8_lossy(path).into_owned();
        let (kind, contents) = self.contents(&path).ok_or_else(|| error(Errno::ENOENT))?;
        let head = Direntry {
            kind,
            content_len: contents.len() as u32,
            ..Direntry::default()
        };
        let room = call.argument[at..].get_mut(..size as usize);
        let room = room.ok_or_else(|| error(Errno::EFAULT))?;
        let (to, room) = room.split_at_mut(size_of::<Direntry>());
        to.copy_from_slice(head.as_bytes());
        let room = room.get_mut(..contents.len());
        room.ok_or_else(|| error(Errno::ENOBUFS))?
            .copy_from_slice(&contents);
        Ok(0)
    }

    fn contents(&self, path: &str) -> Option<(u8, Vec<u8>)> {
        if let Some(text) = self.files.get(path) {
            return Some((kind::STRING, [text.as_bytes(), &[0]].concat()));
        }
        let folder = format!("{}/", path.trim_end_matches('/'));
        let below = self.files.keys().filter_map(|p| p.strip_prefix(&folder));
        let names: BTreeSet<&str> = below.filter_map(|p| p.split('/').next()).collect();
        let mut out = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let length = NAME_OFFSET + (name.len() + 1).next_multiple_of(4);
            let at = out.len();
            out.resize(at + length, 0);
            if n + 1 < names.len() {
                out[at + 12..at + 14].copy_from_slice(&(length as u16).to_ne_bytes());
            }
            out[at + NAME_OFFSET..][..name.len()].copy_from_slice(name.as_bytes());
        }
        (!names.is_empty()).then_some((kind::DIR, out))
    }
}
