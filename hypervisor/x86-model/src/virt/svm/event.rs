//! The event format of EVENTINJ and EXITINTINFO (APM vol. 2, 15.20): vector in 7:0, type in 10:8, error code valid in 11,
//! valid in 31, error code in 63:32.

/// The event is valid.
pub const VALID: u64 = 1 << 31;
/// The error code is valid.
pub const ERROR_VALID: u64 = 1 << 11;
const TYPE_MASK: u64 = 7 << 8;
const INTERRUPT: u64 = 0 << 8;
/// Vectors below are exceptions.
const FIRST_INTERRUPT: u64 = 32;
const NMI: u64 = 2 << 8;
const EXCEPTION: u64 = 3 << 8;

/// An NMI.
pub const fn nmi() -> u64 {
    VALID | NMI | 2
}

/// An exception.
pub const fn exception(vector: u8, error: Option<u32>) -> u64 {
    let event = VALID | EXCEPTION | vector as u64;
    match error {
        Some(code) => event | ERROR_VALID | (code as u64) << 32,
        None => event,
    }
}

/// Whether a valid event is an NMI.
pub const fn is_nmi(event: u64) -> bool {
    event & TYPE_MASK == NMI
}

/// What to do at the next entry about an interrupted delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redelivery {
    /// Nothing was under way, or the instruction that raised it (INT n, INT3, INTO) runs again.
    Nothing,
    /// Inject this event: an exception or NMI.
    Inject(u64),
    /// Request this external interrupt again.
    Interrupt(u8),
}

/// Reads EXITINTINFO. QEMU's emulation calls a virtual interrupt an exception there, which its vector gives away.
pub const fn redeliver(exit_int_info: u64) -> Redelivery {
    if exit_int_info & VALID == 0 {
        return Redelivery::Nothing;
    }
    let vector = exit_int_info & 0xff;
    match exit_int_info & TYPE_MASK {
        INTERRUPT => Redelivery::Interrupt(vector as u8),
        NMI => Redelivery::Inject(exit_int_info),
        EXCEPTION if vector >= FIRST_INTERRUPT => Redelivery::Interrupt(vector as u8),
        EXCEPTION if vector != 3 && vector != 4 => Redelivery::Inject(exit_int_info),
        _ => Redelivery::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        assert_eq!(nmi(), 0x8000_0202);
        assert_eq!(exception(6, None), 0x8000_0306);
        assert_eq!(exception(13, Some(0x18)), 0x0000_0018_8000_0b0d);
        assert!(is_nmi(nmi()) && !is_nmi(exception(2, None)));
    }

    #[test]
    fn events_of_instructions_run_again() {
        for event in [nmi(), exception(14, Some(2)), exception(1, None)] {
            assert_eq!(redeliver(event), Redelivery::Inject(event));
            assert_eq!(redeliver(event & !VALID), Redelivery::Nothing);
        }
        let int_80 = VALID | 4 << 8 | 0x80;
        for event in [int_80, exception(3, None), exception(4, None)] {
            assert_eq!(redeliver(event), Redelivery::Nothing);
        }
    }

    #[test]
    fn interrupts_are_requested_again() {
        for kind in [INTERRUPT, EXCEPTION] {
            let event = VALID | kind | 0xf3;
            assert_eq!(redeliver(event), Redelivery::Interrupt(0xf3));
        }
        assert_eq!(redeliver(0xf3), Redelivery::Nothing);
    }
}
