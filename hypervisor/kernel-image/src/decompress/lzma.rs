//! LZMA into a flat buffer, which is its own dictionary: nothing is copied twice, and no memory but the probabilities is
//! needed. Our own because unpacking the kernel takes most of the boot, and the crates, which keep a dictionary apart, need a
//! third more time. Tests compare it with one of them.
//!
//! Indexes are masked to the size of their tables where the format bounds them anyway, so that no check is left in the
//! inner loops; arithmetic there wraps, and wrong input gives wrong output, never a panic.

mod range;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;

use super::{Failure, copy_match};
use range::{EARLY, Input, Range, Tail};

/// Probabilities are 11-bit fractions.
const HALF: u16 = 1024;
/// States up to this one follow a literal.
const LITERAL_STATES: usize = 7;
const MIN_MATCH: usize = 2;
/// Distances in the first slots have all bits modelled.
const FIRST_LONG_SLOT: u32 = 14;

const CORRUPT: Failure = Failure::Corrupt("invalid LZMA data");

struct Lengths {
    choice: [u16; 2],
    low: [[u16; 8]; 16],
    mid: [[u16; 8]; 16],
    high: [u16; 256],
}

impl Lengths {
    const NEW: Self = Self {
        choice: [HALF; 2],
        low: [[HALF; 8]; 16],
        mid: [[HALF; 8]; 16],
        high: [HALF; 256],
    };

    #[inline(always)]
    fn read(&mut self, rc: &mut Range<'_>, pos_state: usize) -> usize {
        let (probs, least) = if !rc.bit(&mut self.choice[0]) {
            (&mut self.low[pos_state & 15], MIN_MATCH)
        } else if !rc.bit(&mut self.choice[1]) {
            (&mut self.mid[pos_state & 15], MIN_MATCH + 8)
        } else {
            return rc.tree(&mut self.high) + MIN_MATCH + 16;
        };
        rc.short_tree(probs) + least
    }
}

/// Probabilities but those of literals.
struct Probs {
    is_match: [[u16; 16]; 16],
    is_rep: [u16; 16],
    is_rep0: [u16; 16],
    is_rep1: [u16; 16],
    is_rep2: [u16; 16],
    is_rep0_long: [[u16; 16]; 16],
    slots: [[u16; 64]; 4],
    special: [u16; 128],
    align: [u16; 16],
    /// Of matches with a new distance, and with a repeated one.
    lengths: [Lengths; 2],
}

impl Probs {
    const NEW: Self = Self {
        is_match: [[HALF; 16]; 16],
        is_rep: [HALF; 16],
        is_rep0: [HALF; 16],
        is_rep1: [HALF; 16],
        is_rep2: [HALF; 16],
        is_rep0_long: [[HALF; 16]; 16],
        slots: [[HALF; 64]; 4],
        special: [HALF; 128],
        align: [HALF; 16],
        lengths: [Lengths::NEW; 2],
    };

    /// The distance of a match, less one; `u32::MAX` is the end marker.
    #[inline(always)]
    fn distance(&mut self, rc: &mut Range<'_>, len: usize) -> u32 {
        let slot = rc.short_tree(&mut self.slots[(len - MIN_MATCH).min(3)]) as u32;
        if slot < 4 {
            return slot;
        }
        let bits = (slot >> 1) - 1;
        let base = (2 | slot & 1) << bits;
        let low = if slot < FIRST_LONG_SLOT {
            let offset = (base - slot) as usize;
            rc.reverse_tree(&mut self.special, offset, bits)
        } else {
            let high = rc.direct(bits - 4) << 4;
            rc.short_reverse_tree(&mut self.align).wrapping_add(high)
        };
        base.wrapping_add(low)
    }
}

/// The state that outlives a chunk.
pub(super) struct Decoder {
    probs: Box<Probs>,
    literals: Vec<[u16; 0x400]>,
    lc: u32,
    lp_mask: usize,
    pb_mask: usize,
    state: usize,
    reps: [u32; 4],
}

/// How a run ended.
pub(super) struct Stop {
    /// End of the output so far.
    pub pos: usize,
    /// The end marker was read.
    pub marker: bool,
    /// The input was used up exactly and the range decoder is at rest.
    pub clean: bool,
}

impl Decoder {
    /// A decoder for this properties byte.
    pub(super) fn new(props: u8, most_literal_bits: u8) -> Result<Self, Failure> {
        let bad = Failure::Corrupt("bad LZMA properties");
        if props >= 9 * 5 * 5 {
            return Err(bad);
        }
        let (lc, lp, pb) = (props % 9, props / 9 % 5, props / 45);
        if lc + lp > most_literal_bits {
            return Err(bad);
        }
        let mut literals = Vec::new();
        literals
            .try_reserve_exact(1 << (lc + lp))
            .map_err(|_| Failure::OutOfMemory)?;
        literals.resize(1 << (lc + lp), [HALF; 0x400]);
        Ok(Self {
            probs: Box::new(Probs::NEW),
            literals,
            lc: u32::from(lc),
            lp_mask: (1 << lp) - 1,
            pb_mask: (1 << pb) - 1,
            state: 0,
            reps: [0; 4],
        })
    }

    /// Forgets all statistics.
    pub(super) fn reset(&mut self) {
        *self.probs = Probs::NEW;
        self.literals.fill([HALF; 0x400]);
        self.state = 0;
        self.reps = [0; 4];
    }

