//! The range decoder of LZMA. Bits are taken without a branch on their value, and the end of the input is looked for once a
//! symbol, not once a byte: together that saves a third of the time of unpacking a kernel.

use crate::decompress::Failure;

const TOP: u32 = 1 << 24;
/// The most bytes that one symbol reads (a match with a long distance), and one for the end.
const SYMBOL: usize = 21;
/// Bytes of input that are looked at without a check for its end.
const WINDOW: usize = 64;

pub(super) const EARLY: Failure = Failure::Corrupt("stream ends early");

/// The end of the input, with zeros behind it for a window that reaches over.
pub(super) struct Tail {
    bytes: [u8; 2 * WINDOW],
    len: usize,
}

impl Tail {
    pub(super) fn new(src: &[u8]) -> Self {
        let last = src.last_chunk::<WINDOW>().map_or(src, |last| last);
        let mut bytes = [0; 2 * WINDOW];
        bytes[..last.len()].copy_from_slice(last);
        Self {
            bytes,
            len: last.len(),
        }
    }
}

/// The input that is left.
pub(super) struct Input<'a> {
    /// From the window on.
    src: &'a [u8],
    /// Zeros behind the input in `src`.
    padding: usize,
    tail: &'a Tail,
}

impl<'a> Input<'a> {
    pub(super) fn new(src: &'a [u8], tail: &'a Tail) -> Self {
        Self {
            src,
            padding: 0,
            tail,
        }
    }

    /// The window behind `used` more bytes.
    #[inline(never)]
    fn window(&mut self, used: usize) -> Result<&'a [u8; WINDOW], Failure> {
        if let Some(src) = self.src.get(used..)
            && let Some(window) = src.first_chunk()
        {
            self.src = src;
            return Ok(window);
        }
        let left = self.left(used)?;
        let from = self.tail.len.checked_sub(left).ok_or(EARLY)?;
        self.src = self
            .tail
            .bytes
            .get(from..self.tail.len + WINDOW)
            .ok_or(EARLY)?;
        self.padding = WINDOW;
        self.src.first_chunk().ok_or(EARLY)
    }

    /// Bytes left behind `used` more. Fails if zeros behind the end were used.
    fn left(&self, used: usize) -> Result<usize, Failure> {
        self.src.len().checked_sub(self.padding + used).ok_or(EARLY)
    }
}

/// The range decoder.
pub(super) struct Range<'a> {
    window: &'a [u8; WINDOW],
    /// The next byte of the window.
    at: usize,
    range: u32,
    code: u32,
}

impl<'a> Range<'a> {
    #[inline(always)]
    pub(super) fn new(input: &mut Input<'a>, code: u32) -> Result<Self, Failure> {
        Ok(Self {
            window: input.window(0)?,
            at: 0,
            range: u32::MAX,
            code,
        })
    }

    /// To be called before each symbol: makes sure that the window has its bytes.
    #[inline(always)]
    pub(super) fn start_symbol(&mut self, input: &mut Input<'a>) -> Result<(), Failure> {
        if self.at > WINDOW - SYMBOL {
            self.window = input.window(self.at)?;
            self.at = 0;
        }
        Ok(())
    }

    /// Takes the last byte that is due. True if the input was used up exactly and the decoder is at rest.
    pub(super) fn finish(mut self, input: &Input<'_>) -> Result<bool, Failure> {
        self.normalize();
        Ok(input.left(self.at)? == 0 && self.code == 0)
    }

    #[inline(always)]
    fn normalize(&mut self) {
        if self.range < TOP {
            let byte = self.window[self.at & (WINDOW - 1)];
            self.at = self.at.wrapping_add(1);
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(byte);
        }
    }

    /// The next bit: all ones for 0, zero for 1. There is no branch on it, since nothing predicts it.
    #[inline(always)]
    pub(super) fn zero(&mut self, slot: &mut u16) -> u32 {
        self.normalize();
        let p = u32::from(*slot);
        let bound = (self.range >> 11).wrapping_mul(p);
        // The borrow of `code - bound`, over all bits.
        let zero = (u64::from(self.code).wrapping_sub(u64::from(bound)) >> 32) as u32;
        let rest = self.range.wrapping_sub(bound);
        self.range = rest.wrapping_add(bound.wrapping_sub(rest) & zero);
        self.code = self.code.wrapping_sub(bound & !zero);
        // Towards 2048 by a 32nd of the way for 0, towards 0 for 1, rounded alike.
        let step = (p as i32).wrapping_add(zero as i32 & (31 - 2048)) >> 5;
        *slot = p.wrapping_sub(step as u32) as u16;
        zero
    }

    /// The next bit, to be branched on.
    #[inline(always)]
    pub(super) fn bit(&mut self, slot: &mut u16) -> bool {
        self.zero(slot) == 0
    }

    /// A number of `N.ilog2()` bits, highest first, without a loop.
    #[inline(always)]
    pub(super) fn short_tree<const N: usize>(&mut self, probs: &mut [u16; N]) -> usize {
        let mut m = 1u32;
        for _ in 0..N.ilog2() {
            let zero = self.zero(&mut probs[m as usize & (N - 1)]);
            m = (m << 1 | 1).wrapping_add(zero);
        }
        m as usize & (N - 1)
    }

    /// The same in a loop, for long and rare ones.
    #[inline(always)]
    pub(super) fn tree<const N: usize>(&mut self, probs: &mut [u16; N]) -> usize {
        let mut m = 1u32;
        // Not a count of bits, which the compiler would unroll.
        while (m as usize) < N {
            let zero = self.zero(&mut probs[m as usize & (N - 1)]);
            m = (m << 1 | 1).wrapping_add(zero);
        }
        m as usize & (N - 1)
    }

    /// A number of `bits` bits, lowest first, with the statistics in `probs` from `offset + 1` on.
    #[inline(always)]
    pub(super) fn reverse_tree<const N: usize>(
        &mut self,
        probs: &mut [u16; N],
        offset: usize,
        bits: u32,
    ) -> u32 {
        let mut m = 1u32;
        let mut value = 0;
        let mut weight = 1u32;
        while m < 1 << bits {
            let zero = self.zero(&mut probs[offset.wrapping_add(m as usize) & (N - 1)]);
            m = (m << 1 | 1).wrapping_add(zero);
            value |= weight & !zero;
            weight <<= 1;
        }
        value
    }

    /// The same of four bits, without a loop.
    #[inline(always)]
    pub(super) fn short_reverse_tree(&mut self, probs: &mut [u16; 16]) -> u32 {
        let mut m = 1u32;
        let mut value = 0;
        for i in 0..4 {
            let zero = self.zero(&mut probs[m as usize & 15]);
            m = (m << 1 | 1).wrapping_add(zero);
            value |= !zero & 1 << i;
        }
        value
    }

    /// A number of `bits` bits without statistics, highest first.
    #[inline(always)]
    pub(super) fn direct(&mut self, bits: u32) -> u32 {
        // The leading one tells when all bits are there.
        let mut value = 1u32;
        while value < 1 << bits {
            self.normalize();
            self.range >>= 1;
            self.code = self.code.wrapping_sub(self.range);
            // All ones for 0: both are below 2^31 in valid data.
            let zero = (self.code as i32 >> 31) as u32;
            self.code = self.code.wrapping_add(self.range & zero);
            value = (value << 1 | 1).wrapping_add(zero);
        }
        value ^ (1 << bits)
    }
}
