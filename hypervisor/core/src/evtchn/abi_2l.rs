//! The 2-level format: a pending and a mask bit per port in the shared page, a selector word per vCPU.
//!
//! The bits belong to the guest as much as to the hypervisor: each step is one atomic operation, and nothing is
//! remembered besides them.

use core::sync::atomic::{AtomicU64, Ordering};

use hv_hw::mem::FrameRef;
use xen_abi::event_channel::two_level;
use xen_abi::shared_info::offset;

use super::{Notify, VcpuPages, mark_upcall};

/// Ports that the format has room for.
pub const PORTS: u32 = two_level::NR_CHANNELS;

fn word(shared_info: &FrameRef, base: usize, port: u32) -> (&AtomicU64, u64) {
    // Ports of this format are below 4096; the modulus only keeps a mistake inside the bitmap.
    let port = port % PORTS;
    (
        shared_info.atomic_u64(base + (port / 64) as usize * 8),
        1 << (port % 64),
    )
}

/// Whether the port's pending bit is set.
pub fn is_pending(shared_info: &FrameRef, port: u32) -> bool {
    let (word, bit) = word(shared_info, offset::EVTCHN_PENDING, port);
    word.load(Ordering::Acquire) & bit != 0
}

/// Clears the port's pending bit.
pub fn clear_pending(shared_info: &FrameRef, port: u32) {
    let (word, bit) = word(shared_info, offset::EVTCHN_PENDING, port);
    word.fetch_and(!bit, Ordering::AcqRel);
}

/// Makes the port pending. False if it was already, and nobody needs to know.
pub fn raise(
    shared_info: &FrameRef,
    pages: &dyn VcpuPages,
    port: u32,
    vcpu: u32,
    out: &mut Notify,
) -> bool {
    let (pending, bit) = word(shared_info, offset::EVTCHN_PENDING, port);
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
    let (mask, bit) = word(shared_info, offset::EVTCHN_MASK, port);
    if mask.fetch_and(!bit, Ordering::SeqCst) & bit != 0 && is_pending(shared_info, port) {
        select(pages, port, vcpu, out);
    }
}

/// Points the vCPU at the port's word. A vCPU without vcpu_info finds the event when it registers one: that sets every
/// selector bit.
fn select(pages: &dyn VcpuPages, port: u32, vcpu: u32, out: &mut Notify) {
    let Some((frame, at)) = pages.vcpu_info(vcpu) else {
        return;
    };
    let word = port % PORTS / 64;
    if at % 8 != 0 {
        // Registered when the guest had the 32-bit layout, whose words are smaller.
        let bit = 1u32 << (word % 32);
        let half = at + offset::PENDING_SEL + (word / 32) as usize * 4;
        if frame.atomic_u32(half).fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            mark_upcall(pages, vcpu, out);
        }
        return;
    }
    let bit = 1u64 << word;
    let sel = frame.atomic_u64(at + offset::PENDING_SEL);
    if sel.fetch_or(bit, Ordering::SeqCst) & bit == 0 {
        mark_upcall(pages, vcpu, out);
    }
}
