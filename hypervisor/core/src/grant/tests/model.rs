//! Random operations against a model; and with entries that are random bytes.

use proptest::prelude::*;
use xen_abi::grant_table::{GnttabCopyPtr, gntcopy};

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The granting guest writes an entry, keeping the in-use bits.
    Grant(u32, u16, u16, u64),
    Map(u32, bool, u64),
    Unmap(usize),
    Copy(u32, bool),
    /// The granting guest writes a whole header word, whatever it is.
    Scribble(u32, u32),
}

fn op(hostile: bool) -> impl Strategy<Value = Op> {
    let reference = 8..12u32;
    let flags = prop::sample::select(vec![0u16, 1, 1, 1, 2, 3, 5]);
    let weight = if hostile { 3 } else { 0 };
    prop_oneof![
        3 => (reference.clone(), flags, 1..3u16, RAM..RAM + RAM_FRAMES + 1)
            .prop_map(|(r, f, d, g)| Op::Grant(r, f, d, g)),
        4 => (reference.clone(), any::<bool>(), 0x5000..0x5008u64).prop_map(|(r, w, g)| Op::Map(r, w, g)),
        3 => (0..16usize).prop_map(Op::Unmap),
        2 => (reference.clone(), any::<bool>()).prop_map(|(r, w)| Op::Copy(r, w)),
        weight => (reference, any::<u32>()).prop_map(|(r, v)| Op::Scribble(r, v)),
    ]
}

/// A use that the model knows of.
#[derive(Clone, Copy, Debug)]
struct Use {
    reference: u32,
    write: bool,
    handle: u32,
    gfn: u64,
    /// The granting domain's frame, which later changes of the entry do not change.
    target: u64,
}

fn copy_op(reference: u32, write: bool) -> GnttabCopy {
    let grant = GnttabCopyPtr {
        frame_or_ref: reference.into(),
        domid: DomId(1),
        ..Default::default()
    };
    let own = GnttabCopyPtr {
        frame_or_ref: RAM,
        domid: DomId::SELF,
        ..Default::default()
    };
    let (source, dest, flags) = if write {
        (own, grant, gntcopy::DEST_GREF)
    } else {
        (grant, own, gntcopy::SOURCE_GREF)
    };
    GnttabCopy {
        source,
        dest,
        len: 16,
        flags,
        ..Default::default()
    }
}

fn run(ops: Vec<Op>, hostile: bool) -> Result<(), TestCaseError> {
    let w = World::new();
    let d = w.dom(1);
    d.grants.grow(1).expect("a frame");
    let in_use = gtf::READING | gtf::WRITING;
    let mut entries = HashMap::new();
    let mut uses: Vec<Use> = Vec::new();
    for op in ops {
        match op {
            Op::Grant(r, flags, to, gfn) => {
                d.grant(r, flags | d.flags(r) & in_use, to, gfn);
                entries.insert(r, (flags, to, gfn));
            }
            Op::Scribble(r, value) => {
                let frame = d.grants.frame(0, false).expect("table frame");
                frame.write(r as usize * 8, &value.to_le_bytes());
            }
            Op::Map(r, write, gfn) => {
                let (got, op) = w.map(2, 1, r, gfn, if write { RW } else { RO });
                let of_ref = || uses.iter().filter(|u| u.reference == r);
                let (pinned, writers) = (of_ref().count() > 0, of_ref().any(|u| u.write));
                let (flags, to, target) = entries.get(&r).copied().unwrap_or((0, 0, 0));
                let granted = pinned || flags & 3 == 1 && to == 2;
                let read_only = write && !writers && flags & gtf::READONLY != 0;
                let target = of_ref().next().map_or(target, |u| u.target);
                let writable = !(write && target == READ_ONLY);
                let page = (RAM..RAM + RAM_FRAMES).contains(&target) && writable;
                let free = uses.iter().all(|u| u.gfn != gfn);
                let expected = if pinned && !writable {
                    status::BAD_PAGE
                } else if !granted || read_only {
                    status::GENERAL_ERROR
                } else if !page {
                    status::BAD_PAGE
                } else if !free {
                    status::GENERAL_ERROR
                } else {
                    status::OKAY
                };
                if !hostile {
                    prop_assert_eq!(got, expected);
                }
                if got == status::OKAY {
                    uses.push(Use {
                        reference: r,
                        write,
                        handle: op.handle,
                        gfn,
                        target,
                    });
                }
            }
            Op::Unmap(i) if i < uses.len() => {
                let u = uses.remove(i);
                prop_assert_eq!(w.unmap(2, u.handle, u.gfn), status::OKAY);
            }
            Op::Unmap(_) => {
                prop_assert_eq!(w.unmap(2, 900, 0x5000), status::BAD_HANDLE);
            }
            Op::Copy(r, write) => {
                let got = w.copy(2, copy_op(r, write));
                let allowed = [status::OKAY, status::GENERAL_ERROR, status::BAD_PAGE];
                prop_assert!(allowed.contains(&got), "{}", got);
            }
        }
        prop_assert_eq!(w.dom(2).grants.mappings() as usize, uses.len());
        if !hostile {
            for r in 8..12 {
                let of_ref = || uses.iter().filter(|u| u.reference == r);
                let mut expected = 0;
                if of_ref().count() > 0 {
                    expected |= gtf::READING;
                }
                if of_ref().any(|u| u.write) {
                    expected |= gtf::WRITING;
                }
                prop_assert_eq!(d.flags(r) & in_use, expected, "entry {}", r);
            }
        }
    }
    for u in uses {
        prop_assert_eq!(w.unmap(2, u.handle, u.gfn), status::OKAY);
    }
    for gfn in RAM..RAM + RAM_FRAMES {
        prop_assert_eq!(d.extra_references(gfn), 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    #[test]
    fn behaves_like_the_model(ops in prop::collection::vec(op(false), 1..100)) {
        run(ops, false)?;
    }

    #[test]
    fn scribbled_entries_leak_nothing(ops in prop::collection::vec(op(true), 1..100)) {
        run(ops, true)?;
    }
}
