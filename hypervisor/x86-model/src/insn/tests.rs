//! The decoder against a full disassembler, on random bytes and on every opcode.

extern crate std;

use super::*;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use proptest::prelude::*;
use std::vec::Vec;

fn bits(size: CodeSize) -> u32 {
    match size {
        CodeSize::Bits16 => 16,
        CodeSize::Bits32 => 32,
        CodeSize::Bits64 => 64,
    }
}

fn reference(bytes: &[u8], size: CodeSize) -> Option<Instruction> {
    let mut d = Decoder::with_ip(bits(size), bytes, 0x1000, DecoderOptions::NONE);
    let i = d.decode();
    (i.code() != Code::INVALID).then_some(i)
}

fn reg_ref(r: Register) -> RegRef {
    let high = matches!(r, Register::AH | Register::CH | Register::DH | Register::BH);
    RegRef {
        gpr: decode::gpr(r.full_register().number() as u8),
        high,
    }
}

fn seg(r: Register) -> SegReg {
    match r {
        Register::ES => SegReg::Es,
        Register::CS => SegReg::Cs,
        Register::SS => SegReg::Ss,
        Register::DS => SegReg::Ds,
        Register::FS => SegReg::Fs,
        Register::GS => SegReg::Gs,
        other => panic!("{other:?}"),
    }
}

fn mnemonics(op: Op) -> Vec<Mnemonic> {
    use Mnemonic as M;
    match op {
        Op::Mov => std::vec![M::Mov, M::Movnti],
        Op::MovZx => std::vec![M::Movzx],
        Op::MovSx => std::vec![M::Movsx, M::Movsxd],
        Op::Movbe => std::vec![M::Movbe],
        Op::Xchg => std::vec![M::Xchg],
        Op::Alu(a) => std::vec![
            [
                M::Add,
                M::Or,
                M::Adc,
                M::Sbb,
                M::And,
                M::Sub,
                M::Xor,
                M::Cmp
            ][a as usize]
        ],
        Op::Test => std::vec![M::Test],
        Op::Not => std::vec![M::Not],
        Op::Neg => std::vec![M::Neg],
        Op::Inc => std::vec![M::Inc],
        Op::Dec => std::vec![M::Dec],
        Op::Bit(b) => std::vec![[M::Bt, M::Bts, M::Btr, M::Btc][b as usize]],
        Op::CmpXchg => std::vec![M::Cmpxchg],
        Op::Xadd => std::vec![M::Xadd],
        Op::Movs => std::vec![M::Movsb, M::Movsw, M::Movsd, M::Movsq],
        Op::Stos => std::vec![M::Stosb, M::Stosw, M::Stosd, M::Stosq],
        Op::Lods => std::vec![M::Lodsb, M::Lodsw, M::Lodsd, M::Lodsq],
        Op::Ins => std::vec![M::Insb, M::Insw, M::Insd],
        Op::Outs => std::vec![M::Outsb, M::Outsw, M::Outsd],
    }
}

fn same_operand(ours: Operand, theirs: &Instruction, n: u32, width: Width, what: &str) {
    match ours {
        Operand::Mem => assert_eq!(theirs.op_kind(n), OpKind::Memory, "{what}"),
        Operand::Reg(r) => assert_eq!(r, reg_ref(theirs.op_register(n)), "{what}"),
        Operand::Imm(v) => assert_eq!(
            v & width.mask(),
            theirs.immediate(n) & width.mask(),
            "{what}"
        ),
        Operand::Implied => {}
    }
}

/// In 64-bit mode only FS and GS count; the disassembler still reports the others.
fn same_segment(ours: SegReg, theirs: &Instruction, size: CodeSize, what: &str) {
    let theirs = seg(theirs.memory_segment());
    if size == CodeSize::Bits64 && !matches!(theirs, SegReg::Fs | SegReg::Gs) {
        assert!(!matches!(ours, SegReg::Fs | SegReg::Gs), "{what}");
    } else {
        assert_eq!(ours, theirs, "{what}");
    }
}

