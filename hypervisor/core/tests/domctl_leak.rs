//! What a domain leaves behind when it ends: nothing. Each test counts the frames of the process, so they run one at a time.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::System;
use common::toolstack::{ARG, LIST};
use hv_core::domain::Life;
use hv_hw::mem::free_frames;
use x86_model::Gfn;
use xen_abi::domctl::op;
use xen_abi::{DomId, Errno};

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_end_is_told_and_leaves_nothing() {
    let _alone = alone();
    let s = System::new(1);
    // DOM_EXC to vCPU 0, port 1.
    s.poke_words(ARG, &[3, 0, 0]);
    assert_eq!(s.call(0, 32, [1, ARG, 0, 0, 0]), 0);
    let before = free_frames();
    let d = s.create_ready(2, 2000);
    let id = d.id.0;
    assert_eq!(s.populate(id, 0, &[0, 1, 2, 0xf_effc]), 4);
    assert_eq!(s.populate(id, 9, &[0x200, 0x400]), 2);
    assert_eq!(d.p2m.pages(), 4 + 1024);
    let pending = || s.dom.evtchn.any_pending(&[1]).unwrap();
    assert!(!pending());
    drop(d);
    assert_eq!(s.plain(op::DESTROYDOMAIN, id), 0);
    assert!(pending());
    assert_eq!(s.plain(op::DESTROYDOMAIN, id), Errno::ESRCH.to_ret());
    assert!(s.hv.domain(DomId(id)).is_none());
    assert_eq!(free_frames(), before);
}

#[test]
fn a_thousand_domains_leave_no_frame() {
    let _alone = alone();
    let s = System::new(1);
    let before = free_frames();
    let mut last = 0;
    for round in 0..1000u64 {
        let d = s.create_ready(1 + (round % 4) as u32, 1200);
        let id = d.id.0;
        assert_ne!(id, last);
        last = id;
        let firsts: Vec<u64> = (0..40).map(|n| n * (1 + round % 7)).collect();
        assert_eq!(s.populate(id, 0, &firsts), 40);
        assert_eq!(s.populate(id, 9, &[0x400 + 0x200 * (round % 3)]), 1);
        // Holes in the superpage, and a superpage over what is left of small ones.
        let hole = 0x400 + 0x200 * (round % 3) + 7;
        assert_eq!(s.reserve(1, id, 0, &[hole, firsts[3]]), 2);
        // A page of it in the control domain, which lets go first in every other round.
        foreign(&s, id, firsts[1], 0x50);
        port(&s, id);
        drop(d);
        if round % 2 == 0 {
            unmap(&s, 0x50);
        }
        assert_eq!(s.plain(op::DESTROYDOMAIN, id), 0);
        if round % 2 == 1 {
            assert_eq!(free_frames() + 1, before, "round {round}");
            unmap(&s, 0x50);
        }
        assert_eq!(free_frames(), before, "round {round}");
    }
}

/// Maps a page of a domain into the control domain.
fn foreign(s: &System, owner: u16, gfn: u64, at: u64) {
    s.poke(LIST, &gfn.to_le_bytes());
    s.poke(LIST + 8, &at.to_le_bytes());
    // SELF, space 4, one page, owner.
    s.poke_words(ARG, &[4 << 16 | 0x7ff0, u32::from(owner) << 16 | 1]);
    for (i, list) in (1..).zip([LIST, LIST + 8, LIST + 16]) {
        s.poke(ARG + i * 8, &list.to_le_bytes());
    }
    assert_eq!(s.call(0, 12, [23, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek_u32(LIST + 16), 0);
}

fn unmap(s: &System, at: u64) {
    s.poke(ARG, &[0xf0, 0x7f, 0, 0, 0, 0, 0, 0]);
    s.poke(ARG + 8, &at.to_le_bytes());
    assert_eq!(s.call(0, 12, [15, ARG, 0, 0, 0]), 0);
}

/// A port of the domain for the control domain, bound by it and closed again.
fn port(s: &System, id: u16) {
    s.poke_words(ARG, &[u32::from(id), 0]);
    assert_eq!(s.call(0, 32, [6, ARG, 0, 0, 0]), 0);
    let theirs = s.peek_u32(ARG + 4);
    s.poke_words(ARG, &[u32::from(id), theirs, 0]);
    assert_eq!(s.call(0, 32, [0, ARG, 0, 0, 0]), 0);
    let ours = s.peek_u32(ARG + 8);
    s.poke_words(ARG, &[ours]);
    assert_eq!(s.call(0, 32, [3, ARG, 0, 0, 0]), 0);
}

#[test]
fn the_end_comes_in_pieces() {
    let _alone = alone();
    let s = System::new(1);
    let before = free_frames();
    let d = s.create_ready(1, 5000);
    let firsts: Vec<u64> = (0..1000).collect();
    assert_eq!(s.populate(d.id.0, 0, &firsts), 1000);
    let mut pieces = 0;
    let mut left = d.p2m.pages();
    while !s.hv.kill_domain(&d) {
        pieces += 1;
        assert_eq!(d.life(), Life::Dying);
        assert!(left - d.p2m.pages() <= 512, "piece {pieces} is too large");
        left = d.p2m.pages();
        // It gets nothing new.
        assert_eq!(s.populate(d.id.0, 0, &[0x10_0000]), 0);
    }
    assert!((5..20).contains(&pieces), "{pieces}");
    assert_eq!((d.p2m.pages(), d.life()), (0, Life::Dead));
    assert_eq!(d.p2m.page_type(Gfn(5)), None);
    drop(d);
    assert_eq!(free_frames(), before);
}
