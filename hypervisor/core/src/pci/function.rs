//! One PCI function: which of its registers are filtered, and where its MSI-X table lies.

use core::fmt::Debug;
use core::ops::Range;

use x86_model::Width;
use x86_model::pci::{
    BarKind, Bdf, CAP_MSI, CAP_MSIX, COMMAND_MEMORY, STATUS_CAPABILITIES, bar_count, bar_kind, cfg,
};

use super::PciHost;
use super::msi::Msi;
use super::msix::Msix;

/// Bridge register word with the primary, secondary and subordinate bus numbers.
pub(super) const BUS_NUMBERS: u16 = 0x18;
/// Capability id of PCI Express.
const CAP_EXPRESS: u8 = 0x10;
/// Extended capability id of SR-IOV, and its size.
const EXT_SRIOV: u16 = 0x10;
const SRIOV_SIZE: u16 = 0x40;
/// Bounds on list walks: more entries than fit into the space mean a loop.
const MAX_CAPS: usize = 48;
const MAX_EXT_CAPS: usize = 128;

#[derive(Debug)]
pub(super) struct Function<V> {
    header: u8,
    msi: Option<Msi<V>>,
    msix: Option<Msix<V>>,
    /// Offset of the SR-IOV capability, which is hidden: its virtual functions would send unfiltered messages.
    sriov: Option<u16>,
}

impl<V: Copy + Debug + PartialEq> Function<V> {
    /// Looks at a function; `None` if it is absent.
    pub fn probe<H: PciHost<Vector = V>>(bdf: Bdf, host: &mut H) -> Option<Self> {
        if host.config_read(bdf, cfg::VENDOR, Width::B2) == 0xffff {
            return None;
        }
        let mut f = Self {
            header: host.config_read(bdf, cfg::HEADER_TYPE, Width::B1) as u8 & 0x7f,
            msi: None,
            msix: None,
            sriov: None,
        };
        let status = host.config_read(bdf, cfg::STATUS, Width::B2) as u16;
        if status & STATUS_CAPABILITIES == 0 || f.header > 1 {
            return Some(f);
        }
        let mut express = false;
        let mut at = host.config_read(bdf, cfg::CAPABILITIES, Width::B1) as u16 & 0xfc;
        for _ in 0..MAX_CAPS {
            if at < 0x40 {
                break;
            }
            let head = host.config_read(bdf, at, Width::B2);
            match head as u8 {
                CAP_MSI if f.msi.is_none() && at <= 0xe8 => f.msi = Some(Msi::probe(bdf, at, host)),
                CAP_MSIX if f.msix.is_none() && at <= 0xf4 => f.msix = Msix::probe(bdf, at, host),
                CAP_EXPRESS => express = true,
                _ => {}
            }
            at = (head >> 8) as u16 & 0xfc;
        }
        if express {
            f.sriov = find_sriov(bdf, host);
        }
        Some(f)
    }

    pub fn msix(&self) -> Option<&Msix<V>> {
        self.msix.as_ref()
    }

    pub fn msix_mut(&mut self) -> Option<&mut Msix<V>> {
        self.msix.as_mut()
    }

    /// Whether the 32-bit word at `word` is not simply the device's.
    pub fn filters(&self, word: u16) -> bool {
        self.msi.as_ref().is_some_and(|m| m.covers(word))
            || self.msix.as_ref().is_some_and(|m| m.covers(word))
            || self
                .sriov
                .is_some_and(|at| (at..at + SRIOV_SIZE).contains(&word))
    }

    /// What the guest reads in a filtered word.
    pub fn view<H: PciHost<Vector = V>>(&self, bdf: Bdf, word: u16, host: &mut H) -> u32 {
        let raw = host.config_read(bdf, word, Width::B4);
        if let Some(m) = self.msi.as_ref().filter(|m| m.covers(word)) {
            return m.view(word, raw);
        }
        if let Some(m) = self.msix.as_ref().filter(|m| m.covers(word)) {
            return m.view(word, raw);
        }
        match self.sriov {
            // A null capability that only leads to the next one.
            Some(at) if at == word => raw & 0xfff0_0000,
            _ => 0,
        }
    }

