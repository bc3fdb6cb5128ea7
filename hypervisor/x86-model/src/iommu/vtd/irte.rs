//! Interrupt-remapping table entries in the remapped format (9.10), and the messages that name them (5.1).

use crate::iommu::{RemappedMessage, Requester, Target};

/// An entry as two 64-bit words, low first. All zero is "not present".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Irte(pub [u64; 2]);

/// Bits 83:64: whose requests the entry accepts.
pub(super) const fn source_bits(requester: Requester) -> u64 {
    match requester {
        Requester::Exact(id) => id as u64 | 1 << 18,
        Requester::Device(id) => id as u64 | 3 << 16 | 1 << 18,
        Requester::Buses { first, last } => (first as u64) << 8 | last as u64 | 2 << 18,
    }
}

impl Irte {
    /// A present entry. With `extended` the destination has 32 bits; else it must fit in 8, and `None` means that it does
    /// not.
    pub fn new(target: &Target, requester: Requester, extended: bool) -> Option<Self> {
        let dest = match (extended, target.dest) {
            (true, id) => id,
            (false, id @ 0..=0xff) => id << 8,
            (false, _) => return None,
        };
        // A lowest-priority message needs the redirection hint.
        let low = 1
            | u64::from(target.logical) << 2
            | u64::from(target.lowest) << 3
            | u64::from(target.level) << 4
            | u64::from(target.lowest) << 5
            | u64::from(target.vector) << 16
            | u64::from(dest) << 32;
        Some(Irte([low, source_bits(requester)]))
    }

    /// Whether the unit uses the entry.
    pub const fn present(&self) -> bool {
        self.0[0] & 1 != 0
    }

    /// What the entry says, if it is present and in the remapped format.
    pub fn target(&self, extended: bool) -> Option<Target> {
        let low = self.0[0];
        if low & 1 == 0 || low >> 15 & 1 != 0 {
            return None;
        }
        let dest = (low >> 32) as u32;
        Some(Target {
            dest: if extended { dest } else { dest >> 8 & 0xff },
            logical: low >> 2 & 1 != 0,
            lowest: low >> 5 & 7 == 1,
            vector: (low >> 16) as u8,
            level: low >> 4 & 1 != 0,
        })
    }
}

/// The message that a device sends for entry `index`. The sub-handle is valid and 0, so that a device with several
/// messages in a row would find its entries in a row.
pub const fn message(index: u16) -> RemappedMessage {
    RemappedMessage {
        address: 0xfee0_0000
            | ((index as u32) & 0x7fff) << 5
            | 1 << 4
            | 1 << 3
            | (index as u32 >> 15) << 2,
        data: 0,
    }
}

/// The entry that a message names: handle, plus sub-handle where it is valid; `None` for the old format. Sums beyond the
/// largest index wrap as in the unit.
pub const fn message_index(m: RemappedMessage) -> Option<u16> {
    if m.address >> 20 != 0xfee || m.address & 1 << 4 == 0 {
        return None;
    }
    let handle = (m.address >> 5 & 0x7fff) as u16 | ((m.address >> 2 & 1) as u16) << 15;
    let sub = if m.address & 1 << 3 != 0 {
        m.data as u16
    } else {
        0
    };
    Some(handle.wrapping_add(sub))
}

/// The IO-APIC redirection entry for entry `index`, unmasked. Vector and trigger mode must be the remapping entry's: by
/// the vector the end of interrupt finds the pin.
pub const fn redirection(index: u16, vector: u8, level: bool, low: bool) -> u64 {
    (index as u64 & 0x7fff) << 49
        | 1 << 48
        | (level as u64) << 15
        | (low as u64) << 13
        | (index as u64 >> 15) << 11
        | vector as u64
}

