//! The one thing that is taken out of AML without an interpreter: the sleep types of `\_S5_`.
//!
//! `Name (_S5_, Package () {a, b, ...})` is, in bytes: NameOp (0x08), optionally a root prefix, "_S5_", PackageOp
//! (0x12), PkgLength, element count, then the elements as small integers (ACPI 6.5, 20.2).

/// SLP_TYPa and SLP_TYPb for soft-off, 0..=7 each, from a DSDT or SSDT.
pub fn sleep_types_s5(table: &[u8]) -> Option<(u8, u8)> {
    let aml = table.get(super::HEADER..)?;
    aml.windows(4)
        .enumerate()
        .filter(|(_, w)| *w == b"_S5_")
        .find_map(|(at, _)| {
            let named = matches!(aml[..at], [.., 0x08] | [.., 0x08, b'\\']);
            if named { package(&aml[at + 4..]) } else { None }
        })
}

fn package(b: &[u8]) -> Option<(u8, u8)> {
    if *b.first()? != 0x12 {
        return None;
    }
    // PkgLength: bits 7:6 of its first byte count the bytes that follow.
    let extra = usize::from(*b.get(1)? >> 6);
    let mut rest = b.get(2 + extra..)?;
    let count = take(&mut rest)?;
    if count == 0 {
        return None;
    }
    let a = integer(&mut rest)?;
    // A package of one element packs both into one word (old firmware): the second in bits 15:8.
    let b = if count > 1 {
        integer(&mut rest)?
    } else {
        a >> 8
    };
    Some((sleep_type(a & 0xff)?, sleep_type(b & 0xff)?))
}

fn sleep_type(value: u64) -> Option<u8> {
    (value <= 7).then_some(value as u8)
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&first, tail) = rest.split_first()?;
    *rest = tail;
    Some(first)
}

fn integer(rest: &mut &[u8]) -> Option<u64> {
    let bytes = match take(rest)? {
        0x00 => return Some(0),
        0x01 => return Some(1),
        0xff => return Some(u64::MAX),
        0x0a => 1,
        0x0b => 2,
        0x0c => 4,
        0x0e => 8,
        _ => return None,
    };
    let (value, tail) = rest.split_at_checked(bytes)?;
    *rest = tail;
    Some(value.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn table(aml: &[u8]) -> Vec<u8> {
        let mut t = std::vec![0x11; super::super::HEADER];
        t.extend_from_slice(aml);
        t
    }

    #[test]
    fn usual_forms() {
        // QEMU: four zeroes.
        let t = table(b"\x10\x20\x08_S5_\x12\x06\x04\x00\x00\x00\x00");
        assert_eq!(sleep_types_s5(&t), Some((0, 0)));
        // Byte constants, root prefix.
        let t = table(b"\x08\\_S5_\x12\x0a\x04\x0a\x07\x0a\x05\x00\x00");
        assert_eq!(sleep_types_s5(&t), Some((7, 5)));
        // Two-byte package length, One and a word.
        let t = table(b"\x08_S5_\x12\x47\x01\x02\x01\x0b\x06\x00");
        assert_eq!(sleep_types_s5(&t), Some((1, 6)));
        // A single word with both.
        let t = table(b"\x08_S5_\x12\x06\x01\x0b\x05\x02");
        assert_eq!(sleep_types_s5(&t), Some((5, 2)));
    }

    #[test]
    fn other_uses_of_the_name_are_passed_over() {
        // A reference and a method of the name, then the definition.
        let t = table(b"\x70_S5_\x60\x14\x09_S5_\x00\x08_S5_\x12\x06\x02\x0a\x03\x0a\x04");
        assert_eq!(sleep_types_s5(&t), Some((3, 4)));
        assert_eq!(
            sleep_types_s5(&table(b"\x08_S5_\x12\x06\x02\x0a\x08\x00")),
            None
        );
        assert_eq!(sleep_types_s5(&table(b"\x08_S5_\x12\x06\x00")), None);
        assert_eq!(sleep_types_s5(&table(b"_S5_")), None);
    }

    #[test]
    fn every_cut_is_survived() {
        let t = table(b"\x08_S5_\x12\x0a\x04\x0a\x07\x0a\x05\x00\x00");
        for n in 0..t.len() - 3 {
            let got = sleep_types_s5(&t[..n]);
            assert!(got.is_none() || n > t.len() - 4, "cut at {n}: {got:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut t = table(b"\x08_S5_");
            t.extend_from_slice(&bytes);
            if let Some((a, b)) = sleep_types_s5(&t) {
                prop_assert!(a <= 7 && b <= 7);
            }
        }
    }
}
