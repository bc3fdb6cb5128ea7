//! From the shape of an instruction to its operation: the subset with one memory operand that device drivers use.

use super::decode::{Map, Raw, Rm, gpr};
use super::{Alu, BitOp, DecodeError, Insn, MemRef, Op, Operand, RegRef, Rep, SegReg};
use crate::gprs::Gpr;
use crate::width::Width;

const ALU: [Alu; 8] = [
    Alu::Add,
    Alu::Or,
    Alu::Adc,
    Alu::Sbb,
    Alu::And,
    Alu::Sub,
    Alu::Xor,
    Alu::Cmp,
];
const BIT: [BitOp; 4] = [BitOp::Test, BitOp::Set, BitOp::Reset, BitOp::Complement];

/// Names the operation and operands, or says that it is outside of the subset.
pub(super) fn classify(r: &Raw) -> Result<Insn, DecodeError> {
    if r.map == Map::One && matches!(r.opcode, 0x6c..=0x6f | 0xa4 | 0xa5 | 0xaa..=0xad) {
        return string(r);
    }
    if r.map == Map::One && matches!(r.opcode, 0xa0..=0xa3) {
        return moffs(r);
    }
    let Some((reg, Rm::Mem(mem))) = r.modrm else {
        return Err(DecodeError::Unsupported);
    };
    let byte = r.opcode & 1 == 0;
    let width = if byte { Width::B1 } else { r.op };
    let base = Insn {
        len: r.len,
        op: Op::Mov,
        width,
        reg_width: width,
        dst: Operand::Mem,
        src: Operand::Implied,
        mem,
        rep: Rep::None,
        lock: r.lock,
    };
    let insn = match r.map {
        Map::One => one(r, base, reg)?,
        Map::Two => two(r, base, reg)?,
        Map::Three38 => movbe(r, base, reg)?,
        Map::Three3a => return Err(DecodeError::Unsupported),
    };
    check_lock(insn)
}

/// LOCK needs a read-modify-write of memory.
fn check_lock(i: Insn) -> Result<Insn, DecodeError> {
    let lockable = i.dst == Operand::Mem
        && match i.op {
            Op::Alu(a) => a != Alu::Cmp,
            Op::Bit(b) => b != BitOp::Test,
            Op::Not | Op::Neg | Op::Inc | Op::Dec | Op::CmpXchg | Op::Xadd | Op::Xchg => true,
            _ => false,
        };
    if i.lock && !lockable {
        Err(DecodeError::Invalid)
    } else {
        Ok(i)
    }
}

fn register(r: &Raw, n: u8, width: Width) -> Operand {
    Operand::Reg(if width == Width::B1 && r.rex == 0 && (4..8).contains(&n) {
        RegRef {
            gpr: gpr(n - 4),
            high: true,
        }
    } else {
        RegRef {
            gpr: gpr(n),
            high: false,
        }
    })
}

fn one(r: &Raw, base: Insn, reg: u8) -> Result<Insn, DecodeError> {
    let operand = register(r, reg, base.width);
    let to_mem = |op| Insn {
        op,
        src: operand,
        ..base
    };
    let from_mem = |op| Insn {
        op,
        dst: operand,
        src: Operand::Mem,
        ..base
    };
    let imm = |op| Insn {
        op,
        src: Operand::Imm(r.imm),
        ..base
    };
    let unary = |op| Insn { op, ..base };
    Ok(match (r.opcode, reg & 7) {
        (0x00..=0x3f, _) => {
            let op = Op::Alu(ALU[usize::from(r.opcode >> 3)]);
            if r.opcode & 2 == 0 {
                to_mem(op)
            } else {
                from_mem(op)
            }
        }
        // MOVSXD: a plain 32-bit move without REX.W.
        (0x63, _) if r.op == Width::B8 => Insn {
            op: Op::MovSx,
            width: Width::B4,
            reg_width: Width::B8,
            dst: register(r, reg, Width::B8),
            src: Operand::Mem,
            ..base
        },
        (0x80..=0x83, n) => imm(Op::Alu(ALU[usize::from(n)])),
        (0x84 | 0x85, _) => to_mem(Op::Test),
        (0x86 | 0x87, _) => to_mem(Op::Xchg),
        (0x88 | 0x89, _) => to_mem(Op::Mov),
        (0x8a | 0x8b, _) => from_mem(Op::Mov),
        (0xc6 | 0xc7, 0) => imm(Op::Mov),
        (0xf6 | 0xf7, 0 | 1) => imm(Op::Test),
        (0xf6 | 0xf7, 2) => unary(Op::Not),
        (0xf6 | 0xf7, 3) => unary(Op::Neg),
        (0xfe | 0xff, 0) => unary(Op::Inc),
        (0xfe | 0xff, 1) => unary(Op::Dec),
        _ => return Err(DecodeError::Unsupported),
    })
}

