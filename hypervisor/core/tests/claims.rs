//! Memory that is set aside for a domain, and pages of 1 GiB.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::System;
use common::toolstack::{ARG, from, pvh};
use hv_hw::mem::{FrameRef, free_frames, reserved_frames};
use x86_model::Gfn;
use xen_abi::domctl::{MaxMem, MaxVcpus, PagingMempool, op};
use xen_abi::memory::MemoryReservation;
use xen_abi::sysctl::{self, PhysInfo};
use xen_abi::{DomId, Errno};
use zerocopy::IntoBytes;

/// Frames of the machine: 3 GiB, of which tests touch little more than one.
const FRAMES: usize = 3 << 18;
const GIB: u64 = 1 << 18;

/// All look at the same frames.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    hv_hw::host::arena::init_with(FRAMES);
    turn
}

fn err(e: Errno) -> i64 {
    e.to_ret()
}

fn claim(s: &System, domid: u16, pages: u64) -> i64 {
    claim_with(s, domid, pages, |_| ())
}

fn claim_with(s: &System, domid: u16, pages: u64, change: impl Fn(&mut MemoryReservation)) -> i64 {
    let mut arg = MemoryReservation {
        nr_extents: pages,
        domid: DomId(domid),
        ..Default::default()
    };
    change(&mut arg);
    s.poke(ARG, arg.as_bytes());
    s.call(0, 12, [24, ARG, 0, 0, 0])
}

fn outstanding(s: &System, domid: u16) -> (u64, u64) {
    let (ret, answer) = s.sysctl(sysctl::op::PHYSINFO, &PhysInfo::default());
    assert_eq!(ret, 0);
    let all = from::<PhysInfo>(&answer.u).outstanding_pages;
    (s.info(domid).outstanding_pages, all)
}

/// Begins to populate a page of 1 GiB at 1 GiB, by a call that does not do it all at once.
fn start_gib(s: &System, domid: DomId) {
    let arg = MemoryReservation {
        extent_start: ARG + 0x100,
        nr_extents: 1,
        extent_order: 18,
        domid,
        ..Default::default()
    };
    s.poke(ARG, arg.as_bytes());
    s.poke(ARG + 0x100, &GIB.to_le_bytes());
    assert_eq!(s.call_once(0, 12, [6, ARG, 0, 0, 0]), None);
}

#[test]
fn a_claim_is_kept_from_others_until_it_is_used() {
    let _alone = alone();
    let s = System::new(1);
    let free = free_frames() as u64;
    let d = s.create_ready(1, free);
    let other = s.create_ready(1, free);
    let id = d.id.0;
    // What Xen refuses.
    assert_eq!(claim(&s, 77, 10), err(Errno::EINVAL));
    assert_eq!(claim(&s, DomId::SELF.0, 10), err(Errno::EINVAL));
    assert_eq!(claim(&s, id, free + 1), err(Errno::EINVAL));
    assert_eq!(
        claim_with(&s, id, 10, |a| a.extent_order = 1),
        err(Errno::EINVAL)
    );
    assert_eq!(
        claim_with(&s, id, 10, |a| a.mem_flags = 1),
        err(Errno::EINVAL)
    );
    assert_eq!(
        claim_with(&s, id, 10, |a| a.extent_start = ARG),
        err(Errno::EINVAL)
    );
    let more = MaxMem {
        max_memkb: free * 8,
    };
    assert_eq!(s.domctl(op::MAX_MEM, id, &more).0, 0);
    assert_eq!(claim(&s, id, free * 2), err(Errno::ENOMEM));

    // All but some frames are set aside: another domain gets those, and no more.
    let left = free_frames() as u64 - 40;
    assert_eq!(claim(&s, id, left), 0);
    assert_eq!(outstanding(&s, id), (left, left));
    assert_eq!(claim(&s, id, left), err(Errno::EINVAL));
    let firsts: Vec<u64> = (0..100).collect();
    let got = s.populate(other.id.0, 0, &firsts);
    assert!((30..=40).contains(&got), "{got}");
    assert_eq!(s.populate(other.id.0, 9, &[0x400]), 0);
    assert!(FrameRef::alloc(DomId(1)).is_none());
    assert!(FrameRef::alloc_drawing(DomId(1), 1).is_some());

    // Tables of its map come out of what is left for all.
    assert_eq!(s.reserve(1, other.id.0, 0, &firsts[..20]), 20);

    // Its own pages come out of the claim, and stay out of it when they are given back.
    let now = outstanding(&s, id).0;
    assert_eq!(s.populate(id, 9, &[0x200]), 1);
    assert_eq!(outstanding(&s, id).0, now - 512);
    assert_eq!(s.reserve(1, id, 9, &[0x200]), 1);
    assert_eq!(outstanding(&s, id).0, now - 512);
    assert_eq!(claim(&s, id, 0), 0);
    assert_eq!(outstanding(&s, id), (0, 0));
    assert_eq!(s.populate(other.id.0, 9, &[0x400]), 1);

    // The end of a domain ends its claim at once.
    assert_eq!(claim(&s, id, 1000), 0);
    assert_eq!(outstanding(&s, id), (1000, 1000));
    while s.plain(op::DESTROYDOMAIN, id) != 0 {}
    assert_eq!(outstanding(&s, other.id.0), (0, 0));
    assert_eq!(claim(&s, id, 10), err(Errno::EINVAL));
    while s.plain(op::DESTROYDOMAIN, other.id.0) != 0 {}
    drop((d, other, s));
    assert_eq!(reserved_frames(), 0);
}

