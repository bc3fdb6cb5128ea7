//! Putting pages into a domain's physical map: shared_info, grant frames, moves, foreign pages, resources.

use alloc::vec::Vec;

use hv_hw::mem::FrameRef;
use x86_model::{Gfn, Mfn};
use xen_abi::memory::{AddToPhysmap, AddToPhysmapBatch, cmd, mapidx, mapspace, op};
use xen_abi::{DomId, Errno};

use super::memory::settle;
use super::{Call, HcResult, ptr};
use crate::domain::DomainRef;
use crate::p2m::{PageType, Removed};

/// `XENMEM_add_to_physmap`.
pub fn add(call: &mut Call<'_, '_>, start: u64, arg: u64) -> HcResult {
    let a: AddToPhysmap = call.read(arg)?;
    let target = call.target(a.domid)?;
    if a.space != mapspace::GMFN_RANGE {
        if start != 0 {
            return Err(Errno::EINVAL);
        }
        let mut removed = Vec::new();
        let result = add_one(&target, a.space, a.idx, Gfn(a.gpfn), &mut removed);
        settle(call, &target, removed);
        return result.map(|()| 0);
    }
    move_range(call, &target, &a, start)
}

/// Moves `size` pages. Overlapping ranges are moved in the order that loses nothing.
fn move_range(
    call: &mut Call<'_, '_>,
    target: &DomainRef,
    a: &AddToPhysmap,
    start: u64,
) -> HcResult {
    let size = u64::from(a.size);
    let fits = |first: u64| {
        first
            .checked_add(size)
            .is_some_and(|end| end == 0 || target.p2m.in_range(Gfn(end - 1)))
    };
    if !fits(a.idx) || !fits(a.gpfn) || start > size {
        return Err(Errno::EINVAL);
    }
    let upward = a.gpfn > a.idx;
    let mut removed = Vec::new();
    for done in start..size {
        if call.should_restart() {
            settle(call, target, removed);
            return call.restart([
                u64::from(op::ADD_TO_PHYSMAP) | done << cmd::EXTENT_SHIFT,
                call.pointer,
                0,
                0,
                0,
            ]);
        }
        let i = if upward { size - 1 - done } else { done };
        let r = add_one(
            target,
            mapspace::GMFN,
            a.idx + i,
            Gfn(a.gpfn + i),
            &mut removed,
        );
        if r.is_err() {
            settle(call, target, removed);
            return r.map(|()| 0);
        }
    }
    settle(call, target, removed);
    Ok(0)
}

/// Maps one page of a space other than foreign.
fn add_one(
    target: &DomainRef,
    space: u32,
    idx: u64,
    gfn: Gfn,
    removed: &mut Vec<Removed>,
) -> Result<(), Errno> {
    if !target.p2m.in_range(gfn) {
        return Err(Errno::EINVAL);
    }
    removed.try_reserve(4).map_err(|_| Errno::ENOMEM)?;
    match space {
        mapspace::SHARED_INFO => {
            if idx != 0 {
                return Err(Errno::EINVAL);
            }
            place_shared(target, target.shared_info.clone(), gfn, removed)
        }
        mapspace::GRANT_TABLE => {
            let status = idx & mapidx::GRANT_TABLE_STATUS != 0;
            let index =
                u32::try_from(idx & !mapidx::GRANT_TABLE_STATUS).map_err(|_| Errno::EINVAL)?;
            let frame = target.grants.frame(index, status)?;
            place_shared(target, frame, gfn, removed)
        }
        mapspace::GMFN => {
            let from = Gfn(idx);
            if target.p2m.page_type(from) != Some(PageType::Ram) {
                return Err(Errno::EINVAL);
            }
            let frame = target.p2m.own_frame(from).ok_or(Errno::EINVAL)?;
            if from == gfn {
                return Ok(());
            }
            removed.extend(target.p2m.unmap(from)?);
            removed.extend(target.p2m.map(gfn, frame, PageType::Ram, true)?);
            Ok(())
        }
        // Needs the owner's name, which only the batch carries.
        mapspace::GMFN_FOREIGN => Err(Errno::ENOSYS),
        _ => Err(Errno::EINVAL),
    }
}

