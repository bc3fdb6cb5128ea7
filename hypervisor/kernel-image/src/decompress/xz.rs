//! The xz container and LZMA2, and the LZMA-alone format, around [`super::lzma`]. Debian's kernels use one xz stream of one
//! block with the x86 branch filter and CRC32; integrity checks of other kinds are refused, because no kernel has them.

use super::crc32::crc32;
use super::lzma::Decoder;
use super::{Failure, branch};

const EARLY: Failure = Failure::Corrupt("stream ends early");
const BAD_HEADER: Failure = Failure::Corrupt("damaged header");
const CHECK_NONE: u8 = 0;
const CHECK_CRC32: u8 = 1;
const FILTER_X86: u64 = 4;
const FILTER_LZMA2: u64 = 0x21;
/// LZMA2 bounds the context bits of literals; LZMA-alone does not.
const LZMA2_LITERAL_BITS: u8 = 4;
const LZMA_LITERAL_BITS: u8 = 12;

/// Decodes one xz stream that fills `out` exactly. Stops at the index, which only repeats sizes.
pub(super) fn decode_xz(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    let (header, mut rest) = stream.split_first_chunk::<12>().ok_or(EARLY)?;
    let flags = &header[6..8];
    let stored = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if &header[..6] != b"\xfd7zXZ\0" || flags[0] != 0 || crc32(flags) != stored {
        return Err(BAD_HEADER);
    }
    let check = flags[1];
    if !matches!(check, CHECK_NONE | CHECK_CRC32) {
        return Err(Failure::Corrupt(
            "integrity check is not CRC32, as kernels have it",
        ));
    }
    let mut pos = 0;
    // A size byte of 0 starts the index.
    while *rest.first().ok_or(EARLY)? != 0 {
        let len = (usize::from(rest[0]) + 1) * 4;
        let (header, data) = rest.split_at_checked(len).ok_or(EARLY)?;
        let branch_start = block_header(header)?;
        let start = pos;
        let used;
        (used, pos) = lzma2(data, out, start)?;
        // The block is padded to four bytes; its header is already a multiple.
        rest = data.get(used.next_multiple_of(4)..).ok_or(EARLY)?;
        let block = &mut out[start..pos];
        if let Some(offset) = branch_start {
            branch::undo_x86(block, offset);
        }
        if check == CHECK_CRC32 {
            let (stored, after) = rest.split_first_chunk::<4>().ok_or(EARLY)?;
            if u32::from_le_bytes(*stored) != crc32(block) {
                return Err(Failure::Corrupt("checksum mismatch"));
            }
            rest = after;
        }
    }
    if pos != out.len() {
        return Err(Failure::Length(pos));
    }
    Ok(())
}

/// Checks a block header. The start offset of the x86 filter, if the block has one.
fn block_header(header: &[u8]) -> Result<Option<u32>, Failure> {
    let (body, stored) = header.split_last_chunk::<4>().ok_or(BAD_HEADER)?;
    if crc32(body) != u32::from_le_bytes(*stored) {
        return Err(BAD_HEADER);
    }
    let flags = *body.get(1).ok_or(BAD_HEADER)?;
    if flags & 0x3c != 0 {
        return Err(BAD_HEADER);
    }
    let mut rest = &body[2..];
    // Sizes of the block, compressed and not, may be given; the data itself tells.
    for bit in [0x40, 0x80] {
        if flags & bit != 0 {
            number(&mut rest)?;
        }
    }
    let mut branch = None;
    let last = flags & 3;
    for index in 0..=last {
        let id = number(&mut rest)?;
        let size = usize::try_from(number(&mut rest)?).map_err(|_| BAD_HEADER)?;
        let (properties, after) = rest.split_at_checked(size).ok_or(BAD_HEADER)?;
        rest = after;
        match id {
            // The dictionary size does not matter: the whole output serves.
            FILTER_LZMA2 if index == last && size == 1 => return Ok(branch),
            FILTER_X86 if index == 0 && index != last => {
                branch = Some(match properties {
                    [] => 0,
                    &[a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
                    _ => return Err(BAD_HEADER),
                });
            }
            _ => return Err(Failure::Corrupt("filter other than x86 and LZMA2")),
        }
    }
    Err(BAD_HEADER)
}

/// A number in xz's variable-length form.
fn number(bytes: &mut &[u8]) -> Result<u64, Failure> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(BAD_HEADER)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(BAD_HEADER)
}

