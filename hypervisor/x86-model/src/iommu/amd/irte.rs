//! Interrupt-remapping table entries in both formats (2.2.5), and the messages that name them. Each device has a table
//! of its own, so that no device can send another's interrupts.

use crate::iommu::{RemappedMessage, Target};

/// log2 of the entries of a device's table. Message data has eleven bits of index, but bits 10:8 are the delivery mode
/// of an untranslated message: 0 and 1 are the two modes that tables apply to.
pub const TABLE_LOG2: u8 = 9;
/// Entries of a device's table.
pub const TABLE_ENTRIES: u32 = 1 << TABLE_LOG2;

/// Format of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 32 bits, 8-bit destinations.
    Narrow,
    /// 128 bits, 32-bit destinations (with the guest-APIC and the x2APIC feature on).
    Wide,
}

impl Format {
    /// Bytes of an entry.
    pub const fn bytes(self) -> usize {
        match self {
            Format::Narrow => 4,
            Format::Wide => 16,
        }
    }

    /// An entry that remaps to `target`, as two 64-bit words; the narrow format uses the low 32 bits. `None` if the
    /// destination does not fit. All zero is an entry that remaps nothing.
    pub fn entry(self, target: &Target) -> Option<[u64; 2]> {
        // RemapEn; interrupt type fixed or arbitrated; destination mode. RqEoi stays clear: the IO-APIC's end of interrupt
        // is signalled to it directly.
        let low = 1 | u64::from(target.lowest) << 2 | u64::from(target.logical) << 6;
        let (dest, vector) = (u64::from(target.dest), u64::from(target.vector));
        match self {
            Format::Narrow if dest > 0xff => None,
            Format::Narrow => Some([low | dest << 8 | vector << 16, 0]),
            Format::Wide => Some([low | (dest & 0xff_ffff) << 8, vector | dest >> 24 << 56]),
        }
    }

    /// What an entry says; `None` if it remaps nothing. Trigger mode is the message's, so `level` is false.
    pub fn target(self, entry: [u64; 2]) -> Option<Target> {
        let [low, high] = entry;
        if low & 1 == 0 {
            return None;
        }
        let (dest, vector) = match self {
            Format::Narrow => (low >> 8 & 0xff, low >> 16),
            Format::Wide => (low >> 8 & 0xff_ffff | high >> 56 << 24, high),
        };
        Some(Target {
            dest: dest as u32,
            logical: low >> 6 & 1 != 0,
            lowest: low >> 2 & 7 == 1,
            vector: vector as u8,
            level: false,
        })
    }
}

/// The message that a device sends for entry `index` of its table.
pub const fn message(index: u16) -> RemappedMessage {
    RemappedMessage {
        address: 0xfee0_0000,
        data: (index & 0x7ff) as u32,
    }
}

/// The IO-APIC redirection entry for entry `index` of its table, unmasked. Its vector and delivery mode fields are the
/// index.
pub const fn redirection(index: u16, level: bool, low: bool) -> u64 {
    (index & 0x7ff) as u64 | (level as u64) << 15 | (low as u64) << 13
}

/// Indexes to try for a pin that will raise `vector`, best first: those whose low byte is the vector, then all others whose
/// low byte can be a vector (0x10 and above). The IO-APIC takes the low byte for the pin's vector, so that an end of interrupt
/// that is broadcast finds this pin and no other. More pins than two can have the same vector, on different CPUs: the others'
/// interrupts are ended by the IO-APIC's register, and a broadcast that finds them meanwhile does no harm, for a pin is masked
/// from its arrival to its end.
pub fn pin_indexes(vector: u8) -> impl Iterator<Item = u32> {
    let own = (0..TABLE_ENTRIES / 256).map(move |n| n * 256 + u32::from(vector));
    own.chain(
        (0..TABLE_ENTRIES)
            .rev()
            .filter(move |&i| i as u8 != vector && i as u8 >= 0x10),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec::Vec;

    const TARGET: Target = Target {
        dest: 0x12,
        logical: false,
        lowest: false,
        vector: 0x31,
        level: false,
    };

    #[test]
    fn fields_stand_where_the_manual_has_them() {
        assert_eq!(Format::Narrow.entry(&TARGET), Some([0x0031_1201, 0]));
        let all = Target {
            dest: 0x8765_4321,
            logical: true,
            lowest: true,
            ..TARGET
        };
        assert_eq!(
            Format::Wide.entry(&all),
            Some([0x6543_2145, 0x8700_0000_0000_0031])
        );
        assert_eq!(Format::Narrow.entry(&all), None);
        assert_eq!(Format::Wide.target([0, 0x31]), None);
    }

    #[test]
    fn messages_and_redirections() {
        assert_eq!(
            message(0x1ff),
            RemappedMessage {
                address: 0xfee0_0000,
                data: 0x1ff
            }
        );
        assert_eq!(redirection(0x131, true, true), 0xa131);
        assert_eq!(redirection(0xe0, false, false), 0xe0);
        assert_eq!(
            pin_indexes(0x31).take(4).collect::<Vec<_>>(),
            [0x31, 0x131, 0x1ff, 0x1fe]
        );
    }

    proptest! {
        #[test]
        fn targets_survive_the_way_there_and_back(dest in any::<u32>(), logical in any::<bool>(), lowest in any::<bool>(), vector in any::<u8>()) {
            let t = Target { dest, logical, lowest, vector, level: false };
            let wide = Format::Wide.entry(&t).unwrap();
            prop_assert_eq!(Format::Wide.target(wide), Some(t));
            // GuestMode, RqEoi and SupIOPF stay clear, and so do the reserved bits.
            prop_assert_eq!(wide[0] & (0xa2 | !0xffff_ffff), 0);
            prop_assert_eq!(wide[1] & 0x00ff_ffff_ffff_ff00, 0);
            let narrow = Format::Narrow.entry(&t);
            prop_assert_eq!(narrow.is_some(), dest <= 0xff);
            if let Some(n) = narrow {
                prop_assert_eq!(Format::Narrow.target(n), Some(t));
                prop_assert_eq!(n[0] & 0xff00_00a2, 0);
            }
        }

        #[test]
        fn a_table_holds_every_index_that_a_pin_gets(vector in 0x10u8..) {
            let all: Vec<u32> = pin_indexes(vector).collect();
            for (n, &i) in all.iter().enumerate() {
                prop_assert!(i < TABLE_ENTRIES && i & 0xff >= 0x10);
                prop_assert_eq!(i as u8 == vector, n < 2);
                prop_assert_eq!(redirection(i as u16, true, false) as u8, i as u8);
            }
            let distinct: std::collections::BTreeSet<u32> = all.iter().copied().collect();
            prop_assert_eq!((all.len(), distinct.len()), (480, 480));
        }
    }
}
