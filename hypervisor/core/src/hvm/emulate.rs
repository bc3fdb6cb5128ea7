//! Completes one instruction that touched trapped device memory, or a string port instruction.
//!
//! The caller supplies the bytes at RIP, a view of the registers and a [`Bus`] that resolves linear addresses to devices
//! or memory. Nothing is executed twice: on a fault of the bus, registers keep what earlier repetitions of a string
//! instruction did, and the instruction starts again after the guest handled the fault.
//!
//! ```text
//! let mut cpu = CpuView { gprs: &mut gprs, rip, rflags, bases, code };
//! match step(bytes, &mut cpu, &mut bus) {
//!     Ok(_) => { ctx.set_rip(cpu.rip); state.rflags = cpu.rflags; }      // More: RIP has not moved
//!     Err(Error::Bus(BusFault::Page { gva, error_code })) => /* CR2 = gva, inject #PF */,
//!     Err(Error::Bus(BusFault::Protection)) => /* inject #GP(0) */,
//!     Err(Error::Bus(BusFault::Refused) | Error::Decode(_)) => /* inject #UD, log the bytes once */,
//! }
//! ```

use x86_model::insn::{
    Alu, BitOp, CodeSize, DecodeError, Insn, MemRef, Op, Operand, RegRef, Rep, SegReg,
};
use x86_model::{Gpr, Gprs, Width};

/// String repetitions per call. Between calls the run loop looks at interrupts.
const MAX_REPEAT: u64 = 512;

const CF: u64 = 1;
const PF: u64 = 1 << 2;
const AF: u64 = 1 << 4;
const ZF: u64 = 1 << 6;
const SF: u64 = 1 << 7;
const DF: u64 = 1 << 10;
const OF: u64 = 1 << 11;
const ARITHMETIC: u64 = CF | PF | AF | ZF | SF | OF;

/// Registers that instructions use.
#[derive(Debug)]
pub struct CpuView<'a> {
    /// General-purpose registers.
    pub gprs: &'a mut Gprs,
    /// Instruction pointer; moved on completion.
    pub rip: u64,
    /// Flags.
    pub rflags: u64,
    /// Segment bases by `SegReg` (ES, CS, SS, DS, FS, GS). In 64-bit mode the first four are taken as zero.
    pub bases: [u64; 6],
    /// Code size, from CS.
    pub code: CodeSize,
}

/// Why the bus could not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusFault {
    /// #PF at this linear address.
    Page {
        /// Faulting address.
        gva: u64,
        /// Error code.
        error_code: u32,
    },
    /// #GP.
    Protection,
    /// Nothing that instructions may touch.
    Refused,
}

/// Where memory operands lead.
pub trait Bus {
    /// Reads `width` bytes at a linear address, zero-extended.
    fn read(&mut self, gva: u64, width: Width) -> Result<u64, BusFault>;
    /// Writes.
    fn write(&mut self, gva: u64, width: Width, value: u64) -> Result<(), BusFault>;
    /// Port input (1, 2 or 4 bytes).
    fn port_in(&mut self, port: u16, width: Width) -> u32;
    /// Port output.
    fn port_out(&mut self, port: u16, width: Width, value: u32);
}

/// How far the instruction got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Completed; RIP is at the next one.
    Done,
    /// A repeated instruction has work left: RIP is still at it, registers count what is done.
    More,
}

/// Why an instruction was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not in the emulated subset.
    Decode(DecodeError),
    /// The bus faulted.
    Bus(BusFault),
}

impl From<BusFault> for Error {
    fn from(f: BusFault) -> Self {
        Self::Bus(f)
    }
}

/// Decodes and executes the instruction in `bytes`.
pub fn step(bytes: &[u8], cpu: &mut CpuView<'_>, bus: &mut impl Bus) -> Result<Progress, Error> {
    let insn = Insn::decode(bytes, cpu.code).map_err(Error::Decode)?;
    Ok(execute(&insn, cpu, bus)?)
}

/// Executes a decoded instruction.
pub fn execute(i: &Insn, cpu: &mut CpuView<'_>, bus: &mut impl Bus) -> Result<Progress, BusFault> {
    let next = cpu.next_rip(i.len);
    if matches!(i.op, Op::Movs | Op::Stos | Op::Lods | Op::Ins | Op::Outs) {
        if !string(i, cpu, bus)? {
            return Ok(Progress::More);
        }
    } else {
        single(i, cpu, bus, next)?;
    }
    cpu.rip = next;
    Ok(Progress::Done)
}

impl CpuView<'_> {
    fn next_rip(&self, len: u8) -> u64 {
        let next = self.rip.wrapping_add(len.into());
        match self.code {
            CodeSize::Bits64 => next,
            CodeSize::Bits32 => next & 0xffff_ffff,
            CodeSize::Bits16 => next & 0xffff,
        }
    }

    fn linear(&self, segment: SegReg, offset: u64) -> u64 {
        if self.code != CodeSize::Bits64 {
            return self.bases[segment as usize].wrapping_add(offset) & 0xffff_ffff;
        }
        match segment {
            SegReg::Fs | SegReg::Gs => self.bases[segment as usize].wrapping_add(offset),
            _ => offset,
        }
    }

    fn address(&self, mem: &MemRef, next: u64) -> u64 {
        self.linear(mem.segment, mem.offset(self.gprs, next))
    }

    fn set_flags(&mut self, mask: u64, value: u64) {
        self.rflags = self.rflags & !mask | value & mask;
    }
}