/// Decodes LZMA2 chunks from `out[start..]` on. Returns the bytes read and the end of the output.
fn lzma2(data: &[u8], out: &mut [u8], start: usize) -> Result<(usize, usize), Failure> {
    const BAD: Failure = Failure::Corrupt("invalid LZMA2 chunk");
    let full = Failure::Length(out.len() + 1);
    let mut rest = data;
    let mut pos = start;
    // `None` until a chunk resets the dictionary, or brings properties.
    let mut dictionary = None;
    let mut decoder: Option<Decoder> = None;
    let be16 = |b: &[u8]| usize::from(b[0]) << 8 | usize::from(b[1]);
    loop {
        let (&control, after) = rest.split_first().ok_or(EARLY)?;
        if control == 0 {
            return Ok((data.len() - after.len(), pos));
        }
        if control == 1 || control >= 0xe0 {
            dictionary = Some(pos);
        }
        let dictionary = dictionary.ok_or(BAD)?;
        if control < 0x80 {
            // Stored bytes.
            if control > 2 {
                return Err(BAD);
            }
            let (size, after) = after.split_at_checked(2).ok_or(EARLY)?;
            let (bytes, after) = after.split_at_checked(be16(size) + 1).ok_or(EARLY)?;
            out.get_mut(pos..pos + bytes.len())
                .ok_or(full)?
                .copy_from_slice(bytes);
            pos += bytes.len();
            rest = after;
            continue;
        }
        let (sizes, mut after) = after.split_at_checked(4).ok_or(EARLY)?;
        let unpacked = (usize::from(control & 0x1f) << 16 | be16(sizes)) + 1;
        let packed = be16(&sizes[2..]) + 1;
        if control >= 0xc0 {
            let (&properties, next) = after.split_first().ok_or(EARLY)?;
            after = next;
            decoder = Some(Decoder::new(properties, LZMA2_LITERAL_BITS)?);
        }
        let decoder = decoder.as_mut().ok_or(BAD)?;
        if control >= 0xa0 {
            decoder.reset();
        }
        let (chunk, after) = after.split_at_checked(packed).ok_or(EARLY)?;
        let limit = pos + unpacked;
        if limit > out.len() {
            return Err(full);
        }
        let stop = decoder.run(chunk, out, dictionary, pos, limit, false)?;
        if stop.marker || !stop.clean {
            return Err(BAD);
        }
        pos = limit;
        rest = after;
    }
}

/// Decodes one LZMA-alone stream that fills `out` exactly.
pub(super) fn decode_lzma(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    // Properties, dictionary size (the whole output serves), unpacked size or all ones.
    let (header, data) = stream.split_first_chunk::<13>().ok_or(EARLY)?;
    let size = header
        .last_chunk::<8>()
        .map_or(u64::MAX, |b| u64::from_le_bytes(*b));
    let want_marker = size == u64::MAX;
    if !want_marker && size != out.len() as u64 {
        return Err(Failure::Length(usize::try_from(size).unwrap_or(usize::MAX)));
    }
    let mut decoder = Decoder::new(header[0], LZMA_LITERAL_BITS)?;
    let limit = out.len();
    let stop = decoder.run(data, out, 0, 0, limit, want_marker)?;
    if stop.pos < limit {
        return Err(Failure::Length(stop.pos));
    }
    if want_marker && !stop.marker {
        return Err(Failure::Length(limit + 1));
    }
    Ok(())
}