#[test]
fn a_guest_may_not_claim() {
    let _alone = alone();
    let s = System::new(1);
    let guest = s.add_guest(5, 1);
    let arg = MemoryReservation {
        nr_extents: 100,
        domid: guest.id,
        ..Default::default()
    };
    hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), arg.as_bytes()).unwrap();
    let answer = s.call_from(&guest, 0, 12, [24, ARG, 0, 0, 0]).0;
    assert_eq!(answer, err(Errno::EPERM));
}

#[test]
fn a_page_of_1_gib_is_made_in_pieces_and_taken_apart() {
    let _alone = alone();
    let before = free_frames();
    let s = System::new(1);
    let id = s.create(&pvh(1));
    assert_eq!(s.domctl(op::MAX_VCPUS, id, &MaxVcpus { max: 1 }).0, 0);
    let d = s.hv.domain(DomId(id)).unwrap();
    let max = |pages: u64| {
        let a = MaxMem {
            max_memkb: pages * 4,
        };
        assert_eq!(s.domctl(op::MAX_MEM, id, &a).0, 0);
    };
    let pool = PagingMempool { size: 64 << 12 };
    assert_eq!(s.domctl(op::SET_PAGING_MEMPOOL_SIZE, id, &pool).0, 0);
    max(GIB - 1);
    assert_eq!(s.populate(id, 18, &[GIB]), 0);
    max(GIB + 100);
    // Not where something is, not out of line, and not for the domain by itself.
    assert_eq!(s.populate(id, 0, &[5]), 1);
    assert_eq!(s.populate(id, 18, &[0]), 0);
    assert_eq!(s.populate(id, 18, &[GIB + 512]), 0);
    assert_eq!(claim(&s, id, GIB + 1), 0);
    // One call does not do it all.
    start_gib(&s, d.id);
    assert_eq!((d.p2m.pages(), d.p2m.page_type(Gfn(GIB))), (1, None));
    // What is in the making counts: there is no room for another one elsewhere, but the work can be given up for that.
    assert_eq!(s.populate(id, 0, &(0..200).collect::<Vec<_>>()), 5);
    assert_eq!(s.populate(id, 18, &[GIB]), 1);
    assert_eq!(d.p2m.pages() as u64, GIB + 6);
    assert_eq!(outstanding(&s, id).0, 0);
    let leaf = d.p2m.stage2().lookup(Gfn(GIB + 77)).unwrap();
    assert_eq!((leaf.order, leaf.mfn.0 & (GIB - 1)), (18, 77));
    // A page out of the middle.
    assert_eq!(s.reserve(1, id, 0, &[GIB + 0x2_0077]), 1);
    assert_eq!(d.p2m.stage2().lookup(Gfn(GIB + 0x2_0076)).unwrap().order, 0);
    assert_eq!(d.p2m.stage2().lookup(Gfn(GIB + 0x3_0000)).unwrap().order, 9);
    let mut calls = 0;
    while s.call_once(0, 36, destroy(&s, id)).is_none() {
        calls += 1;
    }
    assert!(calls > 10, "a long call in {calls} pieces");
    drop((d, s));
    assert_eq!(free_frames(), before);
}

fn destroy(s: &System, id: u16) -> [u64; 5] {
    let arg = xen_abi::domctl::Domctl {
        cmd: op::DESTROYDOMAIN,
        interface_version: common::toolstack::VERSION,
        domain: DomId(id),
        _pad: [0; 3],
        u: [0; 128],
    };
    s.poke(ARG, arg.as_bytes());
    [ARG, 0, 0, 0, 0]
}

#[test]
fn a_domain_that_ends_while_its_page_is_made_leaves_nothing() {
    let _alone = alone();
    let s = System::new(1);
    let round = |claimed: bool| {
        let d = s.create_ready(1, GIB);
        if claimed {
            assert_eq!(claim(&s, d.id.0, GIB), 0);
        }
        start_gib(&s, d.id);
        while s.plain(op::DESTROYDOMAIN, d.id.0) != 0 {}
        drop(d);
        (free_frames(), reserved_frames())
    };
    let first = round(false);
    assert_eq!(round(true), first);
    assert_eq!(round(false), first);
}
