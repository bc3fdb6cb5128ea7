//! What does memory_op do with the guest's own memory?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::hypercall::{DOMID_SELF, Ret, memory_op, ptr};
use guest_rt::shared::{AddToPhysmap, add_to_physmap};
use guest_rt::{Page, check, fact, shared};

guest_rt::entry!("memory", run);

static PAGES: [Page; 8] = [const { Page::new() }; 8];
static SECOND_SHARED: Page = Page::new();

#[repr(C)]
struct Reservation {
    extents: u64,
    count: u64,
    order: u32,
    flags: u32,
    domid: u16,
    pad: [u16; 3],
}

fn reservation(sub: u64, gfns: &mut [u64], order: u32, domid: u16) -> Ret {
    let count = gfns.len() as u64;
    memory_op(
        sub,
        &mut Reservation {
            extents: ptr(gfns),
            count,
            order,
            flags: 0,
            domid,
            pad: [0; 3],
        },
    )
}

const INCREASE: u64 = 0;
const DECREASE: u64 = 1;
const POPULATE: u64 = 6;

/// A fact for numbers that depend on the machine: an error by name, or only that there is a number.
fn sign(ret: Ret) -> &'static str {
    if ret.0 > 0 {
        "positive"
    } else {
        "not positive"
    }
}

fn run() {
    map();
    let pages = memory_op(3, &mut { DOMID_SELF });
    fact!("current-reservation", "{}", sign(pages));
    fact!(
        "maximum-reservation-not-smaller",
        "{}",
        memory_op(4, &mut { DOMID_SELF }).0 >= pages.0
    );
    fact!(
        "maximum-gpfn",
        "{}",
        sign(memory_op(14, &mut { DOMID_SELF }))
    );
    fact!("maximum-ram-page", "{}", sign(memory_op(2, &mut 0u64)));
    fact!(
        "current-reservation-nobody",
        "{}",
        memory_op(3, &mut 1234u16)
    );
    balloon(pages);
    physmap();
    shared_info();
    others();
}

fn map() {
    let mut entries = [0u8; 20 * 64];
    let mut arg = [64u64, ptr(&mut entries)];
    let ret = memory_op(9, &mut arg);
    let count = arg[0] as u32 as usize;
    fact!("map", "{ret} some={}", count > 2);
    let mut ram = 0u64;
    let mut last = 0u64;
    let mut sorted = true;
    let mut kernel_is_ram = false;
    for entry in entries.chunks(20).take(count.min(64)) {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|i| entry[at + i]));
        let (start, len, kind) = (word(0), word(8), entry[16]);
        sorted &= start >= last;
        last = start + len;
        if kind == 1 {
            ram += len;
            kernel_is_ram |= (start..start + len).contains(&PAGES[0].address());
        }
    }
    check!(sorted, "memory map entries overlap or are not sorted");
    check!(
        kernel_is_ram,
        "this kernel does not run in RAM, says the map"
    );
    fact!("map-ram-mib", "{}", ram >> 20);
    let mut arg = [1u64, ptr(&mut entries)];
    fact!(
        "map-one-entry",
        "{} count={}",
        memory_op(9, &mut arg),
        arg[0] as u32
    );
    let mut arg = [0u64, ptr(&mut entries)];
    fact!(
        "map-no-entry",
        "{} count={}",
        memory_op(9, &mut arg),
        arg[0] as u32
    );
    let mut arg = [64u64, 0x7f00_0000_0000];
    fact!("map-bad-buffer", "{}", memory_op(9, &mut arg));
    let mut arg = [64u64, ptr(&mut entries)];
    fact!("machine-map", "{}", memory_op(10, &mut arg));
}

