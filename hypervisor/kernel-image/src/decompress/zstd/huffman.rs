//! Huffman-coded literals (RFC 8878, 4.2).

use crate::decompress::Failure;

use super::bits::Backward;
use super::fse::Table;

const BAD: Failure = Failure::Corrupt("invalid Huffman table");
const BAD_STREAM: Failure = Failure::Corrupt("invalid literals");
/// Longest code.
const MAX_BITS: u32 = 11;
/// Accuracy and alphabet of compressed weights.
const WEIGHT_LOG: u32 = 6;
const WEIGHT_SYMBOLS: usize = 13;
/// Symbols that one fill suffices for.
const BATCH: usize = 5;

/// A decoding table: for each `bits` next bits, the symbol (low byte) and the length of its code (high byte).
pub struct Huffman {
    codes: [u16; 1 << MAX_BITS],
    /// 0: no table yet.
    bits: u32,
}

impl Huffman {
    /// No table yet.
    pub const EMPTY: Self = Self {
        codes: [0; 1 << MAX_BITS],
        bits: 0,
    };

    /// Reads a description. Returns the bytes it took.
    pub fn read(&mut self, src: &[u8]) -> Result<usize, Failure> {
        let (&head, rest) = src.split_first().ok_or(BAD)?;
        let mut weights = [0u8; 256];
        let (count, used) = if head < 128 {
            let packed = rest.get(..usize::from(head)).ok_or(BAD)?;
            (packed_weights(packed, &mut weights)?, packed.len())
        } else {
            let count = usize::from(head) - 127;
            let bytes = rest.get(..count.div_ceil(2)).ok_or(BAD)?;
            for (at, weight) in weights[..count].iter_mut().enumerate() {
                *weight = bytes[at / 2] >> (4 * (1 - at % 2)) & 15;
            }
            (count, bytes.len())
        };
        self.fill(&mut weights, count)?;
        Ok(1 + used)
    }

    /// Makes the table. The last symbol's weight is what is missing to a full tree.
    fn fill(&mut self, weights: &mut [u8; 256], count: usize) -> Result<(), Failure> {
        let share = |w: u8| if w == 0 { 0 } else { 1u32 << (w - 1) };
        let sum: u32 = weights[..count].iter().map(|&w| share(w)).sum();
        let bits = sum.checked_ilog2().ok_or(BAD)? + 1;
        let missing = (1u32 << bits) - sum;
        if bits > MAX_BITS || !missing.is_power_of_two() {
            return Err(BAD);
        }
        *weights.get_mut(count).ok_or(BAD)? = missing.ilog2() as u8 + 1;
        let mut at = 0;
        for weight in 1..=bits as u8 {
            let code_len = bits as u16 + 1 - u16::from(weight);
            for symbol in (0u8..=255).filter(|&s| weights[usize::from(s)] == weight) {
                let end = at + share(weight) as usize;
                self.codes
                    .get_mut(at..end)
                    .ok_or(BAD)?
                    .fill(code_len << 8 | u16::from(symbol));
                at = end;
            }
        }
        self.bits = bits;
        if at != 1 << bits {
            return Err(BAD);
        }
        Ok(())
    }

    /// Decodes one stream, or four with a table of their lengths, into exactly `out`.
    pub fn decode(&self, src: &[u8], out: &mut [u8], four: bool) -> Result<(), Failure> {
        if self.bits == 0 {
            return Err(BAD);
        }
        if !four {
            return self.stream(src, out);
        }
        let (lengths, mut src) = src.split_first_chunk::<6>().ok_or(BAD_STREAM)?;
        let part = out.len().div_ceil(4);
        let mut out = out;
        for pair in lengths.as_chunks::<2>().0 {
            let len = usize::from(u16::from_le_bytes(*pair));
            let (stream, after) = src.split_at_checked(len).ok_or(BAD_STREAM)?;
            let (piece, rest) = out.split_at_mut_checked(part).ok_or(BAD_STREAM)?;
            self.stream(stream, piece)?;
            (src, out) = (after, rest);
        }
        self.stream(src, out)
    }

    fn stream(&self, src: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        let mut bits = Backward::new(src)?;
        // Keeps the shift in range for the compiler.
        let width = self.bits.clamp(1, MAX_BITS);
        let (batches, rest) = out.as_chunks_mut::<BATCH>();
        for batch in batches {
            bits.fill();
            for byte in batch {
                let code = self.codes[bits.peek(width) & ((1 << MAX_BITS) - 1)];
                *byte = code as u8;
                bits.skip(u32::from(code >> 8));
            }
        }
        bits.fill();
        for byte in rest {
            let code = self.codes[bits.peek(width) & ((1 << MAX_BITS) - 1)];
            *byte = code as u8;
            bits.skip(u32::from(code >> 8));
        }
        if !bits.finished() {
            return Err(BAD_STREAM);
        }
        Ok(())
    }
}

/// Weights compressed with FSE: two states take turns until the stream is used up.
fn packed_weights(src: &[u8], weights: &mut [u8; 256]) -> Result<usize, Failure> {
    let (table, used) = Table::read(src, WEIGHT_LOG, WEIGHT_SYMBOLS)?;
    let mut bits = Backward::new(&src[used..])?;
    bits.fill();
    let mut states = [table.start(&mut bits), table.start(&mut bits)];
    let mut count = 0;
    loop {
        for turn in [0, 1] {
            bits.fill();
            // The last weight of all is implied, so at most 255 are written.
            let slot = weights[..255].get_mut(count).ok_or(BAD)?;
            *slot = table.symbol(states[turn]);
            count += 1;
            states[turn] = table.next(states[turn], &mut bits);
            if bits.overrun() {
                // The other state still holds a symbol.
                *weights[..255].get_mut(count).ok_or(BAD)? = table.symbol(states[1 - turn]);
                return Ok(count + 1);
            }
        }
    }
}
