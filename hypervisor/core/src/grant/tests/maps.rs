//! Mapping and unmapping, version 1.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::grant::{UNMAP_BATCH, release};

const HOLE: u64 = 0x5000;

#[test]
fn map_and_unmap() {
    let w = World::new();
    let d = w.dom(1);
    d.grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let (s, op) = w.map(2, 1, 8, HOLE, RW);
    assert_eq!(s, status::OKAY);
    assert_eq!(op.dev_bus_addr, d.frame(RAM).mfn().0 << 12);
    assert_eq!(d.flags(8), gtf::PERMIT_ACCESS | gtf::READING | gtf::WRITING);
    assert_eq!(w.dom(2).frame(HOLE).mfn(), d.frame(RAM).mfn());
    assert_eq!(w.dom(2).grants.mappings(), 1);
    // The same reference again: another handle.
    let (s, again) = w.map(2, 1, 8, HOLE + 1, RO);
    assert_eq!(s, status::OKAY);
    assert_ne!(again.handle, op.handle);
    assert_eq!(w.unmap(2, op.handle, HOLE), status::OKAY);
    assert_eq!(d.flags(8), gtf::PERMIT_ACCESS | gtf::READING);
    assert_eq!(w.unmap(2, again.handle, HOLE + 1), status::OKAY);
    assert_eq!(d.flags(8), gtf::PERMIT_ACCESS);
    assert_eq!(d.extra_references(RAM), 0);
    assert_eq!(w.dom(2).grants.mappings(), 0);
    assert!(!w.dom(2).memory.lock().unwrap().contains_key(&HOLE));
    assert_eq!(w.dom(2).flushes.load(Ordering::SeqCst), 2);
}

#[test]
fn refusals() {
    let w = World::new();
    let d = w.dom(1);
    d.grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    d.grant(9, gtf::PERMIT_ACCESS | gtf::READONLY, 2, RAM);
    d.grant(10, gtf::PERMIT_ACCESS, 2, RAM + RAM_FRAMES);
    d.grant(11, gtf::PERMIT_ACCESS, 2, READ_ONLY);
    d.grant(12, gtf::ACCEPT_TRANSFER, 2, RAM);
    d.grant(13, gtf::PERMIT_ACCESS | gtf::SUB_PAGE, 2, RAM);
    let cases = [
        ((2, 1, 8, HOLE, 0), status::BAD_GNTREF),
        ((2, 1, 8, HOLE, gntmap::READONLY), status::BAD_GNTREF),
        ((2, 1, 8, HOLE, gntmap::DEVICE_MAP), status::GENERAL_ERROR),
        (
            (2, 1, 8, HOLE, RW | gntmap::DEVICE_MAP),
            status::GENERAL_ERROR,
        ),
        (
            (2, 1, 8, HOLE, RW | gntmap::CONTAINS_PTE),
            status::GENERAL_ERROR,
        ),
        (
            (2, 1, 8, HOLE, RW | gntmap::APPLICATION_MAP),
            status::GENERAL_ERROR,
        ),
        ((2, 1, 8, HOLE, RW | 1 << 16), status::GENERAL_ERROR),
        ((2, 7, 8, HOLE, RW), status::BAD_DOMAIN),
        ((2, 0x7ff0, 8, HOLE, RW), status::BAD_DOMAIN),
        ((2, 1, 512, HOLE, RW), status::BAD_GNTREF),
        ((2, 1, u32::MAX, HOLE, RW), status::BAD_GNTREF),
        ((2, 0, 0, HOLE, RW), status::BAD_GNTREF),
        ((0, 1, 8, HOLE, RW), status::GENERAL_ERROR),
        ((2, 1, 7, HOLE, RW), status::GENERAL_ERROR),
        ((2, 1, 9, HOLE, RW), status::GENERAL_ERROR),
        ((2, 1, 10, HOLE, RO), status::BAD_PAGE),
        ((2, 1, 11, HOLE, RW), status::BAD_PAGE),
        ((2, 1, 12, HOLE, RW), status::GENERAL_ERROR),
        ((2, 1, 13, HOLE, RO), status::GENERAL_ERROR),
        // Addresses that are not holes, or not addresses.
        ((2, 1, 8, RAM, RW), status::GENERAL_ERROR),
        ((2, 1, 8, 1 << 40, RW), status::GENERAL_ERROR),
    ];
    for ((by, from, reference, gfn, flags), expected) in cases {
        let (got, _) = w.map(by, from, reference, gfn, flags);
        assert_eq!(got, expected, "{by} {from} {reference} {gfn:#x} {flags:#x}");
    }
    // Nothing is left in use.
    for reference in 7..=13 {
        assert_eq!(d.flags(reference) & (gtf::READING | gtf::WRITING), 0);
    }
    assert_eq!(d.extra_references(RAM), 0);
    assert_eq!(w.dom(2).grants.mappings(), 0);
    assert_eq!(w.map(2, 1, 9, HOLE, RO).0, status::OKAY);
    assert_eq!(w.map(2, 1, 11, HOLE + 1, RO).0, status::OKAY);
}

