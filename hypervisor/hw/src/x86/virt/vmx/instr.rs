//! The VMX instructions, each wrapped once, each failure looked at.

use core::arch::asm;

use x86_model::Hpa;
use x86_model::virt::vmx::error::Failure;
use x86_model::virt::vmx::field::{INSTRUCTION_ERROR, Readable, Writable};

/// What the flags say after an instruction.
#[inline]
pub fn outcome(carry: u8, zero: u8) -> Result<(), Failure> {
    match (carry, zero) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::Numbered(read(INSTRUCTION_ERROR))),
        _ => Err(Failure::Invalid),
    }
}

macro_rules! on_address {
    ($(#[$doc:meta])* $name:ident, $text:literal, $contract:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        #[doc = $contract]
        pub unsafe fn $name(address: Hpa) -> Result<(), Failure> {
            let (carry, zero): (u8, u8);
            // SAFETY: the caller's contract.
            unsafe {
                asm!(
                    concat!($text, " [{address}]"),
                    "setc {carry}",
                    "setz {zero}",
                    address = in(reg) &address.0,
                    carry = out(reg_byte) carry,
                    zero = out(reg_byte) zero,
                    options(nostack),
                );
            }
            outcome(carry, zero)
        }
    };
}
on_address!(
    /// Turns VMX operation on for this CPU.
    vmxon,
    "vmxon",
    "CR0, CR4 and FEATURE_CONTROL must allow it; the page must hold the revision and be this CPU's for ever."
);
on_address!(
    /// Makes a control structure current.
    vmptrld,
    "vmptrld",
    "The page must be a control structure that is active on no other CPU."
);
on_address!(
    /// Writes a control structure back to its page, clear and current nowhere.
    vmclear,
    "vmclear",
    "The page must be a control structure's, active on no other CPU."
);

/// Turns VMX operation off for this CPU.
///
/// # Safety
/// No VMX instruction may follow before the next [`vmxon`].
pub unsafe fn vmxoff() -> Result<(), Failure> {
    let (carry, zero): (u8, u8);
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "vmxoff",
            "setc {carry}",
            "setz {zero}",
            carry = out(reg_byte) carry,
            zero = out(reg_byte) zero,
            options(nostack),
        );
    }
    outcome(carry, zero)
}

/// Reads a field of the current structure. One that cannot be read is a mistake of ours: it panics with the reason.
#[inline(always)]
pub fn read<F: Readable>(field: F) -> F::Value {
    let raw: u64;
    let failed: u8;
    // SAFETY: VMREAD to a register changes nothing else; not in VMX operation it raises #UD, a panic.
    unsafe {
        asm!(
            "vmread {raw}, {field}",
            "setna {failed}",
            raw = out(reg) raw,
            field = in(reg) u64::from(field.encoding()),
            failed = out(reg_byte) failed,
            options(nostack),
        );
    }
    if failed != 0 {
        broken("read", field.encoding());
    }
    F::narrow(raw)
}

/// Writes a field of the current structure; panics as [`read`] does.
///
/// # Safety
/// The value must keep the guest inside its second-stage tables, and the host's state as the CPU needs it after an exit.
#[inline(always)]
pub unsafe fn write<F: Writable>(field: F, value: F::Value) {
    let failed: u8;
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "vmwrite {field}, {value}",
            "setna {failed}",
            field = in(reg) u64::from(field.encoding()),
            value = in(reg) F::widen(value),
            failed = out(reg_byte) failed,
            options(nostack),
        );
    }
    if failed != 0 {
        broken("written", field.encoding());
    }
}

#[cold]
fn broken(what: &str, field: u32) -> ! {
    let (raw, failed): (u64, u8);
    // SAFETY: as in `read`.
    unsafe {
        asm!(
            "vmread {raw}, {field}",
            "setna {failed}",
            raw = out(reg) raw,
            field = in(reg) u64::from(INSTRUCTION_ERROR.encoding()),
            failed = out(reg_byte) failed,
            options(nostack),
        );
    }
    let why = match failed {
        0 => Failure::Numbered(raw as u32),
        _ => Failure::Invalid,
    };
    panic!("VMX field {field:#x} cannot be {what}: {why}")
}

macro_rules! invalidate {
    ($(#[$doc:meta])* $name:ident, $text:literal) => {
        $(#[$doc])*
        pub fn $name(kind: u64, descriptor: [u64; 2]) -> Result<(), Failure> {
            let (carry, zero): (u8, u8);
            // SAFETY: forgetting cached translations is always allowed.
            unsafe {
                asm!(
                    concat!($text, " {kind}, [{descriptor}]"),
                    "setc {carry}",
                    "setz {zero}",
                    kind = in(reg) kind,
                    descriptor = in(reg) &descriptor,
                    carry = out(reg_byte) carry,
                    zero = out(reg_byte) zero,
                    options(nostack),
                );
            }
            outcome(carry, zero)
        }
    };
}
invalidate!(
    /// Drops second-stage translations: kind 1 those of the pointer in the first word, 2 all.
    invept,
    "invept"
);
invalidate!(
    /// Drops tagged translations: kind 2 all.
    invvpid,
    "invvpid"
);
