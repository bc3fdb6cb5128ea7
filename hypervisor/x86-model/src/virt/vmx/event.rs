//! The event format of entry, exit and vectoring fields (SDM vol. 3, 26.8.3 and 26.9.2): vector in 7:0, type in 10:8, error
//! code valid in 11, NMI unblocking in 12 (exits only), valid in 31.

/// The event is valid.
pub const VALID: u32 = 1 << 31;
/// The error code is valid.
pub const ERROR_VALID: u32 = 1 << 11;
/// The exit came just after IRET had ended the NMI mask.
pub const NMI_UNBLOCKED: u32 = 1 << 12;
const TYPE_MASK: u32 = 7 << 8;
const INTERRUPT: u32 = 0 << 8;
const NMI: u32 = 2 << 8;
const EXCEPTION: u32 = 3 << 8;
const PRIVILEGED_SOFTWARE: u32 = 5 << 8;
/// What an entry field may hold of an exit's event.
const ENTRY_BITS: u32 = VALID | ERROR_VALID | TYPE_MASK | 0xff;

/// Interruptibility: the instruction after STI runs first.
pub const BLOCKED_BY_STI: u32 = 1 << 0;
/// Interruptibility: the instruction after a load of SS runs first.
pub const BLOCKED_BY_MOV_SS: u32 = 1 << 1;
/// Interruptibility: an NMI is being handled.
pub const BLOCKED_BY_NMI: u32 = 1 << 3;
/// Both shadows of one instruction.
pub const SHADOW: u32 = BLOCKED_BY_STI | BLOCKED_BY_MOV_SS;

/// Pending debug exceptions: the step of a guest that single-steps.
pub const PENDING_STEP: u64 = 1 << 14;

/// An external interrupt.
pub const fn interrupt(vector: u8) -> u32 {
    VALID | INTERRUPT | vector as u32
}

/// An NMI.
pub const fn nmi() -> u32 {
    VALID | NMI | 2
}

/// An exception; its error code goes into a field of its own.
pub const fn exception(vector: u8, error: bool) -> u32 {
    VALID | EXCEPTION | vector as u32 | if error { ERROR_VALID } else { 0 }
}

/// The vector of a valid event of type exception (by hardware, or ICEBP).
pub const fn exception_vector(event: u32) -> Option<u8> {
    let kind = event & TYPE_MASK;
    if event & VALID != 0 && (kind == EXCEPTION || kind == PRIVILEGED_SOFTWARE) {
        Some(event as u8)
    } else {
        None
    }
}

/// The vector of an external interrupt that an exit acknowledged.
pub const fn interrupt_vector(event: u32) -> Option<u8> {
    if event & (VALID | TYPE_MASK) == VALID | INTERRUPT {
        Some(event as u8)
    } else {
        None
    }
}

/// Whether a valid event is an NMI.
pub const fn is_nmi(event: u32) -> bool {
    event & (VALID | TYPE_MASK) == VALID | NMI
}

/// The event of an exit in the form that an entry takes: without the bits that only exits have.
pub const fn for_entry(event: u32) -> u32 {
    event & ENTRY_BITS
}

/// What to do at the next entry about an interrupted delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redelivery {
    /// Nothing was under way, or the instruction that raised it (INT n, INT3, INTO, ICEBP) runs again: RIP is still at it.
    Nothing,
    /// Inject this again: an interrupt or an exception.
    Inject(u32),
    /// Inject the NMI again; the mask that its delivery set must go first.
    Nmi,
}

/// Reads the vectoring field.
pub const fn redeliver(vectoring: u32) -> Redelivery {
    if vectoring & VALID == 0 {
        return Redelivery::Nothing;
    }
    match vectoring & TYPE_MASK {
        INTERRUPT | EXCEPTION => Redelivery::Inject(for_entry(vectoring)),
        NMI => Redelivery::Nmi,
        _ => Redelivery::Nothing,
    }
}

