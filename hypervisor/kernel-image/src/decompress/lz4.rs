//! The legacy LZ4 frame: a magic number, then blocks, each with its compressed size as a 32-bit word and at most 8 MiB
//! unpacked. Frames may follow one another.

use super::Failure;

const MAGIC: u32 = 0x184c_2102;

/// Decodes frames that fill `out` exactly.
pub(super) fn decode(mut stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    let mut made = 0;
    while let Some((word, rest)) = stream.split_first_chunk::<4>() {
        stream = rest;
        let len = u32::from_le_bytes(*word);
        if len == MAGIC {
            continue;
        }
        let block = usize::try_from(len)
            .ok()
            .and_then(|len| stream.get(..len))
            .ok_or(Failure::Corrupt("block reaches past the end"))?;
        stream = &stream[block.len()..];
        made += lz4_flex::block::decompress_into(block, &mut out[made..]).map_err(|e| match e {
            lz4_flex::block::DecompressError::OutputTooSmall { .. } => {
                Failure::Length(out.len() + 1)
            }
            _ => Failure::Corrupt("invalid block"),
        })?;
    }
    if !stream.is_empty() {
        return Err(Failure::Corrupt("trailing bytes"));
    }
    if made != out.len() {
        return Err(Failure::Length(made));
    }
    Ok(())
}
