//! `hypfs_op` (42): facts about the hypervisor as files, for the control domain. The tree is in [`crate::hypfs`], its part
//! that is made when it is read in [`crate::exit_files`].

use x86_model::Gva;
use xen_abi::Errno;
use xen_abi::hypfs::{Direntry, limit, op};

use super::{Call, HcResult, ptr};
use crate::exit_files::Folder;
use crate::hypfs;

/// `hypfs_op(command, path, its length, buffer, its length)`.
pub fn handle(call: &mut Call<'_, '_>, [cmd, path, len, buffer, size]: [u64; 5]) -> HcResult {
    call.privileged()?;
    if cmd as u32 == op::GET_VERSION {
        return match [path, len, buffer, size] {
            [0, 0, 0, 0] => Ok(u64::from(limit::VERSION)),
            _ => Err(Errno::EINVAL),
        };
    }
    let mut bytes = [0u8; limit::MAX_PATHLEN as usize];
    let bytes = usize::try_from(len)
        .ok()
        .and_then(|len| bytes.get_mut(..len))
        .ok_or(Errno::EINVAL)?;
    call.memory().copy_in(ptr(path), bytes)?;
    // One NUL, at the end.
    let Some((0, name)) = bytes.split_last() else {
        return Err(Errno::EINVAL);
    };
    if name.contains(&0) || !name.starts_with(b"/") {
        return Err(Errno::EINVAL);
    }
    if let Some((folder, rest)) = Folder::of(name) {
        let (head, contents) = folder.read(call.hv(), rest)?;
        return match cmd as u32 {
            op::READ => {
                give_head(call, &head, buffer, size)?;
                let at = buffer.checked_add(HEAD).ok_or(Errno::EFAULT)?;
                call.memory().copy_out(Gva(at), &contents)?;
                Ok(0)
            }
            op::WRITE_CONTENTS => Err(Errno::EACCES),
            _ => Err(Errno::EOPNOTSUPP),
        };
    }
    let node = hypfs::find(name).ok_or(Errno::ENOENT)?;
    match cmd as u32 {
        op::READ => read(call, node, buffer, size),
        // Nothing here can be written.
        op::WRITE_CONTENTS => Err(Errno::EACCES),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

const HEAD: u64 = size_of::<Direntry>() as u64;

/// Writes the head, which tells how much room is needed, also when there is too little (ENOBUFS).
fn give_head(
    call: &mut Call<'_, '_>,
    head: &Direntry,
    buffer: u64,
    size: u64,
) -> Result<(), Errno> {
    if size < HEAD {
        return Err(Errno::EINVAL);
    }
    call.memory().write(ptr(buffer), head)?;
    if size < HEAD + u64::from(head.content_len) {
        return Err(Errno::ENOBUFS);
    }
    Ok(())
}

fn read(call: &mut Call<'_, '_>, node: &hypfs::Node, buffer: u64, size: u64) -> HcResult {
    let head = node.direntry(&call.hv().identity);
    give_head(call, &head, buffer, size)?;
    let id = &call.hv().identity;
    node.contents(id, |offset, bytes| {
        let at = buffer
            .checked_add(HEAD + offset as u64)
            .ok_or(Errno::EFAULT)?;
        call.memory().copy_out(Gva(at), bytes)
    })?;
    Ok(0)
}
