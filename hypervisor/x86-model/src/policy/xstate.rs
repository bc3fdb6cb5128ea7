//! Extended processor state: which XCR0 values are legal and how large the save area is.

use super::features::Regs;

/// Legacy region and header, present in every XSAVE area.
pub const XSAVE_MIN: u32 = 576;
const X87: u64 = 1;
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
/// The three AVX-512 components.
pub const AVX512: u64 = 7 << 5;
/// The AVX component.
pub const AVX_STATE: u64 = AVX;
/// Protection keys.
pub const PKRU: u64 = 1 << 9;
/// Components that guests may use: x87, SSE, AVX, AVX-512, PKRU.
pub const KNOWN: u64 = X87 | SSE | AVX | AVX512 | PKRU;

/// Whether XSETBV accepts `value`, given the bits that the guest was told of.
pub const fn xcr0_valid(value: u64, allowed: u64) -> bool {
    value & !allowed == 0
        && value & X87 != 0
        && (value & AVX == 0 || value & SSE != 0)
        && (value & AVX512 == 0 || value & AVX512 == AVX512 && value & AVX != 0)
}

/// The least legal XCR0 value that has all these components, of [`KNOWN`] ones.
pub const fn with_dependencies(components: u64) -> u64 {
    let all = components & KNOWN | X87;
    let all = if all & AVX512 != 0 {
        all | AVX512 | AVX
    } else {
        all
    };
    if all & AVX != 0 { all | SSE } else { all }
}

/// Size, offset and alignment of the components above SSE, from CPUID leaf 0xd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XStates {
    /// By component number: size, offset in the standard format, ECX.
    parts: [(u32, u32, u32); 10],
}

impl XStates {
    /// Reads the native subleaves of the components in `allowed`.
    pub fn read(allowed: u64, native: impl Fn(u32) -> Regs) -> Self {
        let mut s = Self::default();
        for (i, part) in s.parts.iter_mut().enumerate().skip(2) {
            if allowed & KNOWN & 1 << i != 0 {
                let [size, offset, ecx, _] = native(i as u32);
                *part = (size, offset, ecx);
            }
        }
        s
    }

    /// Leaf 0xd, subleaf 2 or above.
    pub fn subleaf(&self, n: u32) -> Regs {
        match self.parts.get(n as usize) {
            Some(&(size, offset, ecx)) if size != 0 => [size, offset, ecx & 2, 0],
            _ => [0; 4],
        }
    }

    /// Bytes of the standard-format area for these components.
    pub fn size(&self, components: u64) -> u32 {
        self.each(components)
            .map(|(size, offset, _)| size.saturating_add(offset))
            .fold(XSAVE_MIN, u32::max)
    }

    /// Bytes of the compacted area for these components.
    pub fn compact_size(&self, components: u64) -> u32 {
        self.each(components).fold(XSAVE_MIN, |at, (size, _, ecx)| {
            let at = if ecx & 2 != 0 {
                at.saturating_add(63) & !63
            } else {
                at
            };
            at.saturating_add(size)
        })
    }

    fn each(&self, components: u64) -> impl Iterator<Item = (u32, u32, u32)> {
        self.parts
            .iter()
            .enumerate()
            .filter(move |(i, _)| components & 1 << i != 0)
            .map(|(_, p)| *p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(n: u32) -> Regs {
        match n {
            2 => [256, 576, 0, 0],
            5 => [64, 1088, 0, 0],
            6 => [512, 1152, 0, 0],
            7 => [1024, 1664, 0, 0],
            9 => [8, 2688, 2, 0],
            _ => [0; 4],
        }
    }

    #[test]
    fn xcr0_rules() {
        let all = KNOWN;
        for (v, ok) in [
            (1, true),
            (3, true),
            (7, true),
            (0, false),
            (2, false),
            (5, false),
            (0xe7, true),
            (0xe3, false),
            (0x67, false),
            (0x207, true),
            (1 << 3 | 7, false),
        ] {
            assert_eq!(xcr0_valid(v, all), ok, "{v:#x}");
        }
        assert!(!xcr0_valid(7, 3));
    }

    #[test]
    fn dependencies_make_any_set_legal() {
        for set in 0..1 << 10 {
            let all = with_dependencies(set);
            assert!(xcr0_valid(all, KNOWN), "{set:#x}");
            assert_eq!(all & set, set & KNOWN);
        }
        assert_eq!(with_dependencies(1 << 6), 0xe7);
        assert_eq!(with_dependencies(PKRU), 0x201);
    }

    #[test]
    fn sizes() {
        let s = XStates::read(7 | AVX512 | PKRU, native);
        assert_eq!(
            (s.size(3), s.size(7), s.size(0xe7), s.size(0x207)),
            (576, 832, 2688, 2696)
        );
        assert_eq!((s.compact_size(7), s.compact_size(0x207)), (832, 840));
        assert_eq!(
            (s.subleaf(9), s.subleaf(3), s.subleaf(99)),
            ([8, 2688, 2, 0], [0; 4], [0; 4])
        );
        assert_eq!(XStates::read(7, native).subleaf(9), [0; 4]);
    }
}
