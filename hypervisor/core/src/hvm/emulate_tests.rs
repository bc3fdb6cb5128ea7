//! Tests of instruction emulation on a small memory.

use super::*;
use proptest::prelude::*;

/// 64 KiB of memory at address 0; everything above faults. Ports count reads and record writes.
struct Mem {
    bytes: Vec<u8>,
    log: Vec<(u64, bool)>,
    ports: Vec<(u16, u32)>,
}

impl Mem {
    fn new() -> Self {
        Self {
            bytes: vec![0; 0x1_0000],
            log: Vec::new(),
            ports: Vec::new(),
        }
    }
    fn put(&mut self, at: usize, w: Width, v: u64) {
        self.bytes[at..at + w.bytes()].copy_from_slice(&v.to_le_bytes()[..w.bytes()]);
    }
    fn get(&self, at: usize, w: Width) -> u64 {
        let mut v = [0; 8];
        v[..w.bytes()].copy_from_slice(&self.bytes[at..at + w.bytes()]);
        u64::from_le_bytes(v)
    }
    fn check(&mut self, gva: u64, w: Width, write: bool) -> Result<usize, BusFault> {
        let fault = BusFault::Page {
            gva,
            error_code: if write { 2 } else { 0 },
        };
        let at = usize::try_from(gva).map_err(|_| fault)?;
        if at
            .checked_add(w.bytes())
            .is_none_or(|end| end > self.bytes.len())
        {
            return Err(fault);
        }
        self.log.push((gva, write));
        Ok(at)
    }
}

impl Bus for Mem {
    fn read(&mut self, gva: u64, w: Width) -> Result<u64, BusFault> {
        let at = self.check(gva, w, false)?;
        Ok(self.get(at, w))
    }
    fn write(&mut self, gva: u64, w: Width, v: u64) -> Result<(), BusFault> {
        assert!(v <= w.mask(), "value wider than the access");
        let at = self.check(gva, w, true)?;
        self.put(at, w, v);
        Ok(())
    }
    fn port_in(&mut self, port: u16, w: Width) -> u32 {
        self.ports.push((port, 0));
        (0x4433_2211u64 & w.mask()) as u32
    }
    fn port_out(&mut self, port: u16, _: Width, v: u32) {
        self.ports.push((port, v));
    }
}

struct Run {
    gprs: Gprs,
    rip: u64,
    rflags: u64,
    mem: Mem,
}

impl Run {
    fn new() -> Self {
        let mut gprs = Gprs::default();
        gprs.set(Gpr::Rbx, 0x1000);
        gprs.set(Gpr::Rsi, 0x2000);
        gprs.set(Gpr::Rdi, 0x3000);
        Self {
            gprs,
            rip: 0x100,
            rflags: 2,
            mem: Mem::new(),
        }
    }
    fn go_in(&mut self, code: CodeSize, bytes: &[u8]) -> Result<Progress, Error> {
        let mut bases = [0; 6];
        bases[SegReg::Gs as usize] = 0x400;
        bases[SegReg::Ds as usize] = if code == CodeSize::Bits64 {
            0xdead_0000
        } else {
            0x10
        };
        let mut cpu = CpuView {
            gprs: &mut self.gprs,
            rip: self.rip,
            rflags: self.rflags,
            bases,
            code,
        };
        let r = step(bytes, &mut cpu, &mut self.mem);
        (self.rip, self.rflags) = (cpu.rip, cpu.rflags);
        r
    }
    fn go(&mut self, bytes: &[u8]) {
        let rip = self.rip;
        assert_eq!(self.go_in(CodeSize::Bits64, bytes), Ok(Progress::Done));
        assert_eq!(self.rip, rip + bytes.len() as u64);
    }
}

