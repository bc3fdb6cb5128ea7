//! Why a kernel was refused. Each [`core::fmt::Display`] text is one line that says what is wrong and what to do.

use core::fmt;

use crate::decompress::Format;

/// Why a kernel image cannot be used. Offsets and sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// Neither a bzImage nor an ELF file.
    NotAKernel,
    /// A bzImage older than boot protocol 2.08, which has no payload fields. The value is the protocol version.
    OldProtocol(u16),
    /// The payload fields point outside the file.
    PayloadOutside {
        /// Where the payload should start in the file.
        start: u64,
        /// Its length.
        len: u64,
        /// The file's length.
        file: usize,
    },
    /// The payload starts with bytes that no known format has.
    UnknownFormat([u8; 4]),
    /// The payload's format is known, but there is no decoder for it.
    NoDecoder(&'static str),
    /// The unpacked size is more than [`crate::decompress::MAX_UNPACKED`].
    TooLarge(u64),
    /// Not enough memory for that many bytes.
    OutOfMemory(u64),
    /// The decoder refused the data.
    Corrupt {
        /// Compression format.
        format: Format,
        /// What the decoder found.
        what: &'static str,
    },
    /// The payload unpacked to another size than the image says.
    WrongSize {
        /// Compression format.
        format: Format,
        /// Size that the image states.
        expected: usize,
        /// Size that came out (a lower bound if the decoder was stopped).
        found: usize,
    },
    /// The ELF file cannot be read.
    BadElf(&'static str),
    /// A loadable segment (by its number among the program headers) cannot be loaded.
    BadSegment {
        /// Program header number.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A note with owner "Xen" that the builder needs is malformed.
    BadNote {
        /// The note's name in Xen's public headers, without prefix.
        name: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// No PHYS32_ENTRY note. `xen` tells whether there were other Xen notes.
    NoEntry {
        /// The kernel knows Xen, but not this way to start.
        xen: bool,
    },
    /// The entry point is in no segment.
    EntryOutside(u64),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotAKernel => f.write_str(
                "neither a Linux bzImage nor an ELF file",
            ),
            Self::OldProtocol(v) => write!(
                f,
                "boot protocol {}.{:02} is older than 2.08 and cannot describe its payload: use a newer kernel",
                v >> 8,
                v & 0xff
            ),
            Self::PayloadOutside { start, len, file } => write!(
                f,
                "payload at {start:#x}, {len} bytes, lies outside the {file}-byte file: the file is cut short or damaged, copy it again"
            ),
            Self::UnknownFormat([a, b, c, d]) => write!(
                f,
                "payload starts with {a:02x} {b:02x} {c:02x} {d:02x}, no known compression: choose gzip, xz, zstd, lz4, lzma or bzip2 in the kernel's config"
            ),
            Self::NoDecoder(name) => write!(
                f,
                "{name} compression is not supported: choose gzip, xz, zstd, lz4, lzma or bzip2 in the kernel's config"
            ),
            Self::TooLarge(size) => write!(
                f,
                "unpacked size {size} is above the limit of {} bytes: the image is damaged, copy it again",
                crate::decompress::MAX_UNPACKED
            ),
            Self::OutOfMemory(size) => write!(
                f,
                "no {} MiB of free memory to unpack it: this machine has too little RAM",
                size.div_ceil(1 << 20)
            ),
            Self::Corrupt { format, what } => write!(
                f,
                "corrupt {format} payload ({what}): rebuild or re-copy the kernel image"
            ),
            Self::WrongSize {
                format,
                expected,
                found,
            } => write!(
                f,
                "{format} payload unpacks to {found} bytes instead of {expected}: rebuild or re-copy the kernel image"
            ),
            Self::BadElf(what) => write!(f, "{what}: a 64-bit x86 Linux kernel is needed"),
            Self::BadSegment { index, what } => write!(
                f,
                "ELF segment {index} {what}: rebuild or re-copy the kernel image"
            ),
            Self::BadNote { name, what } => {
                write!(f, "ELF note {name} {what}: this kernel cannot start as PVH")
            }
            Self::NoEntry { xen: true } => f.write_str(
                "it can start as a PV guest only (no PHYS32_ENTRY note): use a kernel with CONFIG_PVH or CONFIG_XEN_PVH",
            ),
            Self::NoEntry { xen: false } => f.write_str(
                "it has no PVH entry (no PHYS32_ENTRY note of owner Xen): use a kernel with CONFIG_XEN_PVH",
            ),
            Self::EntryOutside(entry) => write!(
                f,
                "entry point {entry:#x} lies outside every segment: rebuild or re-copy the kernel image"
            ),
        }
    }
}
