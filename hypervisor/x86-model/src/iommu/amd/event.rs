//! Event log records (2.5).

use core::fmt;

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Event code, bits 63:60 of the record.
    pub code: u8,
    /// Flags, bits 59:48.
    pub flags: u16,
    /// Device id, where the code has one.
    pub device: u16,
    /// Address, where the code has one.
    pub address: u64,
}

const PAGE_FAULT: u8 = 2;
/// Page fault: the request was an interrupt.
const INTERRUPT: u16 = 1 << 3;

impl Event {
    /// Decodes a record (two 64-bit words, low first); `None` for one that is not written yet (code 0).
    pub const fn decode(record: [u64; 2]) -> Option<Self> {
        let [low, high] = record;
        let code = (low >> 60) as u8;
        if code == 0 {
            return None;
        }
        Some(Self {
            code,
            flags: (low >> 48 & 0xfff) as u16,
            device: low as u16,
            address: high,
        })
    }

    /// For telling events apart.
    pub const fn key(&self) -> u64 {
        (self.device as u64) << 8 | self.code as u64
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bus, device, function) = (self.device >> 8, self.device >> 3 & 31, self.device & 7);
        // Some codes are the IOMMU's own affair and name no device.
        if !matches!(self.code, 5 | 6) {
            write!(f, "{bus:02x}:{device:02x}.{function}: ")?;
        }
        let what = match self.code {
            1 => "the device table entry is not valid",
            PAGE_FAULT if self.flags & INTERRUPT != 0 => "interrupt dropped",
            PAGE_FAULT => "DMA refused",
            3 => "the device table cannot be read",
            4 => "a page table cannot be read",
            5 => "invalid command",
            6 => "the command buffer cannot be read",
            7 => "the device does not answer an invalidation",
            8 => "invalid request",
            9 => "invalid page request",
            _ => "unknown event",
        };
        write!(
            f,
            "{what} (event {:#x}, flags {:#x}, address {:#x})",
            self.code, self.flags, self.address
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn an_interrupt_that_was_dropped() {
        let e = Event::decode([0x2008_0000_0000_00a0, 0xfee0_0031]).unwrap();
        assert_eq!(
            e.to_string(),
            "00:14.0: interrupt dropped (event 0x2, flags 0x8, address 0xfee00031)"
        );
        assert_eq!(e.key(), 0xa002);
        assert_eq!(Event::decode([0, 5]), None);
    }

    #[test]
    fn the_iommus_own_errors_name_no_device() {
        let e = Event::decode([0x5000_0000_0000_0000, 0x1000]).unwrap();
        assert_eq!(
            e.to_string(),
            "invalid command (event 0x5, flags 0x0, address 0x1000)"
        );
    }

    proptest! {
        #[test]
        fn any_record_can_be_told(low in any::<u64>(), high in any::<u64>()) {
            if let Some(e) = Event::decode([low, high]) {
                prop_assert!(e.to_string().contains("event"));
            }
        }
    }
}
