//! Hypercalls from 32-bit mode: structures, lists and shared pages in their 32-bit layout, errors as Xen's compatibility layer
//! gives them.

mod common;

use common::System;
use hv_core::domain::MemoryRange;
use x86_model::{Gfn, Gpa};
use xen_abi::Errno;
use xen_abi::compat::shared_info::offset as narrow;
use xen_abi::shared_info::offset as wide;

/// Where arguments and lists are.
const ARG: u64 = 0x3000;
const LIST: u64 = 0x5000;
/// The domain that asks.
const SELF: u32 = 0x7ff0;

const fn error(e: Errno) -> i64 {
    e.to_ret()
}

/// A system whose domain has latched the 32-bit layout, with shared_info at gfn 80.
fn system() -> System {
    let s = System::new(2);
    // HVMOP_set_param CALLBACK_IRQ, a vector.
    s.poke_words(ARG, &[SELF, 0, 0x40, 2 << 24]);
    assert_eq!(s.call_32(0, 34, [0, ARG, 0, 0, 0]), 0);
    // XENMEM_add_to_physmap: domid and size, space, index, frame.
    s.poke_words(ARG, &[SELF, 0, 0, 80]);
    assert_eq!(s.call_32(0, 12, [7, ARG, 0, 0, 0]), 0);
    s
}

const PAGE: u64 = 80 << 12;

#[test]
fn the_page_has_the_layout_of_who_sets_the_callback() {
    let s = system();
    let year_2020 = 1_577_836_800;
    assert_eq!(
        s.peek_u32(PAGE + narrow::WC_VERSION as u64) & 1,
        0,
        "the clock is whole"
    );
    let clock = |at: usize| s.peek_u32(PAGE + at as u64);
    let secs = clock(narrow::WC_SEC);
    assert!(secs > year_2020 || secs == s.hv.wallclock().secs as u32);
    // Port 1 at vCPU 0 by an IPI channel.
    s.poke_words(ARG, &[0, 0]);
    assert_eq!(s.call_32(0, 32, [7, ARG, 0, 0, 0]), 0);
    let port = s.peek_u32(ARG + 4);
    s.poke_words(ARG, &[port]);
    assert_eq!(s.call_32(0, 32, [4, ARG, 0, 0, 0]), 0);
    assert_eq!(clock(wide::EVTCHN_PENDING), 1 << port);
    assert_eq!(clock(narrow::PENDING_SEL), 1, "word 0 of 32 bits");
    assert_eq!(s.peek::<1>(PAGE), [1]);
    // Ports behind the first word are in the second of the selector.
    let mut last = port;
    while last < 40 {
        s.poke_words(ARG, &[0, 0]);
        assert_eq!(s.call_32(0, 32, [7, ARG, 0, 0, 0]), 0);
        last = s.peek_u32(ARG + 4);
    }
    s.poke_words(PAGE + narrow::EVTCHN_MASK as u64, &[0, 0]);
    s.poke_words(ARG, &[last]);
    assert_eq!(s.call_32(0, 32, [4, ARG, 0, 0, 0]), 0);
    assert_eq!(clock(narrow::PENDING_SEL), 3);
    // A 64-bit kernel that comes after has its own.
    let mut arg = [0; 16];
    arg[..2].copy_from_slice(&(SELF as u16).to_le_bytes());
    arg[8..].copy_from_slice(&(2u64 << 56 | 0x41).to_le_bytes());
    s.poke(ARG, &arg);
    assert_eq!(s.call(0, 34, [0, ARG, 0, 0, 0]), 0);
    s.poke(PAGE, &[0; 64]);
    s.poke_words(PAGE + wide::EVTCHN_PENDING as u64, &[0, 0]);
    s.poke_words(ARG, &[last]);
    assert_eq!(s.call_32(0, 32, [4, ARG, 0, 0, 0]), 0);
    assert_eq!(clock(wide::PENDING_SEL), 1);
    assert_eq!(clock(wide::WC_SEC), s.hv.wallclock().secs as u32);
}

#[test]
fn a_table_of_32_bit_words_has_1024_ports() {
    let s = system();
    let mut answer = 0;
    let mut ports = 0;
    while answer == 0 {
        s.poke_words(ARG, &[0, 0]);
        answer = s.call_32(0, 32, [7, ARG, 0, 0, 0]);
        ports += 1;
    }
    assert_eq!((answer, ports), (error(Errno::ENOSPC), 1024));
}

