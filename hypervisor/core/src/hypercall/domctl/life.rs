//! Life cycle: what a domain is doing, pausing it, ending it.

use x86_model::apic::DeliveryMode;
use xen_abi::Errno;
use xen_abi::domctl::{SendTrigger, SetDomainHandle, trigger, version};

use super::{Done, Op, Result};
use crate::domain::DomainRef;

/// Work that a piece of a domain's end stands for, in the units of [`super::super::Call::should_restart`].
const PIECE: u32 = 400;

/// `getdomaininfo`. Up to interface 0x15 the first domain from the one asked for on; later ones ask for exactly one.
pub fn info(o: &mut Op<'_, '_, '_>, asked: Option<DomainRef>) -> Result {
    let hv = o.call.hv();
    let d = match asked {
        Some(d) => d,
        None if !o.arg.domain.is_ordinary() => return Err(Errno::EINVAL),
        None if o.arg.interface_version > version::XEN_4_17 => return Err(Errno::ESRCH),
        None => hv.next_domain(o.arg.domain).ok_or(Errno::ESRCH)?,
    };
    let info = hv.domain_info(&d);
    o.arg.domain = d.id;
    o.put(&info)
}

/// `destroydomain`, piece by piece.
pub fn destroy(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    o.not_self(d)?;
    loop {
        if o.call.hv().kill_domain(d) {
            return Ok(Done::Quiet);
        }
        o.call.spend(PIECE);
        if o.call.should_restart() {
            return Ok(Done::Again);
        }
    }
}

/// `pausedomain`.
pub fn pause(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    o.not_self(d)?;
    o.call.hv().pause_domain(d)?;
    Ok(Done::Quiet)
}

/// `unpausedomain`.
pub fn unpause(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    o.call.hv().unpause_domain(d)?;
    Ok(Done::Quiet)
}

/// `resumedomain`.
pub fn resume(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    o.not_self(d)?;
    o.call.hv().resume_domain(d);
    Ok(Done::Quiet)
}

/// `setdomainhandle`.
pub fn set_handle(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: SetDomainHandle = o.get()?;
    *d.handle.lock() = a.handle;
    Ok(Done::Quiet)
}

/// `sendtrigger`. The buttons belong to a power management block that only HVM domains have; pressing them does nothing,
/// as on Xen.
pub fn trigger(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: SendTrigger = o.get()?;
    let vcpu = d.vcpu(a.vcpu).ok_or(Errno::ESRCH)?;
    match a.trigger {
        trigger::NMI => {
            o.call.hv().deliver_to(vcpu, DeliveryMode::Nmi, 0, false);
            Ok(Done::Quiet)
        }
        trigger::POWER | trigger::SLEEP => Ok(Done::Quiet),
        _ => Err(Errno::ENOSYS),
    }
}
