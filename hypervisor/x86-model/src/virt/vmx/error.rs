//! Why a VMX instruction failed (SDM vol. 3, 31.4).

/// In words; the numbers are those of the instruction-error field.
pub const fn instruction(number: u32) -> &'static str {
    match number {
        0 => "no error",
        1 => "VMCALL in VMX root operation",
        2 => "VMCLEAR with an invalid address",
        3 => "VMCLEAR with the VMXON region",
        4 => "VMLAUNCH of a structure that is not clear",
        5 => "VMRESUME of a structure that was not launched",
        6 => "VMRESUME after VMXOFF",
        7 => "entry with invalid control fields",
        8 => "entry with invalid host-state fields",
        9 => "VMPTRLD with an invalid address",
        10 => "VMPTRLD with the VMXON region",
        11 => "VMPTRLD with another revision",
        12 => "access to a field that this CPU does not have",
        13 => "VMWRITE to a read-only field",
        15 => "VMXON in VMX root operation",
        16 => "entry with an invalid executive structure",
        17 => "entry with an executive structure that was not launched",
        18 => "entry with an executive structure that is not the VMXON region",
        19 => "VMCALL with a structure that is not clear",
        20 => "VMCALL with invalid exit controls",
        22 => "VMCALL with another revision",
        23 => "VMXOFF under dual monitor treatment",
        24 => "VMCALL with invalid SMM features",
        25 => "entry with invalid execution controls of the executive structure",
        26 => "entry with events blocked by MOV SS",
        28 => "invalid operand of INVEPT or INVVPID",
        _ => "unknown error",
    }
}

/// How an instruction failed, from the flags it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Carry: there is no current structure that could say more.
    Invalid,
    /// Zero: the number from the instruction-error field.
    Numbered(u32),
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Failure::Invalid => f.write_str("no current control structure, or an invalid address"),
            Failure::Numbered(n) => write!(f, "{} (VM-instruction error {n})", instruction(n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_number_of_the_manual_has_words() {
        for n in (0..=28).filter(|n| ![14, 21, 27].contains(n)) {
            assert_ne!(instruction(n), "unknown error", "{n}");
        }
        for n in [14, 21, 27, 29] {
            assert_eq!(instruction(n), "unknown error", "{n}");
        }
        assert_eq!(
            Failure::Numbered(7).to_string(),
            "entry with invalid control fields (VM-instruction error 7)"
        );
    }
}
