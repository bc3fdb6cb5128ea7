//! Grant hypercalls on the fake machine: the whole path from the shared entry to the memory map.

mod common;

use common::{PAGES, System};
use hv_core::p2m::PageType;
use x86_model::Gfn;

const ARG: u64 = 0x3000;
/// Guest frames that are holes.
const TABLE: u64 = PAGES + 1;
const HOLE: u64 = PAGES + 2;
const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
const EBUSY: i64 = -16;
const ENOSYS: i64 = -38;

/// `XENMEM_add_to_physmap` of the caller's grant table.
fn map_table(s: &System, idx: u64, gfn: u64) -> i64 {
    s.poke(ARG, &[0xf0, 0x7f, 0, 0]);
    s.poke_words(ARG + 4, &[1]);
    s.poke(ARG + 8, &idx.to_le_bytes());
    s.poke(ARG + 16, &gfn.to_le_bytes());
    s.call(0, 12, [7, ARG, 0, 0, 0])
}

/// Writes a version 1 entry for domain 0.
fn grant(s: &System, reference: u64, flags: u32, gfn: u32) {
    s.poke_words(TABLE * 4096 + reference * 8, &[flags, gfn]);
}

fn entry_flags(s: &System, reference: u64) -> u32 {
    s.peek_u32(TABLE * 4096 + reference * 8)
}

fn poke_map(s: &System, at: u64, gfn: u64, flags: u32, reference: u32) {
    s.poke(at, &(gfn << 12).to_le_bytes());
    s.poke_words(at + 8, &[flags, reference, 0x7777_0000, 0, 0, 0]);
}

fn status(s: &System, at: u64) -> i16 {
    i16::from_le_bytes(s.peek(at))
}

