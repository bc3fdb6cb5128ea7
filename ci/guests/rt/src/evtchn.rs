//! Event channel operations in typed form, and the guest side of the 2-level ABI.

use core::sync::atomic::Ordering;

use crate::hypercall::{Ret, evtchn_op};
use crate::shared::{MASK, PENDING, SHARED, vcpu_info};

/// Three words in, one of them out: the layout of most operations.
#[repr(C)]
struct Three(u32, u32, u32);
#[repr(C)]
struct Two(u32, u32);

/// EVTCHNOP_alloc_unbound: (domain, allowed remote domain) to port.
pub fn alloc_unbound(dom: u16, remote: u16) -> Result<u32, Ret> {
    let mut arg = Two(u32::from(dom) | u32::from(remote) << 16, 0);
    ok(evtchn_op(6, &mut arg), || arg.1)
}

/// EVTCHNOP_bind_interdomain: (remote domain, remote port) to local port.
pub fn bind_interdomain(remote: u16, port: u32) -> Result<u32, Ret> {
    let mut arg = Three(remote.into(), port, 0);
    ok(evtchn_op(0, &mut arg), || arg.2)
}

/// EVTCHNOP_bind_virq: (virq, vcpu) to port.
pub fn bind_virq(virq: u32, vcpu: u32) -> Result<u32, Ret> {
    let mut arg = Three(virq, vcpu, 0);
    ok(evtchn_op(1, &mut arg), || arg.2)
}

/// EVTCHNOP_bind_ipi: vcpu to port.
pub fn bind_ipi(vcpu: u32) -> Result<u32, Ret> {
    let mut arg = Two(vcpu, 0);
    ok(evtchn_op(7, &mut arg), || arg.1)
}

/// EVTCHNOP_bind_pirq: pirq, not shared, to port.
pub fn bind_pirq(pirq: u32) -> Result<u32, Ret> {
    let mut arg = Three(pirq, 0, 0);
    ok(evtchn_op(2, &mut arg), || arg.2)
}

/// EVTCHNOP_bind_vcpu.
pub fn bind_vcpu(port: u32, vcpu: u32) -> Ret {
    evtchn_op(8, &mut Two(port, vcpu))
}

/// EVTCHNOP_close.
pub fn close(port: u32) -> Ret {
    evtchn_op(3, &mut { port })
}

/// EVTCHNOP_send.
pub fn send(port: u32) -> Ret {
    evtchn_op(4, &mut { port })
}

/// EVTCHNOP_unmask.
pub fn unmask(port: u32) -> Ret {
    evtchn_op(9, &mut { port })
}

/// EVTCHNOP_set_priority.
pub fn set_priority(port: u32, priority: u32) -> Ret {
    evtchn_op(13, &mut Two(port, priority))
}

/// EVTCHNOP_reset.
pub fn reset(dom: u16) -> Ret {
    evtchn_op(10, &mut { dom })
}

/// Argument and answer of EVTCHNOP_status.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "the names are the ABI's")]
pub struct Status {
    pub dom: u16,
    pub pad: u16,
    pub port: u32,
    pub status: u32,
    pub vcpu: u32,
    pub u: [u32; 2],
}

/// EVTCHNOP_status.
pub fn status(dom: u16, port: u32) -> Result<Status, Ret> {
    let mut arg = Status {
        dom,
        port,
        ..Status::default()
    };
    let ret = evtchn_op(5, &mut arg);
    if ret == Ret(0) { Ok(arg) } else { Err(ret) }
}

fn ok(ret: Ret, value: impl FnOnce() -> u32) -> Result<u32, Ret> {
    if ret == Ret(0) { Ok(value()) } else { Err(ret) }
}

fn bit(base: usize, port: u32) -> (usize, u64) {
    (base + 8 * (port as usize / 64), 1 << (port % 64))
}

/// Pending bit of a 2-level port.
pub fn pending(port: u32) -> bool {
    let (at, mask) = bit(PENDING, port);
    SHARED.u64(at).load(Ordering::Acquire) & mask != 0
}

/// Clears the pending bit; returns whether it was set.
pub fn take(port: u32) -> bool {
    let (at, mask) = bit(PENDING, port);
    SHARED.u64(at).fetch_and(!mask, Ordering::AcqRel) & mask != 0
}

/// Sets or clears the mask bit without a hypercall.
pub fn set_mask(port: u32, masked: bool) {
    let (at, mask) = bit(MASK, port);
    if masked {
        SHARED.u64(at).fetch_or(mask, Ordering::AcqRel);
    } else {
        SHARED.u64(at).fetch_and(!mask, Ordering::AcqRel);
    }
}

/// Masks every 2-level port.
pub fn mask_all() {
    for word in 0..64 {
        SHARED.u64(MASK + 8 * word).store(!0, Ordering::Release);
    }
}

/// upcall_pending byte of a vCPU in shared_info.
pub fn upcall_pending(vcpu: usize) -> bool {
    SHARED.u8(vcpu_info(vcpu)).load(Ordering::Acquire) != 0
}

/// Clears the upcall_pending byte and returns the exchanged selector word.
pub fn take_selector(vcpu: usize) -> u64 {
    SHARED.u8(vcpu_info(vcpu)).store(0, Ordering::Release);
    SHARED.u64(vcpu_info(vcpu) + 8).swap(0, Ordering::AcqRel)
}
