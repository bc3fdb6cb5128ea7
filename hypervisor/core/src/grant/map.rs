//! Mapping and unmapping granted pages.

use alloc::sync::Arc;
use core::borrow::Borrow;

use hv_hw::mem::FrameRef;
use x86_model::Gpa;
use xen_abi::grant_table::{GnttabMapGrantRef, GnttabUnmapGrantRef, gntmap, status};
use xen_abi::{DomId, Errno};

use super::maptrack::Mapping;
use super::{GrantHost, Status};

/// Operations that [`unmap`] takes at a time: all of them share one flush.
pub const UNMAP_BATCH: usize = 32;

/// `GNTTABOP_map_grant_ref` of one page into `local`; fills in status, handle and bus address. `find` looks a domain up.
pub fn map<H, P>(local: &H, op: &mut GnttabMapGrantRef, find: impl FnOnce(DomId) -> Option<P>)
where
    H: GrantHost,
    P: Borrow<H>,
{
    op.status = Status::of(try_map(local, op, find));
}

fn try_map<H, P>(
    local: &H,
    op: &mut GnttabMapGrantRef,
    find: impl FnOnce(DomId) -> Option<P>,
) -> Result<(), Status>
where
    H: GrantHost,
    P: Borrow<H>,
{
    if op.flags & (gntmap::DEVICE_MAP | gntmap::HOST_MAP) == 0 {
        return Err(Status(status::BAD_GNTREF));
    }
    // Domains with nested paging name a guest-physical address and nothing else.
    if op.flags & !gntmap::READONLY != gntmap::HOST_MAP {
        return Err(Status(status::GENERAL_ERROR));
    }
    let write = op.flags & gntmap::READONLY == 0;
    let granter = find(op.dom).ok_or(Status(status::BAD_DOMAIN))?;
    let handle = local
        .grants()
        .inner
        .lock()
        .maptrack
        .reserve()
        .ok_or(Status(status::NO_SPACE))?;
    match map_at(local, granter.borrow(), op, write) {
        Ok(mapping) => {
            op.handle = handle;
            op.dev_bus_addr = mapping.mfn.hpa().0;
            local.grants().inner.lock().maptrack.commit(handle, mapping);
            Ok(())
        }
        Err(e) => {
            local.grants().inner.lock().maptrack.release(handle);
            Err(e)
        }
    }
}

fn map_at<H: GrantHost>(
    local: &H,
    granter: &H,
    op: &GnttabMapGrantRef,
    write: bool,
) -> Result<Mapping, Status> {
    let gfn = Gpa(op.host_addr).gfn();
    let (frame, _) =
        granter
            .grants()
            .inner
            .lock()
            .pin(granter, op.reference, local.id(), write, true)?;
    let mfn = frame.mfn();
    if let Err(e) = local.map_grant(gfn, frame, write) {
        granter.grants().inner.lock().unpin(op.reference, write);
        return Err(Status(match e {
            Errno::ENXIO => status::BAD_PAGE,
            _ => status::GENERAL_ERROR,
        }));
    }
    Ok(Mapping {
        table: Arc::clone(granter.grants()),
        reference: op.reference,
        gfn,
        mfn,
        write,
    })
}

/// `GNTTABOP_unmap_grant_ref` of at most [`UNMAP_BATCH`] pages (the rest is left alone); fills in the statuses.
pub fn unmap<H: GrantHost>(local: &H, ops: &mut [GnttabUnmapGrantRef]) {
    let mut undone: [Option<Undone>; UNMAP_BATCH] = [const { None }; UNMAP_BATCH];
    for (op, slot) in ops.iter_mut().zip(&mut undone) {
        op.status = match remove(local, op) {
            Ok(done) => {
                *slot = done;
                status::OKAY
            }
            Err(Status(s)) => s,
        };
    }
    complete(local, undone.into_iter().flatten());
}

/// A mapping that is gone from the tables, but maybe not from the CPUs yet.
struct Undone {
    handle: u32,
    mapping: Mapping,
    /// Keeps the page until the flush.
    frame: FrameRef,
}

fn remove<H: GrantHost>(local: &H, op: &GnttabUnmapGrantRef) -> Result<Option<Undone>, Status> {
    let bad_handle = Status(status::BAD_HANDLE);
    let mut inner = local.grants().inner.lock();
    let mapping = inner.maptrack.get(op.handle).ok_or(bad_handle)?;
    // Address 0 asks for nothing: only the device mapping, which there is none of.
    if op.host_addr == 0 {
        return Ok(None);
    }
    if Gpa(op.host_addr).gfn() != mapping.gfn {
        return Err(Status(status::GENERAL_ERROR));
    }
    let mapping = inner.maptrack.take(op.handle).ok_or(bad_handle)?;
    drop(inner);
    match local.unmap_grant(mapping.gfn, mapping.mfn) {
        Ok(frame) => Ok(Some(Undone {
            handle: op.handle,
            mapping,
            frame,
        })),
        Err(_) => {
            // Somebody else has changed the address meanwhile; the handle stays valid.
            let mut inner = local.grants().inner.lock();
            inner.maptrack.commit(op.handle, mapping);
            Err(Status(status::GENERAL_ERROR))
        }
    }
}

/// Flushes, and only then lets the granting domains know that their pages are free.
fn complete<H: GrantHost>(local: &H, undone: impl Iterator<Item = Undone>) {
    let mut flushed = false;
    for u in undone {
        if !flushed {
            local.flush();
            flushed = true;
        }
        drop(u.frame);
        u.mapping
            .table
            .inner
            .lock()
            .unpin(u.mapping.reference, u.mapping.write);
        local.grants().inner.lock().maptrack.release(u.handle);
    }
}

/// Removes the mappings that a dying domain has, from handle `first` on, at most `budget` handles. `None` when done, else
/// where to go on.
pub fn release<H: GrantHost>(local: &H, first: u32, budget: u32) -> Option<u32> {
    let end = local.grants().inner.lock().maptrack.len();
    let stop = end.min(first.saturating_add(budget));
    for handle in first..stop {
        let Some(mapping) = local.grants().inner.lock().maptrack.take(handle) else {
            continue;
        };
        // An address that no longer has the page has nothing to undo; the pin ends all the same.
        let page = local.unmap_grant(mapping.gfn, mapping.mfn);
        local.flush();
        drop(page);
        mapping
            .table
            .inner
            .lock()
            .unpin(mapping.reference, mapping.write);
        local.grants().inner.lock().maptrack.release(handle);
    }
    (stop < end).then_some(stop)
}
