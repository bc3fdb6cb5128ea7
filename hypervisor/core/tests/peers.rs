//! Two domains that share pages and event channels, and the end of one of them.

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::System;
use common::toolstack::ARG;
use hv_core::domain::Domain;
use hv_core::p2m::PageType;
use hv_hw::mem::{frames, free_frames};
use x86_model::{Gfn, Gpa};
use xen_abi::Errno;
use xen_abi::domctl::op;

/// A page of the guest that it grants.
const PAGE: u64 = 5;
/// Where its grant table is mapped.
const TABLE: u64 = 0x30;
/// Where the control domain maps it.
const AT: u64 = 0x50;
const GUEST: u16 = 1;
const REF: u32 = 9;

/// Frames of the process are counted: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn poke(d: &Domain, gpa: u64, bytes: &[u8]) {
    hv_core::guest::access::write_phys(&d.p2m, Gpa(gpa), bytes).unwrap();
}

fn words(d: &Domain, gpa: u64, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    poke(d, gpa, &bytes);
}

fn word(d: &Domain, gpa: u64) -> u32 {
    let (frame, _) = d.p2m.frame(Gfn(gpa >> 12)).unwrap();
    let mut out = [0; 4];
    frame.read((gpa & 4095) as usize, &mut out);
    u32::from_le_bytes(out)
}

/// Maps the guest's grant table and grants [`PAGE`] to the control domain.
fn offer(s: &System, guest: &Arc<Domain>) {
    words(guest, ARG, &[0x7ff0, 1, 0, 0]);
    poke(guest, ARG + 16, &TABLE.to_le_bytes());
    assert_eq!(s.call_from(guest, 0, 12, [7, ARG, 0, 0, 0]).0, 0);
    // Permit access, to domain 0.
    words(guest, (TABLE << 12) + u64::from(REF) * 8, &[1, PAGE as u32]);
}

/// Maps the grant in the control domain; status and handle.
fn map(s: &System) -> (i16, u32) {
    s.poke(ARG, &(AT << 12).to_le_bytes());
    s.poke_words(ARG + 8, &[2, REF, GUEST.into(), 0, 0, 0]);
    assert_eq!(s.call(0, 20, [0, ARG, 1, 0, 0]), 0);
    ((s.peek_u32(ARG + 16) >> 16) as i16, s.peek_u32(ARG + 20))
}

fn unmap(s: &System, handle: u32) -> i16 {
    s.poke(ARG, &(AT << 12).to_le_bytes());
    s.poke_words(ARG + 8, &[0, 0, handle, 0]);
    assert_eq!(s.call(0, 20, [1, ARG, 1, 0, 0]), 0);
    s.peek_u32(ARG + 20) as i16
}

#[test]
fn a_granted_page_outlives_its_domain_while_it_is_mapped() {
    let _alone = alone();
    let s = System::new(1);
    let before = free_frames();
    let guest = s.add_guest(GUEST, 1);
    offer(&s, &guest);
    poke(&guest, PAGE << 12, b"from the guest");
    let (status, handle) = map(&s);
    assert_eq!(status, 0);
    assert_eq!(&s.peek::<14>(AT << 12), b"from the guest");
    s.poke(AT << 12, b"from dom0 now!");
    let (frame, _) = guest.p2m.frame(Gfn(PAGE)).unwrap();
    let mut seen = [0; 14];
    frame.read(0, &mut seen);
    assert_eq!(&seen, b"from dom0 now!");
    // In use by a reader and writer, so the guest sees.
    assert_eq!(word(&guest, (TABLE << 12) + u64::from(REF) * 8), 0x19);
    assert_eq!(s.dom.p2m.page_type(Gfn(AT)), Some(PageType::Grant));
    drop((frame, guest));

    assert_eq!(s.plain(op::DESTROYDOMAIN, GUEST), 0);
    assert_eq!(&s.peek::<14>(AT << 12), b"from dom0 now!");
    // The page and the table that the mapping holds on to.
    assert!(free_frames() < before);
    assert_eq!(unmap(&s, handle), 0);
    assert_eq!(free_frames(), before);
    // Nobody grants any more.
    assert_eq!(map(&s).0, -2);
}

#[test]
fn a_dying_domain_lets_go_of_what_it_mapped() {
    let _alone = alone();
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 1);
    // The control domain grants to the guest.
    s.poke_words(ARG, &[0x7ff0, 1, 0, 0]);
    s.poke(ARG + 16, &TABLE.to_le_bytes());
    assert_eq!(s.call(0, 12, [7, ARG, 0, 0, 0]), 0);
    let entry = (TABLE << 12) + u64::from(REF) * 8;
    s.poke_words(entry, &[1 | u32::from(GUEST) << 16, PAGE as u32]);
    poke(&guest, ARG, &(AT << 12).to_le_bytes());
    words(&guest, ARG + 8, &[2, REF, 0, 0, 0, 0]);
    assert_eq!(s.call_from(&guest, 0, 20, [0, ARG, 1, 0, 0]).0, 0);
    assert_eq!(word(&guest, ARG + 16) >> 16, 0);
    assert_eq!(s.peek_u32(entry) & 0x18, 0x18);
    drop(guest);
    assert_eq!(s.plain(op::DESTROYDOMAIN, GUEST), 0);
    assert_eq!(s.peek_u32(entry) & 0x18, 0, "the page is free again");
}

