//! Size, growth, versions, swapping.

use xen_abi::grant_table::{GnttabCopyPtr, gntcopy};

use super::*;

/// Writes a version 2 entry: range 0..0 for a whole page.
fn grant_v2(d: &Domain, reference: u32, flags: u16, to: u16, gfn: u64, start: u16, len: u16) {
    let frame = d.grants.frame(reference / 256, false).expect("table frame");
    let at = (reference % 256) as usize * 16;
    frame.write(at + 8, &gfn.to_le_bytes());
    frame.write(at + 4, &start.to_le_bytes());
    frame.write(at + 6, &len.to_le_bytes());
    frame.write(at + 2, &to.to_le_bytes());
    frame.write(at, &flags.to_le_bytes());
}

fn status_word(d: &Domain, reference: u32) -> u16 {
    let frame = d
        .grants
        .frame(reference / 2048, true)
        .expect("status frame");
    let mut bytes = [0; 2];
    frame.read((reference % 2048) as usize * 2, &mut bytes);
    u16::from_le_bytes(bytes)
}

fn flags_v2(d: &Domain, reference: u32) -> u16 {
    let frame = d.grants.frame(reference / 256, false).expect("table frame");
    let mut bytes = [0; 2];
    frame.read((reference % 256) as usize * 16, &mut bytes);
    u16::from_le_bytes(bytes)
}

#[test]
fn growth() {
    let w = World::new();
    let g = &w.dom(1).grants;
    assert_eq!(g.query_size(), (0, 4));
    assert_eq!(g.entries(), 0);
    let third = g.frame(2, false).unwrap();
    assert_eq!(g.query_size(), (3, 4));
    assert_eq!(g.entries(), 3 * 512);
    assert_eq!(g.frame(2, false).unwrap().mfn(), third.mfn());
    assert_eq!(g.frame(4, false).err(), Some(Errno::EINVAL));
    assert_eq!(g.frame(u32::MAX, false).err(), Some(Errno::EINVAL));
    // Version 1 has no status frames.
    assert_eq!(g.frame(0, true).err(), Some(Errno::EINVAL));
    assert_eq!(g.grow(4), Ok(()));
    assert_eq!(g.grow(5), Err(Errno::EINVAL));
    assert_eq!(g.query_size(), (4, 4));
}

#[test]
fn version_changes() {
    let w = World::new();
    let d = w.dom(1);
    assert_eq!(d.grants.version(), 1);
    for bad in [0, 3, u32::MAX] {
        assert_eq!(d.grants.set_version(bad).map(drop), Err(Errno::EINVAL));
    }
    d.grant(1, gtf::PERMIT_ACCESS, 2, RAM);
    d.grant(8, gtf::PERMIT_ACCESS, 2, RAM);
    let (_, op) = w.map(2, 1, 8, 0x5000, RW);
    assert_eq!(d.grants.set_version(2).map(drop), Err(Errno::EBUSY));
    assert_eq!(w.unmap(2, op.handle, 0x5000), status::OKAY);
    // A reserved entry may be in use; its state moves along.
    let (_, op) = w.map(2, 1, 1, 0x5000, RW);
    assert_eq!(d.grants.set_version(2).map(drop), Ok(()));
    assert_eq!(d.grants.version(), 2);
    assert_eq!(d.grants.entries(), 256);
    assert_eq!(flags_v2(d, 1), gtf::PERMIT_ACCESS);
    assert_eq!(status_word(d, 1), gtf::READING | gtf::WRITING);
    assert_eq!(flags_v2(d, 8), 0);
    assert_eq!(d.grants.set_version(1).map(drop), Ok(()));
    assert_eq!(d.flags(1), gtf::PERMIT_ACCESS | gtf::READING | gtf::WRITING);
    assert_eq!(w.unmap(2, op.handle, 0x5000), status::OKAY);
    assert_eq!(d.flags(1), gtf::PERMIT_ACCESS);
    assert_eq!(w.map(2, 1, 1, 0x5000, RW).0, status::OKAY);
    // Not for every domain.
    let w = World::with(Limits {
        max_version: 1,
        ..Limits::default()
    });
    assert_eq!(w.dom(1).grants.set_version(2).map(drop), Err(Errno::ENOSYS));
    assert_eq!(w.dom(1).grants.set_version(1).map(drop), Ok(()));
}

