//! bzip2. Our own small decoder: the maintained crates need either `std` or a C-style interface with raw pointers. Only
//! hand-built kernels use this format, so it is written for clarity and bounds, not for speed.

use alloc::vec::Vec;

use super::Failure;

const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
const GROUP: usize = 50;
const MAX_CODE: usize = 20;
/// Two run symbols, 255 move-to-front positions, end of block.
const MAX_SYMBOLS: usize = 258;

const EARLY: Failure = Failure::Corrupt("stream ends early");

/// Decodes one stream that fills `out` exactly.
pub(super) fn decode(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    let mut bits = Bits::new(stream);
    if bits.take(24)? != 0x42_5a68 {
        return Err(Failure::Corrupt("bad bzip2 header"));
    }
    let level = match bits.take(8)? {
        n @ 0x31..=0x39 => n - 0x30,
        _ => return Err(Failure::Corrupt("bad bzip2 level")),
    };
    let limit = level as usize * 100_000;
    let mut block = Vec::new();
    block
        .try_reserve_exact(limit)
        .map_err(|_| Failure::OutOfMemory)?;
    let mut made = 0;
    let mut combined = 0u32;
    loop {
        match bits.take(48)? {
            BLOCK => {}
            END => break,
            _ => return Err(Failure::Corrupt("bad block header")),
        }
        let stored = bits.take(32)? as u32;
        let start = made;
        let origin = read_block(&mut bits, &mut block, limit)?;
        made = expand(&mut block, origin, out, made)?;
        let crc = crc(&out[start..made]);
        if crc != stored {
            return Err(Failure::Corrupt("block checksum mismatch"));
        }
        combined = combined.rotate_left(1) ^ crc;
    }
    if bits.take(32)? as u32 != combined {
        return Err(Failure::Corrupt("checksum mismatch"));
    }
    if made != out.len() {
        return Err(Failure::Length(made));
    }
    Ok(())
}

/// Reads one block's symbols: the transformed bytes go to `block`, the row of the original text is returned.
fn read_block(bits: &mut Bits, block: &mut Vec<u32>, limit: usize) -> Result<usize, Failure> {
    block.clear();
    if bits.take(1)? != 0 {
        return Err(Failure::Corrupt("randomised block"));
    }
    let origin = bits.take(24)? as usize;
    let rows = bits.take(16)?;
    let mut front = Vec::with_capacity(256);
    for row in 0..16u8 {
        if rows & (0x8000 >> row) != 0 {
            let cols = bits.take(16)?;
            front.extend(
                (0..16u8)
                    .filter(|col| cols & (0x8000 >> col) != 0)
                    .map(|col| row * 16 + col),
            );
        }
    }
    if front.is_empty() {
        return Err(Failure::Corrupt("empty alphabet"));
    }
    let symbols = front.len() + 2;
    let (trees, selectors) = read_tables(bits, symbols)?;

    let mut run = 0usize;
    let mut weight = 1usize;
    for tree in selectors {
        let tree = &trees[usize::from(tree)];
        for _ in 0..GROUP {
            let symbol = usize::from(tree.decode(bits)?);
            if symbol < 2 {
                // Run lengths are written in bijective base 2, lowest digit first.
                run += weight << symbol;
                weight <<= 1;
                if run > limit {
                    return Err(Failure::Corrupt("run too long"));
                }
                continue;
            }
            if run > 0 {
                push(block, front[0], run, limit)?;
                (run, weight) = (0, 1);
            }
            if symbol == symbols - 1 {
                if origin >= block.len() {
                    return Err(Failure::Corrupt("bad block origin"));
                }
                return Ok(origin);
            }
            let byte = front.remove(symbol - 1);
            front.insert(0, byte);
            push(block, byte, 1, limit)?;
        }
    }
    Err(Failure::Corrupt("block without end"))
}

fn push(block: &mut Vec<u32>, byte: u8, count: usize, limit: usize) -> Result<(), Failure> {
    if block.len() + count > limit {
        return Err(Failure::Corrupt("block too long"));
    }
    block.resize(block.len() + count, u32::from(byte));
    Ok(())
}

