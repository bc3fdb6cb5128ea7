//! The frame table (one word per machine frame: kind, owner, reference count) and the allocator of free frames.
//!
//! The allocator searches from the top down, so that low memory stays whole for an identity-mapped dom0, whose
//! kernel wants fixed low addresses. State changes of one frame are atomic; the search is under one lock.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use x86_model::{Mfn, PAGE_SIZE};
use xen_abi::DomId;

use crate::sync::{SpinLock, rank};

/// What a frame is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Not RAM, or RAM that nobody may touch.
    Absent = 0,
    /// In the free pool.
    Free = 1,
    /// The hypervisor's own (tables, heap, image).
    Hypervisor = 2,
    /// A guest's RAM or a page shared with one: may be entered into stage-2 tables.
    Guest = 3,
}

// Word layout: bits 31:0 reference count, 47:32 owner, 55:48 kind.
const COUNT_MASK: u64 = 0xffff_ffff;
const fn word(kind: FrameKind, owner: DomId, count: u32) -> u64 {
    count as u64 | (owner.0 as u64) << 32 | (kind as u64) << 48
}
const fn kind_of(word: u64) -> u64 {
    word >> 48 & 0xff
}

static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
static LEN: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);
static RAM: AtomicUsize = AtomicUsize::new(0);
/// Free frames that are set aside. Changes under the lock of the search.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
/// Search hints: one past the highest index worth looking at, for single frames and for 2 MiB runs.
static SEARCH: SpinLock<Hints, { rank::FRAMES }> = SpinLock::new(Hints {
    single: usize::MAX,
    large: usize::MAX,
});

struct Hints {
    single: usize,
    large: usize,
}

/// Installs the table. Every frame starts [`FrameKind::Absent`].
///
/// # Safety
/// `table` must point to `len` zeroed words that nothing else uses, for ever. Call once, before any other function here.
pub unsafe fn init(table: *mut AtomicU64, len: usize) {
    TABLE.store(table, Ordering::Release);
    LEN.store(len, Ordering::Release);
}

fn table() -> &'static [AtomicU64] {
    let ptr = TABLE.load(Ordering::Acquire);
    if ptr.is_null() {
        return &[];
    }
    // SAFETY: `init`'s contract: the words stay valid and are only used through this slice.
    unsafe { core::slice::from_raw_parts(ptr, LEN.load(Ordering::Acquire)) }
}

pub(super) fn entry(mfn: Mfn) -> Option<&'static AtomicU64> {
    table().get(usize::try_from(mfn.0).ok()?)
}

/// Puts RAM frames `first .. first + count` into the free pool. For boot, on [`FrameKind::Absent`] frames.
pub fn add_free(first: Mfn, count: usize) {
    let mut hints = SEARCH.lock();
    // Counted here and added once: there are millions of frames, and atomic sums are slow.
    let mut new = 0;
    for slot in table().iter().skip(first.0 as usize).take(count) {
        if slot.load(Ordering::Relaxed) == 0 {
            slot.store(word(FrameKind::Free, DomId::XEN, 0), Ordering::Release);
            new += 1;
        }
    }
    FREE.fetch_add(new, Ordering::Relaxed);
    RAM.fetch_add(new, Ordering::Relaxed);
    *hints = Hints {
        single: usize::MAX,
        large: usize::MAX,
    };
}

/// Takes given frames out of the free pool (or from [`FrameKind::Absent`]) and makes them the RAM of `owner`, each with
/// one reference. Used to give dom0 its identity-mapped frames. Frames that the hypervisor or a domain uses stay as they
/// are. Returns how many were taken.
pub fn claim_for_guest(first: Mfn, count: usize, owner: DomId) -> usize {
    let _hints = SEARCH.lock();
    let (mut free, mut absent) = (0, 0);
    for slot in table().iter().skip(first.0 as usize).take(count) {
        let kind = kind_of(slot.load(Ordering::Acquire));
        if kind == FrameKind::Free as u64 {
            free += 1;
        } else if kind == FrameKind::Absent as u64 {
            absent += 1;
        } else {
            continue;
        }
        slot.store(word(FrameKind::Guest, owner, 1), Ordering::Release);
    }
    FREE.fetch_sub(free, Ordering::Relaxed);
    RAM.fetch_add(absent, Ordering::Relaxed);
    free + absent
}

/// Sets free frames aside: from now on only who draws on them gets the last ones. False if there are not so many that are
/// neither in use nor set aside.
pub fn reserve(count: usize) -> bool {
    let _hints = SEARCH.lock();
    let fits = enough(count, 0);
    if fits {
        RESERVED.fetch_add(count, Ordering::Relaxed);
    }
    fits
}