    /// A guest write to a filtered word: the bytes in `mask` become those of `value`.
    pub fn set<H: PciHost<Vector = V>>(
        &mut self,
        bdf: Bdf,
        word: u16,
        mask: u32,
        value: u32,
        host: &mut H,
    ) {
        if let Some(m) = self.msi.as_mut().filter(|m| m.covers(word)) {
            m.set(bdf, word, mask, value, host);
        } else if let Some(m) = self.msix.as_mut().filter(|m| m.covers(word)) {
            m.set(bdf, word, mask, value, host);
        }
    }

    /// Secondary and subordinate bus, if `word` is where a bridge keeps them.
    pub fn bridge_buses<H: PciHost<Vector = V>>(
        &self,
        bdf: Bdf,
        word: u16,
        host: &mut H,
    ) -> Option<(u8, u8)> {
        if self.header != 1 || word != BUS_NUMBERS {
            return None;
        }
        let v = host.config_read(bdf, BUS_NUMBERS, Width::B4);
        Some(((v >> 8) as u8, (v >> 16) as u8))
    }

    /// Whether a write to this word can move the MSI-X table or switch its decoding.
    pub fn moves_table(&self, word: u16) -> bool {
        let bars = cfg::BAR0..cfg::BAR0 + 4 * u16::from(bar_count(self.header));
        self.msix.is_some() && (word == cfg::COMMAND || bars.contains(&word))
    }

    /// Reads where the table is decoded. `None` if that has not changed; otherwise its range now, if it has one.
    pub fn locate_table<H: PciHost<Vector = V>>(
        &mut self,
        bdf: Bdf,
        host: &mut H,
    ) -> Option<Option<Range<u64>>> {
        let count = bar_count(self.header);
        let msix = self.msix.as_mut()?;
        let base = bar_address(bdf, msix.bar(), count, host);
        msix.set_base(base, host)
    }

    /// Rewrites the physical registers.
    pub fn restore<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) {
        if let Some(m) = &mut self.msi {
            m.restore(bdf, host);
        }
        if let Some(m) = &mut self.msix {
            m.restore(bdf, host);
        }
    }

    /// Whether one of its messages has this vector.
    pub fn owns(&self, vector: V) -> bool {
        self.msi.as_ref().is_some_and(|m| m.owns(vector))
            || self
                .msix
                .as_ref()
                .is_some_and(|m| m.slot_of(vector).is_some())
    }

    /// Writes the message of a vector again; false if no message has it.
    pub fn readdress<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, vector: V, host: &mut H) -> bool {
        if let Some(m) = self.msi.as_mut().filter(|m| m.owns(vector)) {
            m.readdress(bdf, host);
            return true;
        }
        self.msix
            .as_ref()
            .is_some_and(|m| m.readdress(vector, host))
    }

    /// Gives all vectors back.
    pub fn release<H: PciHost<Vector = V>>(&mut self, host: &mut H) {
        if let Some(m) = &mut self.msi {
            m.release(host);
        }
        if let Some(m) = &mut self.msix {
            m.release(host);
        }
    }
}

/// Address of a memory BAR while it is decoded.
fn bar_address<H: PciHost>(bdf: Bdf, bar: u8, count: u8, host: &mut H) -> Option<u64> {
    let command = host.config_read(bdf, cfg::COMMAND, Width::B2) as u16;
    if command & COMMAND_MEMORY == 0 || bar >= count {
        return None;
    }
    let register = cfg::BAR0 + 4 * u16::from(bar);
    let low = host.config_read(bdf, register, Width::B4);
    let high = match bar_kind(low) {
        BarKind::Io => return None,
        BarKind::Memory32 => 0,
        BarKind::Memory64 if bar + 1 < count => host.config_read(bdf, register + 4, Width::B4),
        BarKind::Memory64 => return None,
    };
    let address = u64::from(high) << 32 | u64::from(low & !0xf);
    // Zero is "not placed"; an address beyond what processors reach is a sizing probe.
    (address != 0 && address >> 52 == 0).then_some(address)
}

fn find_sriov<H: PciHost>(bdf: Bdf, host: &mut H) -> Option<u16> {
    let mut at = 0x100;
    for _ in 0..MAX_EXT_CAPS {
        let head = host.config_read(bdf, at, Width::B4);
        if head == 0 || head == u32::MAX {
            return None;
        }
        if head as u16 == EXT_SRIOV {
            return Some(at);
        }
        at = (head >> 20) as u16 & 0xffc;
        if at < 0x100 {
            return None;
        }
    }
    None
}
