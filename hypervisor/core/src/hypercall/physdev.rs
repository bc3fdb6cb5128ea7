//! `physdev_op` (33): what a PVH dom0 tells of the hardware. Sub-operations that need event-channel pirqs are ENOSYS, as on
//! Xen for domains without pirq emulation.

use x86_model::pci::Bdf;
use xen_abi::Errno;
use xen_abi::physdev::{
    PhysdevDbgpOp, PhysdevPciDevice, PhysdevPciDeviceAdd, PhysdevPciMmcfgReserved,
    PhysdevRestoreMsi, op,
};

use super::{Call, HcResult, ptr};

/// `physdev_op(sub, pointer)`.
pub fn handle(call: &mut Call<'_, '_>, [sub, arg, ..]: [u64; 5]) -> HcResult {
    // Only the hardware domain has any of these.
    if !call.domain().privileged {
        return Err(Errno::ENOSYS);
    }
    match sub as u32 {
        op::PCI_MMCFG_RESERVED => {
            // The windows are taken from the host's MCFG table at boot; the report changes nothing.
            let _: PhysdevPciMmcfgReserved = call.memory().read(ptr(arg))?;
            Ok(0)
        }
        op::PCI_DEVICE_ADD => {
            let _: PhysdevPciDeviceAdd = call.memory().read(ptr(arg))?;
            Ok(0)
        }
        op::PCI_DEVICE_REMOVE => {
            let _: PhysdevPciDevice = call.memory().read(ptr(arg))?;
            Ok(0)
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

/// After a reset of the device: programs its MSI registers again from what is bound. Xen answers ENOSYS here for a PVH
/// dom0, and Linux then leaves the device without interrupts.
fn restore_msi(call: &mut Call<'_, '_>, segment: u16, bus: u8, devfn: u8) -> HcResult {
    let platform = call.domain().platform.as_ref().ok_or(Errno::ENODEV)?;
    let bdf = Bdf {
        segment,
        bus,
        devfn,
    };
    if platform.restore_msi(call.hv(), call.domain(), bdf) {
        Ok(0)
    } else {
        Err(Errno::ENODEV)
    }
}
