//! The 2-level format as 32-bit guests see it: words of 32 bits, and so a quarter of the ports. The pending bits are where they
//! are in the 64-bit layout; mask bits and selector are not.

use core::sync::atomic::{AtomicU32, Ordering};

use hv_hw::mem::FrameRef;
use xen_abi::compat::shared_info::offset;
use xen_abi::shared_info::offset::EVTCHN_PENDING;

use super::{Notify, VcpuPages, mark_upcall};

/// Ports that the format has room for.
pub const PORTS: u32 = 32 * 32;

fn word(shared_info: &FrameRef, base: usize, port: u32) -> (&AtomicU32, u32) {
    let port = port % PORTS;
    (
        shared_info.atomic_u32(base + (port / 32) as usize * 4),
        1 << (port % 32),
    )
}

/// Whether the port's pending bit is set. Ports that were made in another format have none.
pub fn is_pending(shared_info: &FrameRef, port: u32) -> bool {
    let (word, bit) = word(shared_info, EVTCHN_PENDING, port);
    port < PORTS && word.load(Ordering::Acquire) & bit != 0
}

/// Clears the port's pending bit.
pub fn clear_pending(shared_info: &FrameRef, port: u32) {
    if port < PORTS {
        let (word, bit) = word(shared_info, EVTCHN_PENDING, port);
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Makes the port pending. False if it was already, and nobody needs to know.
pub fn raise(
    shared_info: &FrameRef,
    pages: &dyn VcpuPages,
    port: u32,
    vcpu: u32,
    out: &mut Notify,
) -> bool {
    if port >= PORTS {
        return false;
    }
    let (pending, bit) = word(shared_info, EVTCHN_PENDING, port);
    if pending.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
        return false;
    }
    let (mask, bit) = word(shared_info, offset::EVTCHN_MASK, port);
    if mask.load(Ordering::SeqCst) & bit == 0 {
        select(pages, port, vcpu, out);
    }
    true
}

/// Unmasks the port; a pending event is delivered now.
pub fn unmask(
    shared_info: &FrameRef,
    pages: &dyn VcpuPages,
    port: u32,
    vcpu: u32,
    out: &mut Notify,
) {
    if port >= PORTS {
        return;
    }
    let (mask, bit) = word(shared_info, offset::EVTCHN_MASK, port);
    if mask.fetch_and(!bit, Ordering::SeqCst) & bit != 0 && is_pending(shared_info, port) {
        select(pages, port, vcpu, out);
    }
}

fn select(pages: &dyn VcpuPages, port: u32, vcpu: u32, out: &mut Notify) {
    let Some((frame, at)) = pages.vcpu_info(vcpu) else {
        return;
    };
    let bit = 1u32 << (port % PORTS / 32);
    let sel = frame.atomic_u32(at + offset::PENDING_SEL);
    if sel.fetch_or(bit, Ordering::SeqCst) & bit == 0 {
        mark_upcall(pages, vcpu, out);
    }
}
