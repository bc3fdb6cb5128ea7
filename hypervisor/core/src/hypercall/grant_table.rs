//! `grant_table_op` (20): names the sub-operations and their arguments; the work is in [`crate::grant`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use hv_hw::mem::FrameRef;
use x86_model::Gva;
use xen_abi::compat::Layouts;
use xen_abi::grant_table::{
    GnttabCopy, GnttabGetVersion, GnttabMapGrantRef, GnttabQuerySize, GnttabSetVersion,
    GnttabSetupTable, GnttabSwapGrantRef, GnttabUnmapGrantRef, op, status,
};
use xen_abi::{DomId, Errno};
use zerocopy::IntoBytes;

use super::memory::settle;
use super::{Call, HcResult, ptr};
use crate::domain::DomainRef;
use crate::domain::grants::GrantSide;
use crate::grant::{self, Status, UNMAP_BATCH};

/// What `GNTTABOP_setup_table` lists for a frame that the domain has not mapped.
const INVALID_GFN: u64 = u64::MAX;

/// `grant_table_op(sub, pointer, count)`. The operations that HVM and PVH callers have no use for are refused, as on Xen.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, count, ..]: [u64; 5]) -> HcResult {
    let (sub, count) = (sub as u32, count as u32);
    if i32::try_from(count).is_err() {
        return Err(Errno::EINVAL);
    }
    match sub {
        op::MAP_GRANT_REF => each(call, sub, arg, count, |call, a: &mut GnttabMapGrantRef| {
            let hv = call.hv();
            grant::map(&side(call), a, |id| {
                hv.domain(id).map(|d| GrantSide::new(hv, d))
            });
        }),
        op::UNMAP_GRANT_REF => unmap(call, arg, count),
        op::COPY => each(call, sub, arg, count, |call, a: &mut GnttabCopy| {
            let hv = call.hv();
            grant::copy(&side(call), a, |id| {
                hv.domain(id).map(|d| GrantSide::new(hv, d))
            });
        }),
        op::SWAP_GRANT_REF => each(call, sub, arg, count, |call, a: &mut GnttabSwapGrantRef| {
            a.status = Status::of(call.domain().grants.swap(a.ref_a, a.ref_b));
        }),
        op::SETUP_TABLE => one(call, arg, count, setup_table),
        op::QUERY_SIZE => one(call, arg, count, |call, a: &mut GnttabQuerySize| {
            a.status = match target(call, a.dom) {
                Ok(d) => {
                    (a.nr_frames, a.max_nr_frames) = d.grants.query_size();
                    status::OKAY
                }
                Err(Status(s)) => s,
            };
        }),
        op::SET_VERSION => {
            let mut a: GnttabSetVersion = call.memory().read(ptr(arg))?;
            call.memory().probe_out(ptr(arg), size_of_val(&a))?;
            let domain = Arc::clone(call.domain());
            let result = domain.grants.set_version(a.version);
            // Also after a failure the caller learns what it has.
            a.version = domain.grants.version();
            let result = result.and_then(|given_up| take_away(call, &domain, given_up));
            call.memory().write(ptr(arg), &a)?;
            result.map(|()| 0)
        }
        op::GET_VERSION => {
            let mut a: GnttabGetVersion = call.memory().read(ptr(arg))?;
            a.version = call.target(a.dom)?.grants.version();
            call.memory().write(ptr(arg), &a)?;
            Ok(0)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Removes pages that the hypervisor shared with the domain from its memory map.
fn take_away(call: &Call<'_, '_>, domain: &DomainRef, frames: Vec<FrameRef>) -> Result<(), Errno> {
    let mut removed = Vec::new();
    removed
        .try_reserve(frames.len())
        .map_err(|_| Errno::ENOMEM)?;
    let mut result = Ok(());
    for frame in frames {
        let mfn = frame.mfn();
        let Some(gfn) = domain.shared_gfn(mfn) else {
            continue;
        };
        if domain.p2m.frame(gfn).is_some_and(|(f, _)| f.mfn() == mfn) {
            match domain.p2m.unmap(gfn) {
                Ok(old) => removed.extend(old),
                Err(e) => result = Err(Errno::from(e)),
            }
        }
    }
    settle(call, domain, removed);
    result
}

/// The caller's side.
fn side<'a>(call: &Call<'_, 'a>) -> GrantSide<'a> {
    GrantSide::new(call.hv(), Arc::clone(call.domain()))
}

/// The domain that an operation is about, with its own kind of error.
fn target(call: &Call<'_, '_>, id: DomId) -> Result<DomainRef, Status> {
    call.target(id).map_err(|e| {
        Status(match e {
            Errno::ESRCH => status::BAD_DOMAIN,
            _ => status::PERMISSION_DENIED,
        })
    })
}

/// Runs `f` on the only element that the call may have.
fn one<T>(
    call: &mut Call<'_, '_>,
    arg: u64,
    count: u32,
    f: impl FnOnce(&mut Call<'_, '_>, &mut T),
) -> HcResult
where
    T: Layouts,
{
    if count != 1 {
        return Err(Errno::EINVAL);
    }
    let mut a: T = call.read(arg)?;
    call.probe::<T>(arg)?;
    f(call, &mut a);
    call.write(arg, &a)?;
    Ok(0)
}

/// Runs `f` on each element; every one carries its own result. Long lists are restarted behind what is done.
fn each<T>(
    call: &mut Call<'_, '_>,
    sub: u32,
    arg: u64,
    count: u32,
    mut f: impl FnMut(&mut Call<'_, '_>, &mut T),
) -> HcResult
where
    T: Layouts,
{
    for done in 0..count {
        if call.should_restart() {
            return restart(call, sub, arg, count, done, call.size::<T>());
        }
        let at = call.entry::<T>(arg, done.into())?;
        let mut a: T = call.read(at)?;
        call.probe::<T>(at)?;
        f(call, &mut a);
        call.write(at, &a)?;
    }
    Ok(0)
}

fn element<T>(arg: u64, index: u32) -> Result<Gva, Errno> {
    ptr(arg)
        .checked_add(u64::from(index) * size_of::<T>() as u64)
        .ok_or(Errno::EFAULT)
}

fn restart(
    call: &mut Call<'_, '_>,
    sub: u32,
    arg: u64,
    count: u32,
    done: u32,
    size: usize,
) -> HcResult {
    let next = arg.wrapping_add(u64::from(done) * size as u64);
    call.restart([sub.into(), next, (count - done).into(), 0, 0])
}

/// Unmaps in batches, since each batch costs one flush of all the domain's CPUs.
fn unmap(call: &mut Call<'_, '_>, arg: u64, count: u32) -> HcResult {
    let mut done = 0;
    while done < count {
        if call.should_restart() {
            let size = size_of::<GnttabUnmapGrantRef>();
            return restart(call, op::UNMAP_GRANT_REF, arg, count, done, size);
        }
        let len = (count - done).min(UNMAP_BATCH as u32);
        let mut ops = [GnttabUnmapGrantRef::default(); UNMAP_BATCH];
        let ops = &mut ops[..len as usize];
        let at = element::<GnttabUnmapGrantRef>(arg, done)?;
        call.memory().copy_in(at, ops.as_mut_bytes())?;
        call.memory().probe_out(at, size_of_val(ops))?;
        grant::unmap(&side(call), ops);
        call.memory().copy_out(at, ops.as_bytes())?;
        done += len;
    }
    Ok(0)
}

/// Grows a table and lists where its domain has the frames.
fn setup_table(call: &mut Call<'_, '_>, a: &mut GnttabSetupTable) {
    a.status = Status::of(target(call, a.dom).and_then(|d| {
        d.grants
            .grow(a.nr_frames)
            .map_err(|_| Status(status::GENERAL_ERROR))?;
        for index in 0..a.nr_frames {
            let frame = d
                .grants
                .frame(index, false)
                .map_err(|_| Status(status::GENERAL_ERROR))?;
            let gfn = d.shared_gfn(frame.mfn()).map_or(INVALID_GFN, |g| g.0);
            call.write_long(a.frame_list, index.into(), gfn)
                .map_err(|_| Status(status::BAD_VIRT_ADDR))?;
        }
        Ok(())
    }));
}
