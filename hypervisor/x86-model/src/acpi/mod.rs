//! ACPI tables as bytes (ACPI 6.5, chapter 5): only what a hypervisor must know itself. No interpreter.
//!
//! Firmware is not hostile but often wrong: every parser takes a byte slice, ignores what it does not know, never
//! reads outside, and its work is bounded by the length of the slice.

pub mod aml;
pub mod dmar;
pub mod fadt;
pub mod ivrs;
pub mod load;
pub mod madt;
pub mod root;

pub use fadt::{Fadt, GenericAddress};
pub use load::{Table, Tables};
pub use madt::{CpuEntry, Madt};

/// Bytes of the header that all tables but the FACS share.
pub const HEADER: usize = 36;

/// Little-endian read at an offset; `None` past the end.
fn u8_at(b: &[u8], at: usize) -> Option<u8> {
    b.get(at).copied()
}
fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(b.get(at..)?.get(..2)?.try_into().ok()?))
}
fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(b.get(at..)?.get(..4)?.try_into().ok()?))
}
fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..)?.get(..8)?.try_into().ok()?))
}

/// Whether the bytes add up to zero.
pub fn checksum_ok(b: &[u8]) -> bool {
    b.iter().fold(0u8, |sum, &x| sum.wrapping_add(x)) == 0
}

/// The HPET table: address of the register block.
pub fn hpet_address(table: &[u8]) -> Option<u64> {
    let space = u8_at(table, 40)?;
    let address = u64_at(table, 44)?;
    (space == 0 && address != 0).then_some(address)
}

/// One PCI configuration window of the MCFG table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigWindow {
    /// Address of bus 0 of the segment (also where `first_bus` is not 0).
    pub base: u64,
    /// PCI segment.
    pub segment: u16,
    /// First bus.
    pub first_bus: u8,
    /// Last bus.
    pub last_bus: u8,
}

/// The windows of an MCFG table. Windows with a base of 0 or reversed buses are left out.
pub fn config_windows(table: &[u8]) -> impl Iterator<Item = ConfigWindow> + '_ {
    table
        .get(44..)
        .unwrap_or_default()
        .chunks_exact(16)
        .filter_map(|e| {
            Some(ConfigWindow {
                base: u64_at(e, 0)?,
                segment: u16_at(e, 8)?,
                first_bus: u8_at(e, 10)?,
                last_bus: u8_at(e, 11)?,
            })
        })
        .filter(|w| w.base != 0 && w.first_bus <= w.last_bus)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec;

    #[test]
    fn hpet_needs_memory_space() {
        let mut t = vec![0; 56];
        t[44..52].copy_from_slice(&0xfed0_0000u64.to_le_bytes());
        assert_eq!(hpet_address(&t), Some(0xfed0_0000));
        t[40] = 1;
        assert_eq!(hpet_address(&t), None);
        assert_eq!(hpet_address(&t[..50]), None);
    }

    #[test]
    fn config_windows_skip_nonsense() {
        let mut t = vec![0; 44 + 3 * 16 + 5];
        t[44..52].copy_from_slice(&0xb000_0000u64.to_le_bytes());
        t[55] = 255;
        // Second: reversed buses. Third: base 0.
        t[60..68].copy_from_slice(&0xc000_0000u64.to_le_bytes());
        t[70] = 9;
        let w: vec::Vec<_> = config_windows(&t).collect();
        assert_eq!(
            w,
            [ConfigWindow {
                base: 0xb000_0000,
                segment: 0,
                first_bus: 0,
                last_bus: 255
            }]
        );
        assert_eq!(config_windows(&t[..20]).count(), 0);
    }
}
