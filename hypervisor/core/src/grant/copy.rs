//! Copying between pages that are named by grant or, if the caller's own, by frame.

use core::borrow::Borrow;

use hv_hw::mem::FrameRef;
use x86_model::{Gfn, PAGE_SIZE};
use xen_abi::DomId;
use xen_abi::grant_table::{GnttabCopy, GnttabCopyPtr, gntcopy, status};

use super::{GrantHost, Status};

/// Bytes copied at a time; small, since they pass over the hypervisor's stack.
const CHUNK: usize = 512;

/// One side of a copy, in use until dropped.
struct Claim<'a, H: GrantHost> {
    frame: FrameRef,
    start: u32,
    end: u32,
    /// The grant that is in use.
    pinned: Option<(&'a H, u32, bool)>,
}

impl<H: GrantHost> Drop for Claim<'_, H> {
    fn drop(&mut self) {
        if let Some((granter, reference, write)) = self.pinned {
            granter.grants().inner.lock().unpin(reference, write);
        }
    }
}

/// `GNTTABOP_copy` of one piece; fills in the status. `find` looks a domain up.
pub fn copy<H, P>(local: &H, op: &mut GnttabCopy, find: impl Fn(DomId) -> Option<P>)
where
    H: GrantHost,
    P: Borrow<H>,
{
    op.status = Status::of(try_copy(local, op, find));
}

fn try_copy<H, P>(
    local: &H,
    op: &GnttabCopy,
    find: impl Fn(DomId) -> Option<P>,
) -> Result<(), Status>
where
    H: GrantHost,
    P: Borrow<H>,
{
    let source_ref = op.flags & gntcopy::SOURCE_GREF != 0;
    let dest_ref = op.flags & gntcopy::DEST_GREF != 0;
    let source_domain = resolve(local, &op.source, source_ref, &find)?;
    let dest_domain = resolve(local, &op.dest, dest_ref, &find)?;
    let source = claim(
        local,
        source_domain.get(local),
        &op.source,
        source_ref,
        false,
    )?;
    let dest = claim(local, dest_domain.get(local), &op.dest, dest_ref, true)?;

    let len = u32::from(op.len);
    let (from, to) = (u32::from(op.source.offset), u32::from(op.dest.offset));
    if from + len > PAGE_SIZE as u32 || to + len > PAGE_SIZE as u32 {
        return Err(Status(status::BAD_COPY_ARG));
    }
    let inside = |at, claim: &Claim<'_, H>| at >= claim.start && at + len <= claim.end;
    if !inside(from, &source) || !inside(to, &dest) {
        return Err(Status(status::GENERAL_ERROR));
    }
    copy_bytes(
        &source.frame,
        from as usize,
        &dest.frame,
        to as usize,
        len as usize,
    );
    Ok(())
}

/// The domain of one side.
enum Side<P> {
    Caller,
    Other(P),
}

impl<P> Side<P> {
    fn get<'a, H>(&'a self, caller: &'a H) -> &'a H
    where
        P: Borrow<H>,
    {
        match self {
            Side::Caller => caller,
            Side::Other(p) => p.borrow(),
        }
    }
}

fn resolve<H: GrantHost, P>(
    local: &H,
    ptr: &GnttabCopyPtr,
    by_ref: bool,
    find: impl Fn(DomId) -> Option<P>,
) -> Result<Side<P>, Status> {
    if ptr.domid == DomId::SELF {
        return Ok(Side::Caller);
    }
    if by_ref && ptr.domid == local.id() {
        return Ok(Side::Caller);
    }
    let other = find(ptr.domid).ok_or(Status(status::BAD_DOMAIN))?;
    // Frames can only be named in the caller's own memory, and only as "self".
    if !by_ref {
        return Err(Status(status::PERMISSION_DENIED));
    }
    Ok(Side::Other(other))
}

fn claim<'a, H: GrantHost>(
    local: &H,
    domain: &'a H,
    ptr: &GnttabCopyPtr,
    by_ref: bool,
    write: bool,
) -> Result<Claim<'a, H>, Status> {
    if by_ref {
        let reference = ptr.frame_or_ref as u32;
        let (frame, target) =
            domain
                .grants()
                .inner
                .lock()
                .pin(domain, reference, local.id(), write, false)?;
        return Ok(Claim {
            frame,
            start: target.start.into(),
            end: u32::from(target.start) + u32::from(target.length),
            pinned: Some((domain, reference, write)),
        });
    }
    match domain.own_frame(Gfn(ptr.frame_or_ref)) {
        Some((frame, writable)) if writable || !write => Ok(Claim {
            frame,
            start: 0,
            end: PAGE_SIZE as u32,
            pinned: None,
        }),
        _ => Err(Status(status::BAD_PAGE)),
    }
}

fn copy_bytes(source: &FrameRef, from: usize, dest: &FrameRef, to: usize, len: usize) {
    let mut buf = [0; CHUNK];
    for done in (0..len).step_by(CHUNK) {
        let piece = &mut buf[..CHUNK.min(len - done)];
        source.read(from + done, piece);
        dest.write(to + done, piece);
    }
}
