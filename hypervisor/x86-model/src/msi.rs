//! Message-signalled interrupts as data: the address and data of a message, the MSI and MSI-X capabilities in
//! configuration space, and MSI-X table entries.

use crate::apic::DeliveryMode;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Destination id. Bits 14:8 come from the extended-destination field (address bits 11:5), which is zero unless the
    /// guest was told to use it.
    pub dest: u32,
    /// Logical destination mode.
    pub logical: bool,
    /// Redirection hint: one of the addressed CPUs.
    pub hint: bool,
    /// Vector.
    pub vector: u8,
    /// Delivery mode.
    pub mode: DeliveryMode,
    /// Level-triggered.
    pub level: bool,
}

impl Message {
    /// Decodes an address and data; `None` if the address does not lie in the interrupt window (0xfeexxxxx).
    pub const fn decode(address: u64, data: u32) -> Option<Self> {
        if address >> 20 != 0xfee {
            return None;
        }
        Some(Self {
            dest: (address >> 12 & 0xff) as u32 | ((address >> 5 & 0x7f) as u32) << 8,
            logical: address & 1 << 2 != 0,
            hint: address & 1 << 3 != 0,
            vector: data as u8,
            mode: DeliveryMode::from_bits(data >> 8),
            level: data & 1 << 15 != 0,
        })
    }
}

/// The pirq that a message names in Xen's form, which no APIC would accept: delivery mode ExtINT with vector 0, the low byte
/// of the number in place of the destination, the rest in bits 31:8 of the upper half of the address.
pub const fn xen_pirq(address: u64, data: u32) -> Option<u32> {
    let mode = DeliveryMode::from_bits(data >> 8);
    if address as u32 >> 20 != 0xfee || address >> 32 & 0xff != 0 {
        return None;
    }
    if !matches!(mode, DeliveryMode::ExtInt) || data & 0xff != 0 {
        return None;
    }
    pirq_number(address)
}

/// The number alone, whatever the rest of the message says; `None` if it is 0, which no pirq has.
pub const fn pirq_number(address: u64) -> Option<u32> {
    match (address >> 12) as u32 & 0xff | (address >> 32) as u32 & !0xff {
        0 => None,
        pirq => Some(pirq),
    }
}

/// MSI capability: message control, at offset 2 of the capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiControl(pub u16);

impl MsiControl {
    /// Bits that software may write: enable and multiple-message enable.
    pub const WRITABLE: u16 = 0x71;

    /// Enabled.
    pub const fn enabled(self) -> bool {
        self.0 & 1 != 0
    }
    /// Vectors that the device can use (1 to 32).
    pub const fn capable(self) -> u8 {
        let log = self.0 >> 1 & 7;
        1 << if log > 5 { 5 } else { log }
    }
    /// Vectors that software allotted (1 to 32).
    pub const fn allotted(self) -> u8 {
        let log = self.0 >> 4 & 7;
        1 << if log > 5 { 5 } else { log }
    }
    /// 64-bit message address.
    pub const fn is_64(self) -> bool {
        self.0 & 1 << 7 != 0
    }
    /// Per-vector mask and pending registers.
    pub const fn maskable(self) -> bool {
        self.0 & 1 << 8 != 0
    }
    /// Offset of the data register from the capability.
    pub const fn data_offset(self) -> u16 {
        if self.is_64() { 12 } else { 8 }
    }
    /// Offset of the mask register from the capability, if there is one.
    pub const fn mask_offset(self) -> Option<u16> {
        match (self.maskable(), self.is_64()) {
            (false, _) => None,
            (true, false) => Some(12),
            (true, true) => Some(16),
        }
    }
    /// Size of the capability in bytes.
    pub const fn size(self) -> u16 {
        match (self.maskable(), self.is_64()) {
            (false, false) => 10,
            (false, true) => 14,
            (true, false) => 20,
            (true, true) => 24,
        }
    }
}

/// MSI-X capability: message control, at offset 2 of the capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixControl(pub u16);

impl MsixControl {
    /// Bits that software may write: enable and function mask.
    pub const WRITABLE: u16 = 0xc000;
    /// The enable bit.
    pub const ENABLE: u16 = 1 << 15;
    /// The function-mask bit.
    pub const MASK_ALL: u16 = 1 << 14;

