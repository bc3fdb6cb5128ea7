//! What an identity-mapped domain gives up is free for others, and comes back only as the very frame that it was.

use hv_core::p2m::P2m;
use hv_hw::Machine;
use hv_hw::host::FakeMachine;
use hv_hw::mem::{FrameKind, FrameRef, frames, free_frames};
use x86_model::{Gfn, Mfn};
use xen_abi::{DomId, Errno};

#[test]
fn identity_pages_return_as_the_same_frame_or_not_at_all() {
    let hw = FakeMachine::new(1);
    // The lowest: the search for any frame begins at the top, so the tables of the map do not take it.
    let mfn = (0..frames::table_len() as u64)
        .map(Mfn)
        .find(|&m| frames::kind(m) == FrameKind::Free)
        .expect("there is memory");
    let gfn = Gfn(mfn.0);
    let p2m = P2m::new(
        DomId::DOM0,
        hw.stage2_format(),
        hw.phys_bits(),
        std::iter::once(mfn.0..mfn.0 + 1).collect(),
    )
    .expect("made");
    assert_eq!(frames::claim_for_guest(mfn, 1, DomId::DOM0), 1);
    p2m.map_identity_ram(gfn, 0).expect("mapped");
    p2m.own_frame(gfn).expect("RAM").write(0, b"dom0's secret");

    let before = free_frames();
    drop(p2m.unmap(gfn).expect("there is something"));
    assert_eq!(free_frames(), before + 1);
    assert_eq!(p2m.pages(), 0);
    let guest = DomId(1);
    let other = FrameRef::take(mfn, guest, 0).expect("free again");
    let mut seen = [0xff; 13];
    other.read(0, &mut seen);
    assert_eq!(seen, [0; 13], "a guest sees what was there");
    other.write(0, b"guest's secret");

    let mut removed = Vec::new();
    let again = p2m.populate(gfn, 0, 10, &mut removed);
    assert_eq!(again, Err(Errno::ENOMEM));
    assert_eq!(p2m.pages(), 0);
    drop(other);
    assert_eq!(p2m.populate(gfn, 0, 10, &mut removed), Ok(()));
    let (frame, writable) = p2m.frame(gfn).expect("RAM");
    assert!(writable);
    assert_eq!((frame.mfn(), frame.owner()), (Mfn(gfn.0), DomId::DOM0));
    frame.read(0, &mut seen);
    assert_eq!(seen, [0; 13], "dom0 sees what was there");
    assert_eq!(p2m.populate(gfn, 0, 10, &mut removed), Err(Errno::ENOMEM));
    assert_eq!(p2m.pages(), 1);
}