#[test]
fn moves() {
    let mut r = Run::new();
    r.mem.put(0x1080, Width::B4, 0x8899_aabb);
    r.gprs.set(Gpr::Rax, u64::MAX);
    r.go(&[0x8b, 0x83, 0x80, 0, 0, 0]); // mov eax, [rbx+0x80]
    assert_eq!(r.gprs.get(Gpr::Rax), 0x8899_aabb);
    r.go(&[0x48, 0x63, 0x8b, 0x80, 0, 0, 0]); // movsxd rcx, [rbx+0x80]
    assert_eq!(r.gprs.get(Gpr::Rcx), 0xffff_ffff_8899_aabb);
    r.go(&[0x0f, 0xb6, 0x93, 0x80, 0, 0, 0]); // movzx edx, byte [rbx+0x80]
    assert_eq!(r.gprs.get(Gpr::Rdx), 0xbb);
    r.go(&[0x48, 0xc7, 0x03, 0xfe, 0xff, 0xff, 0xff]); // mov qword [rbx], -2
    assert_eq!(r.mem.get(0x1000, Width::B8), (-2i64).cast_unsigned());
    r.go(&[0x88, 0x63, 0x08]); // mov [rbx+8], ah
    assert_eq!(r.mem.get(0x1008, Width::B2), 0xaa);
    r.go(&[0x65, 0x89, 0x0b]); // mov gs:[rbx], ecx
    assert_eq!(r.mem.get(0x1400, Width::B4), 0x8899_aabb);
    r.go(&[0x0f, 0x38, 0xf1, 0x03]); // movbe [rbx], eax
    assert_eq!(r.mem.get(0x1000, Width::B4), 0xbbaa_9988);
    r.rip = 0x900;
    r.mem.put(0x1000, Width::B4, 77);
    r.go(&[0x8b, 0x05, 0xfa, 0x06, 0, 0]); // mov eax, [rip+0x6fa]
    assert_eq!(r.gprs.get(Gpr::Rax), 77);
}

#[test]
fn read_modify_write() {
    let mut r = Run::new();
    r.mem.put(0x1000, Width::B4, 0xf0);
    r.gprs.set(Gpr::Rax, 0x0f);
    r.go(&[0x09, 0x03]); // or [rbx], eax
    assert_eq!(r.mem.get(0x1000, Width::B4), 0xff);
    r.go(&[0x83, 0x23, 0xfe]); // and dword [rbx], ~1
    assert_eq!(r.mem.get(0x1000, Width::B4), 0xfe);
    r.go(&[0x87, 0x03]); // xchg [rbx], eax
    assert_eq!(
        (r.mem.get(0x1000, Width::B4), r.gprs.get(Gpr::Rax)),
        (0x0f, 0xfe)
    );
    r.go(&[0xf7, 0x03, 1, 0, 0, 0]); // test dword [rbx], 1
    assert_eq!(r.rflags & (ZF | CF), 0);
    r.go(&[0x3b, 0x03]); // cmp eax, [rbx]
    assert_eq!((r.rflags & (ZF | CF), r.gprs.get(Gpr::Rax)), (0, 0xfe));
    r.rflags |= CF;
    r.go(&[0xfe, 0x03]); // inc byte [rbx], carry kept
    assert_eq!((r.mem.get(0x1000, Width::B4), r.rflags & CF), (0x10, CF));
    r.go(&[0xf7, 0x1b]); // neg dword [rbx]
    assert_eq!(r.mem.get(0x1000, Width::B4), 0xffff_fff0);
    r.gprs.set(Gpr::Rax, 5);
    r.go(&[0xf0, 0x0f, 0xb1, 0x0b]); // lock cmpxchg [rbx], ecx: differs
    assert_eq!((r.rflags & ZF, r.gprs.get(Gpr::Rax)), (0, 0xffff_fff0));
    r.go(&[0xf0, 0x0f, 0xb1, 0x0b]);
    assert_eq!((r.rflags & ZF, r.mem.get(0x1000, Width::B4)), (ZF, 0));
    r.gprs.set(Gpr::Rdx, 3);
    r.mem.put(0x1000, Width::B4, 4);
    r.go(&[0xf0, 0x0f, 0xc1, 0x13]); // lock xadd [rbx], edx
    assert_eq!((r.mem.get(0x1000, Width::B4), r.gprs.get(Gpr::Rdx)), (7, 4));
}

