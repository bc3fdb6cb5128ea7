//! Zstandard by `ruzstd`. Debian's kernels use one frame with a 128 MiB window and a checksum.

use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::FrameDecoderError;

use super::Failure;

/// Largest window, in bytes: what `zstd -22 --ultra` makes, as kernels are built.
const MAX_WINDOW: u64 = 128 << 20;

/// Decodes frames that fill `out` exactly.
pub(super) fn decode(stream: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_WINDOW);
    let made = decoder.decode_all(stream, out).map_err(|e| match e {
        FrameDecoderError::TargetTooSmall => Failure::Length(out.len() + 1),
        FrameDecoderError::FailedToReadBlockHeader(_)
        | FrameDecoderError::ReadFrameHeaderError(_)
        | FrameDecoderError::FrameHeaderError(_) => Failure::Corrupt("bad header"),
        FrameDecoderError::WindowSizeTooBig { .. } => Failure::Corrupt("window above 128 MiB"),
        FrameDecoderError::FailedToReadChecksum(_) => Failure::Corrupt("no checksum"),
        _ => Failure::Corrupt("invalid block"),
    })?;
    if made != out.len() {
        return Err(Failure::Length(made));
    }
    // Of the last frame; kernels have one.
    match (
        decoder.get_checksum_from_data(),
        decoder.get_calculated_checksum(),
    ) {
        (Some(stored), Some(computed)) if stored != computed => {
            Err(Failure::Corrupt("checksum mismatch"))
        }
        _ => Ok(()),
    }
}
