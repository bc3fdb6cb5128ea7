//! The MSI capability of one function. The guest sees one vector's worth of its own registers; the device is given the
//! hypervisor's message. Mask and pending bits are the device's own.

use core::fmt::Debug;

use hv_hw::machine::MsiMessage;
use x86_model::Width;
use x86_model::msi::{Message, MsiControl};
use x86_model::pci::Bdf;

use super::PciHost;
use crate::hvm::vlapic::Ipi;

/// Control bits that the guest does not see from the device: enable, both vector counts (one vector is offered: several
/// would have to be contiguous), extended message data.
const CONTROL_VIRTUAL: u16 = 0x067f;

#[derive(Debug)]
pub(super) struct Msi<V> {
    /// Offset of the capability.
    at: u16,
    caps: MsiControl,
    enabled: bool,
    address: u64,
    data: u16,
    vector: Option<V>,
}

/// The message of these registers as an interrupt, if it is one that a local APIC accepts, or one that names a pirq.
pub(super) fn as_interrupt(address: u64, data: u32) -> Option<Ipi> {
    if let Some(pirq) = x86_model::msi::xen_pirq(address, data) {
        return Some(Ipi::of_pirq(pirq));
    }
    let m = Message::decode(address, data)?;
    (!m.mode.has_vector() || m.vector >= 16).then(|| Ipi::from_message(&m))
}

impl<V: Copy + Debug + PartialEq> Msi<V> {
    /// Reads the capability and turns it off if firmware left it on.
    pub fn probe<H: PciHost<Vector = V>>(bdf: Bdf, at: u16, host: &mut H) -> Self {
        let caps = MsiControl(host.config_read(bdf, at + 2, Width::B2) as u16);
        let m = Self {
            at,
            caps,
            enabled: false,
            address: 0,
            data: 0,
            vector: None,
        };
        if caps.enabled() {
            m.switch(bdf, false, host);
        }
        m
    }

    pub fn covers(&self, word: u16) -> bool {
        (self.at..self.at + self.caps.size()).contains(&word)
    }

    /// Registers that are the device's own: mask and pending.
    fn is_mask(&self, offset: u16) -> bool {
        self.caps.mask_offset().is_some_and(|m| offset >= m)
    }

    pub fn view(&self, word: u16, raw: u32) -> u32 {
        match word - self.at {
            0 => raw & !(u32::from(CONTROL_VIRTUAL) << 16) | u32::from(self.enabled) << 16,
            4 => self.address as u32,
            8 if self.caps.is_64() => (self.address >> 32) as u32,
            o if o == self.caps.data_offset() => self.data.into(),
            _ => raw,
        }
    }

    pub fn set<H: PciHost<Vector = V>>(
        &mut self,
        bdf: Bdf,
        word: u16,
        mask: u32,
        value: u32,
        host: &mut H,
    ) {
        let offset = word - self.at;
        let merge = |old: u32| old & !mask | value;
        match offset {
            0 => {
                if mask & 1 << 16 == 0 {
                    return;
                }
                let on = value & 1 << 16 != 0;
                if on == self.enabled {
                    return;
                }
                self.enabled = on;
                if !on {
                    self.switch(bdf, false, host);
                    self.release(host);
                    return;
                }
            }
            4 => {
                self.address =
                    self.address & !0xffff_ffff | u64::from(merge(self.address as u32) & !3)
            }
            8 if self.caps.is_64() => {
                let high = merge((self.address >> 32) as u32);
                self.address = self.address & 0xffff_ffff | u64::from(high) << 32;
            }
            o if o == self.caps.data_offset() => self.data = merge(self.data.into()) as u16,
            o if self.is_mask(o) => {
                let old = host.config_read(bdf, word, Width::B4);
                host.config_write(bdf, word, Width::B4, merge(old));
                return;
            }
            _ => return,
        }
        if self.enabled {
            self.program(bdf, host);
        }
    }

    /// Binds the guest's message and writes the physical one. Without a vector the device stays off.
    fn program<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) {
        let bound = match as_interrupt(self.address, self.data.into()) {
            Some(guest) => host.bind(bdf, self.vector.take(), &guest),
            // A message half written: what was bound stays until it is whole.
            None if self.vector.is_some() => return,
            None => None,
        };
        let Some((vector, message)) = bound else {
            self.switch(bdf, false, host);
            return;
        };
        self.vector = Some(vector);
        self.write(bdf, message, host);
        self.switch(bdf, true, host);
    }

    /// Writes the physical message. The data first: what an enabled device sends in between has the new vector on the old
    /// CPU, where [`PciHost::message`] has made it known.
    fn write<H: PciHost<Vector = V>>(&self, bdf: Bdf, message: MsiMessage, host: &mut H) {
        host.config_write(
            bdf,
            self.at + self.caps.data_offset(),
            Width::B2,
            message.data & 0xffff,
        );
        if self.caps.is_64() {
            host.config_write(bdf, self.at + 8, Width::B4, (message.address >> 32) as u32);
        }
        host.config_write(bdf, self.at + 4, Width::B4, message.address as u32);
    }

    pub fn owns(&self, vector: V) -> bool {
        self.vector == Some(vector)
    }

    /// The vector has moved.
    pub fn readdress<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) {
        if let Some(message) = self.vector.and_then(|v| host.message(bdf, v)) {
            self.write(bdf, message, host);
            // An answer comes after all that the device sent before.
            host.config_read(bdf, self.at + 4, Width::B4);
        }
    }

    /// Writes the physical enable bit, with one vector allotted.
    fn switch<H: PciHost<Vector = V>>(&self, bdf: Bdf, on: bool, host: &mut H) {
        let control =
            host.config_read(bdf, self.at + 2, Width::B2) as u16 & !(MsiControl::WRITABLE | 0x400);
        host.config_write(
            bdf,
            self.at + 2,
            Width::B2,
            u32::from(control | u16::from(on)),
        );
    }

    pub fn restore<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) {
        if self.enabled {
            self.program(bdf, host);
        }
    }

    pub fn release<H: PciHost<Vector = V>>(&mut self, host: &mut H) {
        if let Some(v) = self.vector.take() {
            host.unbind(v);
        }
    }
}
