//! Instruction decoder for what a hypervisor must know: the length of any legacy instruction (for exits whose hardware
//! does not tell where the next one starts), and the operands of the instructions that touch device memory.
//!
//! Hand-written and small: no table is built at run time and nothing is allocated, because it runs on a guest's exit path
//! and takes part in the image size. Tests compare it with a full disassembler. VEX, EVEX, XOP and 3DNow! encodings are
//! refused.
//!
//! ```
//! use x86_model::insn::{CodeSize, Insn, Op, Operand, length};
//! use x86_model::Width;
//! // cpuid
//! assert_eq!(length(&[0x0f, 0xa2, 0x90], CodeSize::Bits64), Ok(2));
//! // mov eax, [rbx + 0x80]
//! let i = Insn::decode(&[0x8b, 0x83, 0x80, 0, 0, 0], CodeSize::Bits64).unwrap();
//! assert_eq!((i.op, i.width, i.len), (Op::Mov, Width::B4, 6));
//! assert!(matches!((i.dst, i.src), (Operand::Reg(_), Operand::Mem)));
//! ```

mod decode;
mod ops;

#[cfg(test)]
mod tests;

use crate::gprs::{Gpr, Gprs};
use crate::width::Width;

/// Longest instruction in bytes.
pub const MAX_LEN: usize = 15;

/// Size of the code segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeSize {
    /// Real mode and 16-bit segments.
    Bits16,
    /// 32-bit segments.
    Bits32,
    /// 64-bit mode.
    Bits64,
}

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end inside the instruction.
    TooShort,
    /// Longer than 15 bytes, or no such instruction.
    Invalid,
    /// Outside of the decoded subset.
    Unsupported,
}

/// Length of the instruction at the start of `bytes` (up to 15 are looked at).
pub fn length(bytes: &[u8], size: CodeSize) -> Result<u8, DecodeError> {
    decode::Raw::decode(bytes, size).map(|r| r.len)
}

/// Segment registers as instructions number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub enum SegReg {
    Es = 0,
    Cs = 1,
    Ss = 2,
    Ds = 3,
    Fs = 4,
    Gs = 5,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemRef {
    /// Segment, with any override applied.
    pub segment: SegReg,
    /// Base register.
    pub base: Option<Gpr>,
    /// Index register and log2 of its scale.
    pub index: Option<(Gpr, u8)>,
    /// Displacement, sign-extended.
    pub disp: i64,
    /// Relative to the next instruction.
    pub rip_relative: bool,
    /// Width of address arithmetic.
    pub addr: Width,
}

impl MemRef {
    /// Offset in the segment. `next_rip` is the address of the following instruction.
    pub fn offset(&self, gprs: &Gprs, next_rip: u64) -> u64 {
        let mut at = self.disp.cast_unsigned();
        if let Some(b) = self.base {
            at = at.wrapping_add(gprs.get(b));
        }
        if let Some((i, shift)) = self.index {
            at = at.wrapping_add(gprs.get(i) << shift);
        }
        if self.rip_relative {
            at = at.wrapping_add(next_rip);
        }
        at & self.addr.mask()
    }
}

/// A general-purpose register operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegRef {
    /// Register.
    pub gpr: Gpr,
    /// Bits 15:8 (AH, CH, DH, BH).
    pub high: bool,
}

impl RegRef {
    /// The value at this width, zero-extended.
    pub fn read(self, gprs: &Gprs, width: Width) -> u64 {
        let v = gprs.get(self.gpr);
        (if self.high { v >> 8 } else { v }) & width.mask()
    }

    /// Writes at this width, with the processor's rules for the rest of the register.
    pub fn write(self, gprs: &mut Gprs, width: Width, value: u64) {
        let old = gprs.get(self.gpr);
        let new = match (width, self.high) {
            (Width::B1, true) => old & !0xff00 | (value & 0xff) << 8,
            (Width::B1 | Width::B2, _) => old & !width.mask() | value & width.mask(),
            // 32-bit results clear the upper half.
            (Width::B4 | Width::B8, _) => value & width.mask(),
        };
        gprs.set(self.gpr, new);
    }
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The instruction's memory operand ([`Insn::mem`]).
    Mem,
    /// A register.
    Reg(RegRef),
    /// An immediate, sign-extended to 64 bits.
    Imm(u64),
    /// Named by the operation.
    Implied,
}

/// Arithmetic with two operands, in encoding order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the instructions'")]
pub enum Alu {
    Add,
    Or,
    Adc,
    Sbb,
    And,
    Sub,
    Xor,
    Cmp,
}

/// Bit tests, in encoding order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the instructions'")]
pub enum BitOp {
    Test,
    Set,
    Reset,
    Complement,
}

/// Operations of the decoded subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the instructions'")]
pub enum Op {
    Mov,
    MovZx,
    MovSx,
    /// Byte-swapped move.
    Movbe,
    Xchg,
    Alu(Alu),
    Test,
    Not,
    Neg,
    Inc,
    Dec,
    Bit(BitOp),
    CmpXchg,
    Xadd,
    /// String move, from `mem` to ES:rDI.
    Movs,
    /// rAX to ES:rDI.
    Stos,
    /// From `mem` to rAX.
    Lods,
    /// Port DX to ES:rDI.
    Ins,
    /// From `mem` to port DX.
    Outs,
}

/// Repeat prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the prefixes'")]
pub enum Rep {
    None,
    Rep,
    Repne,
}

/// A decoded instruction with a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Length in bytes.
    pub len: u8,
    /// What it does.
    pub op: Op,
    /// Width of the memory operand.
    pub width: Width,
    /// Width of the register that takes the result; differs from `width` for MOVZX and MOVSX.
    pub reg_width: Width,
    /// First operand.
    pub dst: Operand,
    /// Second operand.
    pub src: Operand,
    /// The memory operand; for string operations the one at rSI (or rDI where that is the only one).
    pub mem: MemRef,
    /// Repeat prefix (string operations only).
    pub rep: Rep,
    /// LOCK prefix.
    pub lock: bool,
}

impl Insn {
    /// Decodes the instruction at the start of `bytes`; [`DecodeError::Unsupported`] if it is valid but outside of the
    /// subset, or has no memory operand.
    pub fn decode(bytes: &[u8], size: CodeSize) -> Result<Self, DecodeError> {
        ops::classify(&decode::Raw::decode(bytes, size)?)
    }
}
