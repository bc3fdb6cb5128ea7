//! Copying.

use xen_abi::grant_table::{GnttabCopyPtr, gntcopy};

use super::*;

fn ptr(dom: u16, frame_or_ref: u64, offset: u16) -> GnttabCopyPtr {
    GnttabCopyPtr {
        frame_or_ref,
        domid: DomId(dom),
        offset,
        ..Default::default()
    }
}

fn op(source: GnttabCopyPtr, dest: GnttabCopyPtr, len: u16, flags: u16) -> GnttabCopy {
    GnttabCopy {
        source,
        dest,
        len,
        flags,
        ..Default::default()
    }
}

const SELF: u16 = DomId::SELF.0;

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 256) as u8).collect()
}

#[test]
fn both_directions() {
    let w = World::new();
    let (a, b) = (w.dom(1), w.dom(2));
    a.grant(8, gtf::PERMIT_ACCESS | gtf::READONLY, 2, RAM);
    a.grant(9, gtf::PERMIT_ACCESS, 2, RAM + 1);
    let bytes = pattern(4096);
    a.frame(RAM).write(0, &bytes);
    // From a grant into the caller's own page, at odd places.
    let s = w.copy(
        2,
        op(
            ptr(1, 8, 3),
            ptr(SELF, RAM, 1001),
            3000,
            gntcopy::SOURCE_GREF,
        ),
    );
    assert_eq!(s, status::OKAY);
    let mut got = vec![0; 4096];
    b.frame(RAM).read(0, &mut got);
    assert_eq!(got[1001..4001], bytes[3..3003]);
    assert!(got[..1001].iter().chain(&got[4001..]).all(|&x| x == 0));
    // From the caller's page into a grant, and from grant to grant.
    let s = w.copy(
        2,
        op(ptr(SELF, RAM, 1001), ptr(1, 9, 0), 3000, gntcopy::DEST_GREF),
    );
    assert_eq!(s, status::OKAY);
    let both = gntcopy::SOURCE_GREF | gntcopy::DEST_GREF;
    assert_eq!(
        w.copy(2, op(ptr(1, 8, 0), ptr(1, 9, 0), 4096, both)),
        status::OKAY
    );
    a.frame(RAM + 1).read(0, &mut got);
    assert_eq!(got, bytes);
    assert_eq!(
        w.copy(2, op(ptr(1, 8, 4096), ptr(1, 9, 0), 0, both)),
        status::OKAY
    );
    for (r, flags) in [
        (8, gtf::PERMIT_ACCESS | gtf::READONLY),
        (9, gtf::PERMIT_ACCESS),
    ] {
        assert_eq!(a.flags(r), flags);
    }
    assert_eq!(a.extra_references(RAM), 0);
}

#[test]
fn refusals() {
    let w = World::new();
    let a = w.dom(1);
    a.grant(8, gtf::PERMIT_ACCESS | gtf::READONLY, 2, RAM);
    a.grant(9, gtf::PERMIT_ACCESS, 2, RAM);
    a.grant(10, gtf::PERMIT_ACCESS, 2, READ_ONLY);
    let own = ptr(SELF, RAM, 0);
    let (src, dst) = (gntcopy::SOURCE_GREF, gntcopy::DEST_GREF);
    let cases = [
        // Frames of others, or of oneself by number.
        (op(ptr(1, RAM, 0), own, 1, 0), status::PERMISSION_DENIED),
        (op(ptr(2, RAM, 0), own, 1, 0), status::PERMISSION_DENIED),
        (op(own, ptr(1, RAM, 0), 1, 0), status::PERMISSION_DENIED),
        (op(ptr(9, 8, 0), own, 1, src), status::BAD_DOMAIN),
        (
            op(ptr(SELF, RAM + RAM_FRAMES, 0), own, 1, 0),
            status::BAD_PAGE,
        ),
        (op(own, ptr(SELF, READ_ONLY, 0), 1, 0), status::BAD_PAGE),
        (op(own, ptr(SELF, u64::MAX, 0), 1, 0), status::BAD_PAGE),
        (op(ptr(1, 512, 0), own, 1, src), status::BAD_GNTREF),
        (op(ptr(1, 7, 0), own, 1, src), status::GENERAL_ERROR),
        (op(own, ptr(1, 8, 0), 1, dst), status::GENERAL_ERROR),
        (op(own, ptr(1, 10, 0), 1, dst), status::BAD_PAGE),
        (op(ptr(1, 9, 4096), own, 1, src), status::BAD_COPY_ARG),
        (op(ptr(1, 9, 0), own, 4097, src), status::BAD_COPY_ARG),
        (
            op(ptr(1, 9, 0), ptr(SELF, RAM, 4000), 97, src),
            status::BAD_COPY_ARG,
        ),
        (
            op(ptr(1, 9, 0xffff), ptr(SELF, RAM, 0xffff), 0xffff, src),
            status::BAD_COPY_ARG,
        ),
        (
            op(ptr(1, 9, 0), ptr(SELF, RAM, 4000), 96, src),
            status::OKAY,
        ),
    ];
    for (i, (case, expected)) in cases.into_iter().enumerate() {
        assert_eq!(w.copy(2, case), expected, "case {i}");
    }
    for r in 7..11 {
        assert_eq!(a.flags(r) & (gtf::READING | gtf::WRITING), 0);
    }
    assert_eq!(a.extra_references(RAM), 0);
}

#[test]
fn a_read_only_mapping_does_not_block_a_writing_copy() {
    let w = World::new();
    let a = w.dom(1);
    a.grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let (_, mapped) = w.map(2, 1, 8, 0x5000, RO);
    assert_eq!(a.flags(8), gtf::PERMIT_ACCESS | gtf::READING);
    let s = w.copy(
        2,
        op(ptr(SELF, RAM, 0), ptr(1, 8, 0), 10, gntcopy::DEST_GREF),
    );
    assert_eq!(s, status::OKAY);
    assert_eq!(a.flags(8), gtf::PERMIT_ACCESS | gtf::READING);
    // Made read-only while mapped: no new writer.
    a.grant(8, gtf::PERMIT_ACCESS | gtf::READONLY | gtf::READING, 2, RAM);
    let s = w.copy(
        2,
        op(ptr(SELF, RAM, 0), ptr(1, 8, 0), 10, gntcopy::DEST_GREF),
    );
    assert_eq!(s, status::GENERAL_ERROR);
    assert_eq!(w.unmap(2, mapped.handle, 0x5000), status::OKAY);
}
