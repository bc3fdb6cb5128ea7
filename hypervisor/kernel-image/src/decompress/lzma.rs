//! LZMA into a flat buffer, which is its own dictionary: nothing is copied twice, and no memory but the probabilities is
//! needed. Our own because unpacking the kernel takes most of the boot, and the crates, which keep a dictionary apart, need a
//! third more time. Tests compare it with one of them.
//!
//! Indexes are masked to the size of their tables where the format bounds them anyway, so that no check is left in the
//! inner loops; arithmetic there wraps, and wrong input gives wrong output, never a panic.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Failure, copy_match};

/// Probabilities are 11-bit fractions.
const HALF: u16 = 1024;
const TOP: u32 = 1 << 24;
/// States up to this one follow a literal.
const LITERAL_STATES: usize = 7;
const MIN_MATCH: usize = 2;
/// Distances in the first slots have all bits modelled.
const FIRST_LONG_SLOT: u32 = 14;

const CORRUPT: Failure = Failure::Corrupt("invalid LZMA data");

/// The range decoder.
struct Range<'a> {
    src: &'a [u8],
    range: u32,
    code: u32,
    /// Bytes asked for beyond the end.
    missing: u32,
}

impl<'a> Range<'a> {
    fn new(src: &'a [u8]) -> Result<Self, Failure> {
        let (head, src) = src
            .split_first_chunk::<5>()
            .ok_or(Failure::Corrupt("stream ends early"))?;
        if head[0] != 0 {
            return Err(CORRUPT);
        }
        Ok(Self {
            src,
            range: u32::MAX,
            code: u32::from_be_bytes([head[1], head[2], head[3], head[4]]),
            missing: 0,
        })
    }

    #[inline(always)]
    fn normalize(&mut self) {
        if self.range < TOP {
            let byte = match self.src.split_first() {
                Some((byte, rest)) => {
                    self.src = rest;
                    *byte
                }
                None => {
                    self.missing = self.missing.wrapping_add(1);
                    0
                }
            };
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(byte);
        }
    }

    #[inline(always)]
    fn bit(&mut self, slot: &mut u16) -> bool {
        self.normalize();
        let p = u32::from(*slot);
        let bound = (self.range >> 11).wrapping_mul(p);
        if self.code < bound {
            self.range = bound;
            *slot = p.wrapping_add(2048u32.wrapping_sub(p) >> 5) as u16;
            false
        } else {
            self.range = self.range.wrapping_sub(bound);
            self.code = self.code.wrapping_sub(bound);
            *slot = p.wrapping_sub(p >> 5) as u16;
            true
        }
    }

    /// A number of `N.ilog2()` bits, highest first.
    #[inline(always)]
    fn tree<const N: usize>(&mut self, probs: &mut [u16; N]) -> usize {
        let mut m = 1;
        for _ in 0..N.ilog2() {
            m = m << 1 | usize::from(self.bit(&mut probs[m & (N - 1)]));
        }
        m & (N - 1)
    }

    /// A number of `bits` bits, lowest first.
    #[inline(always)]
    fn reverse_tree(&mut self, probs: &mut [u16], bits: u32) -> u32 {
        let mut m = 1;
        let mut value = 0;
        for i in 0..bits {
            let bit = match probs.get_mut(m) {
                Some(slot) => self.bit(slot),
                None => false,
            };
            m = m << 1 | usize::from(bit);
            value |= u32::from(bit) << i;
        }
        value
    }

