//! Prefixes, opcode, ModRM, SIB, displacement and immediate: the shape of an instruction and with it its length.

use super::{CodeSize, DecodeError, MAX_LEN, MemRef, Rep, SegReg};
use crate::gprs::Gpr;
use crate::width::Width;

/// Opcode map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    One,
    /// 0F
    Two,
    /// 0F 38
    Three38,
    /// 0F 3A
    Three3a,
}

/// What ModRM's r/m field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rm {
    Reg(u8),
    Mem(MemRef),
}

/// An instruction by its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    pub len: u8,
    pub map: Map,
    pub opcode: u8,
    /// Reg field, REX applied, and the r/m operand.
    pub modrm: Option<(u8, Rm)>,
    pub imm: u64,
    /// Address of a direct-offset move.
    pub moffs: u64,
    pub rex: u8,
    pub op: Width,
    pub addr: Width,
    pub op_prefix: bool,
    pub rep: Rep,
    pub lock: bool,
    pub segment: Option<SegReg>,
}

/// Kind of immediate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Imm {
    None,
    Byte,
    Word,
    /// 16 or 32 bits by operand size.
    Z,
    /// 16, 32 or 64 bits by operand size.
    Full,
    /// Relative target: 32 bits in 64-bit mode, else as `Z`.
    Rel,
    /// Word and byte (ENTER).
    WordByte,
    /// Offset and selector.
    Far,
    /// Offset of address size.
    Moffs,
}

/// The legacy part of the bytes, with a position.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn next(&mut self) -> Result<u8, DecodeError> {
        if self.at == MAX_LEN {
            return Err(DecodeError::Invalid);
        }
        let b = *self.bytes.get(self.at).ok_or(DecodeError::TooShort)?;
        self.at += 1;
        Ok(b)
    }

    /// Little-endian value of `n` bytes (at most 8).
    fn value(&mut self, n: usize) -> Result<u64, DecodeError> {
        let mut v = 0;
        for i in 0..n {
            v |= u64::from(self.next()?) << (8 * i);
        }
        Ok(v)
    }

    /// Sign-extended value of `n` bytes; zero for none.
    fn signed(&mut self, n: usize) -> Result<i64, DecodeError> {
        if n == 0 {
            return Ok(0);
        }
        let shift = 64 - 8 * n as u32;
        Ok(self.value(n)?.cast_signed() << shift >> shift)
    }
}

impl Raw {
    pub(super) fn decode(bytes: &[u8], size: CodeSize) -> Result<Self, DecodeError> {
        let long = size == CodeSize::Bits64;
        let mut c = Cursor { bytes, at: 0 };
        let mut r = Self {
            len: 0,
            map: Map::One,
            opcode: 0,
            modrm: None,
            imm: 0,
            moffs: 0,
            rex: 0,
            op: Width::B4,
            addr: Width::B4,
            op_prefix: false,
            rep: Rep::None,
            lock: false,
            segment: None,
        };
        let mut addr_prefix = false;
        let mut opcode = loop {
            let b = c.next()?;
            match b {
                0x66 => r.op_prefix = true,
                0x67 => addr_prefix = true,
                0xf0 => r.lock = true,
                0xf2 => r.rep = Rep::Repne,
                0xf3 => r.rep = Rep::Rep,
                // In 64-bit mode these four do nothing.
                0x26 | 0x2e | 0x36 | 0x3e if long => {}
                0x26 => r.segment = Some(SegReg::Es),
                0x2e => r.segment = Some(SegReg::Cs),
                0x36 => r.segment = Some(SegReg::Ss),
                0x3e => r.segment = Some(SegReg::Ds),
                0x64 => r.segment = Some(SegReg::Fs),
                0x65 => r.segment = Some(SegReg::Gs),
                0x40..=0x4f if long => {
                    r.rex = b;
                    continue;
                }
                _ => break b,
            }
            // A prefix after REX cancels it.
            r.rex = 0;
        };
        (r.op, r.addr) = match (size, r.op_prefix, addr_prefix) {
            (CodeSize::Bits64, o, a) => (
                if r.rex & 8 != 0 {
                    Width::B8
                } else if o {
                    Width::B2
                } else {
                    Width::B4
                },
                if a { Width::B4 } else { Width::B8 },
            ),
            (CodeSize::Bits32, o, a) => {
                (pick(o, Width::B2, Width::B4), pick(a, Width::B2, Width::B4))
            }
            (CodeSize::Bits16, o, a) => {
                (pick(o, Width::B4, Width::B2), pick(a, Width::B4, Width::B2))
            }
        };
        if opcode == 0x0f {
            opcode = c.next()?;
            r.map = match opcode {
                0x38 => Map::Three38,
                0x3a => Map::Three3a,
                _ => Map::Two,
            };
            if r.map != Map::Two {
                opcode = c.next()?;
            }
        }
        r.opcode = opcode;
        let (has_modrm, imm) = match r.map {
            Map::One => one_byte(opcode, long)?,
            Map::Two => two_byte(opcode, r.op_prefix || r.rep == Rep::Repne)?,
            Map::Three38 => (true, Imm::None),
            Map::Three3a => (true, Imm::Byte),
        };
        let mut imm = imm;
        if has_modrm {
            let m = c.next()?;
            check_vex(&r, m, long)?;
            let reg = m >> 3 & 7;
            // TEST in groups 3 is the only one of its group with an immediate.
            if r.map == Map::One && reg < 2 {
                match opcode {
                    0xf6 => imm = Imm::Byte,
                    0xf7 => imm = Imm::Z,
                    _ => {}
                }
            }
            // Moves to and from control and debug registers ignore the mode field.
            let m = if r.map == Map::Two && (0x20..=0x23).contains(&opcode) {
                m | 0xc0
            } else {
                m
            };
            let rm = r.rm(&mut c, m, long)?;
            r.modrm = Some((reg | (r.rex & 4) << 1, rm));
        }
        r.immediate(&mut c, imm, long)?;
        r.len = c.at as u8;
        Ok(r)
    }