fn read_tables(bits: &mut Bits, symbols: usize) -> Result<(Vec<Tree>, Vec<u8>), Failure> {
    let count = bits.take(3)? as usize;
    let selector_count = bits.take(15)? as usize;
    if !(2..=6).contains(&count) || selector_count == 0 {
        return Err(Failure::Corrupt("bad table count"));
    }
    let mut recent: [u8; 6] = [0, 1, 2, 3, 4, 5];
    let mut selectors = Vec::with_capacity(selector_count);
    for _ in 0..selector_count {
        let mut at = 0;
        while bits.take(1)? != 0 {
            at += 1;
            if at >= count {
                return Err(Failure::Corrupt("bad selector"));
            }
        }
        recent[..=at].rotate_right(1);
        selectors.push(recent[0]);
    }
    let mut trees = Vec::with_capacity(count);
    for _ in 0..count {
        let mut lengths = [0u8; MAX_SYMBOLS];
        let mut len = bits.take(5)? as usize;
        for slot in &mut lengths[..symbols] {
            loop {
                if !(1..=MAX_CODE).contains(&len) {
                    return Err(Failure::Corrupt("bad code length"));
                }
                if bits.take(1)? == 0 {
                    break;
                }
                // In range: `len` is at least 1 and at most 20 here.
                len = if bits.take(1)? == 0 { len + 1 } else { len - 1 };
            }
            *slot = len as u8;
        }
        trees.push(Tree::new(&lengths[..symbols]));
    }
    Ok((trees, selectors))
}

/// Undoes the block sort in place and then the outer run-length code. Returns the new end of the output.
fn expand(
    block: &mut [u32],
    origin: usize,
    out: &mut [u8],
    mut made: usize,
) -> Result<usize, Failure> {
    // Low byte: the text. High 24 bits: index of the following character.
    let mut next = [0usize; 256];
    for &v in block.iter() {
        next[(v & 0xff) as usize] += 1;
    }
    let mut sum = 0;
    for slot in &mut next {
        sum += core::mem::replace(slot, sum);
    }
    for i in 0..block.len() {
        let slot = &mut next[(block[i] & 0xff) as usize];
        block[*slot] |= (i as u32) << 8;
        *slot += 1;
    }
    let mut at = (block[origin] >> 8) as usize;
    let mut same = 0;
    let mut last = None;
    let too_long = Failure::Length(out.len() + 1);
    for _ in 0..block.len() {
        let v = block[at];
        at = (v >> 8) as usize;
        let byte = v as u8;
        if same == 4 {
            // After four equal bytes comes a repeat count.
            let end = made + usize::from(byte);
            let fill = last.unwrap_or(0);
            out.get_mut(made..end).ok_or(too_long)?.fill(fill);
            made = end;
            same = 0;
            last = None;
            continue;
        }
        same = if last == Some(byte) { same + 1 } else { 1 };
        last = Some(byte);
        *out.get_mut(made).ok_or(too_long)? = byte;
        made += 1;
    }
    Ok(made)
}

/// A canonical Huffman code.
struct Tree {
    /// For each length: first code of that length, and index of its symbol.
    first: [(u32, usize); MAX_CODE + 2],
    symbols: Vec<u16>,
}

impl Tree {
    fn new(lengths: &[u8]) -> Self {
        let mut symbols = Vec::with_capacity(lengths.len());
        let mut first = [(0, 0); MAX_CODE + 2];
        let mut code = 0u32;
        for (len, slot) in first.iter_mut().enumerate().skip(1) {
            let index = symbols.len();
            *slot = (code, index);
            symbols.extend(
                (0u16..)
                    .zip(lengths)
                    .filter_map(|(symbol, &l)| (usize::from(l) == len).then_some(symbol)),
            );
            code = (code + (symbols.len() - index) as u32) << 1;
        }
        Self { first, symbols }
    }

    fn decode(&self, bits: &mut Bits) -> Result<u16, Failure> {
        let mut code = 0u32;
        for len in 1..=MAX_CODE {
            code = code << 1 | bits.take(1)? as u32;
            let (start, index) = self.first[len];
            let count = self.first[len + 1].1 - index;
            if let Some(offset) = code.checked_sub(start).filter(|&o| (o as usize) < count) {
                return Ok(self.symbols[index + offset as usize]);
            }
        }
        Err(Failure::Corrupt("bad code"))
    }
}

/// Bits, highest of each byte first.
struct Bits<'a> {
    rest: core::slice::Iter<'a, u8>,
    held: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    fn new(stream: &'a [u8]) -> Self {
        Self {
            rest: stream.iter(),
            held: 0,
            count: 0,
        }
    }

    /// The next `n` bits, at most 48.
    fn take(&mut self, n: u32) -> Result<u64, Failure> {
        while self.count < n {
            self.held = self.held << 8 | u64::from(*self.rest.next().ok_or(EARLY)?);
            self.count += 8;
        }
        self.count -= n;
        Ok(self.held >> self.count & ((1 << n) - 1))
    }
}

/// CRC-32 with the highest bit first, as bzip2 has it.
fn crc(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut t = [0u32; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = (i as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                c = (c << 1) ^ (0x04c1_1db7 & (c >> 31).wrapping_neg());
                bit += 1;
            }
            t[i] = c;
            i += 1;
        }
        t
    };
    !data.iter().fold(!0, |crc: u32, &byte| {
        crc << 8 ^ TABLE[((crc >> 24) as u8 ^ byte) as usize]
    })
}
