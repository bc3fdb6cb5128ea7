//! Do grant tables work: versions, growth, mapping of own grants, copies, and every error status?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::hypercall::{DOMID_SELF, GRANT_TABLE_OP, Ret, call, grant_op, ptr};
use guest_rt::shared::add_to_physmap;
use guest_rt::{Page, check, fact};

guest_rt::entry!("grant", run);

/// Granted pages. Xen moves an own page to where its grant is mapped, so each can be mapped once only.
static DATA: Page = Page::new();
static READ_ONLY_DATA: Page = Page::new();
static SPARE: Page = Page::new();
static SOURCE: Page = Page::new();
static OTHER: Page = Page::new();
static COPIED: Page = Page::new();
static PARTLY: Page = Page::new();
static READ: Page = Page::new();
static TARGET: Page = Page::new();

/// Where the table's first frames and the mappings go.
const TABLE: u64 = HOLE;
const MAPPED: u64 = HOLE + 0x10_0000;

const READ_ONLY: u16 = 1 << 2;
const SUB_PAGE: u16 = 1 << 8;
const HOST_MAP: u32 = 2;
const MAP_READ_ONLY: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Map {
    host: u64,
    flags: u32,
    gref: u32,
    dom: u16,
    status: i16,
    handle: u32,
    bus: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Unmap {
    host: u64,
    bus: u64,
    handle: u32,
    status: i16,
    pad: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct End {
    target: u64,
    domid: u16,
    offset: u16,
    pad: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Copy1 {
    source: End,
    dest: End,
    len: u16,
    flags: u16,
    status: i16,
    pad: u16,
}

fn map(dom: u16, gref: u32, flags: u32, host: u64) -> (Ret, Map) {
    let mut arg = [Map {
        host,
        flags,
        gref,
        dom,
        ..Map::default()
    }];
    let ret = grant_op(0, &mut arg);
    (ret, arg[0])
}

fn unmap(host: u64, handle: u32) -> (Ret, i16) {
    let mut arg = [Unmap {
        host,
        handle,
        ..Unmap::default()
    }];
    (grant_op(1, &mut arg), arg[0].status)
}

/// Entry `gref` of the version 1 table, valid once the table is mapped.
fn set_entry(gref: u32, flags: u16, domid: u16, gfn: u64) {
    let page = Page::at(TABLE);
    let at = 8 * gref as usize;
    page.u16(at + 2).store(domid, Ordering::Release);
    page.u32(at + 4).store(gfn as u32, Ordering::Release);
    page.u16(at).store(flags, Ordering::Release);
}

fn flags(gref: u32) -> u16 {
    Page::at(TABLE)
        .u16(8 * gref as usize)
        .load(Ordering::Acquire)
}

fn copy(source: End, dest: End, len: u16, flags: u16) -> (Ret, i16) {
    let mut arg = [Copy1 {
        source,
        dest,
        len,
        flags,
        ..Copy1::default()
    }];
    (grant_op(5, &mut arg), arg[0].status)
}

fn by_gfn(gfn: u64, offset: u16) -> End {
    End {
        target: gfn,
        domid: DOMID_SELF,
        offset,
        pad: 0,
    }
}

fn by_ref(gref: u64, offset: u16) -> End {
    End {
        target: gref,
        domid: 0,
        offset,
        pad: 0,
    }
}

fn run() {
    for (name, dom) in [("self", DOMID_SELF), ("0", 0), ("nobody", 1234)] {
        // dom and pad, frames, most frames, status.
        let mut query = [[u32::from(dom), 0, 0, 0]];
        let ret = grant_op(6, &mut query);
        let [_, now, most, status] = query[0];
        fact!(
            ("query-{name}"),
            "{ret} status={} frames={now} max={most}",
            status as i16
        );
    }
    for version in [2u32, 0, 3, 1] {
        let mut arg = [version];
        let ret = grant_op(8, &mut arg);
        fact!(("set-version-{version}"), "{ret} now={}", arg[0]);
    }
    let mut version = [[u32::from(DOMID_SELF), 0]];
    fact!(
        "get-version",
        "{} {}",
        grant_op(10, &mut version),
        version[0][1]
    );
    let mut frames = [0u64; 4];
    let mut setup = [[u64::from(DOMID_SELF) | 1 << 32, 0, ptr(&mut frames)]];
    fact!(
        "setup-table",
        "{} status={} frame-told={}",
        grant_op(2, &mut setup),
        setup[0][1] as i16,
        frames[0] != 0
    );
    let mut status = [[1 | u64::from(DOMID_SELF) << 32, ptr(&mut frames)]];
    fact!("status-frames", "{}", grant_op(9, &mut status));

    fact!(
        "table-frame-1",
        "{}",
        add_to_physmap(1, 1, (TABLE >> 12) + 1)
    );
    let ret = add_to_physmap(1, 0, TABLE >> 12);
    fact!("table-frame-0", "{ret}");
    fact!(
        "table-frame-63",
        "{}",
        add_to_physmap(1, 63, (TABLE >> 12) + 63)
    );
    fact!(
        "table-frame-64",
        "{}",
        add_to_physmap(1, 64, (TABLE >> 12) + 64)
    );
    fact!(
        "table-status-frame",
        "{}",
        add_to_physmap(1, 1 << 31, (TABLE >> 12) + 65)
    );
    if !check!(ret == Ret(0), "grant frame 0 refused: {ret}") {
        return;
    }
    fact!("entry-0-1", "{:#x} {:#x}", flags(0), flags(1));
    maps();
    copies();
    lists();
    second_version();
}

/// Entries of version 2 are 16 bytes; which are in use stands in 16-bit words of their own frames.
fn second_version() {
    const STATUS: u64 = TABLE + 0x20_0000;
    /// Not touched before.
    const FRESH: u64 = STATUS + 0x1000;
    let mut version = [2u32];
    fact!("v2-set", "{} now={}", grant_op(8, &mut version), version[0]);
    fact!(
        "v2-status-frame",
        "{}",
        add_to_physmap(1, 1 << 31, STATUS >> 12)
    );
    if version[0] != 2 {
        return;
    }
    let word = |gref: usize| Page::at(STATUS).u16(2 * gref).load(Ordering::Acquire);
    let entry = |gref: usize, flags: u16, part: u32, granted: &Page| {
        let page = Page::at(TABLE);
        page.u16(16 * gref + 2).store(0, Ordering::Release);
        page.u32(16 * gref + 4).store(part, Ordering::Release);
        page.u64(16 * gref + 8)
            .store(granted.gfn(), Ordering::Release);
        page.u16(16 * gref).store(flags, Ordering::Release);
    };
    for at in 0..512 {
        COPIED.u64(8 * at).store(at as u64, Ordering::Release);
        PARTLY.u64(8 * at).store(at as u64, Ordering::Release);
    }
    entry(8, 1, 0, &COPIED);
    // Bytes 64 to 127 only.
    entry(9, 1 | SUB_PAGE, 64 | 64 << 16, &PARTLY);
    entry(10, 1 | READ_ONLY, 0, &READ);
    for (name, gref, offset, len) in [
        ("page", 8, 8, 32),
        ("inside", 9, 64, 32),
        ("crosses", 9, 120, 16),
        ("before", 9, 0, 16),
    ] {
        let (ret, status) = copy(by_ref(gref, offset), by_gfn(TARGET.gfn(), 0), len, 1);
        fact!(("v2-copy-{name}"), "{ret} status={status}");
        if status == 0 {
            let seen = TARGET.u64(0).load(Ordering::Acquire);
            check!(seen == u64::from(offset) / 8, "copy {name} gave {seen}");
        }
    }
    let (_, sub_page) = map(0, 9, HOST_MAP, FRESH);
    fact!("v2-map-sub-page", "status={}", sub_page.status);
    let (_, writer) = map(0, 10, HOST_MAP, FRESH);
    fact!("v2-map-read-only-entry", "status={}", writer.status);
    let (_, reader) = map(0, 10, HOST_MAP | MAP_READ_ONLY, FRESH);
    fact!(
        "v2-map-read-only",
        "status={} word={:#x}",
        reader.status,
        word(10)
    );
    let _ = unmap(FRESH, reader.handle);
    fact!("v2-word-after", "{:#x}", word(10));
    let mut one = [1u32];
    fact!("v2-leave", "{} now={}", grant_op(8, &mut one), one[0]);
    fact!("v2-entry-after", "{:#x}", flags(8));
}

fn maps() {
    DATA.u64(0).store(0x1122_3344_5566_7788, Ordering::Release);
    set_entry(8, 1, 0, DATA.gfn());
    set_entry(9, 1 | READ_ONLY, 0, READ_ONLY_DATA.gfn());
    set_entry(10, 1, 5, SPARE.gfn());
    set_entry(11, 2, 0, SPARE.gfn());
    set_entry(12, 1, 0, HOLE >> 12 | 0x3_0000);
    set_entry(13, 3, 0, SPARE.gfn());

    let (ret, first) = map(0, 8, HOST_MAP, MAPPED);
    fact!("map", "{ret} status={} flags={:#x}", first.status, flags(8));
    if first.status == 0 {
        let seen = Page::at(MAPPED).u64(0).load(Ordering::Acquire);
        check!(seen == 0x1122_3344_5566_7788, "the mapping shows {seen:#x}");
        Page::at(MAPPED).u64(8).store(77, Ordering::Release);
        let back = Page::at(MAPPED).u64(8).load(Ordering::Acquire);
        check!(back == 77, "a write through the mapping is lost");
        fact!(
            "original-while-mapped",
            "{:#x}",
            DATA.u64(8).load(Ordering::Acquire)
        );
        let (_, second) = map(0, 8, HOST_MAP, MAPPED + 0x1000);
        fact!(
            "map-twice",
            "status={} other-handle={}",
            second.status,
            second.handle != first.handle
        );
        let (_, third) = map(0, 8, HOST_MAP | MAP_READ_ONLY, MAPPED + 0x2000);
        fact!(
            "map-read-only-of-writable",
            "status={} flags={:#x}",
            third.status,
            flags(8)
        );
        let mut version = [2u32];
        fact!("set-version-while-mapped", "{}", grant_op(8, &mut version));
        fact!(
            "unmap-wrong-address",
            "{:?}",
            show(unmap(MAPPED + 0x5000, first.handle))
        );
        fact!(
            "unmap",
            "{:?} flags={:#x}",
            show(unmap(MAPPED, first.handle)),
            flags(8)
        );
        fact!("unmap-again", "{:?}", show(unmap(MAPPED, first.handle)));
        let _ = unmap(MAPPED + 0x1000, second.handle);
        fact!("flags-after-writers", "{:#x}", flags(8));
        let _ = unmap(MAPPED + 0x2000, third.handle);
        fact!("flags-after-all", "{:#x}", flags(8));
        check!(
            flags(8) == 1,
            "flags {:#x} are left after the last unmap",
            flags(8)
        );
        fact!(
            "original-after-unmap",
            "{:#x}",
            DATA.u64(8).load(Ordering::Acquire)
        );
        fact!(
            "mapping-after-unmap",
            "{:#x}",
            Page::at(MAPPED).u64(8).load(Ordering::Acquire)
        );
    }
    set_entry(8, 1, 0, SPARE.gfn());
    for (name, dom, gref, how, host) in [
        ("read-only-entry", 0, 9, HOST_MAP, MAPPED),
        ("for-other-domain", 0, 10, HOST_MAP, MAPPED),
        ("transfer-entry", 0, 11, HOST_MAP, MAPPED),
        ("frame-in-hole", 0, 12, HOST_MAP, MAPPED),
        ("transitive", 0, 13, HOST_MAP, MAPPED),
        ("invalid-entry", 0, 20, HOST_MAP, MAPPED),
        ("ref-beyond-table", 0, 100_000, HOST_MAP, MAPPED),
        ("ref-max", 0, u32::MAX, HOST_MAP, MAPPED),
        ("nobody", 1234, 8, HOST_MAP, MAPPED),
        ("domid-self", DOMID_SELF, 8, HOST_MAP, MAPPED + 0x8000),
        ("no-flags", 0, 8, 0, MAPPED),
        ("device", 0, 8, 1, MAPPED),
        ("contains-pte", 0, 8, HOST_MAP | 16, MAPPED),
        ("application", 0, 8, HOST_MAP | 8, MAPPED),
        ("unaligned", 0, 8, HOST_MAP, MAPPED + 8),
        ("address-huge", 0, 8, HOST_MAP, 1 << 60),
    ] {
        let (ret, arg) = map(dom, gref, how, host);
        fact!(("map-{name}"), "{ret} status={}", arg.status);
        if arg.status == 0 {
            let _ = unmap(host, arg.handle);
        }
    }
    let (_, arg) = map(0, 9, HOST_MAP | MAP_READ_ONLY, MAPPED);
    fact!(
        "map-read-only",
        "status={} flags={:#x}",
        arg.status,
        flags(9)
    );
    let _ = unmap(MAPPED, arg.handle);
    for handle in [4000, u32::MAX] {
        fact!(
            ("unmap-handle-{handle:#x}"),
            "{:?}",
            show(unmap(MAPPED, handle))
        );
    }
}

fn show((ret, status): (Ret, i16)) -> (i64, i16) {
    (ret.0, status)
}

fn copies() {
    set_entry(8, 1, 0, SOURCE.gfn());
    set_entry(9, 1 | READ_ONLY, 0, OTHER.gfn());
    for at in 0..512 {
        SOURCE.u64(8 * at).store(at as u64, Ordering::Release);
    }
    let both = [
        (
            "gfn-gfn",
            by_gfn(SOURCE.gfn(), 0),
            by_gfn(OTHER.gfn(), 8),
            64,
            0,
        ),
        ("ref-gfn", by_ref(8, 8), by_gfn(OTHER.gfn(), 0), 4088, 1),
        ("gfn-ref", by_gfn(OTHER.gfn(), 0), by_ref(8, 0), 16, 2),
        (
            "gfn-read-only-ref",
            by_gfn(OTHER.gfn(), 0),
            by_ref(9, 0),
            16,
            2,
        ),
        ("ref-ref", by_ref(9, 0), by_ref(8, 64), 16, 3),
        ("length-0", by_ref(8, 0), by_gfn(OTHER.gfn(), 0), 0, 1),
        (
            "source-crosses",
            by_ref(8, 4090),
            by_gfn(OTHER.gfn(), 0),
            16,
            1,
        ),
        (
            "dest-crosses",
            by_ref(8, 0),
            by_gfn(OTHER.gfn(), 4090),
            16,
            1,
        ),
        (
            "offset-5000",
            by_ref(8, 5000),
            by_gfn(OTHER.gfn(), 0),
            16,
            1,
        ),
        (
            "other-domain-by-gfn",
            End {
                domid: 5,
                ..by_gfn(SOURCE.gfn(), 0)
            },
            by_gfn(OTHER.gfn(), 0),
            16,
            0,
        ),
        (
            "self-by-ref",
            End {
                domid: DOMID_SELF,
                ..by_ref(8, 0)
            },
            by_gfn(OTHER.gfn(), 0),
            16,
            1,
        ),
        (
            "nobody-by-ref",
            End {
                domid: 1234,
                ..by_ref(8, 0)
            },
            by_gfn(OTHER.gfn(), 0),
            16,
            1,
        ),
        ("invalid-ref", by_ref(20, 0), by_gfn(OTHER.gfn(), 0), 16, 1),
        (
            "to-hole",
            by_ref(8, 0),
            by_gfn((HOLE >> 12) + 0x3_0000, 0),
            16,
            1,
        ),
        ("gfn-ones", by_ref(8, 0), by_gfn(u64::MAX, 0), 16, 1),
        (
            "odd-flags",
            by_ref(8, 0),
            by_gfn(OTHER.gfn(), 0),
            16,
            0xfff9,
        ),
    ];
    for (name, source, dest, len, flags) in both {
        let (ret, status) = copy(source, dest, len, flags);
        fact!(("copy-{name}"), "{ret} status={status}");
        match name {
            "gfn-gfn" => check!(
                OTHER.u64(16).load(Ordering::Acquire) == 1,
                "copied text differs"
            ),
            "ref-gfn" => check!(
                OTHER.u64(4080).load(Ordering::Acquire) == 511,
                "copied text differs"
            ),
            _ => true,
        };
    }
    check!(
        flags(8) == 1 && flags(9) == 5,
        "copies leave flags {:#x} {:#x}",
        flags(8),
        flags(9)
    );
}

fn lists() {
    let mut two = [Map::default(); 2];
    two[0] = Map {
        host: MAPPED,
        flags: HOST_MAP,
        gref: 20,
        ..Map::default()
    };
    two[1] = Map {
        host: MAPPED + 0x1000,
        flags: HOST_MAP,
        gref: 8,
        ..Map::default()
    };
    fact!(
        "list-bad-then-good",
        "{} status={} {}",
        grant_op(0, &mut two),
        two[0].status,
        two[1].status
    );
    if two[1].status == 0 {
        let _ = unmap(MAPPED + 0x1000, two[1].handle);
    }
    let at = ptr(&mut two);
    fact!(
        "list-count-0",
        "{}",
        Ret(call(GRANT_TABLE_OP, [0, at, 0, 0, 0]))
    );
    fact!(
        "list-count-minus-1",
        "{}",
        Ret(call(GRANT_TABLE_OP, [0, at, u64::from(u32::MAX), 0, 0]))
    );
    fact!(
        "list-count-1<<32",
        "{}",
        Ret(call(GRANT_TABLE_OP, [0, at, 1 << 32, 0, 0]))
    );
    for sub in [3u64, 4, 7, 11, 12] {
        let mut buffer = [0u64; 8];
        fact!(
            ("sub-{sub}"),
            "{}",
            grant_op(sub, core::slice::from_mut(&mut buffer))
        );
    }
}
