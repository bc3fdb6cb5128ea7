//! Time, permissions for devices, and what is refused for a reason of its own.

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use xen_abi::Errno;
use xen_abi::domctl::{
    IomemPermission, IoportMapping, IoportPermission, SetTimeOffset, SetVirqHandler, Subscribe,
    TscInfo, VcpuMsrs,
};
use xen_abi::virq::nr;

use super::{Done, Op, Result};
use crate::domain::DomainRef;
use crate::evtchn::{Scope, virq_scope};

/// One past the last I/O port.
const PORTS: u32 = 1 << 16;

/// No domain but the control domain has device memory, so forbidding it is done and allowing it is not there.
fn permit(allow: u8) -> Result {
    if allow == 0 {
        Ok(Done::Quiet)
    } else {
        Err(Errno::EOPNOTSUPP)
    }
}

/// `iomem_permission`.
pub fn iomem(o: &mut Op<'_, '_, '_>) -> Result {
    let a: IomemPermission = o.get()?;
    let last = a.first_mfn.wrapping_add(a.nr_mfns).wrapping_sub(1);
    if last < a.first_mfn {
        return Err(Errno::EINVAL);
    }
    // Beyond what the control domain has itself.
    if last >> 40 != 0 {
        return Err(Errno::EPERM);
    }
    permit(a.allow_access)
}

/// `ioport_permission`.
pub fn ioport(o: &mut Op<'_, '_, '_>) -> Result {
    let a: IoportPermission = o.get()?;
    match a.first_port.checked_add(a.nr_ports) {
        Some(end) if end > a.first_port && end <= PORTS => permit(a.allow_access),
        _ => Err(Errno::EINVAL),
    }
}

/// `ioport_mapping`.
pub fn map_ports(o: &mut Op<'_, '_, '_>) -> Result {
    let a: IoportMapping = o.get()?;
    let fits = |first: u32| {
        first
            .checked_add(a.nr_ports)
            .is_some_and(|end| a.nr_ports != 0 && end <= PORTS)
    };
    if fits(a.first_gport) && fits(a.first_mport) {
        Err(Errno::EPERM)
    } else {
        Err(Errno::EINVAL)
    }
}

/// `settimeoffset`.
pub fn set_time_offset(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: SetTimeOffset = o.get()?;
    d.time_offset
        .store(a.time_offset_seconds, Ordering::Relaxed);
    d.publish_wallclock(o.call.hv().wallclock());
    Ok(Done::Quiet)
}

/// `gettscinfo`.
pub fn get_tsc(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    o.not_self(d)?;
    let hw = &o.call.hv().hw;
    let kept = *d.tsc.lock();
    let a = TscInfo {
        gtsc_khz: hw.tsc_khz(),
        // The domain reads the machine's TSC, from the machine's start on.
        elapsed_nsec: hw.now_ns(),
        ..kept
    };
    o.put(&a)
}

/// `settscinfo`: modes that let the domain read the TSC itself. The rate is the machine's.
pub fn set_tsc(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    const DEFAULT: u32 = 0;
    const ALWAYS_EMULATE: u32 = 1;
    const NEVER_EMULATE: u32 = 2;
    let a: TscInfo = o.get()?;
    o.not_self(d)?;
    let khz = o.call.hv().hw.tsc_khz();
    match a.tsc_mode {
        DEFAULT | NEVER_EMULATE if a.gtsc_khz == 0 || a.gtsc_khz == khz => {}
        DEFAULT | ALWAYS_EMULATE | NEVER_EMULATE => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    }
    *d.tsc.lock() = TscInfo {
        incarnation: a.incarnation.wrapping_add(1),
        ..a
    };
    Ok(Done::Quiet)
}

/// `set_virq_handler`.
pub fn set_virq_handler(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: SetVirqHandler = o.get()?;
    if a.virq >= nr::COUNT || virq_scope(a.virq) != Some(Scope::Global) {
        return Err(Errno::EINVAL);
    }
    o.call.hv().set_virq_handler(a.virq, d.id);
    Ok(Done::Quiet)
}

/// `subscribe`: the port that says that the domain has suspended itself.
pub fn subscribe(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: Subscribe = o.get()?;
    d.suspend_port.store(a.port, Ordering::Relaxed);
    Ok(Done::Quiet)
}

/// `get_vcpu_msrs`, `set_vcpu_msrs`: for PV.
pub fn vcpu_msrs(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: VcpuMsrs = o.get()?;
    d.vcpu(a.vcpu).ok_or(Errno::ESRCH)?;
    Err(Errno::EINVAL)
}

/// `debug_op`: needs hardware that traps after each instruction of a guest.
pub fn single_step(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let [_, vcpu]: [u32; 2] = o.get()?;
    d.vcpu(vcpu).ok_or(Errno::EINVAL)?;
    o.not_self(d)?;
    Err(Errno::EOPNOTSUPP)
}
