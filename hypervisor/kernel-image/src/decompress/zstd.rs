//! Zstandard (RFC 8878) into a flat buffer, which is its own window. Debian's 6.12 kernels use one frame with a 128 MiB window
//! and a checksum. Our own, because the crate keeps a window of that size apart, which a small machine does not have, and
//! needs several times as long.

mod bits;
mod fse;
mod huffman;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hasher;

use bits::Backward;
use fse::Table;
use huffman::Huffman;
use twox_hash::XxHash64;

use super::{Failure, copy_match};

const MAGIC: u32 = 0xfd2f_b528;
/// Frames to be skipped have any of sixteen magic numbers from this one on.
const SKIP: u32 = 0x184d_2a50;
/// Largest block, before and after unpacking.
const BLOCK: usize = 128 << 10;
/// Literals may be read a word beyond their end.
const SLACK: usize = 8;

const EARLY: Failure = Failure::Corrupt("stream ends early");
const BAD_SEQUENCE: Failure = Failure::Corrupt("invalid sequence");

/// Code of a length: base and number of extra bits.
type Code = (u32, u8);

const LITERAL_LENGTHS: [Code; 36] = codes(
    0,
    &[
        (16, 0),
        (4, 1),
        (2, 2),
        (2, 3),
        (1, 4),
        (1, 6),
        (1, 7),
        (1, 8),
        (1, 9),
        (1, 10),
        (1, 11),
        (1, 12),
        (1, 13),
        (1, 14),
        (1, 15),
        (1, 16),
    ],
);
const MATCH_LENGTHS: [Code; 53] = codes(
    3,
    &[
        (32, 0),
        (4, 1),
        (2, 2),
        (2, 3),
        (2, 4),
        (1, 5),
        (1, 7),
        (1, 8),
        (1, 9),
        (1, 10),
        (1, 11),
        (1, 12),
        (1, 13),
        (1, 14),
        (1, 15),
        (1, 16),
    ],
);

/// Consecutive codes from groups of (how many, extra bits each): each code starts where the one before ends.
const fn codes<const N: usize>(first: u32, groups: &[(usize, u8)]) -> [Code; N] {
    let mut out = [(0, 0); N];
    let mut base = first;
    let (mut at, mut group) = (0, 0);
    while group < groups.len() {
        let (count, bits) = groups[group];
        let mut n = 0;
        while n < count {
            out[at] = (base, bits);
            base += 1 << bits;
            at += 1;
            n += 1;
        }
        group += 1;
    }
    assert!(at == N);
    out
}

const DEFAULT_LITERAL: [i16; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
    -1, -1, -1, -1,
];
const DEFAULT_MATCH: [i16; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];
const DEFAULT_OFFSET: [i16; 29] = [
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
];
/// Largest offset code: offsets below 2^32.
const OFFSET_CODES: usize = 32;

/// What one block leaves for the next.
struct State {
    huffman: Huffman,
    literal: Option<Table>,
    offset: Option<Table>,
    matches: Option<Table>,
    recent: [usize; 3],
    /// The block's literals, and [`SLACK`].
    literals: Vec<u8>,
}

/// Decodes frames that fill `out` exactly.
pub(super) fn decode(mut stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    let mut pos = 0;
    let mut literals = Vec::new();
    literals
        .try_reserve_exact(BLOCK + SLACK)
        .map_err(|_| Failure::OutOfMemory)?;
    let mut state = Box::new(State {
        huffman: Huffman::EMPTY,
        literal: None,
        offset: None,
        matches: None,
        recent: [1, 4, 8],
        literals,
    });
    while !stream.is_empty() {
        let magic = word(&mut stream)?;
        if magic & !15 == SKIP {
            let len = word(&mut stream)? as usize;
            stream = stream.get(len..).ok_or(EARLY)?;
            continue;
        }
        if magic != MAGIC {
            return Err(Failure::Corrupt("bad frame magic"));
        }
        pos = frame(&mut stream, out, pos, &mut state)?;
    }
    if pos != out.len() {
        return Err(Failure::Length(pos));
    }
    Ok(())
}

fn split<'a>(stream: &mut &'a [u8], len: usize) -> Result<&'a [u8], Failure> {
    let (head, rest) = stream.split_at_checked(len).ok_or(EARLY)?;
    *stream = rest;
    Ok(head)
}

