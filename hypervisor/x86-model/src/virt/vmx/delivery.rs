//! APIC virtualization (SDM vol. 3, chapter 31): which features are on in which mode of the guest's APIC, what of its MSRs then
//! needs no exit, how exits by its page are told, and how sets of vectors lie in the virtual APIC page.

use super::capability::ApicFeatures;
use super::control::{pin, secondary};
use super::msr_bitmap;
use crate::apic::ApicMode;

/// First word of the requests, for Bochs: a vector that has no priority, so that it is never delivered. A notification that
/// finds nothing posted while nothing is requested makes Bochs request vector 0xff; with this one there is always something.
pub const NEVER_DELIVERED: u32 = 1;

/// First x2APIC MSR.
const X2APIC: u32 = 0x800;
const TPR_MSR: u32 = 0x808;
const EOI_MSR: u32 = 0x80b;
const SELF_IPI_MSR: u32 = 0x83f;
/// MSRs that the guest reads without an exit where the CPU keeps the registers: ID and version, LDR, SVR, the in-service,
/// trigger-mode and request registers with ESR, ICR, LVT entries with the timer's start value, its divider. Not those that
/// count time or follow from others, nor those that do not exist.
const READ: [(u32, u32); 7] = [
    (0x802, 0x803),
    (0x80d, 0x80d),
    (0x80f, 0x80f),
    (0x810, 0x828),
    (0x830, 0x830),
    (0x832, 0x838),
    (0x83e, 0x83e),
];

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

/// All bits of [`controls`].
pub const CONTROLS: u32 = secondary::APIC_ACCESSES
    | secondary::X2APIC
    | secondary::APIC_REGISTERS
    | secondary::INTERRUPT_DELIVERY;

/// Secondary controls for an APIC in `mode`.
///
/// Where there is an APIC-access page ([`ApicFeatures::accesses`]) the guest's second-stage tables map it, in all modes and for
/// all vCPUs of the domain; so its accesses exit even if the APIC is off, and it is plain memory to a vCPU only while the CPU
/// handles x2APIC mode, which excludes the other (SDM vol. 3, 28.2.1.1).
pub const fn controls(features: ApicFeatures, mode: ApicMode) -> u32 {
    let page = if features.accesses {
        secondary::APIC_ACCESSES
    } else {
        0
    };
    let assisted = match mode {
        ApicMode::XApic if features.accesses => page,
        ApicMode::X2Apic if features.x2apic => secondary::X2APIC,
        _ => return page,
    };
    let registers = if features.registers {
        secondary::APIC_REGISTERS
    } else {
        0
    };
    let delivery = if features.delivery {
        secondary::INTERRUPT_DELIVERY
    } else {
        0
    };
    assisted | registers | delivery
}

/// Pin-based controls for an APIC in `mode`, in addition to the others: vectors posted in the descriptor of a vCPU in guest mode
/// are taken by the CPU, which knows the notification by acknowledging it ([`super::control::exit::ACKNOWLEDGE`]).
pub const fn posting(features: ApicFeatures, mode: ApicMode) -> u32 {
    if features.posted && controls(features, mode) & secondary::INTERRUPT_DELIVERY != 0 {
        pin::POSTED_INTERRUPTS
    } else {
        0
    }
}

/// Opens those of the APIC's MSRs that need no exit under these secondary controls, and closes the others. `self_ipi`: that
/// register is among them, where the CPU delivers.
pub fn set_bitmap(map: &mut [u8; msr_bitmap::SIZE], controls: u32, self_ipi: bool) {
    let x2apic = controls & secondary::X2APIC != 0;
    let registers = x2apic && controls & secondary::APIC_REGISTERS != 0;
    let delivery = x2apic && controls & secondary::INTERRUPT_DELIVERY != 0;
    for msr in X2APIC..=X2APIC + 0xff {
        let kept = registers && READ.iter().any(|&(a, b)| a <= msr && msr <= b);
        let (read, write) = match msr {
            TPR_MSR => (x2apic, x2apic),
            EOI_MSR => (false, delivery),
            SELF_IPI_MSR => (false, delivery && self_ipi),
            _ => (kept, false),
        };
        msr_bitmap::set(map, msr, read, write);
    }
}

/// An access to the APIC-access page that the CPU did not handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAccess {
    /// Offset in the page.
    pub offset: u16,
    /// A write.
    pub write: bool,
    /// An instruction fetch.
    pub fetch: bool,
    /// Not by an instruction's operand: by the walk of page tables, or (with a stack or descriptor table there) by the
    /// delivery of an event.
    pub indirect: bool,
}

