//! Bits read from the end of a stream backwards, as entropy-coded parts of zstd are.

use crate::decompress::Failure;

/// Bits that a [`Backward::fill`] makes available, unless the stream has fewer left.
pub const FILLED: u32 = 57;

/// A backward bit stream. Reading past its start gives zeros and is noticed by [`Backward::finished`].
pub struct Backward<'a> {
    /// What is not yet loaded.
    src: &'a [u8],
    /// Loaded bits, the next one highest.
    held: u64,
    /// How many of them are valid; negative after reading too far.
    count: i32,
}

impl<'a> Backward<'a> {
    /// Starts below the highest set bit of the last byte, which marks the end.
    pub fn new(src: &'a [u8]) -> Result<Self, Failure> {
        let bad = Failure::Corrupt("bit stream without end mark");
        let (&last, src) = src.split_last().ok_or(bad)?;
        if last == 0 {
            return Err(bad);
        }
        let padding = last.leading_zeros() + 1;
        Ok(Self {
            src,
            // Shifted in two steps, as eight at once leave nothing.
            held: u64::from(last) << 56 << (padding - 1) << 1,
            count: 8 - padding as i32,
        })
    }

    /// Loads bits until at least [`FILLED`] are there or the stream ends.
    #[inline(always)]
    pub fn fill(&mut self) {
        let count = self.count;
        // Also true for a negative count.
        if count as u32 >= FILLED {
            return;
        }
        if let Some((rest, word)) = self.src.split_last_chunk::<8>() {
            let bytes = ((64 - count) >> 3) as usize;
            self.held |= u64::from_le_bytes(*word) >> (count & 63);
            self.count = count + 8 * bytes as i32;
            self.src = &self.src[..rest.len() + 8 - bytes];
        } else {
            self.fill_slowly();
        }
    }

    #[cold]
    fn fill_slowly(&mut self) {
        while self.count <= 56
            && let Some((&byte, rest)) = self.src.split_last()
        {
            self.held |= u64::from(byte) << 56 >> self.count;
            self.count += 8;
            self.src = rest;
        }
    }

    /// The next `n` bits (1 to 32), without taking them.
    #[inline(always)]
    pub fn peek(&self, n: u32) -> usize {
        (self.held >> (64 - n)) as usize
    }

    /// Takes `n` bits (0 to 32).
    #[inline(always)]
    pub fn skip(&mut self, n: u32) {
        self.held <<= n;
        self.count = self.count.wrapping_sub(n as i32);
    }

    /// The next `n` bits (0 to 32).
    #[inline(always)]
    pub fn take(&mut self, n: u32) -> u32 {
        let value = (self.held >> 1 >> (63 - n)) as u32;
        self.skip(n);
        value
    }

    /// Whether more was read than there is.
    pub fn overrun(&self) -> bool {
        self.count < 0
    }

    /// Whether all was read and nothing more.
    pub fn finished(&self) -> bool {
        self.count == 0 && self.src.is_empty()
    }
}
