//! What the boot loader says, in one form for all loaders, and the parsers that produce it.
//!
//! Pure and safe: the parsers work on byte slices and never trust a length. They copy everything they need, because
//! the loader's own blocks are overwritten soon after. Runs once, on the boot CPU; read-only afterwards.

pub mod bundle;
pub(crate) mod bytes;
pub mod memmap;
pub mod multiboot2;
pub mod pvh;

use core::fmt;

use arrayvec::{ArrayString, ArrayVec};
use memmap::Region;

/// Most modules that are kept.
pub const MAX_MODULES: usize = 16;
/// Most memory-map entries that are kept.
pub const MAX_REGIONS: usize = 512;
/// Longest command line that is kept, in bytes.
pub const MAX_COMMAND_LINE: usize = 4096;
/// Bytes for the command lines of all modules together.
const MODULE_TEXT: usize = 16384;

/// Text from the loader. Bytes that are not UTF-8 were replaced by `?`.
pub type Text<const N: usize> = ArrayString<N>;

/// How the image was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// By a Multiboot2 loader (GRUB).
    Multiboot2,
    /// Through the PVH note (QEMU's `-kernel`).
    Pvh,
}

/// A file that the loader put into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Physical address of its first byte.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Where its command line lies in [`BootInfo`]'s text: start and length.
    line: (u16, u16),
}

/// A linear frame buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framebuffer {
    /// Physical address.
    pub address: u64,
    /// Bytes from one line to the next.
    pub pitch: u32,
    /// Pixels per line.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// Bits per pixel: 15, 16, 24 or 32.
    pub bits: u8,
    /// Red, green and blue: position of the lowest bit, and number of bits.
    pub channels: [(u8, u8); 3],
}

/// What is on the screen when we start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// Not told: text mode on a machine with PC firmware.
    #[default]
    Unknown,
    /// Text mode: physical address, columns, rows.
    Text(u64, u32, u32),
    /// Graphics.
    Framebuffer(Framebuffer),
}

/// The ACPI root pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rsdp {
    /// Not told: look for it where PC firmware puts it.
    #[default]
    Unknown,
    /// At this physical address.
    Address(u64),
    /// A copy of the structure itself (20 or 36 bytes).
    Copy(ArrayVec<u8, 64>),
}

/// Everything that the loader said.
#[derive(Debug)]
pub struct BootInfo {
    /// How we were started.
    pub entry: EntryKind,
    /// The loader's name, empty if it has none.
    pub loader: Text<64>,
    /// The hypervisor's command line (without the image's name where the loader adds it).
    pub command_line: Text<MAX_COMMAND_LINE>,
    /// Files: the dom0 kernel first, then its initial RAM disk.
    pub modules: ArrayVec<Module, MAX_MODULES>,
    module_text: Text<MODULE_TEXT>,
    /// The memory map as the loader gave it; see [`memmap::normalise`].
    pub regions: ArrayVec<Region, MAX_REGIONS>,
    /// ACPI root pointer.
    pub rsdp: Rsdp,
    /// Screen.
    pub screen: Screen,
    /// EFI system table, if the firmware is EFI.
    pub efi_system_table: Option<u64>,
    /// Things that were cut short or dropped, for the log.
    pub notes: ArrayVec<&'static str, 8>,
}

impl BootInfo {
    /// Nothing known yet.
    pub const fn new() -> Self {
        BootInfo {
            entry: EntryKind::Multiboot2,
            loader: ArrayString::new_const(),
            command_line: ArrayString::new_const(),
            modules: ArrayVec::new_const(),
            module_text: ArrayString::new_const(),
            regions: ArrayVec::new_const(),
            rsdp: Rsdp::Unknown,
            screen: Screen::Unknown,
            efi_system_table: None,
            notes: ArrayVec::new_const(),
        }
    }

    /// Remembers something to be logged later; repeated notes and those beyond the capacity are dropped.
    pub(crate) fn note(&mut self, text: &'static str) {
        if !self.notes.contains(&text) {
            let _ = self.notes.try_push(text);
        }
    }

    fn push_region(&mut self, region: Region) {
        if self.regions.try_push(region).is_err() {
            self.note("memory map too long: the rest is ignored");
        }
    }

    /// A module's command line.
    pub fn module_line(&self, module: &Module) -> &str {
        let (start, len) = (usize::from(module.line.0), usize::from(module.line.1));
        self.module_text.get(start..start + len).unwrap_or("")
    }

    fn module(&mut self, start: u64, size: u64, command_line: &[u8]) -> Module {
        let from = self.module_text.len();
        let limit = from + MAX_COMMAND_LINE;
        if !append_text(command_line, &mut self.module_text, limit) {
            self.note("a module's command line is too long: cut");
        }
        // Both fit: the text is shorter than 64 KiB.
        let line = (from as u16, (self.module_text.len() - from) as u16);
        Module { start, size, line }
    }

    fn push_module(&mut self, start: u64, size: u64, command_line: &[u8]) {
        let module = self.module(start, size, command_line);
        if self.modules.try_push(module).is_err() {
            self.note("too many modules: the rest is ignored");
        }
    }

    fn set_command_line(&mut self, bytes: &[u8]) {
        if !copy_text(bytes, &mut self.command_line) {
            self.note("the command line is too long: cut");
        }
    }
}

impl Default for BootInfo {
    fn default() -> Self {
        Self::new()
    }
}

/// Copies text, replacing what is not UTF-8. False if it did not fit.
fn copy_text<const N: usize>(bytes: &[u8], to: &mut Text<N>) -> bool {
    to.clear();
    append_text(bytes, to, N)
}

/// As [`copy_text`], after what is there, up to `limit` bytes in all.
fn append_text<const N: usize>(bytes: &[u8], to: &mut Text<N>, limit: usize) -> bool {
    for chunk in bytes.utf8_chunks() {
        let bad = (!chunk.invalid().is_empty()).then_some('?');
        for c in chunk.valid().chars().chain(bad) {
            if to.len() + c.len_utf8() > limit || to.try_push(c).is_err() {
                return false;
            }
        }
    }
    true
}

/// Why the loader's information cannot be used. `offset` is from the start of the block in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootError {
    /// The value in EAX (Multiboot2) or at EBX (PVH) is neither loader's magic number.
    Magic(u32),
    /// The block is cut short or its length is impossible.
    Block {
        /// Name of the block.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// A Multiboot2 tag is malformed.
    Tag {
        /// The tag's type number.
        kind: u32,
        /// Where the tag starts.
        offset: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The list of tags does not end inside the block.
    NoEnd {
        /// Where the end tag should have been.
        offset: usize,
    },
    /// A bundle (see [`bundle`]) is malformed.
    Bundle {
        /// Entry index.
        entry: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The loader gave no memory map.
    NoMemoryMap,
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BootError::Magic(m) => write!(
                f,
                "not started by Multiboot2 or PVH: magic number {m:#010x}"
            ),
            BootError::Block { what, offset } => write!(
                f,
                "{what} is cut short or has an impossible length (offset {offset:#x})"
            ),
            BootError::Tag { kind, offset, why } => {
                write!(f, "Multiboot2 tag type {kind} at offset {offset:#x}: {why}")
            }
            BootError::NoEnd { offset } => write!(
                f,
                "Multiboot2 information has no end tag (offset {offset:#x})"
            ),
            BootError::Bundle { entry, why } => write!(f, "module bundle, entry {entry}: {why}"),
            BootError::NoMemoryMap => write!(f, "the boot loader gave no memory map"),
        }
    }
}