#[test]
fn bad_handles() {
    let w = World::new();
    w.dom(1).grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    for handle in [0, 1, 999, 1000, u32::MAX] {
        assert_eq!(w.unmap(2, handle, HOLE), status::BAD_HANDLE);
    }
    let (_, op) = w.map(2, 1, 8, HOLE, RW);
    assert_eq!(w.unmap(0, op.handle, HOLE), status::BAD_HANDLE);
    assert_eq!(w.unmap(2, op.handle, HOLE + 1), status::GENERAL_ERROR);
    // Without an address nothing is undone, and that is no error.
    assert_eq!(w.unmap(2, op.handle, 0), status::OKAY);
    // The address no longer maps the page: the handle stays.
    let stolen = w.dom(2).memory.lock().unwrap().remove(&HOLE).unwrap();
    assert_eq!(w.unmap(2, op.handle, HOLE), status::GENERAL_ERROR);
    w.dom(2).memory.lock().unwrap().insert(HOLE, stolen);
    assert_eq!(w.unmap(2, op.handle, HOLE), status::OKAY);
    assert_eq!(w.unmap(2, op.handle, HOLE), status::BAD_HANDLE);
}

#[test]
fn handles_run_out() {
    let w = World::with(Limits {
        max_frames: 1,
        max_handles: 3,
        max_version: 1,
    });
    w.dom(1).grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    for i in 0..3 {
        assert_eq!(w.map(2, 1, 8, HOLE + i, RW).0, status::OKAY);
    }
    assert_eq!(w.map(2, 1, 8, HOLE + 3, RW).0, status::NO_SPACE);
    assert_eq!(w.unmap(2, 1, HOLE + 1), status::OKAY);
    assert_eq!(w.map(2, 1, 8, HOLE + 3, RW).0, status::OKAY);
}

#[test]
fn a_batch_is_flushed_once() {
    let w = World::new();
    w.dom(1).grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let mut ops: Vec<_> = (0..UNMAP_BATCH as u64 + 1)
        .map(|i| {
            let (s, op) = w.map(2, 1, 8, HOLE + i, RW);
            assert_eq!(s, status::OKAY);
            GnttabUnmapGrantRef {
                host_addr: op.host_addr,
                handle: op.handle,
                status: 77,
                ..Default::default()
            }
        })
        .collect();
    super::super::unmap(w.dom(2), &mut ops);
    assert!(
        ops[..UNMAP_BATCH]
            .iter()
            .all(|op| op.status == status::OKAY)
    );
    assert_eq!(ops[UNMAP_BATCH].status, 77);
    assert_eq!(w.dom(2).flushes.load(Ordering::SeqCst), 1);
    assert_eq!(w.dom(2).grants.mappings(), 1);
}

#[test]
fn mappings_outlive_the_granter() {
    let mut w = World::new();
    let frame = w.dom(1).frame(RAM);
    w.dom(1).grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let (_, op) = w.map(2, 1, 8, HOLE, RW);
    w.0.remove(1);
    assert_eq!(frame.owner(), DomId(1));
    let by = &*w.0[1];
    assert_eq!(by.id, DomId(2));
    assert_eq!(w.unmap(1, op.handle, HOLE), status::OKAY);
    assert_eq!(
        hv_hw::mem::frames::count(frame.mfn()),
        1,
        "only the test holds it"
    );
}