/// The entry that a redirection entry names; `None` for the old format.
pub const fn redirection_index(entry: u64) -> Option<u16> {
    if entry >> 48 & 1 == 0 {
        None
    } else {
        Some((entry >> 49) as u16 | ((entry >> 11 & 1) as u16) << 15)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;

    const TARGET: Target = Target {
        dest: 0x0102_0304,
        logical: false,
        lowest: false,
        vector: 0x31,
        level: false,
    };

    #[test]
    fn entry_fields_stand_where_the_manual_has_them() {
        let e = Irte::new(&TARGET, Requester::Exact(0x00fa), true).unwrap();
        assert_eq!(e.0, [0x0102_0304_0031_0001, 0x0004_00fa]);
        let e = Irte::new(
            &Target {
                dest: 0x0003_000f,
                logical: true,
                lowest: true,
                level: true,
                ..TARGET
            },
            Requester::Buses { first: 3, last: 5 },
            true,
        )
        .unwrap();
        // P, DM, RH, TM, DLM = 1.
        assert_eq!(e.0, [0x0003_000f_0031_003d, 0x0008_0305]);
        assert_eq!(
            Irte::new(&TARGET, Requester::Device(0xf0f8), true)
                .unwrap()
                .0[1],
            0x0007_f0f8
        );
    }

    #[test]
    fn eight_bit_destinations() {
        let small = Target {
            dest: 0xfe,
            ..TARGET
        };
        let e = Irte::new(&small, Requester::Exact(0), false).unwrap();
        assert_eq!(e.0[0], 0x0000_fe00_0031_0001);
        assert_eq!(e.target(false), Some(small));
        assert_eq!(Irte::new(&TARGET, Requester::Exact(0), false), None);
    }

    #[test]
    fn what_is_no_remapped_entry() {
        assert_eq!(Irte::default().target(true), None);
        assert!(!Irte::default().present());
        assert_eq!(Irte([1 | 1 << 15, 0]).target(true), None);
    }

    #[test]
    fn message_fields_stand_where_the_manual_has_them() {
        assert_eq!(
            message(5),
            RemappedMessage {
                address: 0xfee0_00b8,
                data: 0
            }
        );
        assert_eq!(message(0xffff).address, 0xfeef_fffc);
        assert_eq!(
            message_index(RemappedMessage {
                address: 0xfee0_1000,
                data: 0x31
            }),
            None
        );
        let second = RemappedMessage {
            data: 1,
            ..message(6)
        };
        assert_eq!(message_index(second), Some(7));
    }

    #[test]
    fn redirection_fields_stand_where_the_manual_has_them() {
        assert_eq!(redirection(1, 0x31, true, true), 0x0003_0000_0000_a031);
        assert_eq!(
            redirection(0x8000, 0xe0, false, false),
            0x0001_0000_0000_08e0
        );
        assert_eq!(redirection_index(0x0200_0000_0000_a031), None);
    }

    proptest! {
        #[test]
        fn indexes_survive_the_way_there_and_back(index in any::<u16>(), vector in any::<u8>(), level in any::<bool>(), low in any::<bool>()) {
            prop_assert_eq!(message_index(message(index)), Some(index));
            let r = redirection(index, vector, level, low);
            prop_assert_eq!(redirection_index(r), Some(index));
            prop_assert_eq!(r as u8, vector);
            prop_assert_eq!(r & crate::regs::apic::RTE_MASKED, 0);
        }

        #[test]
        fn targets_survive_the_way_there_and_back(dest in any::<u32>(), logical in any::<bool>(), lowest in any::<bool>(), vector in any::<u8>(), level in any::<bool>(), id in any::<u16>()) {
            let t = Target { dest, logical, lowest, vector, level };
            let e = Irte::new(&t, Requester::Exact(id), true).unwrap();
            prop_assert_eq!(e.target(true), Some(t));
            prop_assert_eq!(e.0[1] as u16, id);
            // Reserved: bits 14:12, 31:24 and 127:84.
            prop_assert_eq!(e.0[0] & 0xff00_f000, 0);
            prop_assert_eq!(e.0[1] >> 20, 0);
        }
    }
}
