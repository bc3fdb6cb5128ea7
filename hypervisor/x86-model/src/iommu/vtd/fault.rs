//! Fault recording registers (11.4.14) and the reasons of interrupt-remapping faults (7.1.3).

use core::fmt;

/// One recorded fault, from the two halves of its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRecord {
    /// Requester id.
    pub source: u16,
    /// Reason code.
    pub reason: u8,
    /// Interrupts: index of the entry. DMA: address, in pages.
    pub info: u64,
}

/// The bit of the register's high half that says it is filled, cleared by writing it.
pub const FILLED: u64 = 1 << 63;

impl FaultRecord {
    /// Decodes a filled register; `None` if it is empty.
    pub const fn decode(low: u64, high: u64) -> Option<Self> {
        if high & FILLED == 0 {
            return None;
        }
        let reason = (high >> 32) as u8;
        Some(Self {
            source: high as u16,
            reason,
            info: if is_interrupt(reason) {
                low >> 48
            } else {
                low >> 12
            },
        })
    }

    /// For telling faults apart.
    pub const fn key(&self) -> u64 {
        (self.source as u64) << 8 | self.reason as u64
    }
}

const fn is_interrupt(reason: u8) -> bool {
    matches!(reason, 0x20..=0x27)
}

/// What a reason code means.
pub const fn reason(code: u8) -> &'static str {
    match code {
        0x20 => "a reserved field of the request is set",
        0x21 => "the index is beyond the table",
        0x22 => "the entry is not present",
        0x23 => "the table cannot be read",
        0x24 => "a reserved field of the entry is set",
        0x25 => "the message has the old format",
        0x26 => "the entry belongs to another device",
        0x27 => "the posted-interrupt descriptor cannot be used",
        0x01..=0x0e => "DMA refused",
        _ => "unknown reason",
    }
}

impl fmt::Display for FaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bus, device, function) = (self.source >> 8, self.source >> 3 & 31, self.source & 7);
        write!(f, "{bus:02x}:{device:02x}.{function}: ")?;
        if is_interrupt(self.reason) {
            write!(f, "interrupt with index {:#x} dropped", self.info)?;
        } else {
            write!(f, "DMA to {:#x} dropped", self.info << 12)?;
        }
        write!(f, ": {} (reason {:#x})", reason(self.reason), self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn an_interrupt_fault() {
        let r = FaultRecord::decode(0x0012_0000_0000_0000, FILLED | 0x22 << 32 | 0x00fa).unwrap();
        assert_eq!(
            r.to_string(),
            "00:1f.2: interrupt with index 0x12 dropped: the entry is not present (reason 0x22)"
        );
        assert_eq!(r.key(), 0xfa22);
        assert_eq!(FaultRecord::decode(0, 0x22 << 32), None);
    }

    #[test]
    fn a_dma_fault() {
        let r = FaultRecord::decode(0x7654_3000, FILLED | 1 << 62 | 0x06 << 32 | 0x0108).unwrap();
        assert_eq!(
            r.to_string(),
            "01:01.0: DMA to 0x76543000 dropped: DMA refused (reason 0x6)"
        );
    }

    proptest! {
        #[test]
        fn any_record_can_be_told(low in any::<u64>(), high in any::<u64>()) {
            if let Some(r) = FaultRecord::decode(low, high) {
                prop_assert!(r.to_string().contains("dropped"));
            }
        }
    }
}
