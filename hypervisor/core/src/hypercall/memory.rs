//! `memory_op` (12): reservations, the physical map, the memory map. Layouts in `memory.h`.
//!
//! The command's bits from 6 up carry the first extent of a restarted call; a fresh call has none.

use alloc::vec;
use alloc::vec::Vec;

use hv_hw::Machine;
use hv_hw::mem::frames;
use x86_model::Gfn;
use xen_abi::Errno;
use xen_abi::memory::{
    MemoryDomain, MemoryExchange, MemoryReservation, PodTarget, RemoveFromPhysmap, cmd, memf, op,
};

use super::{Call, HcResult, memory_map, physmap, ptr, resource};
use crate::domain::{DomainRef, Life};
use crate::p2m::{PageType, Removed, huge};

/// Largest extent order that a domain may ask for (2 MiB).
const MAX_ORDER: u32 = 9;
/// And the control domain, where the processor has such pages (1 GiB).
const HUGE_ORDER: u32 = huge::HUGE as u32;
/// What zeroing a piece of one costs, for [`Call::spend`].
const PIECE_COST: u32 = huge::PIECE as u32 >> 2;

/// `memory_op(command, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [command, arg, ..]: [u64; 5]) -> HcResult {
    let command = command as u32;
    let sub = command & ((1 << cmd::EXTENT_SHIFT) - 1);
    let start = u64::from(command >> cmd::EXTENT_SHIFT);
    let takes_extents = matches!(
        sub,
        op::INCREASE_RESERVATION
            | op::DECREASE_RESERVATION
            | op::POPULATE_PHYSMAP
            | op::ADD_TO_PHYSMAP
            | op::ADD_TO_PHYSMAP_BATCH
            | op::ACQUIRE_RESOURCE
    );
    if start != 0 && !takes_extents {
        return Err(Errno::EINVAL);
    }
    match sub {
        op::INCREASE_RESERVATION | op::DECREASE_RESERVATION | op::POPULATE_PHYSMAP => {
            reservation(call, sub, start, arg)
        }
        op::MAXIMUM_RAM_PAGE => Ok((frames::table_len() as u64).saturating_sub(1)),
        op::CURRENT_RESERVATION | op::MAXIMUM_RESERVATION | op::MAXIMUM_GPFN => {
            about(call, sub, arg)
        }
        op::ADD_TO_PHYSMAP => physmap::add(call, start, arg),
        op::ADD_TO_PHYSMAP_BATCH => physmap::add_batch(call, start, arg),
        op::REMOVE_FROM_PHYSMAP => remove(call, arg),
        op::MEMORY_MAP => memory_map::own(call, arg),
        op::SET_MEMORY_MAP => memory_map::set(call, arg),
        op::SET_POD_TARGET | op::GET_POD_TARGET => pod_target(call, arg),
        // No pages are shared between domains.
        op::GET_SHARING_FREED_PAGES | op::GET_SHARING_SHARED_PAGES => Ok(0),
        // Xen has no translation of it.
        op::CLAIM_PAGES if !call.is_long() => Err(Errno::ENOSYS),
        op::CLAIM_PAGES => claim(call, arg),
        op::GET_VNUMAINFO | op::MACHPHYS_COMPAT_MFN_LIST => Err(Errno::EOPNOTSUPP),
        op::RESERVED_DEVICE_MEMORY_MAP => memory_map::reserved_devices(call, arg),
        op::ACQUIRE_RESOURCE => resource::acquire(call, start, arg),
        op::EXCHANGE => exchange(call, arg),
        _ => Err(Errno::ENOSYS),
    }
}

fn about(call: &mut Call<'_, '_>, sub: u32, arg: u64) -> HcResult {
    let a: MemoryDomain = call.memory().read(ptr(arg))?;
    let d = call.target(a.domid)?;
    Ok(match sub {
        op::CURRENT_RESERVATION => d.p2m.pages() as u64,
        op::MAXIMUM_RESERVATION => d.max_pages(),
        _ => d.p2m.max_gfn().0,
    })
}

/// Increase, decrease and populate: they return how many extents were done and never an error.
fn reservation(call: &mut Call<'_, '_>, sub: u32, start: u64, arg: u64) -> HcResult {
    let Ok(r) = call.read::<MemoryReservation>(arg) else {
        return Ok(start);
    };
    // The count must fit beside the sub-operation in a restarted command.
    if r.nr_extents > u64::from(u32::MAX >> cmd::EXTENT_SHIFT) || start > r.nr_extents {
        return Ok(start);
    }
    let Ok(target) = call.target(r.domid) else {
        return Ok(start);
    };
    let huge = sub == op::POPULATE_PHYSMAP
        && r.extent_order == HUGE_ORDER
        && call.domain().privileged
        && call.hv().hw.stage2_order() == huge::HUGE
        && !target.p2m.has_identity();
    if !huge && r.extent_order > MAX_ORDER || sub == op::INCREASE_RESERVATION {
        // A translated domain has no use for memory without a place.
        return Ok(start);
    }
    if sub == op::POPULATE_PHYSMAP && r.mem_flags & memf::POPULATE_ON_DEMAND != 0 {
        hv_hw::guest_log!(
            Warning,
            "{}: populate on demand is not there: give the domain maxmem equal to memory",
            target.id
        );
        return Ok(start);
    }
    let mut removed = Vec::new();
    let mut done = start;
    while done < r.nr_extents {
        if call.should_restart() {
            settle(call, &target, removed);
            return call.restart([u64::from(sub) | done << cmd::EXTENT_SHIFT, arg, 0, 0, 0]);
        }
        let Ok(gfn) = call.read_long(r.extent_start, done) else {
            break;
        };
        if huge {
            match populate_huge(&target, Gfn(gfn), &mut removed) {
                Ok(true) => done += 1,
                // More to zero.
                Ok(false) => {}
                Err(_) => break,
            }
            call.spend(PIECE_COST);
            continue;
        }
        let ok = match sub {
            op::DECREASE_RESERVATION => decrease(&target, Gfn(gfn), r.extent_order, &mut removed),
            _ => populate(&target, Gfn(gfn), r.extent_order, &mut removed),
        };
        // Zeroing and entering the pages of an extent costs in proportion to them.
        call.spend(1 << r.extent_order >> 2);
        if ok.is_err() {
            break;
        }
        done += 1;
    }
    settle(call, &target, removed);
    Ok(done)
}