/// A little-endian number of `len` bytes, at most 8.
fn number(stream: &mut &[u8], len: usize) -> Result<u64, Failure> {
    let bytes = split(stream, len)?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

fn word(stream: &mut &[u8]) -> Result<u32, Failure> {
    Ok(number(stream, 4)? as u32)
}

/// Decodes what follows a frame's magic number. Returns the new end of the output.
fn frame(
    stream: &mut &[u8],
    out: &mut [u8],
    start: usize,
    state: &mut State,
) -> Result<usize, Failure> {
    let head = number(stream, 1)? as u8;
    let single = head & 0x20 != 0;
    if head & 8 != 0 {
        return Err(Failure::Corrupt("bad header"));
    }
    if !single {
        // The window's size does not matter: the whole output serves.
        number(stream, 1)?;
    }
    if number(stream, [0, 1, 2, 4][usize::from(head & 3)])? != 0 {
        return Err(Failure::Corrupt("it needs a dictionary"));
    }
    // The content's size does not matter either: the image states it, and the end will tell.
    let size_len = match head >> 6 {
        0 => usize::from(single),
        n => 1 << n,
    };
    number(stream, size_len)?;

    (state.literal, state.offset, state.matches) = (None, None, None);
    state.huffman = Huffman::EMPTY;
    state.recent = [1, 4, 8];
    let full = Failure::Length(out.len() + 1);
    let mut pos = start;
    loop {
        let header = number(stream, 3)? as usize;
        let size = header >> 3;
        match header >> 1 & 3 {
            0 => {
                let bytes = split(stream, size)?;
                out.get_mut(pos..pos + size)
                    .ok_or(full)?
                    .copy_from_slice(bytes);
                pos += size;
            }
            1 => {
                let byte = number(stream, 1)? as u8;
                out.get_mut(pos..pos + size).ok_or(full)?.fill(byte);
                pos += size;
            }
            2 => pos = state.block(split(stream, size)?, out, start, pos)?,
            _ => return Err(Failure::Corrupt("bad block type")),
        }
        if header & 1 != 0 {
            break;
        }
    }
    if head & 4 != 0 {
        let mut hash = XxHash64::with_seed(0);
        hash.write(&out[start..pos]);
        if hash.finish() as u32 != word(stream)? {
            return Err(Failure::Corrupt("checksum mismatch"));
        }
    }
    Ok(pos)
}

impl State {
    /// Decodes a compressed block to `out[pos..]`. Matches reach back to `start` at most.
    fn block(
        &mut self,
        mut src: &[u8],
        out: &mut [u8],
        start: usize,
        pos: usize,
    ) -> Result<usize, Failure> {
        self.read_literals(&mut src)?;
        let count = match number(&mut src, 1)? as usize {
            n @ 0..128 => n,
            n @ 128..255 => (n - 128) << 8 | number(&mut src, 1)? as usize,
            _ => number(&mut src, 2)? as usize + 0x7f00,
        };
        if count == 0 {
            return append(&self.literals, 0, out, pos);
        }
        let modes = number(&mut src, 1)? as u8;
        if modes & 3 != 0 {
            return Err(BAD_SEQUENCE);
        }
        table(
            &mut self.literal,
            modes >> 6,
            &mut src,
            9,
            (&DEFAULT_LITERAL, 6),
            LITERAL_LENGTHS.len(),
        )?;
        table(
            &mut self.offset,
            modes >> 4 & 3,
            &mut src,
            8,
            (&DEFAULT_OFFSET, 5),
            OFFSET_CODES,
        )?;
        table(
            &mut self.matches,
            modes >> 2 & 3,
            &mut src,
            9,
            (&DEFAULT_MATCH, 6),
            MATCH_LENGTHS.len(),
        )?;
        self.sequences(src, count, out, start, pos)
    }

    /// Fills [`State::literals`].
    fn read_literals(&mut self, src: &mut &[u8]) -> Result<(), Failure> {
        const BAD: Failure = Failure::Corrupt("invalid literals");
        let first = *src.first().ok_or(EARLY)?;
        let form = first >> 2 & 3;
        let kind = first & 3;
        self.literals.clear();
        if kind < 2 {
            // Stored, or one byte repeated.
            let (len, shift) = match form {
                1 => (2, 4),
                3 => (3, 4),
                _ => (1, 3),
            };
            let size = (number(src, len)? >> shift) as usize;
            if size > BLOCK {
                return Err(BAD);
            }
            if kind == 0 {
                self.literals.extend_from_slice(split(src, size)?);
            } else {
                let byte = number(src, 1)? as u8;
                self.literals.resize(size, byte);
            }
        } else {
            let (len, bits) = match form {
                2 => (4, 14),
                3 => (5, 18),
                _ => (3, 10),
            };
            let header = number(src, len)? >> 4;
            let size = (header & ((1 << bits) - 1)) as usize;
            if size > BLOCK {
                return Err(BAD);
            }
            let mut packed = split(src, (header >> bits) as usize)?;
            if kind == 2 {
                let used = self.huffman.read(packed)?;
                packed = &packed[used..];
            }
            self.literals.resize(size, 0);
            self.huffman.decode(packed, &mut self.literals, form != 0)?;
        }
        self.literals.resize(self.literals.len() + SLACK, 0);
        Ok(())
    }

    fn sequences(
        &mut self,
        src: &[u8],
        count: usize,
        out: &mut [u8],
        start: usize,
        mut pos: usize,
    ) -> Result<usize, Failure> {
        let (Some(literal), Some(offset), Some(matches)) =
            (&self.literal, &self.offset, &self.matches)
        else {
            return Err(BAD_SEQUENCE);
        };
        let full = Failure::Length(out.len() + 1);
        let mut bits = Backward::new(src)?;
        bits.fill();
        let mut literal_state = literal.start(&mut bits);
        let mut offset_state = offset.start(&mut bits);
        let mut match_state = matches.start(&mut bits);
        let mut used = 0;
        let available = self.literals.len() - SLACK;
        let [mut first, mut second, mut third] = self.recent;
        for left in (0..count).rev() {
            bits.fill();
            let code = u32::from(offset.symbol(offset_state));
            let value = (1usize << (code & 31)) + bits.take(code & 31) as usize;
            let (base, extra) = MATCH_LENGTHS[usize::from(matches.symbol(match_state)).min(52)];
            let (literal_base, literal_extra) =
                LITERAL_LENGTHS[usize::from(literal.symbol(literal_state)).min(35)];
            // The next states take up to 9 + 9 + 8 bits. Long codes are rare; then one fill is not enough.
            let long = code + u32::from(extra + literal_extra) + 26 > bits::FILLED;
            if long {
                bits.fill();
            }
            let match_len = (base + bits.take(u32::from(extra))) as usize;
            let literal_len = (literal_base + bits.take(u32::from(literal_extra))) as usize;
            if left > 0 {
                if long {
                    bits.fill();
                }
                literal_state = literal.next(literal_state, &mut bits);
                match_state = matches.next(match_state, &mut bits);
                offset_state = offset.next(offset_state, &mut bits);
            }

            // Values 1 to 3 name a recent offset, one later if there are no literals between.
            let distance = if value > 3 {
                let distance = value - 3;
                (third, second, first) = (second, first, distance);
                distance
            } else {
                match value - usize::from(literal_len != 0) {
                    0 => first,
                    1 => {
                        (first, second) = (second, first);
                        first
                    }
                    2 => {
                        (first, second, third) = (third, first, second);
                        first
                    }
                    _ => {
                        (third, second) = (second, first);
                        first = first.wrapping_sub(1);
                        first
                    }
                }
            };

            if literal_len > available - used {
                return Err(BAD_SEQUENCE);
            }
            let end = pos + literal_len;
            if end + match_len > out.len() {
                return Err(full);
            }
            copy_literals(&self.literals[used..], &mut out[pos..], literal_len);
            used += literal_len;
            pos = end;
            if distance == 0 || distance > pos - start {
                return Err(BAD_SEQUENCE);
            }
            pos = copy_match(out, pos, distance, match_len).ok_or(BAD_SEQUENCE)?;
        }
        if !bits.finished() {
            return Err(BAD_SEQUENCE);
        }
        self.recent = [first, second, third];
        append(&self.literals, used, out, pos)
    }
}

/// Sets a table by its mode: the default, one symbol, a new one, or the last one again.
fn table(
    slot: &mut Option<Table>,
    mode: u8,
    src: &mut &[u8],
    most_log: u32,
    default: (&[i16], u32),
    symbols: usize,
) -> Result<(), Failure> {
    match mode {
        0 => *slot = Some(Table::from_probabilities(default.0, default.1)?),
        1 => {
            let symbol = number(src, 1)? as u8;
            if usize::from(symbol) >= symbols {
                return Err(BAD_SEQUENCE);
            }
            *slot = Some(Table::single(symbol));
        }
        2 => {
            let (table, used) = Table::read(src, most_log, symbols)?;
            *src = &src[used..];
            *slot = Some(table);
        }
        _ => {}
    }
    Ok(())
}

/// The literals after the last sequence.
fn append(literals: &[u8], used: usize, out: &mut [u8], pos: usize) -> Result<usize, Failure> {
    let rest = &literals[used..literals.len() - SLACK];
    let full = Failure::Length(out.len() + 1);
    out.get_mut(pos..pos + rest.len())
        .ok_or(full)?
        .copy_from_slice(rest);
    Ok(pos + rest.len())
}

/// Copies short runs by words. Both slices have `len` bytes; where both have a word more, up to 7 bytes too many are
/// written, which are overwritten later.
#[inline(always)]
fn copy_literals(from: &[u8], to: &mut [u8], len: usize) {
    if len > 32 || to.len() < len + 8 || from.len() < len + 8 {
        to[..len].copy_from_slice(&from[..len]);
        return;
    }
    let mut at = 0;
    while at < len {
        let mut word = [0; 8];
        word.copy_from_slice(&from[at..at + 8]);
        to[at..at + 8].copy_from_slice(&word);
        at += 8;
    }
}