/// Ends that for `count` frames.
pub fn unreserve(count: usize) {
    let _hints = SEARCH.lock();
    draw_on(count);
}

/// Free frames that are set aside.
pub fn reserved_frames() -> usize {
    RESERVED.load(Ordering::Relaxed)
}

/// Whether `count` free frames are left for somebody to whom `draw` of those set aside belong. Under the lock.
fn enough(count: usize, draw: usize) -> bool {
    let reserved = RESERVED.load(Ordering::Relaxed).saturating_sub(draw);
    FREE.load(Ordering::Relaxed).saturating_sub(reserved) >= count
}

/// Under the lock.
fn draw_on(count: usize) {
    let left = RESERVED.load(Ordering::Relaxed).saturating_sub(count);
    RESERVED.store(left, Ordering::Relaxed);
}

/// Takes the frame `mfn` out of the free pool as guest memory of `owner` with one reference, `draw` of it from what is set
/// aside. `None` if it is not free.
pub(super) fn take_free(mfn: Mfn, owner: DomId, draw: usize) -> Option<()> {
    // Under the lock no search can hand it out meanwhile.
    let _hints = SEARCH.lock();
    if !enough(1, draw) {
        return None;
    }
    let slot = entry(mfn)?;
    if kind_of(slot.load(Ordering::Acquire)) != FrameKind::Free as u64 {
        return None;
    }
    slot.store(word(FrameKind::Guest, owner, 1), Ordering::Release);
    FREE.fetch_sub(1, Ordering::Relaxed);
    draw_on(draw);
    Some(())
}

