//! gzip (RFC 1952): header, deflate stream by `miniz_oxide`, checked trailer.

use alloc::boxed::Box;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::Failure;
use super::crc32::crc32;

const HEADER: usize = 10;
const FHCRC: u8 = 2;
const FEXTRA: u8 = 4;
const FNAME: u8 = 8;
const FCOMMENT: u8 = 16;

/// Decodes one member that fills `out` exactly.
pub(super) fn decode(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    let body = skip_header(stream).ok_or(Failure::Corrupt("bad gzip header"))?;
    let mut state = Box::<DecompressorOxide>::default();
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, used, made) = decompress(&mut state, body, out, 0, flags);
    match status {
        TINFLStatus::Done if made == out.len() => {}
        TINFLStatus::Done => return Err(Failure::Length(made)),
        TINFLStatus::HasMoreOutput => return Err(Failure::Length(out.len() + 1)),
        TINFLStatus::FailedCannotMakeProgress | TINFLStatus::NeedsMoreInput => {
            return Err(Failure::Corrupt("stream ends early"));
        }
        _ => return Err(Failure::Corrupt("invalid deflate data")),
    }
    let stored = body
        .get(used..)
        .and_then(|t| t.first_chunk::<4>())
        .ok_or(Failure::Corrupt("no checksum"))?;
    if u32::from_le_bytes(*stored) != crc32(out) {
        return Err(Failure::Corrupt("checksum mismatch"));
    }
    Ok(())
}

/// What follows the member header.
fn skip_header(stream: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = stream.split_first_chunk::<HEADER>()?;
    if header[..3] != [0x1f, 0x8b, 8] {
        return None;
    }
    let flags = header[3];
    if flags & FEXTRA != 0 {
        let (len, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*len))..)?;
    }
    for text in [FNAME, FCOMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&b| b == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & FHCRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}