#[test]
fn registered_vcpu_info_may_stand_at_four() {
    let s = system();
    let info = |frame: u64, at: u32| {
        s.poke(ARG, &frame.to_le_bytes());
        s.poke_words(ARG + 8, &[at, 0]);
        s.call_32(0, 24, [10, 0, ARG, 0, 0])
    };
    assert_eq!(info(9, 2), error(Errno::ENXIO));
    assert_eq!(info(9, 4096 - 60), error(Errno::ENXIO));
    assert_eq!(info(9, 0x104), 0);
    assert_eq!(s.peek_u32(0x9104 + narrow::PENDING_SEL as u64), u32::MAX);
    // The 64-bit layout of a kernel that comes after at the same odd place: no word is torn, and nothing breaks.
    let mut arg = [0; 16];
    arg[..2].copy_from_slice(&(SELF as u16).to_le_bytes());
    arg[8..].copy_from_slice(&(2u64 << 56 | 0x41).to_le_bytes());
    s.poke(ARG, &arg);
    assert_eq!(s.call(0, 34, [0, ARG, 0, 0, 0]), 0);
    s.poke(0x9104, &[0; 64]);
    s.poke_words(ARG, &[0, 0]);
    assert_eq!(s.call(0, 32, [7, ARG, 0, 0, 0]), 0);
    s.poke_words(ARG, &[s.peek_u32(ARG + 4)]);
    assert_eq!(s.call(0, 32, [4, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek_u32(0x9104 + wide::PENDING_SEL as u64), 1);
}

#[test]
fn memory_operations_take_32_bit_lists() {
    let s = system();
    // Populate frames 66 and 67: list, count, order, flags, domain.
    s.poke_words(LIST, &[66, 67]);
    s.poke_words(ARG, &[LIST as u32, 2, 0, 0, SELF]);
    assert_eq!(s.call_32(0, 12, [6, ARG, 0, 0, 0]), 2);
    assert!(s.dom.p2m.frame(Gfn(66)).is_some() && s.dom.p2m.frame(Gfn(67)).is_some());
    assert_eq!(s.call_32(0, 12, [1, ARG, 0, 0, 0]), 2);
    assert!(s.dom.p2m.frame(Gfn(66)).is_none());
    // Batch: moves of the pages 40 and 41 to 70 and 71, errors behind.
    s.poke_words(LIST, &[40, 41, 70, 71, 9, 9]);
    let list = LIST as u32;
    s.poke_words(ARG, &[SELF | 2 << 16, 2, list, list + 8, list + 16]);
    assert_eq!(s.call_32(0, 12, [23, ARG, 0, 0, 0]), 0);
    assert_eq!([s.peek_u32(LIST + 16), s.peek_u32(LIST + 20)], [0, 0]);
    assert!(s.dom.p2m.frame(Gfn(71)).is_some() && s.dom.p2m.frame(Gfn(40)).is_none());
    s.poke_words(ARG, &[SELF, 71]);
    assert_eq!(s.call_32(0, 12, [15, ARG, 0, 0, 0]), 0);
    assert!(s.dom.p2m.frame(Gfn(71)).is_none());
    // The memory map: room, buffer; entries are the same for both.
    let map = MemoryRange {
        start: Gpa(0x1000),
        len: 0x2000,
        ty: 2,
    };
    *s.dom.memory_map.lock() = vec![map];
    s.poke_words(ARG, &[9, LIST as u32, 0xdead_beef]);
    assert_eq!(s.call_32(0, 12, [9, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek_u32(ARG), 1);
    assert_eq!(s.peek_u32(ARG + 8), 0xdead_beef, "what lies behind");
    let entry: [u32; 5] = std::array::from_fn(|i| s.peek_u32(LIST + 4 * i as u64));
    assert_eq!(entry, [0x1000, 0, 0x2000, 0, 2]);
    // Xen has no translation of claims.
    assert_eq!(s.call_32(0, 12, [24, ARG, 0, 0, 0]), error(Errno::ENOSYS));
}

#[test]
fn grant_frames_are_listed_in_32_bits() {
    let s = system();
    // setup_table of one frame that is mapped nowhere: domain, count, status, list.
    s.poke_words(LIST, &[1, 2]);
    s.poke_words(ARG, &[SELF, 1, 0xffff, LIST as u32]);
    assert_eq!(s.call_32(0, 20, [2, ARG, 1, 0, 0]), 0);
    assert_eq!(s.peek_u32(ARG + 8), 0, "its status");
    assert_eq!([s.peek_u32(LIST), s.peek_u32(LIST + 4)], [u32::MAX, 2]);
    // Mapped as XENMAPSPACE_grant_table at frame 81, it is listed there.
    s.poke_words(ARG, &[SELF, 1, 0, 81]);
    assert_eq!(s.call_32(0, 12, [7, ARG, 0, 0, 0]), 0);
    s.poke_words(ARG, &[SELF, 1, 0, LIST as u32]);
    assert_eq!(s.call_32(0, 20, [2, ARG, 1, 0, 0]), 0);
    assert_eq!(s.peek_u32(LIST), 81);
    // A copy of four bytes between two own frames: (frame, domain, offset) twice, length and flags, status.
    s.poke(0x10_000, b"Xen!");
    s.poke_words(ARG, &[0x10, SELF, 0x11, SELF | 8 << 16, 4, 0xffff]);
    assert_eq!(s.call_32(0, 20, [5, ARG, 1, 0, 0]), 0);
    assert_eq!(s.peek_u32(ARG + 20) as i16, 0);
    assert_eq!(&s.peek::<4>(0x11_008), b"Xen!");
}

#[test]
fn time_comes_in_halves_and_runstate_without_padding() {
    let s = system();
    // A timer far in the future, upper half in the second register: no time-out at once.
    assert_eq!(s.call_32(0, 15, [5, 1, 0, 0, 0]), 0);
    let v = s.dom.vcpu(0).unwrap();
    let deadline = v.singleshot.load(std::sync::atomic::Ordering::Acquire);
    assert_eq!(deadline, 1 << 32 | 5);
    // get_runstate_info writes 44 bytes.
    s.poke(ARG, &[0xee; 48]);
    assert_eq!(s.call_32(0, 24, [4, 0, ARG, 0, 0]), 0);
    assert!(s.peek_u32(ARG) < 4);
    assert_eq!(s.peek_u32(ARG + 44), 0xeeee_eeee);
    // A poll of a pending port with a list and a 64-bit time right behind the count.
    s.poke_words(ARG, &[0, 0]);
    assert_eq!(s.call_32(0, 32, [7, ARG, 0, 0, 0]), 0);
    let port = s.peek_u32(ARG + 4);
    s.poke_words(ARG, &[port]);
    assert_eq!(s.call_32(0, 32, [4, ARG, 0, 0, 0]), 0);
    s.poke_words(LIST, &[port]);
    s.poke_words(ARG, &[LIST as u32, 1, 1, 0]);
    assert_eq!(s.call_32(0, 29, [3, ARG, 0, 0, 0]), 0);
}

#[test]
fn multicalls_have_entries_of_eight_words() {
    let s = system();
    let entry = |op: u32, a: u32, b: u32| [op, 0x5a5a, a, b, 0, 0, 0, 0];
    s.poke_words(ARG, &[SELF]);
    let list = [
        entry(17, 0, 0),
        entry(12, 3, ARG as u32),
        entry(63, 0, 0),
        entry(13, LIST as u32, 1),
        entry(7, ARG as u32, 0),
    ];
    s.poke_words(LIST, list.as_flattened());
    assert_eq!(s.call_32(0, 13, [LIST, 5, 0, 0, 0]), 0);
    let result = |i: u64| s.peek_u32(LIST + 32 * i + 4).cast_signed();
    assert_eq!(result(0), 4 << 16 | 17);
    assert_eq!(result(1), common::PAGES as i32);
    assert_eq!(result(2), -38);
    assert_eq!(result(3), -22);
    assert_eq!(result(4), -38, "platform_op has no 32-bit form");
    // Longer than one stretch: it restarts and ends.
    let many = vec![entry(17, 7, 0); 600];
    s.poke_words(0x8000, many.as_flattened());
    assert_eq!(s.call_32(0, 13, [0x8000, 600, 0, 0, 0]), 0);
    assert!((0..600).all(|i| s.peek_u32(0x8000 + 32 * i + 4) == 4096));
}

#[test]
fn the_platform_parameter_is_four_bytes() {
    let s = system();
    s.poke_words(ARG, &[0, 0x1234]);
    assert_eq!(s.call_32(0, 17, [5, ARG, 0, 0, 0]), 0);
    assert_eq!([s.peek_u32(ARG), s.peek_u32(ARG + 4)], [0, 0x1234]);
}
