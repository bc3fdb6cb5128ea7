//! `event_channel_op` (32): names the sub-operations and their arguments; the work is in [`crate::evtchn`].

use alloc::sync::Arc;

use x86_model::Gfn;
use xen_abi::event_channel::{
    EvtchnAllocUnbound, EvtchnBindInterdomain, EvtchnBindIpi, EvtchnBindPirq, EvtchnBindVcpu,
    EvtchnBindVirq, EvtchnClose, EvtchnExpandArray, EvtchnInitControl, EvtchnReset, EvtchnSend,
    EvtchnSetPriority, EvtchnStatus, EvtchnUnmask, op,
};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Call, HcResult, ptr};
use crate::domain::{DomainRef, Life};
use crate::evtchn::{self, Sent};

/// Ports that one reset closes before it restarts.
const RESET_BUDGET: u32 = 256;

/// Reads the argument, runs `f`, writes the argument back. The output is probed before `f` has its effects.
fn in_out<T>(
    call: &mut Call<'_, '_>,
    arg: u64,
    f: impl FnOnce(&mut Call<'_, '_>, &mut T) -> Result<(), Errno>,
) -> HcResult
where
    T: FromBytes + IntoBytes + Immutable,
{
    let mut a: T = call.memory().read(ptr(arg))?;
    call.memory().probe_out(ptr(arg), size_of::<T>())?;
    f(call, &mut a)?;
    call.memory().write(ptr(arg), &a)?;
    Ok(0)
}

/// `event_channel_op(sub, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, ..]: [u64; 5]) -> HcResult {
    match sub as u32 {
        op::SEND => {
            let a: EvtchnSend = call.memory().read(ptr(arg))?;
            send(call, a.port)
        }
        op::UNMASK => {
            let a: EvtchnUnmask = call.memory().read(ptr(arg))?;
            let d = call.domain();
            let notify = d.evtchn.unmask(&**d, a.port)?;
            call.hv().notified(d, notify);
            Ok(0)
        }
        op::ALLOC_UNBOUND => in_out(call, arg, |call, a: &mut EvtchnAllocUnbound| {
            let owner = call.target(a.dom)?;
            if owner.life() != Life::Alive {
                return Err(Errno::EINVAL);
            }
            let remote = if a.remote_dom == DomId::SELF {
                call.domain().id
            } else {
                a.remote_dom
            };
            a.port = owner.evtchn.alloc_unbound(remote)?;
            Ok(())
        }),
        op::BIND_INTERDOMAIN => in_out(call, arg, bind_interdomain),
        op::BIND_VIRQ => in_out(call, arg, |call, a: &mut EvtchnBindVirq| {
            a.port = call.domain().evtchn.bind_virq(a.virq, a.vcpu)?;
            Ok(())
        }),
        op::BIND_IPI => in_out(call, arg, |call, a: &mut EvtchnBindIpi| {
            a.port = call.domain().evtchn.bind_ipi(a.vcpu)?;
            Ok(())
        }),
        op::BIND_PIRQ => in_out(call, arg, |call, a: &mut EvtchnBindPirq| {
            // Without pirqs, physical interrupts come through the domain's interrupt controllers.
            let d = Arc::clone(call.domain());
            if d.pirqs.is_none() {
                return Err(Errno::EINVAL);
            }
            a.port = d.bind_pirq(call.hv(), a.pirq)?;
            Ok(())
        }),
        op::CLOSE => {
            let a: EvtchnClose = call.memory().read(ptr(arg))?;
            evtchn::close(&**call.domain(), a.port, |id| call.hv().domain(id))?;
            Ok(0)
        }
        op::STATUS => in_out(call, arg, |call, a: &mut EvtchnStatus| {
            call.target(a.dom)?.evtchn.status(a)
        }),
        op::BIND_VCPU => {
            let a: EvtchnBindVcpu = call.memory().read(ptr(arg))?;
            call.domain().evtchn.bind_vcpu(a.port, a.vcpu)?;
            Ok(0)
        }
        op::RESET => reset(call, arg),
        op::INIT_CONTROL | op::EXPAND_ARRAY if !cfg!(CONFIG_EVTCHN_FIFO) => Err(Errno::EOPNOTSUPP),
        op::INIT_CONTROL => in_out(call, arg, |call, a: &mut EvtchnInitControl| {
            let d = call.domain();
            let frame = d.p2m.own_frame(Gfn(a.control_gfn));
            a.link_bits = d.evtchn.init_control(a.vcpu, frame, a.offset)?;
            Ok(())
        }),
        op::EXPAND_ARRAY => {
            let a: EvtchnExpandArray = call.memory().read(ptr(arg))?;
            let d = call.domain();
            let frame = d.p2m.own_frame(Gfn(a.array_gfn));
            let notify = d.evtchn.expand_array(&**d, frame)?;
            call.hv().notified(d, notify);
            Ok(0)
        }
        op::SET_PRIORITY => {
            let a: EvtchnSetPriority = call.memory().read(ptr(arg))?;
            call.domain().evtchn.set_priority(a.port, a.priority)?;
            Ok(0)
        }
        _ => Err(Errno::ENOSYS),
    }
}

#[inline]
fn send(call: &mut Call<'_, '_>, port: u32) -> HcResult {
    let hv = call.hv();
    let d = call.domain();
    match evtchn::send(&**d, port, |id| hv.domain(id))? {
        Sent::Local(notify) => hv.notified(d, notify),
        Sent::Peer(peer, notify) => hv.notified(&peer, notify),
    }
    Ok(0)
}

fn bind_interdomain(call: &mut Call<'_, '_>, a: &mut EvtchnBindInterdomain) -> Result<(), Errno> {
    let d: DomainRef = Arc::clone(call.domain());
    let remote = call.hv().resolve(&d, a.remote_dom).ok_or(Errno::ESRCH)?;
    let (port, notify) = evtchn::bind_interdomain(&*d, &*remote, a.remote_port)?;
    call.hv().notified(&d, notify);
    a.local_port = port;
    Ok(())
}

fn reset(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let a: EvtchnReset = call.memory().read(ptr(arg))?;
    let target = call.target(a.dom)?;
    // A restarted call finds the ports that it closed closed, and passes over them.
    let mut first = 1;
    loop {
        match evtchn::reset(&*target, first, RESET_BUDGET, |id| call.hv().domain(id))? {
            None => return Ok(0),
            Some(next) => first = next,
        }
        if call.should_restart() {
            return call.restart([op::RESET.into(), arg, 0, 0, 0]);
        }
    }
}