#[test]
fn bit_offsets_reach_beyond_the_operand() {
    let mut r = Run::new();
    r.gprs.set(Gpr::Rcx, 35);
    r.go(&[0x0f, 0xab, 0x0b]); // bts [rbx], ecx
    assert_eq!((r.mem.get(0x1004, Width::B4), r.rflags & CF), (8, 0));
    r.gprs.set(Gpr::Rcx, 0xffff_ffff);
    r.go(&[0x0f, 0xbb, 0x0b]); // btc [rbx], -1
    assert_eq!(r.mem.get(0xffc, Width::B4), 1 << 31);
    r.go(&[0x0f, 0xba, 0x63, 0x04, 0x23]); // bt dword [rbx+4], 35 -> bit 3
    assert_eq!(r.rflags & CF, CF);
    r.go(&[0x0f, 0xba, 0x73, 0x04, 3]); // btr dword [rbx+4], 3
    assert_eq!(r.mem.get(0x1004, Width::B4), 0);
}

#[test]
fn strings() {
    let mut r = Run::new();
    r.mem.put(0x2000, Width::B8, 0x0807_0605_0403_0201);
    r.gprs.set(Gpr::Rcx, 8);
    r.go(&[0xf3, 0xa4]);
    assert_eq!(r.mem.get(0x3000, Width::B8), 0x0807_0605_0403_0201);
    assert_eq!(
        [Gpr::Rcx, Gpr::Rsi, Gpr::Rdi].map(|g| r.gprs.get(g)),
        [0, 0x2008, 0x3008]
    );
    // Backwards, without a prefix.
    r.rflags |= DF;
    r.gprs.set(Gpr::Rax, 0xaa55);
    r.go(&[0x66, 0xab]);
    assert_eq!(
        (r.mem.get(0x3008, Width::B2), r.gprs.get(Gpr::Rdi)),
        (0xaa55, 0x3006)
    );
    r.rflags &= !DF;
    // Zero repetitions do nothing at all.
    r.mem.log.clear();
    r.go(&[0xf3, 0xab]);
    assert!(r.mem.log.is_empty());
    // Ports.
    r.gprs.set(Gpr::Rdx, 0x1f0);
    r.gprs.set(Gpr::Rdi, 0x3000);
    r.gprs.set(Gpr::Rcx, 2);
    r.go(&[0xf3, 0x6d]);
    assert_eq!(r.mem.get(0x3000, Width::B8), 0x4433_2211_4433_2211);
    r.gprs.set(Gpr::Rsi, 0x3000);
    r.go(&[0x6e]);
    assert_eq!(r.mem.ports, [(0x1f0, 0), (0x1f0, 0), (0x1f0, 0x11)]);
}

#[test]
fn long_repeats_pause() {
    let mut r = Run::new();
    r.gprs.set(Gpr::Rcx, MAX_REPEAT + 3);
    assert_eq!(r.go_in(CodeSize::Bits64, &[0xf3, 0xaa]), Ok(Progress::More));
    assert_eq!(
        (r.rip, r.gprs.get(Gpr::Rcx), r.gprs.get(Gpr::Rdi)),
        (0x100, 3, 0x3000 + MAX_REPEAT)
    );
    r.go(&[0xf3, 0xaa]);
    assert_eq!(r.gprs.get(Gpr::Rcx), 0);
}

