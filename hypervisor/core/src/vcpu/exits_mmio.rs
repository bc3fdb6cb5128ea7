//! Second-stage faults: emulated device pages, device memory mapped on first touch, or nothing (all-ones).

use hv_hw::machine::Stage2Fault;
use hv_hw::mem::{FrameKind, frames};
use x86_model::Mfn;

use super::exits::Next;
use super::run::Turn;

/// Handles a second-stage fault.
pub fn handle(turn: &mut Turn<'_>, fault: Stage2Fault) -> Next {
    let gfn = fault.gpa.gfn();
    match turn.domain.p2m.page_type(gfn) {
        Some(_) if !fault.write => return Next::Continue,
        _ => {}
    }
    if turn.domain.privileged
        && frames::kind(Mfn(gfn.0)) == FrameKind::Absent
        && turn.domain.p2m.map_mmio(gfn, 0).is_ok()
    {
        return Next::Continue;
    }
    turn.crash(format_args!("{fault:?}"))
}
