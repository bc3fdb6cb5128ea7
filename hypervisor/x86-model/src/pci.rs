//! PCI configuration space as data: addresses of functions, registers, base-address registers, capability ids.

use core::fmt;

/// Segment, bus, device and function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf {
    /// PCI segment (domain, in Linux's words).
    pub segment: u16,
    /// Bus.
    pub bus: u8,
    /// Device (7:3) and function (2:0).
    pub devfn: u8,
}

impl Bdf {
    /// In segment 0; `device` below 32 and `function` below 8, higher bits are cut off.
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Self {
            segment: 0,
            bus,
            devfn: (device & 31) << 3 | function & 7,
        }
    }
    /// Device number.
    pub const fn device(self) -> u8 {
        self.devfn >> 3
    }
    /// Function number.
    pub const fn function(self) -> u8 {
        self.devfn & 7
    }
}

impl fmt::Debug for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{}",
            self.segment,
            self.bus,
            self.device(),
            self.function()
        )
    }
}

/// Port of the configuration address latch.
pub const PORT_ADDRESS: u16 = 0xcf8;
/// First of the four ports of the configuration data window.
pub const PORT_DATA: u16 = 0xcfc;

/// The latch at port 0xcf8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressLatch(pub u32);

impl AddressLatch {
    /// What an access to data port `0xcfc + lane` reaches; `None` with the enable bit clear. Bits 27:24 extend the
    /// register number on AMD processors.
    pub const fn target(self, lane: u16) -> Option<(Bdf, u16)> {
        if self.0 >> 31 == 0 {
            return None;
        }
        let bdf = Bdf {
            segment: 0,
            bus: (self.0 >> 16) as u8,
            devfn: (self.0 >> 8) as u8,
        };
        let register = (self.0 & 0xfc) as u16 | ((self.0 >> 24 & 0xf) as u16) << 8;
        Some((bdf, register + (lane & 3)))
    }
}

/// Offset of a function's 4 KiB of configuration space from where an ECAM window has (or would have) its bus 0.
pub const fn ecam_offset(bdf: Bdf) -> u64 {
    (bdf.bus as u64) << 20 | (bdf.devfn as u64) << 12
}

/// The function and register at an offset from bus 0 of an ECAM window of `segment`.
pub const fn ecam_target(segment: u16, offset: u64) -> Option<(Bdf, u16)> {
    if offset >> 28 != 0 {
        return None;
    }
    let bdf = Bdf {
        segment,
        bus: (offset >> 20) as u8,
        devfn: (offset >> 12) as u8,
    };
    Some((bdf, (offset & 0xfff) as u16))
}

/// Configuration register offsets of the common header and of types 0 and 1.
#[allow(missing_docs, reason = "the names are the specification's")]
pub mod cfg {
    pub const VENDOR: u16 = 0x00;
    pub const COMMAND: u16 = 0x04;
    pub const STATUS: u16 = 0x06;
    pub const CLASS: u16 = 0x08;
    pub const HEADER_TYPE: u16 = 0x0e;
    pub const BAR0: u16 = 0x10;
    pub const SECONDARY_BUS: u16 = 0x19;
    pub const CAPABILITIES: u16 = 0x34;
}

/// Command register: decodes memory.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Status register: has a capability list.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Header type: bit of a multi-function device.
pub const HEADER_MULTI: u8 = 0x80;
/// Capability id of MSI.
pub const CAP_MSI: u8 = 0x05;
/// Capability id of MSI-X.
pub const CAP_MSIX: u8 = 0x11;

/// BARs in a header of this type (low seven bits): 6 for a device, 2 for a bridge.
pub const fn bar_count(header_type: u8) -> u8 {
    match header_type & 0x7f {
        0 => 6,
        1 => 2,
        _ => 0,
    }
}

/// What a base-address register's low bits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// I/O ports.
    Io,
    /// Memory below 4 GiB.
    Memory32,
    /// Memory; the next register holds the high half.
    Memory64,
}

/// Kind of a BAR from its low register.
pub const fn bar_kind(value: u32) -> BarKind {
    if value & 1 != 0 {
        BarKind::Io
    } else if value >> 1 & 3 == 2 {
        BarKind::Memory64
    } else {
        BarKind::Memory32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latch() {
        let a = AddressLatch(0x8112_3458);
        assert_eq!(
            a.target(2),
            Some((
                Bdf {
                    segment: 0,
                    bus: 0x12,
                    devfn: 0x34
                },
                0x15a
            ))
        );
        assert_eq!(AddressLatch(0x0012_3458).target(0), None);
    }

    #[test]
    fn ecam_round_trip() {
        let bdf = Bdf::new(0x21, 3, 5);
        assert_eq!(ecam_target(0, ecam_offset(bdf) + 0x104), Some((bdf, 0x104)));
        assert_eq!(ecam_target(0, 256 << 20), None);
    }
}
