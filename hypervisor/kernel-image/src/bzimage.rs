//! The bzImage container (Linux x86 boot protocol): finds the payload, which is the kernel as an ELF file, mostly
//! compressed. A bare ELF file is taken as it is.

use alloc::borrow::Cow;

use crate::KernelError;
use crate::decompress::{self, Format};

const SETUP_SECTS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// First protocol version with the two payload fields.
const MIN_VERSION: u16 = 0x0208;
const SECTOR: u64 = 512;
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// A kernel image, looked at but not unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// An ELF file, bare or stored in a bzImage without compression.
    Elf(&'a [u8]),
    /// A compressed ELF file.
    Compressed {
        /// How.
        format: Format,
        /// The compressed stream, without the size word that bzImage appends for all formats but gzip.
        stream: &'a [u8],
        /// Size of the ELF file in bytes, from the image's size word (not yet checked against any limit).
        unpacked: u32,
    },
}

impl<'a> Image<'a> {
    /// Finds the kernel inside `file`.
    pub fn parse(file: &'a [u8]) -> Result<Self, KernelError> {
        if file.starts_with(ELF_MAGIC) {
            return Ok(Self::Elf(file));
        }
        if file.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
            return Err(KernelError::NotAKernel);
        }
        let version = u16::from_le_bytes(bytes(file, VERSION)?);
        if version < MIN_VERSION {
            return Err(KernelError::OldProtocol(version));
        }
        // Zero means four, a leftover of the oldest images.
        let sectors = match file[SETUP_SECTS] {
            0 => 4,
            n => n,
        };
        let start = (u64::from(sectors) + 1) * SECTOR
            + u64::from(u32::from_le_bytes(bytes(file, PAYLOAD_OFFSET)?));
        let len = u64::from(u32::from_le_bytes(bytes(file, PAYLOAD_LENGTH)?));
        // No overflow: all three are below 2^33.
        let payload = usize::try_from(start)
            .ok()
            .zip(usize::try_from(start + len).ok())
            .and_then(|(from, to)| file.get(from..to))
            .ok_or(KernelError::PayloadOutside {
                start,
                len,
                file: file.len(),
            })?;
        if payload.starts_with(ELF_MAGIC) {
            return Ok(Self::Elf(payload));
        }
        let format = Format::probe(payload)?;
        let (stream, size) =
            payload
                .split_last_chunk::<4>()
                .ok_or(KernelError::PayloadOutside {
                    start,
                    len,
                    file: file.len(),
                })?;
        // The size word is a part of the gzip stream (its trailer) and foreign to all others.
        let stream = if format == Format::Gzip {
            payload
        } else {
            stream
        };
        Ok(Self::Compressed {
            format,
            stream,
            unpacked: u32::from_le_bytes(*size),
        })
    }

    /// The ELF file: borrowed if stored plainly, else unpacked.
    pub fn unpack(self) -> Result<Cow<'a, [u8]>, KernelError> {
        match self {
            Self::Elf(elf) => Ok(Cow::Borrowed(elf)),
            Self::Compressed {
                format,
                stream,
                unpacked,
            } => decompress::decompress(format, stream, u64::from(unpacked)).map(Cow::Owned),
        }
    }
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], KernelError> {
    file.get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .ok_or(KernelError::NotAKernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::wrap;

    #[test]
    fn plain_elf_is_borrowed_bare_or_wrapped() {
        let elf = b"\x7fELF and so on";
        assert_eq!(Image::parse(elf), Ok(Image::Elf(elf)));
        let file = wrap(elf);
        assert_eq!(Image::parse(&file), Ok(Image::Elf(elf)));
    }

    #[test]
    fn zero_setup_sectors_mean_four() {
        let elf = b"\x7fELF";
        let mut file = wrap(&[]);
        file[SETUP_SECTS] = 0;
        file[PAYLOAD_LENGTH] = 4;
        file.resize(5 * 512 + 0x2c, 0);
        file.extend_from_slice(elf);
        assert_eq!(Image::parse(&file), Ok(Image::Elf(elf)));
    }

    #[test]
    fn size_word_is_cut_off_except_for_gzip() {
        let file = wrap(b"\xfd7zXZ\0stream\x10\x20\0\0");
        assert_eq!(
            Image::parse(&file),
            Ok(Image::Compressed {
                format: Format::Xz,
                stream: b"\xfd7zXZ\0stream",
                unpacked: 0x2010
            })
        );
        let file = wrap(b"\x1f\x8bstream\x10\x20\0\0");
        assert!(
            matches!(Image::parse(&file), Ok(Image::Compressed { stream, .. }) if stream.len() == 12)
        );
    }

    #[test]
    fn damaged_headers_are_named() {
        assert_eq!(Image::parse(b""), Err(KernelError::NotAKernel));
        assert_eq!(Image::parse(&[0; 4096]), Err(KernelError::NotAKernel));
        let mut file = wrap(b"\x7fELF");
        file[VERSION] = 7;
        file[VERSION + 1] = 2;
        assert_eq!(Image::parse(&file), Err(KernelError::OldProtocol(0x207)));
        let file = wrap(b"\x7fELF");
        let cut = &file[..file.len() - 1];
        assert!(matches!(
            Image::parse(cut),
            Err(KernelError::PayloadOutside { len: 4, .. })
        ));
        let file = wrap(b"????");
        assert_eq!(
            Image::parse(&file),
            Err(KernelError::UnknownFormat(*b"????"))
        );
        // A header whose fields are cut off.
        let file = wrap(b"\x7fELF");
        assert_eq!(
            Image::parse(&file[..PAYLOAD_LENGTH + 2]),
            Err(KernelError::NotAKernel)
        );
    }

    proptest::proptest! {
        #![proptest_config(crate::cases(2000))]

        /// Whatever the header says, parsing ends in an image whose payload lies in the file, or in an error.
        #[test]
        fn hostile_headers_end_in_an_answer(
            sectors: u8,
            version: u16,
            offset in 0u32..0x2000,
            far: bool,
            len: u32,
            tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64),
        ) {
            let mut file = wrap(&tail);
            file[SETUP_SECTS] = sectors & 7;
            file[VERSION..VERSION + 2].copy_from_slice(&version.to_le_bytes());
            let offset = if far { u32::MAX - offset } else { offset };
            file[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&offset.to_le_bytes());
            let len = if far { len } else { len % 128 };
            file[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&len.to_le_bytes());
            if let Ok(Image::Compressed { stream, .. }) = Image::parse(&file) {
                proptest::prop_assert!(stream.len() <= file.len());
            }
        }
    }
}