    #[inline(always)]
    fn direct(&mut self, bits: u32) -> u32 {
        let mut value = 0;
        for _ in 0..bits {
            self.normalize();
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code = self.code.wrapping_sub(self.range);
            }
            value = value << 1 | u32::from(bit);
        }
        value
    }
}

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
        if !rc.bit(&mut self.choice[0]) {
            rc.tree(&mut self.low[pos_state & 15]) + MIN_MATCH
        } else if !rc.bit(&mut self.choice[1]) {
            rc.tree(&mut self.mid[pos_state & 15]) + MIN_MATCH + 8
        } else {
            rc.tree(&mut self.high) + MIN_MATCH + 16
        }
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
    lengths: Lengths,
    rep_lengths: Lengths,
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
        lengths: Lengths::NEW,
        rep_lengths: Lengths::NEW,
    };

    /// The distance of a match, less one; `u32::MAX` is the end marker.
    #[inline(always)]
    fn distance(&mut self, rc: &mut Range<'_>, len: usize) -> Result<u32, Failure> {
        let slot = rc.tree(&mut self.slots[(len - MIN_MATCH).min(3)]) as u32;
        if slot < 4 {
            return Ok(slot);
        }
        let bits = (slot >> 1) - 1;
        let base = (2 | slot & 1) << bits;
        Ok(if slot < FIRST_LONG_SLOT {
            let at = (base - slot) as usize;
            base + rc.reverse_tree(self.special.get_mut(at..).ok_or(CORRUPT)?, bits)
        } else {
            let high = rc.direct(bits - 4) << 4;
            base.wrapping_add(high)
                .wrapping_add(rc.reverse_tree(&mut self.align, 4))
        })
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
        let mut rc = Range::new(src)?;
        let probs = &mut *self.probs;
        let literals = &mut self.literals[..];
        let (lc, lp_mask, pb_mask) = (self.lc, self.lp_mask, self.pb_mask);
        let mut state = self.state;
        let [mut rep0, mut rep1, mut rep2, mut rep3] = self.reps;
        let mut pos = start;
        let mut marker = false;
        while pos < out.len() {
            let pos_state = (pos - dictionary) & pb_mask & 15;
            if !rc.bit(&mut probs.is_match[state & 15][pos_state]) {
                let previous = if pos > dictionary { out[pos - 1] } else { 0 };
                let index =
                    (((pos - dictionary) & lp_mask) << lc) + (usize::from(previous) >> (8 - lc));
                let probs = &mut literals[index];
                let mut symbol = 1usize;
                if state < LITERAL_STATES {
                    for _ in 0..8 {
                        symbol = symbol << 1 | usize::from(rc.bit(&mut probs[symbol & 0xff]));
                    }
                    state = state.saturating_sub(3);
                } else {
                    let mut matched = usize::from(
                        *out.get(pos.wrapping_sub(rep0 as usize + 1))
                            .ok_or(CORRUPT)?,
                    );
                    let mut offset = 0x100;
                    for _ in 0..8 {
                        matched <<= 1;
                        let match_bit = matched & offset;
                        let index = offset + match_bit + symbol;
                        if rc.bit(&mut probs[index & 0x3ff]) {
                            symbol = symbol << 1 | 1;
                            offset &= match_bit;
                        } else {
                            symbol <<= 1;
                            offset &= !match_bit;
                        }
                    }
                    state -= if state < 10 { 3 } else { 6 };
                }
                out[pos] = symbol as u8;
                pos += 1;
                continue;
            }
            let len;
            if !rc.bit(&mut probs.is_rep[state & 15]) {
                (rep3, rep2, rep1) = (rep2, rep1, rep0);
                len = probs.lengths.read(&mut rc, pos_state);
                rep0 = probs.distance(&mut rc, len)?;
                state = if state < LITERAL_STATES { 7 } else { 10 };
                if rep0 == u32::MAX {
                    marker = true;
                    break;
                }
            } else {
                if !rc.bit(&mut probs.is_rep0[state & 15]) {
                    if !rc.bit(&mut probs.is_rep0_long[state & 15][pos_state]) {
                        state = if state < LITERAL_STATES { 9 } else { 11 };
                        let distance = rep0 as usize + 1;
                        if distance > pos - dictionary {
                            return Err(CORRUPT);
                        }
                        out[pos] = out[pos - distance];
                        pos += 1;
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
                len = probs.rep_lengths.read(&mut rc, pos_state);
                state = if state < LITERAL_STATES { 8 } else { 11 };
            }
            let distance = rep0 as usize + 1;
            if distance > pos - dictionary || len > out.len() - pos {
                return Err(CORRUPT);
            }
            copy_match(out, pos, distance, len);
            pos += len;
        }
        if want_marker && !marker {
            // The output is full: only the marker may follow.
            let pos_state = (pos - dictionary) & pb_mask & 15;
            marker = rc.bit(&mut probs.is_match[state & 15][pos_state])
                && !rc.bit(&mut probs.is_rep[state & 15])
                && {
                    let len = probs.lengths.read(&mut rc, pos_state);
                    probs.distance(&mut rc, len)? == u32::MAX
                };
        }
        rc.normalize();
        self.state = state;
        self.reps = [rep0, rep1, rep2, rep3];
        if rc.missing > 0 {
            return Err(Failure::Corrupt("stream ends early"));
        }
        Ok(Stop {
            pos,
            marker,
            clean: rc.code == 0 && rc.src.is_empty(),
        })
    }
}