fn rax() -> RegRef {
    RegRef {
        gpr: Gpr::Rax,
        high: false,
    }
}

fn single(i: &Insn, cpu: &mut CpuView<'_>, bus: &mut impl Bus, next: u64) -> Result<(), BusFault> {
    let at = cpu.address(&i.mem, next);
    let w = i.width;
    match i.op {
        Op::Mov | Op::MovZx | Op::MovSx | Op::Movbe => {
            if let Operand::Reg(r) = i.dst {
                let v = bus.read(at, w)?;
                let v = match i.op {
                    Op::MovSx => sign_extend(v, w),
                    Op::Movbe => swap(v, w),
                    _ => v,
                };
                r.write(cpu.gprs, i.reg_width, v);
            } else {
                let v = value(i.src, cpu, w);
                bus.write(at, w, if i.op == Op::Movbe { swap(v, w) } else { v })?;
            }
        }
        Op::Xchg => {
            let old = bus.read(at, w)?;
            bus.write(at, w, value(i.src, cpu, w))?;
            write_reg(i.src, cpu, w, old);
        }
        Op::Alu(op) => {
            let m = bus.read(at, w)?;
            let carry = cpu.rflags & CF;
            let (result, flags) = if let Operand::Reg(r) = i.dst {
                let (result, flags) = alu(op, r.read(cpu.gprs, w), m, carry, w);
                if op != Alu::Cmp {
                    r.write(cpu.gprs, w, result);
                }
                (result, flags)
            } else {
                alu(op, m, value(i.src, cpu, w), carry, w)
            };
            if i.dst == Operand::Mem && op != Alu::Cmp {
                bus.write(at, w, result)?;
            }
            cpu.set_flags(ARITHMETIC, flags);
        }
        Op::Test => {
            let m = bus.read(at, w)?;
            let (_, flags) = alu(Alu::And, m, value(i.src, cpu, w), 0, w);
            cpu.set_flags(ARITHMETIC, flags);
        }
        Op::Not => {
            let m = bus.read(at, w)?;
            bus.write(at, w, !m & w.mask())?;
        }
        Op::Neg | Op::Inc | Op::Dec => {
            let m = bus.read(at, w)?;
            let ((result, flags), mask) = match i.op {
                Op::Neg => (alu(Alu::Sub, 0, m, 0, w), ARITHMETIC),
                Op::Inc => (alu(Alu::Add, m, 1, 0, w), ARITHMETIC & !CF),
                _ => (alu(Alu::Sub, m, 1, 0, w), ARITHMETIC & !CF),
            };
            bus.write(at, w, result)?;
            cpu.set_flags(mask, flags);
        }
        Op::Bit(op) => bit(i, op, at, cpu, bus)?,
        Op::CmpXchg => {
            let m = bus.read(at, w)?;
            let (_, flags) = alu(Alu::Cmp, rax().read(cpu.gprs, w), m, 0, w);
            if flags & ZF != 0 {
                bus.write(at, w, value(i.src, cpu, w))?;
            } else {
                rax().write(cpu.gprs, w, m);
            }
            cpu.set_flags(ARITHMETIC, flags);
        }
        Op::Xadd => {
            let m = bus.read(at, w)?;
            let (sum, flags) = alu(Alu::Add, m, value(i.src, cpu, w), 0, w);
            bus.write(at, w, sum)?;
            write_reg(i.src, cpu, w, m);
            cpu.set_flags(ARITHMETIC, flags);
        }
        // Handled by `string`.
        Op::Movs | Op::Stos | Op::Lods | Op::Ins | Op::Outs => {}
    }
    Ok(())
}

fn value(o: Operand, cpu: &CpuView<'_>, w: Width) -> u64 {
    match o {
        Operand::Reg(r) => r.read(cpu.gprs, w),
        Operand::Imm(v) => v & w.mask(),
        Operand::Mem | Operand::Implied => 0,
    }
}

fn write_reg(o: Operand, cpu: &mut CpuView<'_>, w: Width, v: u64) {
    if let Operand::Reg(r) = o {
        r.write(cpu.gprs, w, v);
    }
}

