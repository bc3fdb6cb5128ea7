//! `physdev_op` (33): what a PVH dom0 tells of the hardware. Sub-operations that need event-channel pirqs are ENOSYS, as on
//! Xen for domains without pirq emulation.

use xen_abi::Errno;
use xen_abi::physdev::{PhysdevPciDevice, PhysdevPciDeviceAdd, PhysdevPciMmcfgReserved, op};

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
        op::DBGP_OP => Err(Errno::ENOSYS),
        _ => Err(Errno::ENOSYS),
    }
}