#[test]
fn entry_to_memory_map_and_back() {
    let s = System::new(1);
    assert_eq!(map_table(&s, 0, TABLE), 0);
    grant(&s, 8, 1, 5);
    poke_map(&s, ARG, HOLE, 2, 8);
    assert_eq!(s.call(0, 20, [0, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 18), 0);
    assert_eq!(entry_flags(&s, 8), 1 | 8 | 16);
    assert_eq!(s.dom.p2m.page_type(Gfn(HOLE)), Some(PageType::Grant));
    s.poke(HOLE * 4096 + 17, b"through the grant");
    assert_eq!(&s.peek::<17>(5 * 4096 + 17), b"through the grant");
    let handle = s.peek_u32(ARG + 20);
    let bus = u64::from_le_bytes(s.peek(ARG + 24));
    assert_eq!(bus, s.dom.p2m.frame(Gfn(5)).unwrap().0.mfn().0 << 12);
    // It can be mapped, but not granted on, nor used as memory of one's own.
    grant(&s, 9, 1, HOLE as u32);
    poke_map(&s, ARG, HOLE + 1, 2, 9);
    assert_eq!(s.call(0, 20, [0, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 18), -9);
    // While it is in use: no other version.
    s.poke_words(ARG, &[2]);
    assert_eq!(s.call(0, 20, [8, ARG, 1, 0, 0]), EBUSY);
    assert_eq!(s.peek_u32(ARG), 1);

    s.poke(ARG, &(HOLE << 12).to_le_bytes());
    s.poke(ARG + 8, &0u64.to_le_bytes());
    s.poke_words(ARG + 16, &[handle, 0x7777]);
    assert_eq!(s.call(0, 20, [1, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 20), 0);
    assert_eq!(entry_flags(&s, 8), 1);
    assert_eq!(s.dom.p2m.page_type(Gfn(HOLE)), None);
    assert_eq!(s.dom.grants.mappings(), 0);
    assert_eq!(s.call(0, 20, [1, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 20), -4);
}

#[test]
fn only_holes_can_be_mapped_over() {
    let s = System::new(1);
    assert_eq!(map_table(&s, 0, TABLE), 0);
    grant(&s, 8, 1, 5);
    // The last one is no address at all.
    for (gfn, wants) in [(6, -1), (TABLE, -1), (1 << 45, -9)] {
        poke_map(&s, ARG, gfn, 2, 8);
        assert_eq!(s.call(0, 20, [0, ARG, 1, 0, 0]), 0);
        assert_eq!(status(&s, ARG + 18), wants, "{gfn:#x}");
    }
    assert_eq!(entry_flags(&s, 8), 1);
    // Read-only stays read-only.
    poke_map(&s, ARG, HOLE, 2 | 4, 8);
    assert_eq!(s.call(0, 20, [0, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 18), 0);
    assert!(!s.dom.p2m.frame(Gfn(HOLE)).unwrap().1);
}

#[test]
fn lists_are_done_whole_across_restarts() {
    const COUNT: u64 = 1500;
    let s = System::new(1);
    assert_eq!(map_table(&s, 0, TABLE), 0);
    grant(&s, 8, 1, 5);
    let list = 16 * 4096;
    for i in 0..COUNT {
        poke_map(&s, list + i * 32, HOLE + i, 2, 8);
    }
    assert_eq!(s.call(0, 20, [0, list, COUNT, 0, 0]), 0);
    assert_eq!(u64::from(s.dom.grants.mappings()), COUNT);
    let handles: Vec<u32> = (0..COUNT).map(|i| s.peek_u32(list + i * 32 + 20)).collect();
    for (i, handle) in (0..).zip(handles) {
        let at = list + i * 24;
        s.poke(at, &((HOLE + i) << 12).to_le_bytes());
        s.poke(at + 8, &0u64.to_le_bytes());
        s.poke_words(at + 16, &[handle, 0x7777]);
    }
    assert_eq!(s.call(0, 20, [1, list, COUNT, 0, 0]), 0);
    assert!((0..COUNT).all(|i| status(&s, list + i * 24 + 20) == 0));
    assert_eq!(s.dom.grants.mappings(), 0);
    assert_eq!(entry_flags(&s, 8), 1);
}

#[test]
fn sizes_and_versions() {
    let s = System::new(1);
    let query = || {
        s.poke_words(ARG, &[0x7ff0, 9, 9, 9]);
        assert_eq!(s.call(0, 20, [6, ARG, 1, 0, 0]), 0);
        (
            s.peek_u32(ARG + 4),
            s.peek_u32(ARG + 8),
            status(&s, ARG + 12),
        )
    };
    assert_eq!(query(), (0, 64, 0));
    // Linux maps the highest index first.
    assert_eq!(map_table(&s, 3, TABLE), 0);
    assert_eq!(query(), (4, 64, 0));
    assert_eq!(map_table(&s, 64, TABLE), EINVAL);
    assert_eq!(map_table(&s, 1 << 31, TABLE), EINVAL);
    assert_eq!(map_table(&s, 1 << 32, TABLE), EINVAL);
    // The list says where the frames are, and of the others that they are nowhere.
    s.poke_words(ARG, &[0x7ff0, 5, 9, 9]);
    s.poke(ARG + 16, &0x5000u64.to_le_bytes());
    assert_eq!(s.call(0, 20, [2, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 8), 0);
    let listed = |i: u64| u64::from_le_bytes(s.peek(0x5000 + i * 8));
    assert_eq!(
        [listed(2), listed(3), listed(4)],
        [u64::MAX, TABLE, u64::MAX]
    );
    s.poke_words(ARG + 4, &[65]);
    assert_eq!(s.call(0, 20, [2, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 8), -1);
    s.poke_words(ARG, &[0x7ff0, 1]);
    s.poke(ARG + 16, &(PAGES << 12).to_le_bytes());
    assert_eq!(s.call(0, 20, [2, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 8), -5);
    s.poke_words(ARG, &[77, 0, 0, 0]);
    assert_eq!(s.call(0, 20, [6, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 12), -2);

    s.poke_words(ARG, &[1]);
    assert_eq!(s.call(0, 20, [8, ARG, 1, 0, 0]), 0);
    s.poke_words(ARG, &[0x7ff0, 9]);
    assert_eq!(s.call(0, 20, [10, ARG, 1, 0, 0]), 0);
    assert_eq!(s.peek_u32(ARG + 4), 1);
    for (sub, count, expected) in [
        (2, 2, EINVAL),
        (6, 0, EINVAL),
        (0, 1 << 31, EINVAL),
        (3, 1, ENOSYS),
        (4, 1, ENOSYS),
        (7, 1, ENOSYS),
        (9, 1, ENOSYS),
        (12, 1, ENOSYS),
        (99, 1, ENOSYS),
    ] {
        assert_eq!(
            s.call(0, 20, [sub, ARG, count, 0, 0]),
            expected,
            "{sub} {count}"
        );
    }
    for sub in [0, 1, 5, 6, 8, 10, 11] {
        assert_eq!(s.call(0, 20, [sub, PAGES << 12, 1, 0, 0]), EFAULT, "{sub}");
    }
}

#[test]
fn copy_and_swap() {
    let s = System::new(1);
    assert_eq!(map_table(&s, 0, TABLE), 0);
    grant(&s, 8, 1 | 4, 5);
    grant(&s, 9, 1, 6);
    s.poke(5 * 4096, b"source page");
    let copy = |from: u32, to: u32, len: u32| {
        s.poke_words(ARG, &[from, 0, 0, 0, to, 0, 0, 0, len | 3 << 16, 0x7777]);
        assert_eq!(s.call(0, 20, [5, ARG, 1, 0, 0]), 0);
        status(&s, ARG + 36)
    };
    assert_eq!(copy(8, 9, 11), 0);
    assert_eq!(&s.peek::<11>(6 * 4096), b"source page");
    assert_eq!(copy(9, 8, 11), -1);
    assert_eq!(copy(8, 9, 4097), -10);
    s.poke_words(ARG, &[8, 9, 0x7777]);
    assert_eq!(s.call(0, 20, [11, ARG, 1, 0, 0]), 0);
    assert_eq!(status(&s, ARG + 8), 0);
    assert_eq!([entry_flags(&s, 8), entry_flags(&s, 9)], [1, 5]);
}

#[test]
fn status_frames_leave_with_version_2() {
    const STATUS: u64 = 1 << 31;
    let s = System::new(1);
    assert_eq!(map_table(&s, 0, TABLE), 0);
    assert_eq!(map_table(&s, STATUS, HOLE), EINVAL);
    let frames = hv_hw::mem::frames::free_frames();
    for _ in 0..3 {
        s.poke_words(ARG, &[2]);
        assert_eq!(s.call(0, 20, [8, ARG, 1, 0, 0]), 0);
        assert_eq!(map_table(&s, STATUS, HOLE), 0);
        // Reference 8: a whole page for domain 0, and its status word when it is mapped.
        s.poke_words(TABLE * 4096 + 8 * 16, &[1, 0, 5, 0]);
        poke_map(&s, ARG, HOLE + 1, 2, 8);
        assert_eq!(s.call(0, 20, [0, ARG, 1, 0, 0]), 0);
        assert_eq!(status(&s, ARG + 18), 0);
        let handle = s.peek_u32(ARG + 20);
        assert_eq!(status(&s, HOLE * 4096 + 8 * 2), 8 | 16);
        s.poke_words(ARG, &[1]);
        assert_eq!(s.call(0, 20, [8, ARG, 1, 0, 0]), EBUSY);
        s.poke(ARG, &((HOLE + 1) << 12).to_le_bytes());
        s.poke(ARG + 8, &0u64.to_le_bytes());
        s.poke_words(ARG + 16, &[handle]);
        assert_eq!(s.call(0, 20, [1, ARG, 1, 0, 0]), 0);
        s.poke_words(ARG, &[1]);
        assert_eq!(s.call(0, 20, [8, ARG, 1, 0, 0]), 0);
        assert_eq!(s.dom.p2m.page_type(Gfn(HOLE)), None);
    }
    assert_eq!(hv_hw::mem::frames::free_frames(), frames);
}
