//! The MSI-X capability and table of one function. The guest's table lives here; the physical one holds the hypervisor's
//! messages for the entries that the guest has unmasked, and is masked elsewhere.

use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Range;

use hv_hw::machine::MsiMessage;
use x86_model::msi::{MSIX_ENTRY_SIZE, MsixControl, MsixEntry, MsixLocation, xen_pirq};
use x86_model::pci::Bdf;
use x86_model::{Hpa, Width};

use super::PciHost;
use super::msi::as_interrupt;

/// Whether an entry raises nothing. One that names a pirq is masked by its event channel alone: Linux leaves its mask bit set.
fn closed(entry: &MsixEntry) -> bool {
    entry.masked() && xen_pirq(entry.address, entry.data).is_none()
}

#[derive(Clone, Copy, Debug)]
struct Slot<V> {
    entry: MsixEntry,
    vector: Option<V>,
}

#[derive(Debug)]
pub(super) struct Msix<V> {
    /// The function.
    bdf: Bdf,
    /// Offset of the capability.
    at: u16,
    /// Enable and function mask, as the guest set them.
    control: MsixControl,
    table: MsixLocation,
    slots: Vec<Slot<V>>,
    /// Address of the table while its BAR is decoded.
    base: Option<u64>,
}

impl<V: Copy + Debug + PartialEq> Msix<V> {
    /// Reads the capability and turns it off if firmware left it on. `None` if the table's BAR number is reserved.
    pub fn probe<H: PciHost<Vector = V>>(bdf: Bdf, at: u16, host: &mut H) -> Option<Self> {
        let control = MsixControl(host.config_read(bdf, at + 2, Width::B2) as u16);
        let table = MsixLocation(host.config_read(bdf, at + 4, Width::B4));
        if control.enabled() {
            let off = control.0 & !MsixControl::WRITABLE;
            host.config_write(bdf, at + 2, Width::B2, off.into());
        }
        let slot = Slot {
            entry: MsixEntry::RESET,
            vector: None,
        };
        (table.bar() < 6).then(|| Self {
            bdf,
            at,
            control: MsixControl(0),
            table,
            slots: alloc::vec![slot; control.entries().into()],
            base: None,
        })
    }

    pub fn covers(&self, word: u16) -> bool {
        (self.at..self.at + 12).contains(&word)
    }

    pub fn bar(&self) -> u8 {
        self.table.bar()
    }

    /// Notes where the BAR is decoded. `None` if that has not changed; otherwise the table's range, if it has one.
    pub fn set_base<H: PciHost<Vector = V>>(
        &mut self,
        bar: Option<u64>,
        host: &mut H,
    ) -> Option<Option<Range<u64>>> {
        let base = bar.and_then(|b| b.checked_add(self.table.offset().into()));
        if base == self.base {
            return None;
        }
        self.base = base;
        let range = base.map(|b| b..b + self.slots.len() as u64 * u64::from(MSIX_ENTRY_SIZE));
        // Writes made while the table was away reach the device now.
        self.sync_all(host);
        Some(range)
    }

    pub fn view(&self, word: u16, raw: u32) -> u32 {
        if word != self.at {
            return raw;
        }
        let virt = u32::from(MsixControl::WRITABLE) << 16;
        raw & !virt | u32::from(self.control.0) << 16 & virt
    }

    pub fn set<H: PciHost<Vector = V>>(
        &mut self,
        bdf: Bdf,
        word: u16,
        mask: u32,
        value: u32,
        host: &mut H,
    ) {
        if word != self.at || mask >> 24 == 0 {
            return;
        }
        let new = MsixControl((value >> 16) as u16 & MsixControl::WRITABLE);
        let was = core::mem::replace(&mut self.control, new);
        if new.enabled() && !was.enabled() {
            self.sync_all(host);
        }
        self.switch(bdf, host);
        if !new.enabled() && was.enabled() {
            self.release(host);
        }
    }

    fn switch<H: PciHost<Vector = V>>(&self, bdf: Bdf, host: &mut H) {
        let rest = host.config_read(bdf, self.at + 2, Width::B2) as u16 & !MsixControl::WRITABLE;
        host.config_write(
            bdf,
            self.at + 2,
            Width::B2,
            u32::from(rest | self.control.0),
        );
    }

