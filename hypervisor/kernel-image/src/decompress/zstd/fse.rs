//! Finite state entropy: the description of a distribution, and the decoding table made from it (RFC 8878, 4.1).

use crate::decompress::Failure;

use super::bits::Backward;

const BAD: Failure = Failure::Corrupt("invalid FSE table");
/// Largest accuracy of any table: 9 bits.
const STATES: usize = 512;
/// Most symbols of any alphabet (match length codes).
const SYMBOLS: usize = 53;

/// One state.
#[derive(Clone, Copy)]
struct State {
    symbol: u8,
    /// Bits to read for the next state, and what to add to them.
    bits: u8,
    base: u16,
}

/// A decoding table.
#[derive(Clone)]
pub struct Table {
    states: [State; STATES],
    log: u32,
}

impl Table {
    /// No table yet; decodes symbol 0 for ever.
    pub const EMPTY: Self = Self::single(0);

    /// A table with one state, which needs no bits.
    pub const fn single(symbol: u8) -> Self {
        let state = State {
            symbol,
            bits: 0,
            base: 0,
        };
        Self {
            states: [state; STATES],
            log: 0,
        }
    }

    /// From probabilities that add up to `1 << log`; -1 stands for "less than one".
    pub fn from_probabilities(probabilities: &[i16], log: u32) -> Result<Self, Failure> {
        let mut table = Self::EMPTY;
        table.log = log;
        let size = 1usize << log;
        let states = table.states.get_mut(..size).ok_or(BAD)?;
        let mut next = [0u16; 256];
        // Rare symbols take the highest states.
        let mut high = size;
        for (symbol, &p) in (0u8..).zip(probabilities) {
            next[usize::from(symbol)] = p.unsigned_abs();
            if p == -1 {
                high = high.checked_sub(1).ok_or(BAD)?;
                states[high].symbol = symbol;
            }
        }
        // The others are spread over the rest.
        let step = (size >> 1) + (size >> 3) + 3;
        let mut at = 0;
        for (symbol, &p) in (0u8..).zip(probabilities) {
            for _ in 0..p.max(0) {
                states[at].symbol = symbol;
                loop {
                    at = (at + step) & (size - 1);
                    if at < high || high == 0 {
                        break;
                    }
                }
            }
        }
        if at != 0 {
            return Err(BAD);
        }
        for state in states {
            let slot = &mut next[usize::from(state.symbol)];
            let n = u32::from(*slot);
            *slot += 1;
            let bits = log.checked_sub(n.checked_ilog2().ok_or(BAD)?).ok_or(BAD)?;
            state.bits = bits as u8;
            state.base = ((n << bits) - size as u32) as u16;
        }
        Ok(table)
    }

    /// Reads a description. Returns the bytes it took.
    pub fn read(src: &[u8], most_log: u32, most_symbols: usize) -> Result<(Self, usize), Failure> {
        let mut bits = Forward { src, at: 0 };
        let log = bits.take(4) + 5;
        if log > most_log {
            return Err(BAD);
        }
        let mut probabilities = [0i16; SYMBOLS];
        let mut count = 0;
        let mut left = 1u32 << log;
        while left > 0 {
            // A value from 0 to `left + 1`; small ones take a bit less.
            let width = (left + 1).ilog2() + 1;
            let low_mask = (1 << (width - 1)) - 1;
            let spare = (1 << width) - 1 - (left + 1);
            let value = bits.peek(width);
            let value = if value & low_mask < spare {
                bits.at += width as usize - 1;
                value & low_mask
            } else {
                bits.at += width as usize;
                if value > low_mask {
                    value - spare
                } else {
                    value
                }
            };
            let p = value as i16 - 1;
            *probabilities
                .get_mut(..most_symbols)
                .and_then(|list| list.get_mut(count))
                .ok_or(BAD)? = p;
            count += 1;
            left = left.checked_sub(u32::from(p.unsigned_abs())).ok_or(BAD)?;
            if p == 0 {
                // Runs of further zeros.
                loop {
                    let run = bits.take(2);
                    count += run as usize;
                    if run < 3 || count > most_symbols {
                        break;
                    }
                }
            }
        }
        let used = bits.at.div_ceil(8);
        if used > src.len() {
            return Err(BAD);
        }
        let probabilities = probabilities.get(..count).ok_or(BAD)?;
        Ok((Self::from_probabilities(probabilities, log)?, used))
    }

    /// The first state.
    #[inline(always)]
    pub fn start(&self, bits: &mut Backward<'_>) -> usize {
        bits.take(self.log) as usize
    }

    /// The symbol of a state.
    #[inline(always)]
    pub fn symbol(&self, state: usize) -> u8 {
        self.states[state & (STATES - 1)].symbol
    }

    /// The state after it.
    #[inline(always)]
    pub fn next(&self, state: usize, bits: &mut Backward<'_>) -> usize {
        let state = self.states[state & (STATES - 1)];
        usize::from(state.base).wrapping_add(bits.take(u32::from(state.bits)) as usize)
    }
}

/// Bits from the start of a stream, lowest of each byte first; zeros past its end.
struct Forward<'a> {
    src: &'a [u8],
    /// In bits.
    at: usize,
}

impl Forward<'_> {
    /// At most 16 bits.
    fn peek(&self, n: u32) -> u32 {
        let byte = |i: usize| u32::from(self.src.get(self.at / 8 + i).copied().unwrap_or(0));
        (byte(0) | byte(1) << 8 | byte(2) << 16) >> (self.at % 8) & ((1 << n) - 1)
    }

    fn take(&mut self, n: u32) -> u32 {
        let value = self.peek(n);
        self.at += n as usize;
        value
    }
}