    fn rm(&self, c: &mut Cursor<'_>, m: u8, long: bool) -> Result<Rm, DecodeError> {
        let (mode, rm) = (m >> 6, m & 7);
        if mode == 3 {
            return Ok(Rm::Reg(rm | (self.rex & 1) << 3));
        }
        if self.addr == Width::B2 {
            return self.rm16(c, mode, rm);
        }
        let mut mem = MemRef {
            segment: SegReg::Ds,
            base: None,
            index: None,
            disp: 0,
            rip_relative: false,
            addr: self.addr,
        };
        let base = if rm == 4 {
            let sib = c.next()?;
            let index = sib >> 3 & 7 | (self.rex & 2) << 2;
            if index != 4 {
                mem.index = Some((gpr(index), sib >> 6));
            }
            sib & 7
        } else {
            rm
        };
        let mut disp = match mode {
            1 => 1,
            2 => 4,
            _ => 0,
        };
        if mode == 0 && base == 5 {
            disp = 4;
            mem.rip_relative = long && rm == 5;
        } else {
            mem.base = Some(gpr(base | (self.rex & 1) << 3));
        }
        if matches!(mem.base, Some(Gpr::Rsp | Gpr::Rbp)) {
            mem.segment = SegReg::Ss;
        }
        mem.disp = c.signed(disp)?;
        self.override_segment(&mut mem);
        Ok(Rm::Mem(mem))
    }

    fn rm16(&self, c: &mut Cursor<'_>, mode: u8, rm: u8) -> Result<Rm, DecodeError> {
        let (base, index) = match rm {
            0 => (Some(Gpr::Rbx), Some(Gpr::Rsi)),
            1 => (Some(Gpr::Rbx), Some(Gpr::Rdi)),
            2 => (Some(Gpr::Rbp), Some(Gpr::Rsi)),
            3 => (Some(Gpr::Rbp), Some(Gpr::Rdi)),
            4 => (Some(Gpr::Rsi), None),
            5 => (Some(Gpr::Rdi), None),
            6 if mode == 0 => (None, None),
            6 => (Some(Gpr::Rbp), None),
            _ => (Some(Gpr::Rbx), None),
        };
        let disp = match mode {
            0 if rm == 6 => 2,
            0 => 0,
            1 => 1,
            _ => 2,
        };
        let mut mem = MemRef {
            segment: if base == Some(Gpr::Rbp) {
                SegReg::Ss
            } else {
                SegReg::Ds
            },
            base,
            index: index.map(|i| (i, 0)),
            disp: c.signed(disp)?,
            rip_relative: false,
            addr: Width::B2,
        };
        self.override_segment(&mut mem);
        Ok(Rm::Mem(mem))
    }

    fn override_segment(&self, mem: &mut MemRef) {
        if let Some(s) = self.segment {
            mem.segment = s;
        }
    }