fn compare(bytes: &[u8], size: CodeSize) {
    let Some(theirs) = reference(bytes, size) else {
        // Ours may accept more than there is, but never reads past the bytes or 15.
        if let Ok(n) = length(bytes, size) {
            assert!((1..=MAX_LEN).contains(&usize::from(n)) && usize::from(n) <= bytes.len());
        }
        return;
    };
    match length(bytes, size) {
        Ok(n) => assert_eq!(
            usize::from(n),
            theirs.len(),
            "{bytes:02x?} {size:?} {theirs:?}"
        ),
        Err(e) => assert_eq!(
            e,
            DecodeError::Unsupported,
            "{bytes:02x?} {size:?} {:?}",
            theirs.code()
        ),
    }
    let Ok(i) = Insn::decode(bytes, size) else {
        return;
    };
    let what = std::format!("{bytes:02x?} {size:?} {:?} vs {i:?}", theirs.code());
    assert!(mnemonics(i.op).contains(&theirs.mnemonic()), "{what}");
    assert_eq!(i.lock, theirs.has_lock_prefix(), "{what}");
    if i.src == Operand::Implied && i.dst == Operand::Implied {
        // String operations.
        assert_eq!(theirs.memory_size().size(), i.width.bytes(), "{what}");
        assert_eq!(
            i.rep != Rep::None,
            theirs.has_rep_prefix() || theirs.has_repne_prefix(),
            "{what}"
        );
        if i.mem.segment != SegReg::Es {
            same_segment(i.mem.segment, &theirs, size, &what);
        }
        return;
    }
    assert_eq!(theirs.memory_size().size(), i.width.bytes(), "{what}");
    same_segment(i.mem.segment, &theirs, size, &what);
    let base = theirs.memory_base();
    if i.mem.rip_relative {
        assert!(matches!(base, Register::RIP | Register::EIP), "{what}");
        let at = i.mem.offset(&Gprs::default(), 0x1000 + u64::from(i.len));
        assert_eq!(at, theirs.memory_displacement64(), "{what}");
    } else {
        assert_eq!(
            i.mem.base,
            (base != Register::None).then(|| reg_ref(base).gpr),
            "{what}"
        );
        let index = theirs.memory_index();
        let theirs_index = (index != Register::None).then(|| {
            (
                reg_ref(index).gpr,
                theirs.memory_index_scale().trailing_zeros() as u8,
            )
        });
        assert_eq!(i.mem.index, theirs_index, "{what}");
        assert_eq!(
            i.mem.disp.cast_unsigned() & i.mem.addr.mask(),
            theirs.memory_displacement64() & i.mem.addr.mask(),
            "{what}"
        );
    }
    same_operand(i.dst, &theirs, 0, i.reg_width, &what);
    // A bit number is taken modulo the width, so its sign does not count.
    let width = if matches!(i.op, Op::Bit(_)) {
        Width::B1
    } else {
        i.width
    };
    same_operand(i.src, &theirs, 1, width, &what);
}

const SIZES: [CodeSize; 3] = [CodeSize::Bits16, CodeSize::Bits32, CodeSize::Bits64];