/// What becomes of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// It is delivered.
    Itself,
    /// A double fault.
    Double,
    /// The processor shuts down.
    Shutdown,
}

/// What an exception becomes that exited while the event of the vectoring field was delivered (SDM vol. 3, 7.15, tables 7-4
/// and 7-5).
pub const fn raised(vectoring: u32, vector: u8) -> Raised {
    const DOUBLE_FAULT: u8 = 8;
    const PAGE_FAULT: u8 = 14;
    let first = vectoring as u8;
    let serious = contributes(vector) || vector == PAGE_FAULT;
    if vectoring & (VALID | TYPE_MASK) != VALID | EXCEPTION || !serious {
        return Raised::Itself;
    }
    match first {
        DOUBLE_FAULT => Raised::Shutdown,
        PAGE_FAULT => Raised::Double,
        _ if contributes(first) && contributes(vector) => Raised::Double,
        _ => Raised::Itself,
    }
}

/// Divide error, invalid TSS, segment not present, stack fault, general protection, control protection.
const fn contributes(vector: u8) -> bool {
    matches!(vector, 0 | 10..=13 | 21)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_during_a_delivery() {
        use Raised::{Double, Itself, Shutdown};
        let during = |first, second| raised(exception(first, false), second);
        for (first, second, becomes) in [
            (13, 13, Double),
            (0, 11, Double),
            (13, 14, Itself),
            (14, 14, Double),
            (14, 13, Double),
            (14, 6, Itself),
            (1, 14, Itself),
            (6, 13, Itself),
            (8, 14, Shutdown),
            (8, 10, Shutdown),
            (8, 1, Itself),
        ] {
            assert_eq!(during(first, second), becomes, "{second} during {first}");
        }
        // Interrupts, NMIs and software interrupts add nothing; neither does what is not valid.
        let software = VALID | 4 << 8 | 13;
        for benign in [interrupt(0x80), nmi(), software, 0x30d, 0] {
            assert_eq!(raised(benign, 14), Itself, "{benign:#x}");
            assert_eq!(raised(benign, 13), Itself, "{benign:#x}");
        }
    }

    #[test]
    fn encodings() {
        assert_eq!(interrupt(0x30), 0x8000_0030);
        assert_eq!(nmi(), 0x8000_0202);
        assert_eq!(exception(6, false), 0x8000_0306);
        assert_eq!(exception(13, true), 0x8000_0b0d);
        assert_eq!(
            for_entry(exception(14, true) | NMI_UNBLOCKED | 1 << 20),
            exception(14, true)
        );
    }

    #[test]
    fn kinds() {
        assert_eq!(exception_vector(exception(17, true)), Some(17));
        let icebp = VALID | PRIVILEGED_SOFTWARE | 1;
        assert_eq!(exception_vector(icebp), Some(1));
        for other in [nmi(), interrupt(17), exception(17, true) & !VALID] {
            assert_eq!(exception_vector(other), None);
        }
        assert_eq!(interrupt_vector(interrupt(0xf2)), Some(0xf2));
        for other in [nmi(), exception(3, false), interrupt(3) & !VALID] {
            assert_eq!(interrupt_vector(other), None);
        }
        assert!(is_nmi(nmi()) && !is_nmi(exception(2, false)) && !is_nmi(nmi() & !VALID));
    }

    #[test]
    fn interrupted_deliveries() {
        for event in [interrupt(0xf3), exception(14, true), exception(1, false)] {
            assert_eq!(redeliver(event), Redelivery::Inject(event));
            assert_eq!(redeliver(event & !VALID), Redelivery::Nothing);
        }
        assert_eq!(redeliver(nmi()), Redelivery::Nmi);
        for kind in [4, 5, 6] {
            assert_eq!(redeliver(VALID | kind << 8 | 0x80), Redelivery::Nothing);
        }
    }
}