fn balloon(before: Ret) {
    let gfn = PAGES[0].gfn();
    PAGES[0].u64(0).store(0xdead, Ordering::Release);
    let ret = reservation(DECREASE, &mut [gfn], 0, DOMID_SELF);
    fact!("decrease", "{ret}");
    check!(ret == Ret(1), "decrease_reservation of one page: {ret}");
    check!(
        memory_op(3, &mut { DOMID_SELF }).0 == before.0 - 1,
        "the page is still counted"
    );
    fact!(
        "read-ballooned",
        "{:#x}",
        PAGES[0].u64(0).load(Ordering::Acquire)
    );
    PAGES[0].u64(0).store(1, Ordering::Release);
    fact!(
        "decrease-again",
        "{}",
        reservation(DECREASE, &mut [gfn], 0, DOMID_SELF)
    );
    let ret = reservation(POPULATE, &mut [gfn], 0, DOMID_SELF);
    fact!("populate", "{ret}");
    check!(ret == Ret(1), "populate_physmap of one page: {ret}");
    // The page may be the old one again; what it must not hold is somebody else's data.
    let old = PAGES[0].u64(0).load(Ordering::Acquire);
    check!(old == 0 || old == 0xdead, "a populated page holds {old:#x}");
    check!(
        memory_op(3, &mut { DOMID_SELF }) == before,
        "the page is not counted again"
    );
    fact!(
        "populate-over-ram",
        "{}",
        reservation(POPULATE, &mut [gfn], 0, DOMID_SELF)
    );
    check!(
        memory_op(3, &mut { DOMID_SELF }).0 <= before.0 + 1,
        "pages appear from nothing"
    );

    // A hole in the list stops it.
    let mut list = [PAGES[1].gfn(), HOLE >> 12, PAGES[2].gfn()];
    fact!(
        "decrease-list-with-hole",
        "{}",
        reservation(DECREASE, &mut list, 0, DOMID_SELF)
    );
    let _ = reservation(POPULATE, &mut [PAGES[1].gfn()], 0, DOMID_SELF);
    fact!(
        "decrease-none",
        "{}",
        reservation(DECREASE, &mut [], 0, DOMID_SELF)
    );
    fact!(
        "decrease-gfn-ones",
        "{}",
        reservation(DECREASE, &mut [u64::MAX], 0, DOMID_SELF)
    );
    fact!(
        "decrease-order-3-unaligned",
        "{}",
        reservation(DECREASE, &mut [HOLE >> 12 | 1], 3, DOMID_SELF)
    );
    for order in [30u32, 63, 64, u32::MAX] {
        fact!(
            ("decrease-order-{order}"),
            "{}",
            reservation(DECREASE, &mut [gfn], order, DOMID_SELF)
        );
        fact!(
            ("populate-order-{order}"),
            "{}",
            reservation(POPULATE, &mut [HOLE >> 12], order, DOMID_SELF)
        );
    }
    fact!(
        "decrease-nobody",
        "{}",
        reservation(DECREASE, &mut [gfn], 0, 1234)
    );
    fact!(
        "populate-nobody",
        "{}",
        reservation(POPULATE, &mut [gfn], 0, 1234)
    );
    let mut huge = Reservation {
        extents: ptr(&mut [gfn]),
        count: 1 << 59,
        order: 0,
        flags: 0,
        domid: DOMID_SELF,
        pad: [0; 3],
    };
    fact!("decrease-count-huge", "{}", memory_op(DECREASE, &mut huge));
    huge.count = 1;
    huge.extents = 0x7f00_0000_0000;
    fact!("decrease-bad-list", "{}", memory_op(DECREASE, &mut huge));
    fact!("populate-bad-list", "{}", memory_op(POPULATE, &mut huge));
    fact!(
        "increase",
        "{}",
        reservation(INCREASE, &mut [0], 0, DOMID_SELF)
    );
    fact!("exchange", "{}", memory_op(11, &mut [0u64; 16]));
}