/// Flushes stale translations before removed frames can be reused, and what [`crate::hypervisor::Hypervisor::put_off`] kept.
pub fn settle(call: &Call<'_, '_>, target: &DomainRef, removed: Vec<Removed>) {
    call.hv().clear_limbo(target);
    if !removed.is_empty() {
        call.hv().flush_domain(target);
    }
    drop(removed);
}

fn decrease(
    target: &DomainRef,
    first: Gfn,
    order: u32,
    removed: &mut Vec<Removed>,
) -> Result<(), Errno> {
    for gfn in pages(target, first, order)? {
        match target.p2m.page_type(gfn) {
            Some(PageType::Ram | PageType::Foreign | PageType::Grant) => {}
            _ => return Err(Errno::EINVAL),
        }
        removed.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        removed.extend(target.p2m.unmap(gfn)?);
    }
    Ok(())
}

fn populate(
    target: &DomainRef,
    first: Gfn,
    order: u32,
    removed: &mut Vec<Removed>,
) -> Result<(), Errno> {
    let all = pages(target, first, order)?;
    if target.life() != Life::Alive {
        return Err(Errno::EINVAL);
    }
    if !target.p2m.has_identity() {
        let max = target.max_pages();
        return target.p2m.populate(first, order as u8, max, removed);
    }
    for gfn in all {
        target.p2m.populate(gfn, 0, target.max_pages(), removed)?;
    }
    Ok(())
}

fn populate_huge(
    target: &DomainRef,
    first: Gfn,
    removed: &mut Vec<Removed>,
) -> Result<bool, Errno> {
    let _in_range = pages(target, first, HUGE_ORDER)?;
    if target.life() != Life::Alive {
        return Err(Errno::EINVAL);
    }
    target.p2m.populate_huge(first, target.max_pages(), removed)
}

/// The pages of an extent, if the domain can have all of them.
fn pages(target: &DomainRef, first: Gfn, order: u32) -> Result<impl Iterator<Item = Gfn>, Errno> {
    let end = first.0.checked_add(1 << order).ok_or(Errno::EINVAL)?;
    if first.0 & ((1 << order) - 1) != 0 || !target.p2m.in_range(Gfn(end - 1)) {
        return Err(Errno::EINVAL);
    }
    Ok((first.0..end).map(Gfn))
}

fn remove(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: RemoveFromPhysmap = call.read(arg)?;
    let target = call.target(a.domid)?;
    let gfn = Gfn(a.gpfn);
    match target.p2m.page_type(gfn) {
        Some(t) if t.is_memory() => {}
        _ => return Err(Errno::ENOENT),
    }
    match target.p2m.unmap(gfn)? {
        Some(r) if r.ty == PageType::Foreign => call.hv().put_off(&target, r),
        Some(r) => {
            target.forget_shared(r.mfn, gfn);
            settle(call, &target, vec![r]);
        }
        None => {}
    }
    Ok(0)
}

/// `XENMEM_claim_pages`: sets memory aside for a domain that is to have so many pages in all; 0 gives that up.
fn claim(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let r: MemoryReservation = call.read(arg)?;
    if r.extent_start != 0 || r.extent_order != 0 || r.mem_flags != 0 {
        return Err(Errno::EINVAL);
    }
    let target = call.hv().domain(r.domid).ok_or(Errno::EINVAL)?;
    call.privileged()?;
    if r.nr_extents == 0 {
        target.p2m.end_claim();
        return Ok(0);
    }
    // Nobody would end the claim of a domain that is going.
    if target.life() != Life::Alive {
        return Err(Errno::EINVAL);
    }
    target.p2m.claim(r.nr_extents, target.max_pages())?;
    Ok(0)
}

/// `XENMEM_set_pod_target` and `XENMEM_get_pod_target`: no domain is populated on demand, so there is nothing to change and
/// all of its pages are there.
fn pod_target(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    call.privileged()?;
    let mut a: PodTarget = call.read(arg)?;
    let target = call.target(a.domid)?;
    a.tot_pages = target.p2m.pages() as u64;
    (a.pod_cache_pages, a.pod_entries) = (0, 0);
    call.write(arg, &a)?;
    Ok(0)
}

/// `XENMEM_exchange` is for domains that know machine addresses; only the empty exchange succeeds.
fn exchange(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: MemoryExchange = call.read(arg)?;
    if a.nr_exchanged != 0 || a.input.nr_extents != 0 || a.output.nr_extents != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}
