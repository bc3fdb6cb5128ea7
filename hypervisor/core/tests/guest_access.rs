//! Guest memory with remembered translations: must always give what a fresh walk gives.

use std::cell::RefCell;

use hv_core::guest::{GuestAccess, WalkCache};
use hv_core::p2m::{P2m, PageType};
use hv_hw::Machine;
use hv_hw::host::FakeMachine;
use hv_hw::machine::PagingState;
use hv_hw::mem::FrameRef;
use x86_model::{Gfn, Gva};
use xen_abi::DomId;

const ROOT: u64 = 1;
const TABLES: u64 = 4;
const PAGES: u64 = 24;

/// Tables at frames 1 to 4 that map linear page `p` (below 16) to frame `p + 8`.
fn guest() -> P2m {
    let hw = FakeMachine::new(1);
    let p2m = P2m::new(DomId(1), hw.stage2_format(), hw.phys_bits(), Vec::new()).unwrap();
    for gfn in 0..PAGES {
        populate(&p2m, gfn);
    }
    for level in ROOT..TABLES {
        put(&p2m, level, 0, (level + 1) << 12 | 7);
    }
    for page in 0..16 {
        put(&p2m, TABLES, page, (page + 8) << 12 | 7);
    }
    p2m
}

/// A fresh frame that starts with a value of its own.
fn populate(p2m: &P2m, gfn: u64) {
    let frame = FrameRef::alloc(DomId(1)).unwrap();
    frame.write(0, &(frame.mfn().0 << 16).to_le_bytes());
    p2m.map(Gfn(gfn), frame, PageType::Ram, !gfn.is_multiple_of(5))
        .unwrap();
}

fn put(p2m: &P2m, gfn: u64, index: u64, entry: u64) {
    let (frame, _) = p2m.frame(Gfn(gfn)).unwrap();
    frame.write(index as usize * 8, &entry.to_le_bytes());
}

fn paging(cr3: u64, wp: bool) -> PagingState {
    PagingState {
        cr0: 1 << 31 | u64::from(wp) << 16 | 1,
        cr3,
        cr4: 1 << 5,
        efer: 1 << 8 | 1 << 10 | 1 << 11,
        rflags: 2,
        cpl: 0,
        long: true,
    }
}

#[test]
fn remembered_translations_follow_every_change() {
    let p2m = guest();
    let cache = RefCell::new(WalkCache::default());
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) % n
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..100_000 {
        match random(12) {
            0 => {
                // Any entry of the last level: present or not, writable or not, another frame.
                let entry = random(PAGES + 2) << 12 | random(8);
                if p2m.frame(Gfn(TABLES)).is_some() {
                    put(&p2m, TABLES, random(16), entry);
                }
            }
            1 => drop(p2m.unmap(Gfn(5 + random(PAGES - 5)))),
            2 | 3 => {
                let gfn = 5 + random(PAGES - 5);
                if p2m.frame(Gfn(gfn)).is_none() {
                    populate(&p2m, gfn);
                }
            }
            4 => {
                // A table goes for a moment.
                put(&p2m, TABLES - 1, 0, TABLES << 12 | random(4));
            }
            5 => cache.borrow_mut().clear(),
            _ => {}
        }
        let state = paging(ROOT << 12, random(2) == 0);
        let fresh = GuestAccess::new(&p2m, &state, 40);
        let cached = GuestAccess::new(&p2m, &state, 40).cached(&cache);
        let at = Gva(random(18) << 12);
        let read = fresh.read::<u64>(at);
        assert_eq!(cached.read::<u64>(at), read);
        assert_eq!(cached.probe_out(at, 4), fresh.probe_out(at, 4));
        *if read.is_ok() { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 10_000 && bad > 10_000, "{good} reads, {bad} faults");
}

#[test]
fn a_cleared_memory_holds_no_frame() {
    let p2m = guest();
    let cache = RefCell::new(WalkCache::default());
    let state = paging(ROOT << 12, true);
    let mfn = p2m.frame(Gfn(9)).unwrap().0.mfn();
    let before = hv_hw::mem::frames::count(mfn);
    let access = GuestAccess::new(&p2m, &state, 40).cached(&cache);
    access.read::<u64>(Gva(1 << 12)).unwrap();
    assert_eq!(hv_hw::mem::frames::count(mfn), before + 1);
    cache.borrow_mut().clear();
    assert_eq!(hv_hw::mem::frames::count(mfn), before);
}
