//! A reader's view of a ring, honest and otherwise.

use super::*;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use hv_hw::mem::FrameRef;
use xen_abi::trace::{general, head};

const ROOM: u32 = 4096 - 8;

fn ring() -> Ring {
    hv_hw::host::arena::init();
    let pages: Box<[FrameRef]> = Box::new([FrameRef::alloc(DomId::XEN).unwrap()]);
    Ring::new(pages)
}

fn word(ring: &Ring, byte: u32) -> u32 {
    let mut bytes = [0; 4];
    ring.pages()[byte as usize / 4096].read(byte as usize % 4096, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn set_cons(ring: &Ring, cons: u32) {
    ring.pages()[0].write(0, &cons.to_le_bytes());
}

/// Reads everything, as `xentrace` does: events, each with its words behind head and time stamp.
fn read(ring: &Ring, room: u32) -> Vec<(u32, Vec<u32>)> {
    let (mut cons, prod) = (word(ring, 0), word(ring, 4));
    let mut records = Vec::new();
    while cons != prod {
        let at = |n: u32| word(ring, 8 + (cons + 4 * n) % room);
        let first = at(0);
        let timed = if first & head::CYCLES != 0 { 2 } else { 0 };
        let extra = first >> head::EXTRA_SHIFT & 7;
        let len = 4 * (1 + timed + extra);
        // No record goes across the end.
        assert!(cons % room + len <= room);
        let words = (0..extra).map(|n| at(1 + timed + n)).collect();
        records.push((first & 0x0fff_ffff, words));
        cons = (cons + len) % (2 * room);
    }
    set_cons(ring, cons);
    records
}

fn record(ring: &Ring, event: u32, timed: bool, extra: &[u32]) -> bool {
    ring.record(&Record {
        event,
        timed,
        tsc: 0x1_0000_0002,
        extra,
        who: (DomId(3), 1),
    })
}

#[test]
fn records_look_as_readers_expect() {
    let ring = ring();
    record(&ring, 0x81102, true, &[0x72, 5, 6]);
    assert_eq!(word(&ring, 8), 0xb008_1102);
    assert_eq!([word(&ring, 12), word(&ring, 16)], [2, 1]);
    assert_eq!(word(&ring, 4), 24);
    record(&ring, 0x82013, false, &[]);
    assert_eq!(
        read(&ring, ROOM),
        [(0x81102, vec![0x72, 5, 6]), (0x82013, vec![])]
    );
}

/// All lengths, many times around: each record arrives whole and in order.
#[test]
fn around_the_end_in_all_lengths() {
    let ring = ring();
    let mut sent = Vec::new();
    let mut seen = Vec::new();
    for n in 0..5000u32 {
        let extra: Vec<u32> = (0..n * 7 % 8).collect();
        record(&ring, 0x82000 + n % 64, n % 3 == 0, &extra);
        sent.push((0x82000 + n % 64, extra));
        if n % 11 == 0 {
            seen.extend(read(&ring, ROOM));
        }
    }
    seen.extend(read(&ring, ROOM));
    seen.retain(|(event, _)| *event != general::WRAP);
    assert_eq!(seen, sent);
}

#[test]
fn what_does_not_fit_is_counted_and_told_once_there_is_room() {
    let ring = ring();
    let mut half = 0;
    for _ in 0..1000 {
        half += u32::from(record(&ring, 0x82004, false, &[1]));
    }
    assert_eq!(half, 1, "told once that it is half full");
    let fit = ROOM / 8;
    assert_eq!(read(&ring, ROOM).len() as u32, fit);
    record(&ring, 0x82004, false, &[2]);
    let lost = 1000 - fit;
    assert_eq!(
        read(&ring, ROOM),
        [
            (general::LOST, vec![lost, 0x0001_0003, 2, 1]),
            (0x82004, vec![2])
        ]
    );
    record(&ring, 0x82004, false, &[3]);
    assert_eq!(read(&ring, ROOM).len(), 1);
}

/// A reader that writes anything into its page, the writer's place included.
#[test]
fn a_mad_reader_loses_records_and_nothing_else() {
    let ring = ring();
    let mut x = 1u32;
    for n in 0..20_000 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = [x, x % (2 * ROOM), 2 * ROOM, u32::MAX, 3][n % 5];
        set_cons(&ring, value);
        ring.pages()[0].write(4, &x.rotate_left(7).to_le_bytes());
        record(&ring, 0x82004, true, &[x; 7]);
    }
    // Whatever it did, there is a place from which on it gets records again.
    let restarted = (0..2 * ROOM).step_by(4).any(|cons| {
        set_cons(&ring, cons);
        ring.pages()[0].write(4, &u32::MAX.to_le_bytes());
        record(&ring, 0x8200f, false, &[]);
        word(&ring, 4) != u32::MAX
    });
    let prod = word(&ring, 4);
    assert!(restarted && prod < 2 * ROOM && prod.is_multiple_of(4));
    set_cons(&ring, prod);
    record(&ring, 0x8200f, false, &[]);
    assert_eq!(read(&ring, ROOM).last().unwrap().0, 0x8200f);
}

#[test]
fn masks_match_class_and_subclass() {
    // `xentrace -e 0x0008ffff` and narrower ones.
    for (mask, event, yes) in [
        (0x0008_ffff, 0x81001, true),
        (0x0008_ffff, 0x21001, false),
        (0x0008_1fff, 0x81102, true),
        (0x0008_1fff, 0x82004, false),
        (class::ALL, 0x2800a, true),
        (0, 0x81001, false),
    ] {
        assert_eq!(wants(mask, event), yes, "{mask:#x} {event:#x}");
    }
}