fn bit(
    i: &Insn,
    op: BitOp,
    at: u64,
    cpu: &mut CpuView<'_>,
    bus: &mut impl Bus,
) -> Result<(), BusFault> {
    let w = i.width;
    let bits = w.bytes() as u64 * 8;
    let (at, n) = match i.src {
        // A register is a signed bit offset that may reach beyond the operand.
        Operand::Reg(r) => {
            let offset = sign_extend(r.read(cpu.gprs, w), w).cast_signed();
            let words = offset >> bits.trailing_zeros();
            let at = at.wrapping_add(words.wrapping_mul(w.bytes() as i64).cast_unsigned());
            (
                if cpu.code == CodeSize::Bits64 {
                    at
                } else {
                    at & 0xffff_ffff
                },
                offset.cast_unsigned() % bits,
            )
        }
        other => (at, value(other, cpu, w) % bits),
    };
    let m = bus.read(at, w)?;
    let mask = 1u64 << n;
    let new = match op {
        BitOp::Test => m,
        BitOp::Set => m | mask,
        BitOp::Reset => m & !mask,
        BitOp::Complement => m ^ mask,
    };
    if op != BitOp::Test {
        bus.write(at, w, new)?;
    }
    cpu.set_flags(CF, m >> n & 1);
    Ok(())
}

/// True when the instruction is complete.
fn string(i: &Insn, cpu: &mut CpuView<'_>, bus: &mut impl Bus) -> Result<bool, BusFault> {
    let addr = i.mem.addr;
    let reg = |gpr| RegRef { gpr, high: false };
    let (si, di, cx) = (reg(Gpr::Rsi), reg(Gpr::Rdi), reg(Gpr::Rcx));
    let repeated = i.rep != Rep::None;
    let mut left = if repeated { cx.read(cpu.gprs, addr) } else { 1 };
    let step = if cpu.rflags & DF != 0 {
        (i.width.bytes() as u64).wrapping_neg()
    } else {
        i.width.bytes() as u64
    };
    let port = cpu.gprs.get(Gpr::Rdx) as u16;
    for _ in 0..MAX_REPEAT {
        if left == 0 {
            break;
        }
        let from = cpu.linear(i.mem.segment, si.read(cpu.gprs, addr));
        let to = cpu.linear(SegReg::Es, di.read(cpu.gprs, addr));
        let (mut uses_si, mut uses_di) = (false, false);
        match i.op {
            Op::Movs => {
                let v = bus.read(from, i.width)?;
                bus.write(to, i.width, v)?;
                (uses_si, uses_di) = (true, true);
            }
            Op::Lods => {
                let v = bus.read(from, i.width)?;
                rax().write(cpu.gprs, i.width, v);
                uses_si = true;
            }
            Op::Outs => {
                let v = bus.read(from, i.width)?;
                bus.port_out(port, i.width, v as u32);
                uses_si = true;
            }
            Op::Ins => {
                let v = bus.port_in(port, i.width);
                bus.write(to, i.width, v.into())?;
                uses_di = true;
            }
            _ => {
                bus.write(to, i.width, rax().read(cpu.gprs, i.width))?;
                uses_di = true;
            }
        }
        for (used, r) in [(uses_si, si), (uses_di, di)] {
            if used {
                let v = r.read(cpu.gprs, addr).wrapping_add(step);
                r.write(cpu.gprs, addr, v);
            }
        }
        left -= 1;
        if repeated {
            cx.write(cpu.gprs, addr, left);
        }
    }
    Ok(left == 0)
}

fn sign_extend(v: u64, w: Width) -> u64 {
    let shift = 64 - 8 * w.bytes() as u32;
    (v.cast_signed() << shift >> shift).cast_unsigned()
}

fn swap(v: u64, w: Width) -> u64 {
    v.swap_bytes() >> (64 - 8 * w.bytes())
}

/// Result and arithmetic flags.
fn alu(op: Alu, a: u64, b: u64, carry: u64, w: Width) -> (u64, u64) {
    let mask = w.mask();
    let sign = mask ^ (mask >> 1);
    let (a, b) = (a & mask, b & mask);
    let (wide, flags) = match op {
        Alu::And => (u128::from(a & b), 0),
        Alu::Or => (u128::from(a | b), 0),
        Alu::Xor => (u128::from(a ^ b), 0),
        Alu::Add | Alu::Adc => {
            let c = if op == Alu::Adc { carry & 1 } else { 0 };
            let wide = u128::from(a) + u128::from(b) + u128::from(c);
            let r = wide as u64;
            let mut f = (a ^ b ^ r) & AF;
            if wide > u128::from(mask) {
                f |= CF;
            }
            if (a ^ r) & (b ^ r) & sign != 0 {
                f |= OF;
            }
            (wide, f)
        }
        Alu::Sub | Alu::Sbb | Alu::Cmp => {
            let c = if op == Alu::Sbb { carry & 1 } else { 0 };
            let wide = u128::from(a).wrapping_sub(u128::from(b) + u128::from(c));
            let r = wide as u64;
            let mut f = (a ^ b ^ r) & AF;
            if u128::from(a) < u128::from(b) + u128::from(c) {
                f |= CF;
            }
            if (a ^ b) & (a ^ r) & sign != 0 {
                f |= OF;
            }
            (wide, f)
        }
    };
    let r = wide as u64 & mask;
    let mut flags = flags;
    if r == 0 {
        flags |= ZF;
    }
    if r & sign != 0 {
        flags |= SF;
    }
    if (r as u8).count_ones().is_multiple_of(2) {
        flags |= PF;
    }
    (r, flags)
}

#[cfg(test)]
#[path = "emulate_tests.rs"]
mod tests;
