//! A thousand domains that come, hold things and go: every frame, event channel, mapping and object is back. One test alone in
//! its process, because it counts what the process has.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::System;
use common::toolstack::ARG;
use hv_core::domain::Domain;
use hv_core::guest::access::write_phys;
use hv_hw::host::counting::{Counting, in_use};
use hv_hw::mem::free_frames;
use x86_model::Gpa;
use xen_abi::domctl::op;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Where the guests' grant tables and the control domain's mappings of granted pages go: holes.
const TABLE: u64 = 0x800;
const MAPPED: u64 = 0x900;

/// A hypercall of a domain whose argument is these words; the first word behind `answer` bytes of it.
fn by(s: &System, d: &Arc<Domain>, number: u64, sub: u64, words: &[u32]) -> i64 {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    write_phys(&d.p2m, Gpa(ARG), &bytes).unwrap();
    s.call_from(d, 0, number, [sub, ARG, 1, 0, 0]).0
}

/// What a guest takes while it runs: ports that the control domain may bind, and one that it has bound; two granted pages, which the
/// control domain maps. The control domain's port, and the handles of its mappings.
fn hold(s: &System, d: &Arc<Domain>) -> (u32, [u32; 2]) {
    // vCPU 0 stands in 64-bit code.
    let v = d.vcpu(0).unwrap();
    v.pause.store(0, Ordering::SeqCst);
    let mut local = v.local.try_lock().unwrap();
    local.ctx.sys.efer = 1 << 10 | 1 << 8;
    local.ctx.sys.segments[1].access = 0xa09b;
    drop(local);
    for _ in 0..70 {
        assert_eq!(by(s, d, 32, 6, &[0x7ff0, 0]), 0);
    }
    // An inter-processor event, and a virtual interrupt.
    assert_eq!(by(s, d, 32, 7, &[0, 0]), 0);
    assert_eq!(by(s, d, 32, 1, &[0, 0, 0]), 0);
    // The control domain binds the first of them.
    assert_eq!(by(s, &s.dom, 32, 0, &[d.id.0.into(), 1, 0]), 0);
    let port = s.peek_u32(ARG + 8);

    // The table into the memory map, entries 8 and 9, and the control domain maps them.
    assert_eq!(
        by(
            s,
            d,
            12,
            7,
            &[1 << 16 << 16 | 0x7ff0, 1, 0, 0, TABLE as u32, 0]
        ),
        0
    );
    let handles = [(8u64, 1u32), (9, 2)].map(|(entry, gfn)| {
        let bytes = [1u32.to_le_bytes(), gfn.to_le_bytes()].concat();
        write_phys(&d.p2m, Gpa(TABLE << 12 | entry << 3), &bytes).unwrap();
        let at = (MAPPED + entry) << 12;
        let map = [at as u32, 0, 2, entry as u32, d.id.0.into(), 0, 0, 0];
        assert_eq!(by(s, &s.dom, 20, 0, &map), 0);
        assert_eq!(s.peek::<2>(ARG + 18), [0, 0], "entry {entry}");
        s.peek_u32(ARG + 20)
    });
    (port, handles)
}

/// The control domain lets go of what it has mapped.
fn let_go(s: &System, handles: [u32; 2]) {
    for (entry, handle) in [8u64, 9].into_iter().zip(handles) {
        let at = (MAPPED + entry) << 12;
        assert_eq!(by(s, &s.dom, 20, 1, &[at as u32, 0, 0, 0, handle, 0]), 0);
        assert_eq!(s.peek::<2>(ARG + 20), [0, 0]);
    }
}

fn ports(s: &System) -> u32 {
    s.dom.evtchn.dump(usize::MAX, &mut |_| {}) as u32
}

fn cycle(s: &System, round: u64) {
    let d = s.create_ready(1 + (round % 4) as u32, 1200);
    let id = d.id.0;
    let firsts: Vec<u64> = (0..40).collect();
    assert_eq!(s.populate(id, 0, &firsts), 40);
    assert_eq!(s.populate(id, 9, &[0x400 + 0x200 * (round % 2)]), 1);
    let (port, handles) = hold(s, &d);
    assert_eq!(s.dom.grants.mappings(), 2);
    if round.is_multiple_of(2) {
        let_go(s, handles);
    }
    drop(d);
    assert_eq!(s.plain(op::DESTROYDOMAIN, id), 0);
    if !round.is_multiple_of(2) {
        let_go(s, handles);
    }
    // The other end is gone, so it waits for another guest to bind it, until it is closed.
    assert_eq!(by(s, &s.dom, 32, 3, &[port]), 0);
}

#[test]
fn a_thousand_domains_leave_no_frame_port_mapping_or_object() {
    let s = System::new(1);
    // What grows with the first domains and stays: the control domain's tables.
    for round in 0..8 {
        cycle(&s, round);
    }
    let held = |s: &System| (free_frames(), ports(s), s.dom.grants.mappings(), in_use().0);
    let (before, bytes) = (held(&s), in_use().1);
    for round in 0..1000 {
        cycle(&s, round);
        assert_eq!(
            held(&s),
            before,
            "round {round}: frames, ports, mappings, objects"
        );
    }
    // The test harness keeps the line of the log that each domain's end gives, in a buffer that doubles.
    let more = in_use().1 - bytes;
    assert!(more < 100 * 1000, "the objects have grown by {more} bytes");
}