fn two(r: &Raw, base: Insn, reg: u8) -> Result<Insn, DecodeError> {
    let bit = |n: u8, src| Insn {
        op: Op::Bit(BIT[usize::from(n & 3)]),
        width: r.op,
        reg_width: r.op,
        src,
        ..base
    };
    let extend = |op| Insn {
        op,
        width: if r.opcode & 1 == 0 {
            Width::B1
        } else {
            Width::B2
        },
        reg_width: r.op,
        dst: register(r, reg, r.op),
        src: Operand::Mem,
        ..base
    };
    let to_mem = |op| Insn {
        op,
        src: register(r, reg, base.width),
        ..base
    };
    Ok(match r.opcode {
        0xa3 | 0xab | 0xb3 | 0xbb => bit(r.opcode >> 3, register(r, reg, r.op)),
        0xba if reg & 7 >= 4 => bit(reg, Operand::Imm(r.imm)),
        0xb0 | 0xb1 => to_mem(Op::CmpXchg),
        0xb6 | 0xb7 => extend(Op::MovZx),
        0xbe | 0xbf => extend(Op::MovSx),
        0xc0 | 0xc1 => to_mem(Op::Xadd),
        // MOVNTI, which has no 16-bit form.
        0xc3 if !r.op_prefix && r.rep == Rep::None && r.op != Width::B2 => to_mem(Op::Mov),
        _ => return Err(DecodeError::Unsupported),
    })
}

fn movbe(r: &Raw, base: Insn, reg: u8) -> Result<Insn, DecodeError> {
    if r.rep != Rep::None {
        return Err(DecodeError::Unsupported);
    }
    let operand = register(r, reg, r.op);
    let insn = Insn {
        op: Op::Movbe,
        width: r.op,
        reg_width: r.op,
        ..base
    };
    match r.opcode {
        0xf0 => Ok(Insn {
            dst: operand,
            src: Operand::Mem,
            ..insn
        }),
        0xf1 => Ok(Insn {
            src: operand,
            ..insn
        }),
        _ => Err(DecodeError::Unsupported),
    }
}

fn moffs(r: &Raw) -> Result<Insn, DecodeError> {
    let width = if r.opcode & 1 == 0 { Width::B1 } else { r.op };
    let rax = Operand::Reg(RegRef {
        gpr: Gpr::Rax,
        high: false,
    });
    let (dst, src) = if r.opcode & 2 == 0 {
        (rax, Operand::Mem)
    } else {
        (Operand::Mem, rax)
    };
    check_lock(Insn {
        len: r.len,
        op: Op::Mov,
        width,
        reg_width: width,
        dst,
        src,
        mem: MemRef {
            segment: r.segment.unwrap_or(SegReg::Ds),
            base: None,
            index: None,
            disp: r.moffs.cast_signed(),
            rip_relative: false,
            addr: r.addr,
        },
        rep: Rep::None,
        lock: r.lock,
    })
}

fn string(r: &Raw) -> Result<Insn, DecodeError> {
    let mut width = if r.opcode & 1 == 0 { Width::B1 } else { r.op };
    let op = match r.opcode {
        0x6c | 0x6d => Op::Ins,
        0x6e | 0x6f => Op::Outs,
        0xa4 | 0xa5 => Op::Movs,
        0xaa | 0xab => Op::Stos,
        _ => Op::Lods,
    };
    if matches!(op, Op::Ins | Op::Outs) {
        // Ports have no 64-bit form.
        width = width.min(Width::B4);
    }
    let at_di = matches!(op, Op::Ins | Op::Stos);
    let segment = if at_di {
        SegReg::Es
    } else {
        r.segment.unwrap_or(SegReg::Ds)
    };
    check_lock(Insn {
        len: r.len,
        op,
        width,
        reg_width: width,
        dst: Operand::Implied,
        src: Operand::Implied,
        mem: MemRef {
            segment,
            base: Some(if at_di { Gpr::Rdi } else { Gpr::Rsi }),
            index: None,
            disp: 0,
            rip_relative: false,
            addr: r.addr,
        },
        rep: r.rep,
        lock: r.lock,
    })
}