fn physmap() {
    let target = (HOLE >> 12) + 0x100;
    for (name, domid, space, idx, gpfn) in [
        ("space-6", DOMID_SELF, 6, 0, target),
        ("space-max", DOMID_SELF, u32::MAX, 0, target),
        ("nobody", 1234, 0, 0, target),
        ("foreign", DOMID_SELF, 4, 0, target),
        ("dev-mmio", DOMID_SELF, 5, 0xb8, target),
        ("gmfn-hole", DOMID_SELF, 2, target + 7, target),
        ("gpfn-ones", DOMID_SELF, 2, PAGES[3].gfn(), u64::MAX),
        ("gpfn-beyond-width", DOMID_SELF, 2, PAGES[3].gfn(), 1 << 40),
        ("shared-idx-1", DOMID_SELF, 0, 1, target),
    ] {
        let mut arg = AddToPhysmap {
            domid,
            size: 0,
            space,
            idx,
            gpfn,
        };
        fact!(("add-{name}"), "{}", memory_op(7, &mut arg));
    }
    // Move an own page and back: not the one above, which Xen drops in the failed moves.
    PAGES[6].u64(0).store(0x3333, Ordering::Release);
    let ret = add_to_physmap(2, PAGES[6].gfn(), target);
    fact!("move", "{ret}");
    if ret == Ret(0) {
        let seen = Page::at(target << 12).u64(0).load(Ordering::Acquire);
        check!(seen == 0x3333, "the moved page reads {seen:#x}");
        fact!(
            "move-old-place",
            "{:#x}",
            PAGES[6].u64(0).load(Ordering::Acquire)
        );
        fact!("move-back", "{}", add_to_physmap(2, target, PAGES[6].gfn()));
        check!(
            PAGES[6].u64(0).load(Ordering::Acquire) == 0x3333,
            "the page moved back differs"
        );
    }
    // domid and pad, gpfn.
    for (name, domid, gpfn) in [
        ("hole", DOMID_SELF, target + 9),
        ("ones", DOMID_SELF, u64::MAX),
        ("nobody", 1234, PAGES[4].gfn()),
        ("ram", DOMID_SELF, PAGES[4].gfn()),
    ] {
        fact!(
            ("remove-{name}"),
            "{}",
            memory_op(15, &mut [u64::from(domid), gpfn])
        );
    }
    fact!(
        "read-removed",
        "{:#x}",
        PAGES[4].u64(0).load(Ordering::Acquire)
    );
    fact!(
        "populate-removed",
        "{}",
        reservation(POPULATE, &mut [PAGES[4].gfn()], 0, DOMID_SELF)
    );

    batch(target);
}

#[repr(C)]
struct Batch {
    domid: u16,
    space: u16,
    size: u16,
    foreign: u16,
    idxs: u64,
    gpfns: u64,
    errs: u64,
}

fn batch(target: u64) {
    for (name, space, foreign) in [
        ("foreign-self", 4, DOMID_SELF),
        ("foreign-0", 4, 0),
        ("foreign-nobody", 4, 1234),
        ("foreign-xen", 4, 0x7ff2),
        ("gmfn", 2, 0),
    ] {
        let mut idxs = [PAGES[5].gfn(), HOLE >> 12];
        let mut gpfns = [target + 20, target + 21];
        let mut errs = [99i32; 2];
        let mut arg = Batch {
            domid: DOMID_SELF,
            space,
            size: 2,
            foreign,
            idxs: ptr(&mut idxs),
            gpfns: ptr(&mut gpfns),
            errs: ptr(&mut errs),
        };
        let ret = memory_op(23, &mut arg);
        fact!(
            ("batch-{name}"),
            "{ret} errs={} {}",
            Ret(errs[0].into()),
            Ret(errs[1].into())
        );
    }
}

fn shared_info() {
    shared::init();
    let first = shared::SHARED.u32(56).load(Ordering::Acquire);
    check!(first != 0, "shared_info has no clock");
    let ret = add_to_physmap(0, 0, SECOND_SHARED.gfn());
    fact!("shared-again", "{ret}");
    check!(
        SECOND_SHARED.u32(56).load(Ordering::Acquire) == first,
        "second place of shared_info has no clock"
    );
    fact!(
        "shared-old-place",
        "{:#x}",
        shared::SHARED.u32(56).load(Ordering::Acquire)
    );
    let ret = add_to_physmap(0, 0, HOLE >> 12);
    fact!(
        "shared-in-hole",
        "{ret} {}",
        Page::at(HOLE).u32(56).load(Ordering::Acquire) == first
    );
}

fn others() {
    // domid, type, id, frames and pad, first frame, list.
    for (name, domid, kind, id) in [
        ("grant", DOMID_SELF, 1u64, 0u64),
        ("status", DOMID_SELF, 1, 1),
        ("ioreq", DOMID_SELF, 0, 0),
        ("type-9", DOMID_SELF, 9, 0),
        ("nobody", 1234, 1, 0),
    ] {
        let mut size = [u64::from(domid) | kind << 16 | id << 32, 0, 0, 0];
        let ret = memory_op(28, &mut size);
        fact!(("acquire-{name}-size"), "{ret} {}", size[1] as u32);
        let mut list = [(HOLE >> 12) + 0x200];
        let mut arg = [
            u64::from(domid) | kind << 16 | id << 32,
            1,
            0,
            ptr(&mut list),
        ];
        fact!(("acquire-{name}"), "{}", memory_op(28, &mut arg));
    }
    let mut buffer = [0u64; 16];
    for sub in [5u64, 8, 12, 13, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27] {
        fact!(("sub-{sub}"), "{}", memory_op(sub, &mut buffer));
    }
}
