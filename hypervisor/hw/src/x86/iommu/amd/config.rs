//! The unit's own PCI function: its message. By the port pair, at boot only, when no domain uses it.

use x86_model::msi::MsiControl;
use x86_model::pci::{CAP_MSI, PORT_ADDRESS, PORT_DATA, STATUS_CAPABILITIES, cfg};

use super::super::super::asm;

fn select(device: u16, register: u16) {
    let address = 1 << 31 | u32::from(device) << 8 | u32::from(register & 0xfc);
    // SAFETY: the latch selects a register and does nothing else; the boot CPU is alone.
    unsafe { asm::outl(PORT_ADDRESS, address) };
}

fn read(device: u16, register: u16) -> u32 {
    select(device, register);
    asm::inl(PORT_DATA)
}

fn write(device: u16, register: u16, value: u32) {
    select(device, register);
    // SAFETY: only called for the message registers of an IOMMU, with a message to a vector of the hypervisor's own.
    unsafe { asm::outl(PORT_DATA, value) };
}

/// Sets the message that the function sends, and enables it. False if it has none.
pub fn set_message(device: u16, address: u32, data: u16) -> bool {
    if read(device, cfg::COMMAND) >> 16 & u32::from(STATUS_CAPABILITIES) == 0
        || read(device, cfg::VENDOR) as u16 == 0xffff
    {
        return false;
    }
    let mut at = read(device, cfg::CAPABILITIES) as u16 & 0xfc;
    for _ in 0..48 {
        if at < 0x40 {
            return false;
        }
        let head = read(device, at);
        if head as u8 == CAP_MSI {
            let control = MsiControl((head >> 16) as u16);
            write(device, at + 4, address);
            if control.is_64() {
                write(device, at + 8, 0);
            }
            // The data register is the low half of its word; the high half is reserved or extended data.
            write(device, at + control.data_offset(), data.into());
            if let Some(mask) = control.mask_offset() {
                write(device, at + mask, 0);
            }
            let on = control.0 & !MsiControl::WRITABLE | 1;
            write(device, at, head & 0xffff | u32::from(on) << 16);
            return true;
        }
        at = (head >> 8) as u16 & 0xfc;
    }
    false
}