#[test]
fn copies_between_domains() {
    let _alone = alone();
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 1);
    offer(&s, &guest);
    poke(&guest, PAGE << 12, b"granted");
    let copy = |source_domain: u32, flags: u32| {
        s.poke_words(ARG, &[REF, 0, source_domain, 0, 6, 0, 0x7ff0, 0]);
        s.poke_words(ARG + 32, &[7 | flags << 16, 0x7777]);
        assert_eq!(s.call(0, 20, [5, ARG, 1, 0, 0]), 0);
        s.peek_u32(ARG + 36) as i16
    };
    // Source by grant, destination by frame.
    assert_eq!(copy(GUEST.into(), 1), 0);
    assert_eq!(&s.peek::<7>(6 << 12), b"granted");
    assert_eq!(copy(77, 1), -2);
    // Another domain's page cannot be named by its frame.
    assert_eq!(copy(GUEST.into(), 0), -8);
    assert_eq!(s.plain(op::DESTROYDOMAIN, GUEST), 0);
    assert_eq!(copy(GUEST.into(), 1), -2);
}

#[test]
fn ports_between_domains() {
    let _alone = alone();
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 1);
    // The toolstack makes a port in the guest for itself, and connects.
    s.poke_words(ARG, &[u32::from(GUEST), 0]);
    assert_eq!(s.call(0, 32, [6, ARG, 0, 0, 0]), 0);
    let theirs = s.peek_u32(ARG + 4);
    let bind = |remote: u32| {
        s.poke_words(ARG, &[GUEST.into(), remote, 0]);
        let ret = s.call(0, 32, [0, ARG, 0, 0, 0]);
        (ret, s.peek_u32(ARG + 8))
    };
    let (ret, ours) = bind(theirs);
    assert_eq!(ret, 0);
    assert_eq!(bind(theirs).0, Errno::EINVAL.to_ret());
    let send = |d: &Arc<Domain>, port: u32| {
        words(d, ARG, &[port]);
        s.call_from(d, 0, 32, [4, ARG, 0, 0, 0]).0
    };
    assert_eq!(guest.evtchn.any_pending(&[theirs]), Ok(false));
    assert_eq!(send(&s.dom, ours), 0);
    assert_eq!(guest.evtchn.any_pending(&[theirs]), Ok(true));
    // A guest may not make ports in other domains.
    words(&guest, ARG, &[0, GUEST.into()]);
    let ret = s.call_from(&guest, 0, 32, [6, ARG, 0, 0, 0]).0;
    assert_eq!(ret, Errno::EPERM.to_ret());
    drop(guest);

    assert_eq!(s.plain(op::DESTROYDOMAIN, GUEST), 0);
    // Our end waits again, for a domain that is gone; what is sent vanishes.
    s.poke_words(ARG, &[0x7ff0, ours]);
    assert_eq!(s.call(0, 32, [5, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek_u32(ARG + 8), 1);
    assert_eq!(send(&s.dom, ours), 0);
    assert_eq!(bind(theirs).0, Errno::ESRCH.to_ret());
}

#[test]
fn a_dying_domain_gets_no_port() {
    let _alone = alone();
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 1);
    assert!(!s.hv.kill_domain(&guest));
    s.poke_words(ARG, &[u32::from(GUEST), 0]);
    assert_eq!(s.call(0, 32, [6, ARG, 0, 0, 0]), Errno::EINVAL.to_ret());
}

/// Maps the guest's [`PAGE`] in the control domain by privilege.
fn map_foreign(s: &System) {
    const IDX: u64 = 0x7000;
    s.poke(IDX, &PAGE.to_le_bytes());
    s.poke(IDX + 8, &AT.to_le_bytes());
    s.poke_words(ARG, &[4 << 16, 1 | u32::from(GUEST) << 16]);
    for (i, at) in [IDX, IDX + 8, IDX + 16].into_iter().enumerate() {
        s.poke(ARG + 8 + 8 * i as u64, &at.to_le_bytes());
    }
    assert_eq!(s.call(0, 12, [23, ARG, 0, 0, 0]), 0);
    assert_eq!(s.dom.p2m.page_type(Gfn(AT)), Some(PageType::Foreign));
}

fn unmap_foreign(s: &System) {
    s.poke_words(ARG, &[0x7ff0, 0]);
    s.poke(ARG + 8, &AT.to_le_bytes());
    assert_eq!(s.call(0, 12, [15, ARG, 0, 0, 0]), 0);
    assert_eq!(s.dom.p2m.page_type(Gfn(AT)), None);
}

#[test]
fn a_foreign_page_is_kept_while_another_vcpu_may_reach_it() {
    let _alone = alone();
    let s = System::new(2);
    let guest = s.add_guest(GUEST, 1);
    let mfn = guest.p2m.own_frame(Gfn(PAGE)).unwrap().mfn();
    let held = || frames::count(mfn);
    let once = held();
    let other = &s.dom.vcpu(1).unwrap().entered_generation;
    // The other vCPU is not in the guest: nobody can reach the page.
    map_foreign(&s);
    assert_eq!(held(), once + 1);
    unmap_foreign(&s);
    assert_eq!(held(), once);
    // Now it is, since before the page goes.
    map_foreign(&s);
    other.store(s.dom.p2m.stage2().generation(), Ordering::SeqCst);
    unmap_foreign(&s);
    assert_eq!(
        held(),
        once + 1,
        "freed under a vCPU that can still reach it"
    );
    // It enters anew; the next change finds that out.
    other.store(hv_core::vcpu::NEVER, Ordering::SeqCst);
    map_foreign(&s);
    assert_eq!(held(), once + 1);
    unmap_foreign(&s);
    assert_eq!(held(), once);
    // And the end of any domain lets go of what is kept.
    map_foreign(&s);
    other.store(s.dom.p2m.stage2().generation(), Ordering::SeqCst);
    unmap_foreign(&s);
    other.store(hv_core::vcpu::NEVER, Ordering::SeqCst);
    assert_eq!(held(), once + 1);
    while !s.hv.kill_domain(&guest) {}
    assert_eq!(held(), 0);
}
