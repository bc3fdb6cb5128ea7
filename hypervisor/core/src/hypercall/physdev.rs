//! `physdev_op` (33): what a PVH dom0 tells of the hardware, and the pirqs of a domain that has them; else those sub-operations are
//! ENOSYS, as on Xen for domains without pirq emulation.

use x86_model::pci::Bdf;
use xen_abi::Errno;
use xen_abi::physdev::{
    PhysdevDbgpOp, PhysdevEoi, PhysdevGetFreePirq, PhysdevIrq, PhysdevIrqStatusQuery,
    PhysdevMapPirq, PhysdevPciDevice, PhysdevPciDeviceAdd, PhysdevPciMmcfgReserved,
    PhysdevRestoreMsi, PhysdevUnmapPirq, irq_status, map_pirq, op,
};

use super::{Call, HcResult, ptr};
use crate::domain::DomainRef;
use crate::hvm::platform::Platform;
use crate::irq::pirq::Kind;

/// `physdev_op(sub, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, ..]: [u64; 5]) -> HcResult {
    let has_pirqs = call.domain().pirqs.is_some();
    match sub as u32 {
        op::ALLOC_IRQ_VECTOR
        | op::GET_FREE_PIRQ
        | op::MAP_PIRQ
        | op::UNMAP_PIRQ
        | op::EOI
        | op::IRQ_STATUS_QUERY
            if has_pirqs =>
        {
            pirq(call, sub as u32, arg)
        }
        // Only the hardware domain has any of the others.
        _ if !call.domain().privileged => Err(Errno::ENOSYS),
        op::PCI_MMCFG_RESERVED => {
            // The windows are taken from the host's MCFG table at boot; the report changes nothing.
            let a: PhysdevPciMmcfgReserved = call.memory().read(ptr(arg))?;
            found(call, |p| {
                p.has_window(a.segment, a.address, a.start_bus, a.end_bus)
            })
        }
        op::PCI_DEVICE_ADD => {
            // Functions are found as their configuration space is looked at.
            let _: PhysdevPciDeviceAdd = call.memory().read(ptr(arg))?;
            Ok(0)
        }
        op::PCI_DEVICE_REMOVE => {
            let a: PhysdevPciDevice = call.memory().read(ptr(arg))?;
            found(call, |p| p.knows_function(bdf(a.seg, a.bus, a.devfn)))
        }
        op::RESTORE_MSI => {
            let a: PhysdevRestoreMsi = call.memory().read(ptr(arg))?;
            restore_msi(call, 0, a.bus, a.devfn)
        }
        op::RESTORE_MSI_EXT => {
            let a: PhysdevPciDevice = call.memory().read(ptr(arg))?;
            restore_msi(call, a.seg, a.bus, a.devfn)
        }
        op::DBGP_OP => {
            // The hypervisor has no USB debug port to give up or to take back.
            let _: PhysdevDbgpOp = call.memory().read(ptr(arg))?;
            Ok(0)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// What a domain with pirqs may do with them.
fn pirq(call: &mut Call<'_, '_>, sub: u32, arg: u64) -> HcResult {
    let (hv, d) = (call.hv(), DomainRef::clone(call.domain()));
    match sub {
        // Linux asks for a vector with each line, which says nothing: Xen answers the number that it got.
        op::ALLOC_IRQ_VECTOR => {
            let mut a: PhysdevIrq = call.memory().read(ptr(arg))?;
            a.vector = a.irq;
            call.memory().write(ptr(arg), &a)?;
        }
        op::GET_FREE_PIRQ => {
            let mut a: PhysdevGetFreePirq = call.memory().read(ptr(arg))?;
            call.memory().probe_out(ptr(arg), size_of_val(&a))?;
            a.pirq = d.pirqs(|p| p.take_free(a.kind != map_pirq::GSI))?;
            call.memory().write(ptr(arg), &a)?;
        }
        op::MAP_PIRQ => {
            let mut a: PhysdevMapPirq = call.read(arg)?;
            call.probe::<PhysdevMapPirq>(arg)?;
            if call.target(a.domid)?.id != d.id {
                // No device can be given away.
                return Err(Errno::EOPNOTSUPP);
            }
            let wanted = u32::try_from(a.pirq).ok();
            let pirq = match a.kind {
                map_pirq::GSI => {
                    let gsi = u32::try_from(a.index).map_err(|_| Errno::EINVAL)?;
                    d.pirqs(|p| p.map_line(gsi, wanted))?
                }
                map_pirq::MSI => d.pirqs(|p| p.map_message(wanted))?,
                _ => return Err(Errno::EINVAL),
            };
            a.pirq = pirq.cast_signed();
            call.write(arg, &a)?;
        }
        op::UNMAP_PIRQ => {
            let a: PhysdevUnmapPirq = call.memory().read(ptr(arg))?;
            if call.target(a.domid)?.id != d.id {
                return Err(Errno::EOPNOTSUPP);
            }
            let pirq = u32::try_from(a.pirq).map_err(|_| Errno::EINVAL)?;
            d.unmap_pirq(hv, pirq)?;
        }
        op::EOI => {
            let a: PhysdevEoi = call.memory().read(ptr(arg))?;
            d.end_pirq(hv, a.irq)?;
        }
        _ => {
            let mut a: PhysdevIrqStatusQuery = call.memory().read(ptr(arg))?;
            a.flags = match d.pirqs(|p| p.get(a.irq))?.0 {
                Kind::Gsi(_) => irq_status::NEEDS_EOI,
                Kind::Msi => 0,
            };
            call.memory().write(ptr(arg), &a)?;
        }
    }
    Ok(0)
}

/// ENODEV unless the platform has what was asked for.
fn found(call: &mut Call<'_, '_>, has: impl FnOnce(&Platform) -> bool) -> HcResult {
    let platform = call.domain().platform.as_ref().ok_or(Errno::ENODEV)?;
    if has(platform) {
        Ok(0)
    } else {
        Err(Errno::ENODEV)
    }
}

const fn bdf(segment: u16, bus: u8, devfn: u8) -> Bdf {
    Bdf {
        segment,
        bus,
        devfn,
    }
}

/// After a reset of the device: programs its MSI registers again from what is bound. Xen answers ENOSYS here for a PVH
/// dom0, and Linux then leaves the device without interrupts.
fn restore_msi(call: &mut Call<'_, '_>, segment: u16, bus: u8, devfn: u8) -> HcResult {
    let (hv, domain) = (call.hv(), call.domain());
    found(call, |p| {
        p.restore_msi(hv, domain, bdf(segment, bus, devfn))
    })
}
