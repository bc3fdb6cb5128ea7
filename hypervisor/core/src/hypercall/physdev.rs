//! `physdev_op` (33): what a PVH dom0 tells of the hardware. Sub-operations that need event-channel pirqs are ENOSYS, as on
//! Xen for domains without pirq emulation.

use x86_model::pci::Bdf;
use xen_abi::Errno;
use xen_abi::physdev::{
    PhysdevDbgpOp, PhysdevPciDevice, PhysdevPciDeviceAdd, PhysdevPciMmcfgReserved,
    PhysdevRestoreMsi, op,
};

use super::{Call, HcResult, ptr};
use crate::hvm::platform::Platform;

/// `physdev_op(sub, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, ..]: [u64; 5]) -> HcResult {
    // Only the hardware domain has any of these.
    if !call.domain().privileged {
        return Err(Errno::ENOSYS);
    }
    match sub as u32 {
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
