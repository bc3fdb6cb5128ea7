//! xz and LZMA-alone by `lzma-rust2`. Debian's kernels use one xz stream with the x86 branch filter and a 32 MiB
//! dictionary.

use lzma_rust2::{Error, LzmaReader, Read, XzReader};

use super::Failure;

/// Most dictionary memory a stream may ask for, in KiB: kernels use at most 64 MiB dictionaries.
const MEMORY_KIB: u32 = 256 << 10;

/// Decodes one xz stream that fills `out` exactly.
pub(super) fn decode_xz(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    fill(XzReader::new_mem_limit(stream, false, MEMORY_KIB), out)
}

/// Decodes one LZMA-alone stream that fills `out` exactly.
pub(super) fn decode_lzma(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    fill(
        LzmaReader::new_mem_limit(stream, MEMORY_KIB, None).map_err(failure)?,
        out,
    )
}

fn fill(mut reader: impl Read, out: &mut [u8]) -> Result<(), Failure> {
    let mut made = 0;
    while made < out.len() {
        match reader.read(&mut out[made..]).map_err(failure)? {
            0 => return Err(Failure::Length(made)),
            n => made += n,
        }
    }
    // Reads on to the end of the stream: its checksum is tested there, and there must be no more data.
    match reader.read(&mut [0]).map_err(failure)? {
        0 => Ok(()),
        _ => Err(Failure::Length(out.len() + 1)),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Eof => Failure::Corrupt("stream ends early"),
        Error::OutOfMemory(_) => Failure::OutOfMemory,
        Error::InvalidData(what)
        | Error::InvalidInput(what)
        | Error::Other(what)
        | Error::Unsupported(what)
        | Error::WriteZero(what) => Failure::Corrupt(what),
        Error::Interrupted => Failure::Corrupt("interrupted"),
    }
}