    /// Reads the guest's table. Widths other than 4 and 8 see their part of a word.
    pub fn read(&self, offset: u32, width: Width) -> u64 {
        let word = |n: u32| {
            self.slots
                .get((n / 4) as usize)
                .map_or(0, |s| u64::from(s.entry.word(n)))
        };
        let n = offset / 4;
        let wide = word(n) | word(n + 1) << 32;
        wide >> (offset % 4 * 8) & width.mask()
    }

    /// Writes the guest's table: whole 32-bit or 64-bit words, others have no effect.
    pub fn write<H: PciHost<Vector = V>>(
        &mut self,
        offset: u32,
        width: Width,
        value: u64,
        host: &mut H,
    ) {
        if !offset.is_multiple_of(4) || width < Width::B4 {
            return;
        }
        let n = offset / 4;
        self.write_word(n, value as u32, host);
        if width == Width::B8 {
            self.write_word(n + 1, (value >> 32) as u32, host);
        }
    }

    fn write_word<H: PciHost<Vector = V>>(&mut self, n: u32, value: u32, host: &mut H) {
        let index = (n / 4) as usize;
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let was_closed = closed(&slot.entry);
        slot.entry.set_word(n, value);
        // A masked entry is not looked at until it is unmasked.
        if !(was_closed && closed(&slot.entry)) {
            self.sync(index, host);
        }
    }

    /// Brings the physical entry to what the guest's asks for.
    fn sync<H: PciHost<Vector = V>>(&mut self, index: usize, host: &mut H) {
        let base = self
            .base
            .map(|b| b + index as u64 * u64::from(MSIX_ENTRY_SIZE));
        let enabled = self.control.enabled();
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let wanted = if enabled && !closed(&slot.entry) {
            as_interrupt(slot.entry.address, slot.entry.data)
        } else {
            None
        };
        let bdf = self.bdf;
        let message = wanted.and_then(|guest| {
            let (vector, message) = host.bind(bdf, slot.vector.take(), &guest)?;
            slot.vector = Some(vector);
            Some(message)
        });
        if let Some(base) = base {
            put(base, message, host);
        }
    }

    /// The entry with this vector.
    pub fn slot_of(&self, vector: V) -> Option<usize> {
        self.slots.iter().position(|s| s.vector == Some(vector))
    }

    /// A vector has moved: tells the device unless the entry is masked, which it then stays until the guest unmasks it. False
    /// if no entry has the vector.
    pub fn readdress<H: PciHost<Vector = V>>(&self, vector: V, host: &mut H) -> bool {
        let Some(index) = self.slot_of(vector) else {
            return false;
        };
        if let Some(base) = self.base
            && self.control.enabled()
            && !closed(&self.slots[index].entry)
            && let Some(message) = host.message(self.bdf, vector)
        {
            let base = base + index as u64 * u64::from(MSIX_ENTRY_SIZE);
            put(base, Some(message), host);
            // An answer comes after all that the device sent before.
            host.mmio_read(Hpa(base + 12), Width::B4);
        }
        true
    }

    /// Brings all entries that are or were in use to the device.
    fn sync_all<H: PciHost<Vector = V>>(&mut self, host: &mut H) {
        for i in 0..self.slots.len() {
            if !closed(&self.slots[i].entry) || self.slots[i].vector.is_some() {
                self.sync(i, host);
            }
        }
    }

    pub fn restore<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) {
        if self.control.enabled() {
            self.sync_all(host);
            self.switch(bdf, host);
        }
    }

    pub fn release<H: PciHost<Vector = V>>(&mut self, host: &mut H) {
        for slot in &mut self.slots {
            if let Some(v) = slot.vector.take() {
                host.unbind(v);
            }
        }
    }
}

/// Writes a physical entry, masked while it changes, so that no torn message is sent; without a message it stays masked.
fn put<H: PciHost>(base: u64, message: Option<MsiMessage>, host: &mut H) {
    host.mmio_write(Hpa(base + 12), Width::B4, 1);
    if let Some(MsiMessage { address, data }) = message {
        host.mmio_write(Hpa(base), Width::B4, address & 0xffff_ffff);
        host.mmio_write(Hpa(base + 4), Width::B4, address >> 32);
        host.mmio_write(Hpa(base + 8), Width::B4, data.into());
        host.mmio_write(Hpa(base + 12), Width::B4, 0);
    }
}