/// From an exit's qualification (SDM vol. 3, table 29-6).
pub const fn page_access(qualification: u64) -> PageAccess {
    let kind = qualification >> 12 & 15;
    PageAccess {
        offset: (qualification & 0xfff) as u16,
        write: kind == 1,
        fetch: kind == 2,
        indirect: kind > 2,
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
    fn posting_needs_delivery() {
        let all = ApicFeatures {
            accesses: true,
            x2apic: true,
            registers: true,
            delivery: true,
            posted: true,
        };
        assert_eq!(posting(all, ApicMode::X2Apic), pin::POSTED_INTERRUPTS);
        assert_eq!(posting(all, ApicMode::XApic), pin::POSTED_INTERRUPTS);
        assert_eq!(posting(all, ApicMode::Disabled), 0);
        let unposted = ApicFeatures {
            posted: false,
            ..all
        };
        let undelivered = ApicFeatures {
            delivery: false,
            ..all
        };
        assert_eq!(posting(unposted, ApicMode::X2Apic), 0);
        assert_eq!(posting(undelivered, ApicMode::X2Apic), 0);
    }

    #[test]
    fn controls_by_mode_and_features() {
        use ApicMode::{Disabled, X2Apic, XApic};
        const PAGE: u32 = secondary::APIC_ACCESSES;
        const X2: u32 = secondary::X2APIC;
        const REGS: u32 = secondary::APIC_REGISTERS;
        const VID: u32 = secondary::INTERRUPT_DELIVERY;
        let f = |accesses, x2apic, registers, delivery| ApicFeatures {
            accesses,
            x2apic,
            registers,
            delivery,
            posted: true,
        };
        // Features; then the controls when off, in xAPIC and in x2APIC mode.
        let table = [
            (f(false, false, false, false), [0, 0, 0]),
            // Without the page or the mode the rest has nothing to act on.
            (f(false, false, true, true), [0, 0, 0]),
            (f(true, false, false, false), [PAGE, PAGE, PAGE]),
            (f(true, false, true, true), [PAGE, PAGE | REGS | VID, PAGE]),
            (f(false, true, false, false), [0, 0, X2]),
            (f(false, true, true, true), [0, 0, X2 | REGS | VID]),
            (f(true, true, false, false), [PAGE, PAGE, X2]),
            (f(true, true, true, false), [PAGE, PAGE | REGS, X2 | REGS]),
            (f(true, true, false, true), [PAGE, PAGE | VID, X2 | VID]),
            (ALL, [PAGE, PAGE | REGS | VID, X2 | REGS | VID]),
        ];
        for (features, expected) in table {
            let found = [Disabled, XApic, X2Apic].map(|mode| controls(features, mode));
            assert_eq!(found, expected, "{features:?}");
        }
    }

    /// What entries check (SDM vol. 3, 28.2.1.1), for every set of features; TPR shadow and interrupt exits are always on.
    #[test]
    fn no_controls_that_entries_refuse() {
        for bits in 0..32u8 {
            let has = |n: u8| bits >> n & 1 != 0;
            let features = ApicFeatures {
                accesses: has(0),
                x2apic: has(1),
                registers: has(2),
                delivery: has(3),
                posted: has(4),
            };
            for mode in [ApicMode::Disabled, ApicMode::XApic, ApicMode::X2Apic] {
                let c = controls(features, mode);
                let both = secondary::X2APIC | secondary::APIC_ACCESSES;
                assert_ne!(c & both, both);
                assert_eq!(c & !CONTROLS, 0);
                // Nothing that the CPU does not have.
                assert!(has(0) || c & secondary::APIC_ACCESSES == 0);
                assert!(has(1) || c & secondary::X2APIC == 0);
                assert!(has(2) || c & secondary::APIC_REGISTERS == 0);
                assert!(has(3) || c & secondary::INTERRUPT_DELIVERY == 0);
                // The page never is plain memory but while the CPU handles x2APIC mode.
                assert!(!has(0) || c & both != 0);
            }
        }
    }

    #[test]
    fn bitmap_by_register() {
        const REGS: u32 = secondary::APIC_REGISTERS;
        const VID: u32 = secondary::INTERRUPT_DELIVERY;
        let exits = |map: &[u8; msr_bitmap::SIZE], msr: u32| {
            let (byte, bit) = msr_bitmap::position(msr).unwrap();
            let exit = |byte: usize| map[byte] >> bit & 1 != 0;
            (exit(byte), exit(byte + msr_bitmap::SIZE / 2))
        };
        let open = |map: &[u8; msr_bitmap::SIZE]| map.iter().map(|b| b.count_zeros()).sum::<u32>();
        let mut map = [0xff; msr_bitmap::SIZE];
        set_bitmap(&mut map, secondary::X2APIC | REGS | VID, true);
        // (MSR, reads exit, writes exit).
        for (msr, read, write) in [
            (0x802, false, true),
            (0x804, true, true),
            (0x808, false, false),
            (0x80a, true, true),
            (0x80b, true, false),
            (0x80d, false, true),
            (0x80e, true, true),
            (0x80f, false, true),
            (0x810, false, true),
            (0x827, false, true),
            (0x828, false, true),
            (0x829, true, true),
            (0x82f, true, true),
            (0x830, false, true),
            (0x831, true, true),
            (0x838, false, true),
            (0x839, true, true),
            (0x83e, false, true),
            (0x83f, true, false),
            (0x8ff, true, true),
        ] {
            assert_eq!(exits(&map, msr), (read, write), "{msr:#x}");
        }
        let reads = 1 + 2 + 1 + 1 + 25 + 1 + 7 + 1;
        assert_eq!(open(&map), reads + 3);
        // Fewer controls, fewer open; other MSRs are left alone.
        for (controls, self_ipi, expected) in [
            (secondary::X2APIC | REGS | VID, false, reads + 2),
            (secondary::X2APIC | REGS, true, reads + 1),
            (secondary::X2APIC | VID, true, 1 + 3),
            (secondary::X2APIC, true, 2),
            (secondary::APIC_ACCESSES | REGS | VID, true, 0),
            (0, true, 0),
        ] {
            set_bitmap(&mut map, controls, self_ipi);
            assert_eq!(open(&map), expected, "{controls:#x}");
        }
    }

    #[test]
    fn accesses_to_the_page() {
        let access = |offset, write, fetch, indirect| PageAccess {
            offset,
            write,
            fetch,
            indirect,
        };
        assert_eq!(page_access(0x00b0), access(0xb0, false, false, false));
        assert_eq!(page_access(0x1300), access(0x300, true, false, false));
        assert_eq!(page_access(0x2fff), access(0xfff, false, true, false));
        for kind in [3, 10, 15] {
            let expected = access(0x20, false, false, true);
            assert_eq!(page_access(kind << 12 | 0x20), expected);
        }
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
