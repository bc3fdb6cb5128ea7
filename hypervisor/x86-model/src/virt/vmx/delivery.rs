//! Virtual-interrupt delivery (SDM vol. 3, chapter 31): which features are on in which mode of the guest's APIC, what of its
//! MSRs then needs no exit, and how sets of vectors lie in the virtual APIC page.

use super::capability::ApicFeatures;
use super::control::secondary;
use super::msr_bitmap;
use crate::apic::ApicMode;

/// First x2APIC MSR.
const X2APIC: u32 = 0x800;
/// MSRs that the guest reads without an exit: task priority, and the in-service, trigger-mode and request registers, which the
/// CPU keeps itself. The others change only by writes that exit, or count time.
const READ: [(u32, u32); 2] = [(0x808, 0x808), (0x810, 0x827)];
/// MSRs that it writes without an exit: task priority and end of interrupt.
const WRITTEN: [u32; 2] = [0x808, 0x80b];

/// Offset of the task priority in the page.
pub const TPR: usize = 0x80;
/// Offset of the in-service registers.
pub const ISR: usize = 0x100;
/// Offset of the trigger-mode registers.
pub const TMR: usize = 0x180;
/// Offset of the request registers.
pub const IRR: usize = 0x200;
/// Bytes from one register of 32 vectors to the next.
pub const STRIDE: usize = 0x10;

/// Secondary controls for an APIC in `mode`; 0 where it is left to the software.
///
/// In xAPIC mode it always is: without them the page is not mapped, and its accesses are emulated.
pub const fn controls(features: ApicFeatures, mode: ApicMode) -> u32 {
    let complete = features.x2apic && features.registers && features.delivery;
    match mode {
        ApicMode::X2Apic if complete => {
            secondary::X2APIC | secondary::APIC_REGISTERS | secondary::INTERRUPT_DELIVERY
        }
        _ => 0,
    }
}

/// Opens (`on`) or closes the MSRs of the APIC.
pub fn set_bitmap(map: &mut [u8; msr_bitmap::SIZE], on: bool) {
    for msr in X2APIC..=X2APIC + 0xff {
        let read = on && READ.iter().any(|&(a, b)| a <= msr && msr <= b);
        msr_bitmap::set(map, msr, read, on && WRITTEN.contains(&msr));
    }
}

/// A set of vectors.
pub type Set = [u64; 4];

/// The highest vector.
pub const fn highest(set: &Set) -> Option<u8> {
    let mut i = 4;
    while i > 0 {
        i -= 1;
        if set[i] != 0 {
            return Some((i as u8) << 6 | (63 - set[i].leading_zeros() as u8));
        }
    }
    None
}

const fn bit(vector: u8) -> (usize, u64) {
    ((vector >> 6) as usize, 1 << (vector & 63))
}

/// Whether a vector is in a set.
pub const fn contains(set: &Set, vector: u8) -> bool {
    let (i, b) = bit(vector);
    set[i] & b != 0
}

/// The 32-bit register `n` (0 to 7) of a set.
pub const fn register(set: &Set, n: usize) -> u32 {
    (set[n / 2] >> (n % 2 * 32)) as u32
}

/// The set of eight registers.
pub fn collect(register: impl Fn(usize) -> u32) -> Set {
    core::array::from_fn(|i| u64::from(register(2 * i + 1)) << 32 | u64::from(register(2 * i)))
}

/// The guest's interrupt status: highest requested and highest in service.
pub fn status(irr: &Set, isr: &Set) -> u16 {
    let byte = |set| u16::from(highest(set).unwrap_or(0));
    byte(isr) << 8 | byte(irr)
}

/// What of the requested vectors the CPU is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Requests in the page.
    pub irr: Set,
    /// Requests that are held back.
    pub held: Set,
    /// Vectors whose end exits.
    pub eoi_exits: Set,
    /// An exit is wanted as soon as the guest can take an interrupt.
    pub window: bool,
}

/// All of them; the ends of level-triggered ones are told.
pub const fn show(irr: Set, level: Set) -> Shown {
    Shown {
        irr,
        held: [0; 4],
        eoi_exits: level,
        window: false,
    }
}

