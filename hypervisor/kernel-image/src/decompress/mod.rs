//! Unpacks a kernel payload into one buffer whose size is known beforehand, so no decoder can allocate without bound.

mod branch;
mod bzip2;
mod crc32;
mod gzip;
mod lz4;
mod lzma;
#[cfg(test)]
pub(crate) mod tests;
mod xz;
mod zstd;

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;

use crate::KernelError;

/// Largest unpacked kernel that is accepted, in bytes. Distribution kernels are near 64 MiB.
pub const MAX_UNPACKED: u64 = 1 << 30;

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the formats'")]
pub enum Format {
    Gzip,
    Xz,
    Zstd,
    /// The "legacy" LZ4 frame, the one that Linux uses.
    Lz4,
    /// The LZMA-alone file format.
    Lzma,
    Bzip2,
}

impl Format {
    /// Recognises a payload by its first bytes.
    pub fn probe(payload: &[u8]) -> Result<Self, KernelError> {
        const KNOWN: [(&[u8], Format); 6] = [
            (b"\x1f\x8b", Format::Gzip),
            (b"\xfd7zXZ\0", Format::Xz),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
            (b"\x02\x21\x4c\x18", Format::Lz4),
            (b"\x5d\0\0", Format::Lzma),
            (b"BZh", Format::Bzip2),
        ];
        if payload.starts_with(b"\x89LZO") {
            return Err(KernelError::NoDecoder("LZO"));
        }
        if let Some((_, format)) = KNOWN.iter().find(|(magic, _)| payload.starts_with(magic)) {
            return Ok(*format);
        }
        let mut first = [0; 4];
        for (to, from) in first.iter_mut().zip(payload) {
            *to = *from;
        }
        Err(KernelError::UnknownFormat(first))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Lzma => "lzma",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// What a single decoder reports; [`decompress`] adds the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Corrupt(&'static str),
    /// More or fewer bytes than the buffer has. If more, the number is the buffer's size plus one.
    Length(usize),
    OutOfMemory,
}

/// Unpacks `stream` into exactly `size` bytes.
pub fn decompress(format: Format, stream: &[u8], size: u64) -> Result<Vec<u8>, KernelError> {
    if size > MAX_UNPACKED {
        return Err(KernelError::TooLarge(size));
    }
    let expected = usize::try_from(size).map_err(|_| KernelError::TooLarge(size))?;
    let mut out = Vec::new();
    out.try_reserve_exact(expected)
        .map_err(|_| KernelError::OutOfMemory(size))?;
    out.resize(expected, 0);
    let result = match format {
        Format::Gzip => gzip::decode(stream, &mut out),
        Format::Xz => xz::decode_xz(stream, &mut out),
        Format::Lzma => xz::decode_lzma(stream, &mut out),
        Format::Zstd => zstd::decode(stream, &mut out),
        Format::Lz4 => lz4::decode(stream, &mut out),
        Format::Bzip2 => bzip2::decode(stream, &mut out),
    };
    match result {
        Ok(()) => Ok(out),
        Err(Failure::Corrupt(what)) => Err(KernelError::Corrupt { format, what }),
        Err(Failure::Length(found)) => Err(KernelError::WrongSize {
            format,
            expected,
            found,
        }),
        Err(Failure::OutOfMemory) => Err(KernelError::OutOfMemory(size)),
    }
}

/// Copies `len` bytes of output from `distance` back. May write up to 7 bytes too many, which are overwritten later. Returns
/// the end of the copy; `None` if it reaches over the output's start or end, or the distance is 0.
#[inline(always)]
fn copy_match(out: &mut [u8], pos: usize, distance: usize, len: usize) -> Option<usize> {
    let end = pos.wrapping_add(len);
    let from = pos.checked_sub(distance)?;
    if distance < 8 || end.wrapping_add(8) > out.len() {
        return copy_near(out, pos, distance, end);
    }
    // Cells, since the two parts overlap if bytes repeat; words, since they are eight or more apart.
    let cells = Cell::from_mut(out).as_slice_of_cells();
    let round = len.wrapping_add(7) & !7;
    let words = |at: usize| {
        let cells = cells.get(at..at.wrapping_add(round))?;
        Some(cells.as_chunks::<8>().0.iter())
    };
    for (from, to) in words(from)?.zip(words(pos)?) {
        let word = u64::from_le_bytes(from.each_ref().map(Cell::get));
        for (to, byte) in to.iter().zip(word.to_le_bytes()) {
            to.set(byte);
        }
    }
    Some(end)
}

/// The same near the output's end, or where the bytes repeat within eight.
#[inline(never)]
fn copy_near(out: &mut [u8], pos: usize, distance: usize, end: usize) -> Option<usize> {
    if distance == 0 {
        return None;
    }
    if distance < 8
        && end.wrapping_add(8) <= out.len()
        && let Some(last) = out.get(..pos)?.last_chunk()
    {
        // A word of what repeats, and how much of it is whole.
        let mut bits = 8 * distance;
        let mut word = u64::from_le_bytes(*last) >> (64 - bits);
        while bits < 64 {
            word |= word << bits;
            bits *= 2;
        }
        let step = [8, 8, 8, 6, 8, 5, 6, 7][distance & 7];
        let rest = out.get_mut(pos..end.wrapping_add(8))?;
        for to in (0..end.wrapping_sub(pos)).step_by(step) {
            *rest.get_mut(to..)?.first_chunk_mut()? = word.to_le_bytes();
        }
        return Some(end);
    }
    for to in pos..end {
        *out.get_mut(to)? = *out.get(to.checked_sub(distance)?)?;
    }
    Some(end)
}