#[test]
fn every_opcode_and_modrm() {
    for size in SIZES {
        for prefix in [
            &[][..],
            &[0x66],
            &[0x67],
            &[0xf2],
            &[0xf3],
            &[0xf0],
            &[0x65],
            &[0x2e],
        ] {
            for rex in [&[][..], &[0x48], &[0x47]] {
                if !rex.is_empty() && size != CodeSize::Bits64 {
                    continue;
                }
                for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
                    for op in 0..=255u8 {
                        for modrm in (0..=255u8).step_by(if prefix.is_empty() && map.len() < 2 {
                            1
                        } else {
                            7
                        }) {
                            let mut b: Vec<u8> = Vec::new();
                            b.extend_from_slice(prefix);
                            b.extend_from_slice(rex);
                            b.extend_from_slice(map);
                            b.extend_from_slice(&[
                                op, modrm, 0x65, 0x93, 0x82, 0x71, 0x60, 0x5f, 0x4e, 0x3d,
                            ]);
                            compare(&b, size);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn exits_without_a_length() {
    for (bytes, n) in [
        (&[0x0f, 0xa2][..], 2),
        (&[0x0f, 0x01, 0xd9], 3),
        (&[0x0f, 0x01, 0xc1], 3),
        (&[0x0f, 0x01, 0xd1], 3),
        (&[0xf4], 1),
        (&[0x0f, 0x30], 2),
        (&[0x0f, 0x32], 2),
        (&[0x0f, 0x09], 2),
        (&[0x0f, 0x22, 0xd8], 3),
        (&[0x44, 0x0f, 0x20, 0xc0], 4),
        (&[0x2e, 0x66, 0x0f, 0xa2], 4),
    ] {
        assert_eq!(length(bytes, CodeSize::Bits64), Ok(n), "{bytes:02x?}");
    }
    assert_eq!(
        length(&[0x0f], CodeSize::Bits64),
        Err(DecodeError::TooShort)
    );
    assert_eq!(
        length(&[0x66; 16], CodeSize::Bits64),
        Err(DecodeError::Invalid)
    );
    assert_eq!(
        length(&[0xc5, 0xf8, 0x77], CodeSize::Bits64),
        Err(DecodeError::Unsupported)
    );
}

#[test]
fn the_subset_is_recognised() {
    let is = |bytes: &[u8], op| {
        assert_eq!(
            Insn::decode(bytes, CodeSize::Bits64).map(|i| i.op),
            Ok(op),
            "{bytes:02x?}"
        )
    };
    is(&[0x89, 0x03], Op::Mov);
    is(&[0xc7, 0x47, 0x10, 1, 0, 0, 0], Op::Mov);
    is(&[0x48, 0xa1, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0], Op::Mov);
    is(&[0x0f, 0xb6, 0x00], Op::MovZx);
    is(&[0x48, 0x0f, 0xbf, 0x00], Op::MovSx);
    is(&[0x48, 0x63, 0x00], Op::MovSx);
    is(&[0xf3, 0xa5], Op::Movs);
    is(&[0xf3, 0x48, 0xab], Op::Stos);
    is(&[0x87, 0x06], Op::Xchg);
    is(&[0x83, 0x0f, 1], Op::Alu(Alu::Or));
    is(&[0x23, 0x07], Op::Alu(Alu::And));
    is(&[0xf6, 0x07, 1], Op::Test);
    is(&[0xf0, 0x0f, 0xba, 0x2f, 3], Op::Bit(BitOp::Set));
    is(&[0x0f, 0xa3, 0x0f], Op::Bit(BitOp::Test));
    is(&[0xf3, 0x6d], Op::Ins);
    is(&[0x6e], Op::Outs);
    // No memory operand, and a LOCK that means nothing.
    assert_eq!(
        Insn::decode(&[0x89, 0xc3], CodeSize::Bits64),
        Err(DecodeError::Unsupported)
    );
    assert_eq!(
        Insn::decode(&[0xf0, 0x89, 0x03], CodeSize::Bits64),
        Err(DecodeError::Invalid)
    );
}

#[test]
fn register_writes_follow_the_width_rules() {
    let mut g = Gprs::default();
    let r = RegRef {
        gpr: Gpr::Rbx,
        high: false,
    };
    r.write(&mut g, Width::B8, u64::MAX);
    r.write(&mut g, Width::B2, 0x1234);
    assert_eq!(g.get(Gpr::Rbx), 0xffff_ffff_ffff_1234);
    RegRef { high: true, ..r }.write(&mut g, Width::B1, 0xab);
    assert_eq!(
        (
            g.get(Gpr::Rbx),
            RegRef { high: true, ..r }.read(&g, Width::B1)
        ),
        (0xffff_ffff_ffff_ab34, 0xab)
    );
    r.write(&mut g, Width::B4, 0xdead_beef);
    assert_eq!(g.get(Gpr::Rbx), 0xdead_beef);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..20), size in 0..3usize) {
        compare(&bytes, SIZES[size]);
    }

    #[test]
    fn random_prefixes(prefixes in prop::collection::vec(prop::sample::select(&[0x66u8, 0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x40, 0x48, 0x4f][..]), 0..6), tail in prop::collection::vec(any::<u8>(), 1..14), size in 0..3usize) {
        let mut b = prefixes;
        b.extend(tail);
        compare(&b, SIZES[size]);
    }
}