/// For Bochs, which delivers a virtual interrupt that waits for RFLAGS.IF when a physical one arrives, with the flag clear:
/// shows a vector only if the guest takes it at once (`ready`: nothing but priority could keep it from that), so that none
/// ever waits. Others are looked at again when the one before them ends, or when the guest is ready.
pub fn show_one(irr: Set, isr: &Set, level: Set, tpr: u8, ready: bool) -> Shown {
    let mut shown = show([0; 4], level);
    let Some(top) = highest(&irr) else {
        return shown;
    };
    shown.held = irr;
    let serving = highest(isr);
    if top >> 4 <= serving.unwrap_or(0) >> 4 || top >> 4 <= tpr >> 4 {
        if let Some(v) = serving {
            let (i, b) = bit(v);
            shown.eoi_exits[i] |= b;
        }
        return shown;
    }
    if !ready {
        shown.window = true;
        return shown;
    }
    let (i, b) = bit(top);
    shown.irr[i] |= b;
    shown.held[i] &= !b;
    if shown.held != [0; 4] {
        shown.eoi_exits[i] |= b;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ApicFeatures = ApicFeatures {
        accesses: true,
        x2apic: true,
        registers: true,
        delivery: true,
        posted: true,
    };

    fn set(vectors: &[u8]) -> Set {
        let mut s = [0; 4];
        for &v in vectors {
            let (i, b) = bit(v);
            s[i] |= b;
        }
        s
    }

    #[test]
    fn controls_by_mode_and_features() {
        let on = secondary::X2APIC | secondary::APIC_REGISTERS | secondary::INTERRUPT_DELIVERY;
        assert_eq!(controls(ALL, ApicMode::X2Apic), on);
        for mode in [ApicMode::Disabled, ApicMode::XApic] {
            assert_eq!(controls(ALL, mode), 0);
        }
        for part in [
            ApicFeatures {
                x2apic: false,
                ..ALL
            },
            ApicFeatures {
                registers: false,
                ..ALL
            },
            ApicFeatures {
                delivery: false,
                ..ALL
            },
        ] {
            assert_eq!(controls(part, ApicMode::X2Apic), 0);
        }
    }

    #[test]
    fn bitmap_by_register() {
        let mut map = [0xff; msr_bitmap::SIZE];
        let exits = |map: &[u8; msr_bitmap::SIZE], msr: u32| {
            let (byte, bit) = msr_bitmap::position(msr).unwrap();
            (
                map[byte] >> bit & 1 != 0,
                map[byte + msr_bitmap::SIZE / 2] >> bit & 1 != 0,
            )
        };
        set_bitmap(&mut map, true);
        // (MSR, reads exit, writes exit): ID, TPR, PPR, EOI, LDR, ISR0, TMR7, IRR7, ESR, ICR, timer count, self IPI.
        for (msr, read, write) in [
            (0x802, true, true),
            (0x808, false, false),
            (0x80a, true, true),
            (0x80b, true, false),
            (0x80d, true, true),
            (0x810, false, true),
            (0x81f, false, true),
            (0x827, false, true),
            (0x828, true, true),
            (0x830, true, true),
            (0x839, true, true),
            (0x83f, true, true),
        ] {
            assert_eq!(exits(&map, msr), (read, write), "{msr:#x}");
        }
        let open: u32 = map.iter().map(|b| b.count_zeros()).sum();
        assert_eq!(open, 1 + 24 + 2);
        set_bitmap(&mut map, false);
        assert_eq!(map, [0xff; msr_bitmap::SIZE]);
    }

    #[test]
    fn sets_and_registers() {
        let s = set(&[0x31, 0x9f, 0xe0]);
        assert_eq!(highest(&s), Some(0xe0));
        assert_eq!(highest(&[0; 4]), None);
        assert!(contains(&s, 0x9f) && !contains(&s, 0x9e));
        assert_eq!(register(&s, 1), 1 << 0x11);
        assert_eq!(register(&s, 4), 1 << 31);
        assert_eq!(collect(|n| register(&s, n)), s);
        assert_eq!(status(&s, &set(&[0x41])), 0x41e0);
        assert_eq!(status(&[0; 4], &[0; 4]), 0);
    }

    #[test]
    fn one_at_a_time() {
        let none = [0; 4];
        let two = set(&[0x31, 0x51]);
        // Ready: the highest; its end shows the next.
        let s = show_one(two, &none, none, 0, true);
        assert_eq!((s.irr, s.held), (set(&[0x51]), set(&[0x31])));
        assert_eq!((s.eoi_exits, s.window), (set(&[0x51]), false));
        // A last one ends without an exit.
        let s = show_one(set(&[0x31]), &none, none, 0, true);
        assert_eq!((s.irr, s.eoi_exits), (set(&[0x31]), none));
        // Not ready: none, but a window.
        let s = show_one(two, &none, none, 0, false);
        assert_eq!((s.irr, s.held, s.window), (none, two, true));
        // Held by what is in service: its end exits. Held by the task priority alone: nothing to wait for here.
        let s = show_one(two, &set(&[0x52]), none, 0, true);
        assert_eq!((s.irr, s.held, s.window), (none, two, false));
        assert_eq!(s.eoi_exits, set(&[0x52]));
        let s = show_one(two, &none, none, 0x50, true);
        assert_eq!((s.irr, s.eoi_exits, s.window), (none, none, false));
        // Level-triggered ends always exit.
        assert_eq!(show(two, set(&[0x31])).eoi_exits, set(&[0x31]));
        assert_eq!(
            show_one(none, &none, set(&[9]), 0, true).eoi_exits,
            set(&[9])
        );
    }
}