    /// Entries in the table (1 to 2048).
    pub const fn entries(self) -> u16 {
        (self.0 & 0x7ff) + 1
    }
    /// Enabled.
    pub const fn enabled(self) -> bool {
        self.0 & Self::ENABLE != 0
    }
    /// All entries masked.
    pub const fn masked(self) -> bool {
        self.0 & Self::MASK_ALL != 0
    }
}

/// MSI-X table or pending-bit location: which BAR and the offset in it (offsets 4 and 8 of the capability).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixLocation(pub u32);

impl MsixLocation {
    /// BAR number; 6 and 7 are reserved.
    pub const fn bar(self) -> u8 {
        (self.0 & 7) as u8
    }
    /// Offset in the BAR in bytes.
    pub const fn offset(self) -> u32 {
        self.0 & !7
    }
}

/// Size of an MSI-X table entry in bytes.
pub const MSIX_ENTRY_SIZE: u32 = 16;

/// MSI-X table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixEntry {
    /// Message address.
    pub address: u64,
    /// Message data.
    pub data: u32,
    /// Vector control; bit 0 masks.
    pub control: u32,
}

impl MsixEntry {
    /// State after reset.
    pub const RESET: Self = Self {
        address: 0,
        data: 0,
        control: 1,
    };
    /// Masked.
    pub const fn masked(&self) -> bool {
        self.control & 1 != 0
    }
    /// The 32-bit word at byte offset 0, 4, 8 or 12.
    pub const fn word(&self, index: u32) -> u32 {
        match index & 3 {
            0 => self.address as u32,
            1 => (self.address >> 32) as u32,
            2 => self.data,
            _ => self.control,
        }
    }
    /// Sets a word. The low two address bits and the reserved control bits stay zero.
    pub const fn set_word(&mut self, index: u32, value: u32) {
        match index & 3 {
            0 => self.address = self.address & !0xffff_ffff | (value & !3) as u64,
            1 => self.address = self.address & 0xffff_ffff | (value as u64) << 32,
            2 => self.data = value,
            _ => self.control = value & 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_fields() {
        let m = Message::decode(0xfee0_500c, 0x4131).unwrap();
        assert_eq!(
            (m.dest, m.vector, m.mode),
            (5, 0x31, DeliveryMode::LowestPriority)
        );
        assert!(m.logical && m.hint && !m.level);
        assert_eq!(Message::decode(0xfee1_2020, 0).unwrap().dest, 0x112);
        assert_eq!(Message::decode(0x1_fee0_0000, 0), None);
        assert_eq!(Message::decode(0, 0), None);
    }

    #[test]
    fn msi_layouts() {
        let plain = MsiControl(0x0000);
        assert_eq!(
            (plain.data_offset(), plain.mask_offset(), plain.size()),
            (8, None, 10)
        );
        let full = MsiControl(0x018b);
        assert_eq!(
            (full.data_offset(), full.mask_offset(), full.size()),
            (12, Some(16), 24)
        );
        assert_eq!((full.capable(), MsiControl(0x50).allotted()), (32, 32));
    }

    #[test]
    fn msix_words() {
        let mut e = MsixEntry::RESET;
        for (i, v) in [0xfee0_1003, 7, 0x31, 0xffff_fffe].into_iter().enumerate() {
            e.set_word(i as u32, v);
        }
        assert_eq!(
            e,
            MsixEntry {
                address: 0x7_fee0_1000,
                data: 0x31,
                control: 0
            }
        );
        assert_eq!([0, 1, 2, 3].map(|i| e.word(i)), [0xfee0_1000, 7, 0x31, 0]);
        assert_eq!(MsixControl(0xc002).entries(), 3);
        assert_eq!(
            (MsixLocation(0x2003).bar(), MsixLocation(0x2003).offset()),
            (3, 0x2000)
        );
    }

    #[test]
    fn pirqs_in_messages() {
        let pirq = |n: u64| (n & !0xff) << 32 | 0xfee0_0000 | (n & 0xff) << 12;
        for n in [1, 0xff, 0x217, 0xff_ffff] {
            assert_eq!(xen_pirq(pirq(n), 0x700), Some(n as u32));
            assert_eq!(xen_pirq(pirq(n), 0x730), None);
            assert_eq!(xen_pirq(pirq(n), 0x030), None);
            assert_eq!(xen_pirq(pirq(n) | 1 << 32, 0x700), None);
        }
        assert_eq!(xen_pirq(pirq(0), 0x700), None);
        assert_eq!(xen_pirq(0xfed0_1000, 0x700), None);
    }
}
