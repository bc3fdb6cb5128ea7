//! The console of a guest that is not the control domain: a page shared with the console daemon.

use core::sync::atomic::Ordering;

use crate::hypercall::{get_param, sched_op};
use crate::{Page, evtchn};

/// HVM parameters.
const CONSOLE_PFN: u32 = 17;
const CONSOLE_EVTCHN: u32 = 18;
/// Layout of the page: input, output, then the indices of both, consumer first.
const OUT: usize = 1024;
const OUT_SIZE: u32 = 2048;
const OUT_CONS: usize = 3080;
const OUT_PROD: usize = 3084;
/// How often a full ring is looked at before the rest of the text is lost: the daemon may be gone.
const PATIENCE: u32 = 100_000;

/// Writes text; false if the domain has no such console.
pub fn write(bytes: &[u8]) -> bool {
    let (Ok(frame), Ok(port)) = (get_param(CONSOLE_PFN), get_param(CONSOLE_EVTCHN)) else {
        return false;
    };
    if frame == 0 || frame >= 1 << 20 || port == 0 {
        return false;
    }
    let page = Page::at(frame << 12);
    let mut at = page.u32(OUT_PROD).load(Ordering::Relaxed);
    for &byte in bytes {
        let mut looks = 0;
        while at.wrapping_sub(page.u32(OUT_CONS).load(Ordering::Acquire)) >= OUT_SIZE {
            looks += 1;
            if looks == PATIENCE {
                return true;
            }
            evtchn::send(port as u32);
            // SCHEDOP_yield.
            let _ = sched_op(0, &mut 0u32);
        }
        page.u8(OUT + (at % OUT_SIZE) as usize)
            .store(byte, Ordering::Relaxed);
        at = at.wrapping_add(1);
        page.u32(OUT_PROD).store(at, Ordering::Release);
    }
    evtchn::send(port as u32);
    true
}
