//! The sixteen general-purpose registers, indexed as instruction encodings number them.

/// Register number as encoded in instructions (ModRM plus REX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the registers'")]
pub enum Gpr {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rsp = 4,
    Rbp = 5,
    Rsi = 6,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
}

/// General-purpose register file. Entry code addresses it by offset (8 bytes a register, encoding order).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Gprs(pub [u64; 16]);

impl Gprs {
    /// Full 64-bit value.
    pub const fn get(&self, r: Gpr) -> u64 {
        self.0[r as usize]
    }
    /// Sets the full 64-bit value.
    pub const fn set(&mut self, r: Gpr, v: u64) {
        self.0[r as usize] = v;
    }
    /// Low 32 bits.
    pub const fn get32(&self, r: Gpr) -> u32 {
        self.get(r) as u32
    }
    /// Writes 32 bits and clears the upper half, as 32-bit instructions do in 64-bit mode.
    pub const fn set32(&mut self, r: Gpr, v: u32) {
        self.set(r, v as u64);
    }
}