#[test]
fn a_dying_mapper_lets_go_in_pieces() {
    let w = World::new();
    let d = w.dom(1);
    for i in 0..600 {
        d.grant(8 + i, gtf::PERMIT_ACCESS, 2, RAM);
        assert_eq!(w.map(2, 1, 8 + i, HOLE + u64::from(i), RW).0, status::OKAY);
    }
    // One page was lost from the map by other means; its pin must go too.
    drop(w.dom(2).memory.lock().unwrap().remove(&HOLE));
    let (mut at, mut steps) = (0, 0);
    while let Some(next) = release(w.dom(2), at, 100) {
        (at, steps) = (next, steps + 1);
    }
    assert!(steps >= 6);
    assert_eq!(w.dom(2).grants.mappings(), 0);
    assert_eq!(d.extra_references(RAM), 0);
    assert!((8..608).all(|r| d.flags(r) == gtf::PERMIT_ACCESS));
}

/// A guest that flips its entry at full speed while another maps: every answer is one of the allowed ones, and when all
/// is over nothing is in use.
#[test]
fn entries_that_change_all_the_time() {
    let w = World::new();
    let d = w.dom(1);
    d.grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let frame = d.grants.frame(0, false).expect("table frame");
            let word = frame.atomic_u32(64);
            let gfn = frame.atomic_u32(68);
            let mut i = 0u32;
            while !stop.load(Ordering::SeqCst) {
                i = i.wrapping_add(1);
                // Flags and domain at once, keeping the hypervisor's bits as a careful guest does, or not.
                let flags = [1u32, 5, 0, 2, 0x101][i as usize % 5];
                let dom = [2u32, 2, 2, 0][i as usize % 4] << 16;
                let keep = if i.is_multiple_of(3) {
                    word.load(Ordering::SeqCst) & 0x18
                } else {
                    0
                };
                word.store(flags | dom | keep, Ordering::SeqCst);
                gfn.store(
                    [RAM, RAM + 1, 0xffff_ffff, READ_ONLY][i as usize % 4] as u32,
                    Ordering::SeqCst,
                );
            }
        });
        for i in 0..3000 {
            let (s, op) = w.map(2, 1, 8, HOLE, if i % 2 == 0 { RW } else { RO });
            assert!(
                matches!(s, status::OKAY | status::GENERAL_ERROR | status::BAD_PAGE),
                "{s}"
            );
            if s == status::OKAY {
                assert_eq!(w.unmap(2, op.handle, HOLE), status::OKAY);
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    for gfn in [RAM, RAM + 1, READ_ONLY] {
        assert_eq!(d.extra_references(gfn), 0);
    }
    assert_eq!(w.dom(2).grants.mappings(), 0);
}

#[test]
fn a_page_that_the_granter_may_not_write_stays_so() {
    let w = World::new();
    w.dom(1).grant(8, gtf::PERMIT_ACCESS, 2, READ_ONLY);
    assert_eq!(w.map(2, 1, 8, HOLE, RW).0, status::BAD_PAGE);
    // Nor by way of a mapping that only reads.
    assert_eq!(w.map(2, 1, 8, HOLE, RO).0, status::OKAY);
    assert_eq!(w.map(2, 1, 8, HOLE + 1, RW).0, status::BAD_PAGE);
}

/// The granting domain must not learn that its page is free while a CPU may still use the old mapping.
#[test]
fn the_page_is_kept_until_the_flush() {
    let w = World::new();
    w.dom(1).grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let (_, op) = w.map(2, 1, 8, HOLE, RW);
    let granter = w.find(DomId(1)).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let note = seen.clone();
    *w.dom(2).at_flush.lock().unwrap() = Some(Box::new(move || {
        *note.lock().unwrap() = Some((granter.flags(8), granter.extra_references(RAM)));
    }));
    assert_eq!(w.unmap(2, op.handle, HOLE), status::OKAY);
    let in_use = gtf::PERMIT_ACCESS | gtf::READING | gtf::WRITING;
    // The reference of the removed mapping and the one of the use.
    assert_eq!(*seen.lock().unwrap(), Some((in_use, 2)));
}
