//! `XENMEM_acquire_resource`: pages of a domain that have no address in its map, mapped by its manager.
//!
//! Only grant tables have such pages here. There are no ioreq servers and no trace buffers, which is told as Xen tells it: a
//! resource without frames is EINVAL.

use alloc::vec::Vec;

use hv_hw::mem::FrameRef;
use x86_model::Gfn;
use xen_abi::Errno;
use xen_abi::memory::{MemAcquireResource, cmd, op, resource};

use super::memory::settle;
use super::{Call, HcResult};
use crate::domain::DomainRef;
use crate::p2m::{PageType, Removed};

/// Version 2 grant entries per status frame, over entries per shared frame.
const SHARED_PER_STATUS: u32 = 8;

/// `XENMEM_acquire_resource`: with a null list tells the size, else maps `nr_frames` frames at the listed places.
///
/// EINVAL: padding, range, or no such resource; EPERM: the caller itself, or no privilege over the domain; ESRCH.
pub fn acquire(call: &mut Call<'_, '_>, start: u64, arg: u64) -> HcResult {
    let mut a: MemAcquireResource = call.read(arg)?;
    let frames = u64::from(a.nr_frames);
    // The count must fit beside the sub-operation in a restarted command.
    let end = a.frame.checked_add(frames);
    if a._pad != 0
        || end.is_none_or(|end| end > u64::from(u32::MAX >> cmd::EXTENT_SHIFT))
        || start > frames
    {
        return Err(Errno::EINVAL);
    }
    // A domain by its number: SELF is none, and the caller itself maps its table another way.
    let target = call.hv().domain(a.domid).ok_or(Errno::ESRCH)?;
    if target.id == call.domain().id {
        return Err(Errno::EPERM);
    }
    call.privileged()?;
    let size = size(&target, a.kind.into(), a.id).ok_or(Errno::EINVAL)?;
    if a.frame_list == 0 {
        if a.nr_frames != 0 || a.frame != 0 {
            return Err(Errno::EINVAL);
        }
        a.nr_frames = size;
        call.write(arg, &a)?;
        return Ok(0);
    }
    let caller = call.domain().clone();
    let mut removed = Vec::new();
    let mut done = start;
    let result = loop {
        if done == frames {
            break Ok(0);
        }
        if call.should_restart() {
            let command = u64::from(op::ACQUIRE_RESOURCE) | done << cmd::EXTENT_SHIFT;
            break call.restart([command, arg, 0, 0, 0]);
        }
        if let Err(e) = map_one(call, &target, &a, done, &mut removed) {
            break Err(e);
        }
        done += 1;
    };
    settle(call, &caller, removed);
    result
}

/// Frames of a resource, if the domain has it.
fn size(target: &DomainRef, kind: u32, id: u32) -> Option<u32> {
    let (_, max) = target.grants.query_size();
    match (kind, id) {
        (resource::GRANT_TABLE, resource::GRANT_TABLE_ID_SHARED) => Some(max),
        (resource::GRANT_TABLE, resource::GRANT_TABLE_ID_STATUS) => {
            Some(max.div_ceil(SHARED_PER_STATUS))
        }
        _ => None,
    }
}

fn map_one(
    call: &Call<'_, '_>,
    target: &DomainRef,
    a: &MemAcquireResource,
    i: u64,
    removed: &mut Vec<Removed>,
) -> Result<(), Errno> {
    let index = u32::try_from(a.frame + i).map_err(|_| Errno::EINVAL)?;
    let gfn = call.read_long(a.frame_list, i)?;
    let status = a.id == resource::GRANT_TABLE_ID_STATUS;
    let frame: FrameRef = target.grants.frame(index, status)?;
    removed.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    let old = call
        .domain()
        .p2m
        .map(Gfn(gfn), frame, PageType::Foreign, true)?;
    removed.extend(old);
    Ok(())
}