    fn immediate(&mut self, c: &mut Cursor<'_>, kind: Imm, long: bool) -> Result<(), DecodeError> {
        let z = if self.op == Width::B2 { 2 } else { 4 };
        match kind {
            Imm::None => {}
            Imm::Byte => self.imm = c.signed(1)?.cast_unsigned(),
            Imm::Word => self.imm = c.value(2)?,
            Imm::Z => self.imm = c.signed(z)?.cast_unsigned(),
            Imm::Full => self.imm = c.value(self.op.bytes())?,
            Imm::Rel => self.imm = c.signed(if long { 4 } else { z })?.cast_unsigned(),
            Imm::WordByte => self.imm = c.value(3)?,
            Imm::Far => self.imm = c.value(z + 2)?,
            Imm::Moffs => self.moffs = c.value(self.addr.bytes())?,
        }
        Ok(())
    }
}

fn pick(prefix: bool, with: Width, without: Width) -> Width {
    if prefix { with } else { without }
}

/// Register number (4 bits) to register.
pub(super) fn gpr(n: u8) -> Gpr {
    const ALL: [Gpr; 16] = [
        Gpr::Rax,
        Gpr::Rcx,
        Gpr::Rdx,
        Gpr::Rbx,
        Gpr::Rsp,
        Gpr::Rbp,
        Gpr::Rsi,
        Gpr::Rdi,
        Gpr::R8,
        Gpr::R9,
        Gpr::R10,
        Gpr::R11,
        Gpr::R12,
        Gpr::R13,
        Gpr::R14,
        Gpr::R15,
    ];
    ALL[usize::from(n & 15)]
}

/// LES, LDS, BOUND and POP share first bytes with VEX, EVEX and XOP.
fn check_vex(r: &Raw, modrm: u8, long: bool) -> Result<(), DecodeError> {
    let vex = match (r.map, r.opcode) {
        (Map::One, 0xc4 | 0xc5 | 0x62) => long || modrm >> 6 == 3,
        (Map::One, 0x8f) => modrm >> 3 & 7 != 0,
        _ => false,
    };
    if vex {
        Err(DecodeError::Unsupported)
    } else {
        Ok(())
    }
}

/// ModRM presence and immediate of the one-byte map.
fn one_byte(op: u8, long: bool) -> Result<(bool, Imm), DecodeError> {
    if long
        && matches!(
            op,
            0x06 | 0x07
                | 0x0e
                | 0x16
                | 0x17
                | 0x1e
                | 0x1f
                | 0x27
                | 0x2f
                | 0x37
                | 0x3f
                | 0x60
                | 0x61
                | 0x82
                | 0x9a
                | 0xce
                | 0xd4..=0xd6 | 0xea
        )
    {
        return Err(DecodeError::Invalid);
    }
    Ok(match op {
        0x00..=0x3f => match op & 7 {
            0..=3 => (true, Imm::None),
            4 => (false, Imm::Byte),
            5 => (false, Imm::Z),
            _ => (false, Imm::None),
        },
        0x62
        | 0x63
        | 0x84..=0x8f
        | 0xc4
        | 0xc5
        | 0xd0..=0xd3
        | 0xd8..=0xdf
        | 0xf6
        | 0xf7
        | 0xfe
        | 0xff => (true, Imm::None),
        0x69 | 0x81 | 0xc7 => (true, Imm::Z),
        0x6b | 0x80 | 0x82 | 0x83 | 0xc0 | 0xc1 | 0xc6 => (true, Imm::Byte),
        0x68 | 0xa9 => (false, Imm::Z),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xd4 | 0xd5 | 0xe0..=0xe7 | 0xeb => {
            (false, Imm::Byte)
        }
        0xe8 | 0xe9 => (false, Imm::Rel),
        0x9a | 0xea => (false, Imm::Far),
        0xa0..=0xa3 => (false, Imm::Moffs),
        0xb8..=0xbf => (false, Imm::Full),
        0xc2 | 0xca => (false, Imm::Word),
        0xc8 => (false, Imm::WordByte),
        _ => (false, Imm::None),
    })
}

/// ModRM presence and immediate of the 0F map.
fn two_byte(op: u8, extrq: bool) -> Result<(bool, Imm), DecodeError> {
    Ok(match op {
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f => {
            return Err(DecodeError::Invalid);
        }
        // 3DNow!, VIA's own, and EXTRQ/INSERTQ with their two immediates.
        0x0e | 0x0f | 0xa6 | 0xa7 => return Err(DecodeError::Unsupported),
        0x78 if extrq => return Err(DecodeError::Unsupported),
        0x05..=0x09 | 0x0b | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => {
            (false, Imm::None)
        }
        0x80..=0x8f => (false, Imm::Rel),
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => (true, Imm::Byte),
        _ => (true, Imm::None),
    })
}
