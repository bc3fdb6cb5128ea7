//! Device table entries (2.2.2.1): 256 bits for each of the 65536 device ids of a segment.

/// Entries in a whole table.
pub const ENTRIES: usize = 1 << 16;

/// Bytes of an entry.
pub const BYTES: usize = 32;

/// An entry as four 64-bit words, low first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEntry(pub [u64; 4]);

/// Number of the word that holds the interrupt half, which changes on its own.
pub const INTERRUPT_WORD: usize = 2;

impl DeviceEntry {
    /// DMA passes untranslated with read and write permission; fixed and arbitrated interrupts are refused until
    /// [`interrupt_word`] names a table. `bits` are the firmware's settings (see [`crate::acpi::ivrs::Setting`]).
    pub const fn pass_dma(bits: u8) -> Self {
        // V, TV, mode 0 (no translation), IR, IW.
        let dma = 1 | 1 << 1 | 1 << 61 | 1 << 62;
        let management = ((bits >> 4 & 3) as u64) << 40;
        Self([dma, management, interrupt_word(None, bits), 0])
    }

    /// Adds the firmware's settings of a further range that covers the id.
    pub fn add_settings(&mut self, bits: u8) {
        let more = Self::pass_dma(bits);
        for (to, from) in self.0.iter_mut().zip(more.0) {
            *to |= from;
        }
    }
}

/// The interrupt half of an entry: remapped by the table at this address (a multiple of 64) with `2^log2` entries, or
/// refused. The firmware's settings decide about the kinds of interrupt that tables do not cover.
pub const fn interrupt_word(table: Option<(u64, u8)>, bits: u8) -> u64 {
    let b = bits as u64;
    let pass = (b & 7) << 56 | (b >> 6 & 3) << 62;
    // IV is set in any case: without it, all interrupts would pass.
    match table {
        Some((address, log2)) => 1 | (log2 as u64 & 15) << 1 | address | 2 << 60 | pass,
        None => 1 | pass,
    }
}

/// The firmware's settings as [`interrupt_word`] left them, without the system-management bits.
pub const fn pass_bits(word: u64) -> u8 {
    (word >> 56 & 7) as u8 | ((word >> 62 & 3) as u8) << 6
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_manual_has_them() {
        assert_eq!(
            DeviceEntry::pass_dma(0).0,
            [0x6000_0000_0000_0003, 0, 0x1, 0]
        );
        // INIT 184, ExtINT 185, NMI 186, system management 105:104, LINT0 190, LINT1 191.
        assert_eq!(
            DeviceEntry::pass_dma(0xf7).0,
            [
                0x6000_0000_0000_0003,
                0x0000_0300_0000_0000,
                0xc700_0000_0000_0001,
                0
            ]
        );
        assert_eq!(
            interrupt_word(Some((0x1234_5680, 9)), 0),
            0x2000_0000_1234_5693
        );
    }

    #[test]
    fn settings_add_up() {
        let mut e = DeviceEntry::pass_dma(1);
        e.add_settings(0x80);
        assert_eq!(e, DeviceEntry::pass_dma(0x81));
    }

    proptest! {
        #[test]
        fn reserved_bits_stay_clear(bits in any::<u8>(), table in 0u64..1 << 46, log2 in 0u8..12) {
            let w = interrupt_word(Some((table << 6, log2)), bits);
            // Bits 183:180 and 187.
            prop_assert_eq!(w & 0x08f0_0000_0000_0000, 0);
            prop_assert_eq!(w & 0x000f_ffff_ffff_ffc0, table << 6);
            prop_assert_eq!(pass_bits(w), bits & 0xc7);
            prop_assert_eq!(interrupt_word(None, pass_bits(w)) & 3 << 60, 0);
        }
    }
}