/// Runs of frames of kind [`FrameKind::Hypervisor`]: first frame and count, ascending, as `f` gets them.
pub fn hypervisor_runs(mut f: impl FnMut(Mfn, usize)) {
    let mut start = None;
    for (n, slot) in table().iter().enumerate() {
        let ours = kind_of(slot.load(Ordering::Relaxed)) == FrameKind::Hypervisor as u64;
        match (ours, start) {
            (true, None) => start = Some(n),
            (false, Some(s)) => {
                f(Mfn(s as u64), n - s);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(s) = start {
        f(Mfn(s as u64), table().len() - s);
    }
}

/// Marks RAM that the hypervisor occupies since boot (image, tables).
pub fn mark_hypervisor(first: Mfn, count: usize) {
    for slot in table().iter().skip(first.0 as usize).take(count) {
        let old = slot.swap(word(FrameKind::Hypervisor, DomId::XEN, 1), Ordering::AcqRel);
        match kind_of(old) {
            k if k == FrameKind::Free as u64 => {
                FREE.fetch_sub(1, Ordering::Relaxed);
            }
            k if k == FrameKind::Absent as u64 => {
                RAM.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// Allocates `count` contiguous frames aligned to `align` frames (a power of two) and entirely below frame `limit`,
/// highest first. Contents are undefined. `None` if there is no such run.
pub fn alloc_contiguous(
    count: usize,
    align: usize,
    limit: Option<Mfn>,
    kind: FrameKind,
    owner: DomId,
) -> Option<Mfn> {
    alloc_drawing(count, align, limit, kind, owner, 0)
}

/// As [`alloc_contiguous`], for somebody to whom `draw` of the frames belong that are set aside.
pub fn alloc_drawing(
    count: usize,
    align: usize,
    limit: Option<Mfn>,
    kind: FrameKind,
    owner: DomId,
    draw: usize,
) -> Option<Mfn> {
    debug_assert!(align.is_power_of_two());
    if count == 0 {
        return None;
    }
    let table = table();
    let mut hints = SEARCH.lock();
    if !enough(count, draw) {
        return None;
    }
    let hint = match (count, limit) {
        (1, None) => hints.single,
        (_, None) if align >= 512 => hints.large,
        _ => usize::MAX,
    };
    let top = limit
        .map_or(table.len(), |m| table.len().min(m.0 as usize))
        .min(hint);
    let first = find_run(table, top, count, align)?;
    for slot in &table[first..first + count] {
        slot.store(word(kind, owner, 1), Ordering::Release);
    }
    FREE.fetch_sub(count, Ordering::Relaxed);
    draw_on(draw);
    match (count, limit) {
        (1, None) => hints.single = first,
        // A search for more, or for wider alignment, has passed over runs that would do for 2 MiB.
        (..=512, None) if align == 512 => hints.large = first,
        _ => {}
    }
    Some(Mfn(first as u64))
}

/// First index of the highest aligned run of `count` free frames that ends at or below `top`.
fn find_run(table: &[AtomicU64], top: usize, count: usize, align: usize) -> Option<usize> {
    let mut start = top.checked_sub(count)? & !(align - 1);
    loop {
        let run = &table[start..start + count];
        match run
            .iter()
            .rposition(|s| kind_of(s.load(Ordering::Relaxed)) != FrameKind::Free as u64)
        {
            None => return Some(start),
            // The run must end at or below the frame that is taken.
            Some(bad) => start = (start + bad).checked_sub(count)? & !(align - 1),
        }
    }
}

/// Returns frames that [`alloc_contiguous`] gave for the hypervisor's own use.
pub fn free_contiguous(first: Mfn, count: usize) {
    let mut hints = SEARCH.lock();
    for slot in &table()[first.0 as usize..first.0 as usize + count] {
        let old = slot.swap(word(FrameKind::Free, DomId::XEN, 0), Ordering::AcqRel);
        assert!(
            kind_of(old) == FrameKind::Hypervisor as u64,
            "freeing a frame the hypervisor does not own"
        );
    }
    FREE.fetch_add(count, Ordering::Relaxed);
    raise(&mut hints, first.0 as usize + count);
}

fn raise(hints: &mut Hints, end: usize) {
    hints.single = hints.single.max(end);
    hints.large = hints.large.max(end);
}

/// Adds a reference to a guest frame that has one already. `None` for anything that is not live guest memory.
pub(super) fn get(mfn: Mfn) -> Option<()> {
    let slot = entry(mfn)?;
    slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |w| {
        let live = kind_of(w) == FrameKind::Guest as u64
            && w & COUNT_MASK != 0
            && w & COUNT_MASK != COUNT_MASK;
        live.then(|| w + 1)
    })
    .ok()
    .map(|_| ())
}

/// Drops a reference; the last one returns the frame to the pool.
pub(super) fn put(mfn: Mfn) {
    let Some(slot) = entry(mfn) else { return };
    let old = slot.fetch_sub(1, Ordering::AcqRel);
    assert!(old & COUNT_MASK != 0, "frame reference count underflow");
    if old & COUNT_MASK == 1 {
        let mut hints = SEARCH.lock();
        slot.store(word(FrameKind::Free, DomId::XEN, 0), Ordering::Release);
        FREE.fetch_add(1, Ordering::Relaxed);
        raise(&mut hints, mfn.0 as usize + 1);
    }
}

/// Drops a reference of each of `count` frames from `first` on, as [`put`].
pub(super) fn put_run(first: Mfn, count: usize) {
    let mut hints = SEARCH.lock();
    let (mut freed, mut end) = (0, 0);
    for (n, slot) in table()
        .iter()
        .enumerate()
        .skip(first.0 as usize)
        .take(count)
    {
        let old = slot.fetch_sub(1, Ordering::AcqRel);
        assert!(old & COUNT_MASK != 0, "frame reference count underflow");
        if old & COUNT_MASK == 1 {
            slot.store(word(FrameKind::Free, DomId::XEN, 0), Ordering::Release);
            freed += 1;
            end = n + 1;
        }
    }
    FREE.fetch_add(freed, Ordering::Relaxed);
    raise(&mut hints, end);
}

/// Current reference count (for diagnostics and tests).
pub fn count(mfn: Mfn) -> u32 {
    entry(mfn).map_or(0, |s| (s.load(Ordering::Acquire) & COUNT_MASK) as u32)
}

/// Owner of a frame in use by a guest.
pub fn owner(mfn: Mfn) -> Option<DomId> {
    let w = entry(mfn)?.load(Ordering::Acquire);
    (kind_of(w) == FrameKind::Guest as u64).then_some(DomId((w >> 32) as u16))
}

/// Kind of a frame; frames outside the table are [`FrameKind::Absent`].
pub fn kind(mfn: Mfn) -> FrameKind {
    match entry(mfn).map_or(0, |s| kind_of(s.load(Ordering::Acquire))) {
        1 => FrameKind::Free,
        2 => FrameKind::Hypervisor,
        3 => FrameKind::Guest,
        _ => FrameKind::Absent,
    }
}

/// Frames in the free pool.
pub fn free_frames() -> usize {
    FREE.load(Ordering::Relaxed)
}

/// RAM frames that the table has seen (free, hypervisor or guest).
pub fn total_frames() -> usize {
    RAM.load(Ordering::Relaxed)
}

/// Frames that the table covers: one more than the highest frame number it knows.
pub fn table_len() -> usize {
    LEN.load(Ordering::Relaxed)
}

/// Bytes that the table for `frames` frames takes.
pub const fn table_bytes(frames: usize) -> usize {
    (frames * size_of::<AtomicU64>()).next_multiple_of(PAGE_SIZE as usize)
}
