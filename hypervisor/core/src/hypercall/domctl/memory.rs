//! A domain's memory as the toolstack sees it: how much it may have, what its pages are, the frames for its tables.

use x86_model::{Gfn, PAGE_SIZE};
use xen_abi::Errno;
use xen_abi::domctl::{
    GetPageFrameInfo3, HypercallInit, MaxMem, MemoryMapping, PagingMempool, ShadowOp, pfinfo,
    shadow,
};

use zerocopy::IntoBytes;

use super::super::ptr;
use super::{Done, Op, Result};
use crate::domain::{Domain, DomainRef, Life};
use crate::hvm::hypercall_page;
use crate::p2m::PageType;

/// Most pages that one `getpageframeinfo3` may ask about.
const MAX_FRAMES: u64 = 1024;
/// How many of them are copied in and out at a time.
const FRAMES_AT_ONCE: usize = 64;
/// Log-dirty mode, as the mode of [`shadow::ENABLE`].
const LOG_DIRTY: u32 = 1 << 2;
/// Mode of a log-dirty read that there is.
const FINAL: u32 = 1;

/// `max_mem`.
pub fn max_mem(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: MaxMem = o.get()?;
    let pages = a.max_memkb >> 2;
    // Xen keeps it in 32 bits.
    d.set_max_pages(pages.min(u32::MAX.into()));
    Ok(Done::Quiet)
}

/// `getpageframeinfo3`: whether pages exist; a translated domain has no page tables that anyone else would care about.
pub fn frame_info(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: GetPageFrameInfo3 = o.get()?;
    if a.num > MAX_FRAMES {
        return Err(Errno::E2BIG);
    }
    // A dump asks about a million frames: a copy of one number takes longer than the look-up.
    let mut numbers = [0u64; FRAMES_AT_ONCE];
    let mut at = ptr(a.array);
    let mut left = a.num;
    while left > 0 {
        let count = left.min(FRAMES_AT_ONCE as u64);
        let part = &mut numbers[..count as usize];
        o.call.memory().copy_in(at, part.as_mut_bytes())?;
        for number in part.iter_mut() {
            let kind = match d.p2m.page_type(Gfn(*number)) {
                Some(PageType::Ram | PageType::Foreign | PageType::Grant) => pfinfo::NOTAB,
                _ => pfinfo::XTAB,
            };
            *number = kind.into();
        }
        o.call.memory().copy_out(at, part.as_bytes())?;
        left -= count;
        if left > 0 {
            let bytes = size_of_val(part) as u64;
            at = at.checked_add(bytes).ok_or(Errno::EFAULT)?;
        }
    }
    Ok(Done::Quiet)
}

/// `memory_mapping`: device memory for a domain, which none but the control domain has.
pub fn map_device(o: &mut Op<'_, '_, '_>, _d: &DomainRef) -> Result {
    let a: MemoryMapping = o.get()?;
    let last = |first: u64| first.checked_add(a.nr_mfns.wrapping_sub(1));
    match (last(a.first_gfn), last(a.first_mfn)) {
        (Some(_), Some(mfn)) if mfn >> 40 == 0 => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// Bytes of table frames that the domain may use.
fn pool(d: &Domain) -> u64 {
    match d.p2m.stage2().table_frames() {
        // The control domain's tables have no limit.
        (used, usize::MAX) => used as u64 * PAGE_SIZE,
        (used, limit) => limit.max(used) as u64 * PAGE_SIZE,
    }
}

/// `get_paging_mempool_size`.
pub fn get_pool(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    o.put(&PagingMempool { size: pool(d) })
}

fn set_limit(d: &Domain, frames: u64) {
    let (used, _) = d.p2m.stage2().table_frames();
    let frames = usize::try_from(frames).unwrap_or(usize::MAX - 1);
    // What is in use cannot be taken away.
    d.p2m.stage2().set_table_limit(frames.max(used));
}

/// `set_paging_mempool_size`.
pub fn set_pool(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: PagingMempool = o.get()?;
    if !a.size.is_multiple_of(PAGE_SIZE) || a.size / PAGE_SIZE > u32::MAX.into() {
        return Err(Errno::EINVAL);
    }
    set_limit(d, a.size / PAGE_SIZE);
    Ok(Done::Quiet)
}

/// `shadow_op`: with nested paging only the size of the pool; there is no log of dirty pages.
pub fn shadow(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: ShadowOp = o.get()?;
    o.not_self(d)?;
    if d.life() != Life::Alive {
        return Ok(Done::Answer);
    }
    if d.vcpus().is_empty() {
        return Err(Errno::EINVAL);
    }
    match a.op {
        shadow::ENABLE_LOGDIRTY => Err(Errno::EOPNOTSUPP),
        shadow::ENABLE if a.mode & LOG_DIRTY != 0 => Err(Errno::EOPNOTSUPP),
        shadow::CLEAN | shadow::PEEK if a.mode & !FINAL != 0 => Err(Errno::EINVAL),
        shadow::CLEAN | shadow::PEEK => Err(Errno::EOPNOTSUPP),
        shadow::OFF => Ok(Done::Answer),
        shadow::SET_ALLOCATION => {
            set_limit(d, u64::from(a.mb) << 8);
            a.mb = pool(d).div_ceil(1 << 20) as u32;
            o.put(&a)
        }
        shadow::GET_ALLOCATION => {
            a.mb = pool(d).div_ceil(1 << 20) as u32;
            o.put(&a)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `hypercall_init`: writes a hypercall page.
pub fn hypercall_page(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: HypercallInit = o.get()?;
    match d.p2m.frame(Gfn(a.gmfn)) {
        Some((frame, true)) => {
            frame.write(0, &hypercall_page::contents(d.uses_vmmcall));
            Ok(Done::Quiet)
        }
        Some(_) => Err(Errno::EPERM),
        None => Err(Errno::EINVAL),
    }
}