    /// Decodes `src` into `out[start..limit]`. Matches reach back to `dictionary` at most. With `want_marker`, looks for the
    /// end marker if the output is full without.
    pub(super) fn run(
        &mut self,
        src: &[u8],
        out: &mut [u8],
        dictionary: usize,
        start: usize,
        limit: usize,
        want_marker: bool,
    ) -> Result<Stop, Failure> {
        let out = out.get_mut(..limit).ok_or(CORRUPT)?;
        let (head, src) = src.split_first_chunk::<5>().ok_or(EARLY)?;
        if head[0] != 0 {
            return Err(CORRUPT);
        }
        let tail = Tail::new(src);
        let mut input = Input::new(src, &tail);
        let code = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let out = out.get_mut(dictionary..).ok_or(CORRUPT)?;
        let start = start.checked_sub(dictionary).ok_or(CORRUPT)?;
        let (rc, pos, marker) = self.symbols(code, &mut input, out, start, want_marker)?;
        Ok(Stop {
            pos: dictionary + pos,
            marker,
            clean: rc.finish(&input)?,
        })
    }

    /// The loop over symbols, in `out` from `start` on; `out` begins with the dictionary. Returns the range decoder, the end
    /// of the output, and whether the marker was read.
    ///
    /// The linker script puts it at the start of a page, because an emulator jumps from page to page by a slow way; rare
    /// loops over bits are not unrolled for the same reason. The range decoder is made here and not handed in, so that it
    /// stays in registers.
    #[inline(never)]
    fn symbols<'a>(
        &mut self,
        code: u32,
        input: &mut Input<'a>,
        out: &mut [u8],
        start: usize,
        want_marker: bool,
    ) -> Result<(Range<'a>, usize, bool), Failure> {
        let mut rc = Range::new(input, code)?;
        let probs = &mut *self.probs;
        let literals = &mut self.literals[..];
        let (lc, lp_mask, pb_mask) = (self.lc, self.lp_mask, self.pb_mask);
        let mut state = self.state;
        let [mut rep0, mut rep1, mut rep2, mut rep3] = self.reps;
        let mut pos = start;
        let mut marker = false;
        // Only the marker may follow a full output.
        let end = if want_marker { usize::MAX } else { out.len() };
        while pos < end {
            rc.start_symbol(input)?;
            let pos_state = pos & pb_mask & 15;
            if !rc.bit(&mut probs.is_match[state & 15][pos_state]) {
                let previous = out.get(pos.wrapping_sub(1)).map_or(0, |byte| *byte);
                let index = ((pos & lp_mask) << lc) + (usize::from(previous) >> (8 - lc));
                let probs = literals.get_mut(index).ok_or(CORRUPT)?;
                let mut symbol = 1u32;
                if state < LITERAL_STATES {
                    state = state.saturating_sub(3);
                    for _ in 0..8 {
                        let zero = rc.zero(&mut probs[symbol as usize & 0xff]);
                        symbol = (symbol << 1 | 1).wrapping_add(zero);
                    }
                } else {
                    state = state.wrapping_sub(if state < 10 { 3 } else { 6 });
                    // The byte that a longer match would have given picks among three trees until a bit differs.
                    let at = pos.wrapping_sub(rep0 as usize).wrapping_sub(1);
                    let mut matched = u32::from(*out.get(at).ok_or(CORRUPT)?);
                    let mut offset = 0x100;
                    for _ in 0..8 {
                        matched <<= 1;
                        let match_bit = matched & offset;
                        let index = offset.wrapping_add(match_bit).wrapping_add(symbol);
                        let zero = rc.zero(&mut probs[index as usize & 0x3ff]);
                        symbol = (symbol << 1 | 1).wrapping_add(zero);
                        offset &= match_bit ^ zero;
                    }
                }
                let Some(to) = out.get_mut(pos) else {
                    break;
                };
                *to = symbol as u8;
                pos = pos.wrapping_add(1);
                continue;
            }
            let repeated = rc.bit(&mut probs.is_rep[state & 15]);
            if repeated {
                if pos >= out.len() {
                    break;
                }
                if !rc.bit(&mut probs.is_rep0[state & 15]) {
                    if !rc.bit(&mut probs.is_rep0_long[state & 15][pos_state]) {
                        state = if state < LITERAL_STATES { 9 } else { 11 };
                        let at = pos.wrapping_sub(rep0 as usize).wrapping_sub(1);
                        let byte = *out.get(at).ok_or(CORRUPT)?;
                        *out.get_mut(pos).ok_or(CORRUPT)? = byte;
                        pos = pos.wrapping_add(1);
                        continue;
                    }
                } else {
                    let distance;
                    if !rc.bit(&mut probs.is_rep1[state & 15]) {
                        distance = rep1;
                    } else {
                        if !rc.bit(&mut probs.is_rep2[state & 15]) {
                            distance = rep2;
                        } else {
                            distance = rep3;
                            rep3 = rep2;
                        }
                        rep2 = rep1;
                    }
                    rep1 = rep0;
                    rep0 = distance;
                }
            }
            // Hidden from the compiler, which would make the code twice.
            let kind = black_box(usize::from(repeated));
            let len = probs.lengths[kind & 1].read(&mut rc, pos_state);
            state = if state < LITERAL_STATES { 7 } else { 10 } + kind;
            if !repeated {
                (rep3, rep2, rep1) = (rep2, rep1, rep0);
                rep0 = probs.distance(&mut rc, len);
                if rep0 == u32::MAX {
                    marker = true;
                    break;
                }
            }
            pos = copy_match(out, pos, rep0 as usize + 1, len).ok_or(CORRUPT)?;
        }
        self.state = state;
        self.reps = [rep0, rep1, rep2, rep3];
        Ok((rc, pos, marker))
    }
}