#[test]
fn faults_leave_the_instruction_to_be_restarted() {
    let mut r = Run::new();
    r.gprs.set(Gpr::Rcx, 8);
    r.gprs.set(Gpr::Rdi, 0xfffc);
    let e = r.go_in(CodeSize::Bits64, &[0xf3, 0xa4]);
    assert_eq!(
        e,
        Err(Error::Bus(BusFault::Page {
            gva: 0x1_0000,
            error_code: 2
        }))
    );
    assert_eq!(
        (r.rip, r.gprs.get(Gpr::Rcx), r.gprs.get(Gpr::Rsi)),
        (0x100, 4, 0x2004)
    );
    r.gprs.set(Gpr::Rbx, 0x1_0000_0000);
    let flags = r.rflags;
    assert!(r.go_in(CodeSize::Bits64, &[0x01, 0x03]).is_err());
    assert_eq!(r.rflags, flags);
    assert_eq!(
        r.go_in(CodeSize::Bits64, &[0x0f, 0x28, 0x03]),
        Err(Error::Decode(DecodeError::Unsupported))
    );
}

#[test]
fn other_code_sizes() {
    let mut r = Run::new();
    r.rip = 0xffff_fffe;
    assert_eq!(r.go_in(CodeSize::Bits32, &[0x89, 0x13]), Ok(Progress::Done)); // mov [ebx], edx with DS base 0x10
    assert_eq!((r.mem.log.last(), r.rip), (Some(&(0x1010, true)), 0));
    r.gprs.set(Gpr::Rcx, 0xabcd_0001);
    assert_eq!(r.go_in(CodeSize::Bits16, &[0xf3, 0xaa]), Ok(Progress::Done));
    assert_eq!(r.gprs.get(Gpr::Rcx), 0xabcd_0000);
}

proptest! {
    /// The flags against wide arithmetic.
    #[test]
    fn add_and_subtract(a: u64, b: u64, carry in 0..2u64, w in prop::sample::select(&[Width::B1, Width::B2, Width::B4, Width::B8][..])) {
        let (a, b) = (a & w.mask(), b & w.mask());
        let s = |v: u64| i128::from(sign_extend(v, w).cast_signed());
        let bits = 8 * w.bytes() as u32;
        let fits = |v: i128| (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&v);
        let (r, f) = alu(Alu::Adc, a, b, carry, w);
        let wide = u128::from(a) + u128::from(b) + u128::from(carry);
        prop_assert_eq!(u128::from(r), wide & u128::from(w.mask()));
        prop_assert_eq!(f & CF != 0, wide >> bits != 0);
        prop_assert_eq!(f & OF != 0, !fits(s(a) + s(b) + i128::from(carry)));
        prop_assert_eq!(f & AF != 0, (a & 15) + (b & 15) + carry > 15);
        let (r, f) = alu(Alu::Sbb, a, b, carry, w);
        let wide = i128::from(a) - i128::from(b) - i128::from(carry);
        prop_assert_eq!(r, wide as u64 & w.mask());
        prop_assert_eq!(f & CF != 0, wide < 0);
        prop_assert_eq!(f & OF != 0, !fits(s(a) - s(b) - i128::from(carry)));
        prop_assert_eq!(f & AF != 0, (a & 15) < (b & 15) + carry);
        prop_assert_eq!((f & ZF != 0, f & SF != 0), (r == 0, s(r) < 0));
    }

    /// Random instructions on random registers: no panic, bounded work, and RIP moves only on completion.
    #[test]
    fn anything(bytes in prop::collection::vec(any::<u8>(), 1..16), regs: [u64; 16], small: bool, rflags: u64, size in 0..3usize) {
        let mut r = Run::new();
        r.gprs = Gprs(if small { regs.map(|v| v & 0xffff) } else { regs });
        r.rflags = rflags;
        let code = [CodeSize::Bits16, CodeSize::Bits32, CodeSize::Bits64][size];
        match r.go_in(code, &bytes) {
            Ok(Progress::Done) => prop_assert_ne!(r.rip, 0x100),
            Ok(Progress::More) | Err(_) => prop_assert_eq!(r.rip, 0x100),
        }
        prop_assert!(r.mem.log.len() as u64 <= 2 * MAX_REPEAT);
        prop_assert_eq!(r.rflags & !ARITHMETIC, rflags & !ARITHMETIC);
    }
}