#[test]
fn version_2_entries() {
    let w = World::new();
    let d = w.dom(1);
    assert_eq!(d.grants.set_version(2).map(drop), Ok(()));
    assert_eq!(d.grants.grow(2), Ok(()));
    grant_v2(d, 300, gtf::PERMIT_ACCESS, 2, RAM, 0, 0);
    grant_v2(d, 301, gtf::PERMIT_ACCESS | gtf::SUB_PAGE, 2, RAM, 100, 50);
    grant_v2(d, 302, gtf::TRANSITIVE, 2, RAM, 0, 0);
    grant_v2(
        d,
        303,
        gtf::PERMIT_ACCESS | gtf::SUB_PAGE,
        2,
        RAM,
        0xffff,
        0xffff,
    );
    grant_v2(d, 304, gtf::PERMIT_ACCESS | gtf::READONLY, 2, RAM, 0, 0);
    let (s, op) = w.map(2, 1, 300, 0x5000, RW);
    assert_eq!(s, status::OKAY);
    assert_eq!(status_word(d, 300), gtf::READING | gtf::WRITING);
    assert_eq!(flags_v2(d, 300), gtf::PERMIT_ACCESS);
    assert_eq!(w.unmap(2, op.handle, 0x5000), status::OKAY);
    assert_eq!(status_word(d, 300), 0);
    for r in [301, 302, 512] {
        assert_ne!(w.map(2, 1, r, 0x5000, RO).0, status::OKAY, "{r}");
    }
    assert_eq!(w.map(2, 1, 304, 0x5000, RW).0, status::GENERAL_ERROR);
    assert_eq!(status_word(d, 304), 0);
    let copy = |r, offset, len| {
        w.copy(
            2,
            GnttabCopy {
                source: GnttabCopyPtr {
                    frame_or_ref: r,
                    domid: DomId(1),
                    offset,
                    ..Default::default()
                },
                dest: GnttabCopyPtr {
                    frame_or_ref: RAM,
                    domid: DomId::SELF,
                    ..Default::default()
                },
                len,
                flags: gntcopy::SOURCE_GREF,
                ..Default::default()
            },
        )
    };
    assert_eq!(copy(301, 100, 50), status::OKAY);
    assert_eq!(copy(301, 99, 50), status::GENERAL_ERROR);
    assert_eq!(copy(301, 101, 50), status::GENERAL_ERROR);
    assert_eq!(copy(302, 0, 1), status::GENERAL_ERROR);
    assert_eq!(copy(303, 0, 1), status::GENERAL_ERROR);
    assert_eq!(d.extra_references(RAM), 0);
    // Status frames: one serves 2048 entries.
    assert!(d.grants.frame(0, true).is_ok());
    assert_eq!(d.grants.frame(1, true).err(), Some(Errno::EINVAL));
}

#[test]
fn swapping() {
    for version in [1, 2] {
        let w = World::new();
        let d = w.dom(1);
        assert_eq!(d.grants.set_version(version).map(drop), Ok(()));
        let set = |r, gfn| match version {
            1 => d.grant(r, gtf::PERMIT_ACCESS, 2, gfn),
            _ => grant_v2(d, r, gtf::PERMIT_ACCESS, 2, gfn, 0, 0),
        };
        set(8, RAM);
        set(9, RAM + 1);
        let target = |r| {
            let (s, op) = w.map(2, 1, r, 0x5000, RW);
            assert_eq!(s, status::OKAY);
            let mfn = w.dom(2).frame(0x5000).mfn();
            assert_eq!(w.unmap(2, op.handle, 0x5000), status::OKAY);
            mfn
        };
        let before = [target(8), target(9)];
        assert_eq!(d.grants.swap(8, 9), Ok(()));
        assert_eq!([target(9), target(8)], before);
        assert_eq!(d.grants.swap(8, 8), Ok(()));
        let bad = Err(crate::grant::Status(status::BAD_GNTREF));
        assert_eq!(d.grants.swap(8, 512), bad);
        assert_eq!(d.grants.swap(u32::MAX, 8), bad);
        let _ = w.map(2, 1, 8, 0x5000, RO);
        assert_eq!(
            d.grants.swap(8, 9),
            Err(crate::grant::Status(status::EAGAIN))
        );
    }
}