/// Maps a page that the hypervisor shares with the domain. Such a page has one place: it leaves its old one.
fn place_shared(
    target: &DomainRef,
    frame: FrameRef,
    gfn: Gfn,
    removed: &mut Vec<Removed>,
) -> Result<(), Errno> {
    let mfn = frame.mfn();
    if let Some(old) = target.note_shared(mfn, gfn)
        && old != gfn
        && target.p2m.frame(old).is_some_and(|(f, _)| f.mfn() == mfn)
    {
        removed.extend(target.p2m.unmap(old)?);
    }
    let replaced = target.p2m.map(gfn, frame, PageType::Shared, true)?;
    removed.extend(replaced);
    Ok(())
}

/// `XENMEM_add_to_physmap_batch`: one page each, with an error each.
pub fn add_batch(call: &mut Call<'_, '_>, start: u64, arg: u64) -> HcResult {
    let a: AddToPhysmapBatch = call.read(arg)?;
    let target = call.target(a.domid)?;
    if u32::from(a.space) == mapspace::GMFN_RANGE {
        return Err(Errno::EINVAL);
    }
    if start > u64::from(a.size) {
        return Err(Errno::EILSEQ);
    }
    let mut removed = Vec::new();
    for i in start..u64::from(a.size) {
        if call.should_restart() {
            settle(call, &target, removed);
            return call.restart([
                u64::from(op::ADD_TO_PHYSMAP_BATCH) | i << cmd::EXTENT_SHIFT,
                arg,
                0,
                0,
                0,
            ]);
        }
        let result = batch_one(call, &target, &a, i, &mut removed);
        let code: i32 = match result {
            Ok(Ok(())) => 0,
            Ok(Err(e)) => e.to_ret() as i32,
            Err(fault) => {
                settle(call, &target, removed);
                return Err(fault);
            }
        };
        if let Err(fault) = call.memory().write_at(ptr(a.errs), i, &code) {
            settle(call, &target, removed);
            return Err(fault);
        }
    }
    settle(call, &target, removed);
    Ok(0)
}

/// The outer error ends the batch; the inner one belongs to the page.
fn batch_one(
    call: &Call<'_, '_>,
    target: &DomainRef,
    a: &AddToPhysmapBatch,
    i: u64,
    removed: &mut Vec<Removed>,
) -> Result<Result<(), Errno>, Errno> {
    let idx = call.read_long(a.idxs, i)?;
    let gfn = call.read_long(a.gpfns, i)?;
    if u32::from(a.space) != mapspace::GMFN_FOREIGN {
        return Ok(add_one(target, u32::from(a.space), idx, Gfn(gfn), removed));
    }
    Ok(add_foreign(
        call,
        target,
        a.foreign_domid,
        Gfn(idx),
        Gfn(gfn),
        removed,
    ))
}

fn add_foreign(
    call: &Call<'_, '_>,
    target: &DomainRef,
    owner: DomId,
    from: Gfn,
    gfn: Gfn,
    removed: &mut Vec<Removed>,
) -> Result<(), Errno> {
    // Devices are not offered this way, and of the hypervisor's own pages only trace buffers.
    if owner == DomId::IO {
        return Err(Errno::EINVAL);
    }
    if owner == DomId::XEN {
        call.privileged()?;
        let page = call.hv().trace.page(Mfn(from.0));
        let (frame, writable) = page.ok_or(Errno::EINVAL)?;
        removed.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        removed.extend(target.p2m.map(gfn, frame, PageType::Foreign, writable)?);
        return Ok(());
    }
    let other = call.hv().domain(owner).ok_or(Errno::ESRCH)?;
    if other.id == target.id {
        return Err(Errno::EPERM);
    }
    call.privileged()?;
    let frame = other.p2m.own_frame(from).ok_or(Errno::EINVAL)?;
    removed.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    removed.extend(target.p2m.map(gfn, frame, PageType::Foreign, true)?);
    Ok(())
}
