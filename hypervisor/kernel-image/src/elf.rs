//! The kernel as an ELF file: what to load where, and how to start it.
//!
//! Segments are loaded by physical address. The PVH entry and the permission to move the kernel come from notes of owner
//! "Xen". All other notes describe the PV way to start and are ignored: a kernel may well carry both.

mod notes;
#[cfg(test)]
pub(crate) mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use elf::ElfBytes;
use elf::abi::{EM_386, EM_X86_64, ET_DYN, ET_EXEC, PT_LOAD, PT_NOTE, SHT_NOTE};
use elf::endian::LittleEndian;
use elf::file::Class;

use crate::KernelError;

pub use notes::Relocation;

/// Alignment for a kernel that may move and says nothing else.
const DEFAULT_ALIGN: u64 = 2 << 20;
/// The kernel starts without paging, in 32-bit mode.
const LIMIT: u64 = 1 << 32;
/// Bit of [`Kernel::features`]: can be dom0.
const FEATURE_DOM0: u32 = 1 << 11;
/// Bit of [`Kernel::features`]: takes the ACPI root pointer wherever it is (Linux 4.17 and later).
const FEATURE_RSDP: u32 = 1 << 17;

/// A part of the kernel in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it goes, as linked.
    pub paddr: u64,
    /// Its bytes in the ELF file.
    pub file: Range<usize>,
    /// Its size in memory; what the file does not fill is zero. At least the length of `file`.
    pub memsz: u64,
}

/// A checked kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Non-empty segments, ascending by address, not overlapping, all below 4 GiB.
    pub segments: Vec<Segment>,
    /// Physical address of the 32-bit entry, as linked; inside a segment.
    pub entry: u64,
    /// First byte of the lowest segment.
    pub start: u64,
    /// Byte after the highest segment.
    pub end: u64,
    /// Where else it may go, by a multiple of what; `None`: nowhere.
    pub relocation: Option<Relocation>,
    /// Bits of its SUPPORTED_FEATURES note, if it has one.
    pub features: Option<u32>,
}

impl Kernel {
    /// Its parts and its entry, a line each.
    pub fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .segments
            .iter()
            .map(|s| {
                let (at, bytes) = (s.paddr, s.memsz);
                format!(
                    "part at {at:#x}, {bytes:#x} bytes, {:#x} of them from the file",
                    s.file.len()
                )
            })
            .collect();
        lines.push(format!("PVH entry at {:#x}", self.entry));
        lines
    }

    /// Whether it can be dom0: it says so, or says nothing.
    pub fn can_be_dom0(&self) -> bool {
        self.features.is_none_or(|bits| bits & FEATURE_DOM0 != 0)
    }

    /// Whether it says that it finds the ACPI root pointer anywhere.
    pub fn takes_rsdp_anywhere(&self) -> bool {
        self.features.is_some_and(|bits| bits & FEATURE_RSDP != 0)
    }

    /// Reads an ELF file.
    pub fn parse(file: &[u8]) -> Result<Self, KernelError> {
        let elf = ElfBytes::<LittleEndian>::minimal_parse(file)
            .map_err(|_| KernelError::BadElf("damaged or foreign ELF header"))?;
        // The entry is 32-bit code in any case; boot loaders are linked so as a whole.
        let machine = match elf.ehdr.class {
            Class::ELF32 => EM_386,
            Class::ELF64 => EM_X86_64,
        };
        if elf.ehdr.e_machine != machine {
            return Err(KernelError::BadElf("ELF file for another kind of CPU"));
        }
        if !matches!(elf.ehdr.e_type, ET_EXEC | ET_DYN) {
            return Err(KernelError::BadElf("ELF file that is no executable"));
        }
        let headers = elf
            .segments()
            .ok_or(KernelError::BadElf("ELF file without program headers"))?;

        let mut segments = Vec::new();
        let mut align = 0;
        for (index, header) in headers.iter().enumerate() {
            if header.p_type != PT_LOAD || header.p_memsz == 0 {
                continue;
            }
            let bad = |what| KernelError::BadSegment { index, what };
            if header.p_filesz > header.p_memsz {
                return Err(bad("is larger in the file than in memory"));
            }
            let end = header
                .p_offset
                .checked_add(header.p_filesz)
                .filter(|&end| end <= file.len() as u64)
                .ok_or(bad("reaches past the end of the file"))?;
            header
                .p_paddr
                .checked_add(header.p_memsz)
                .filter(|&end| end <= LIMIT)
                .ok_or(bad("reaches above 4 GiB"))?;
            align = align.max(header.p_align);
            // Both ends are at most the file's length, which is a usize.
            segments.push((
                index,
                Segment {
                    paddr: header.p_paddr,
                    file: header.p_offset as usize..end as usize,
                    memsz: header.p_memsz,
                },
            ));
        }
        segments.sort_by_key(|(_, s)| s.paddr);
        for pair in segments.windows(2) {
            if pair[0].1.paddr + pair[0].1.memsz > pair[1].1.paddr {
                return Err(KernelError::BadSegment {
                    index: pair[1].0,
                    what: "overlaps another one",
                });
            }
        }
        let segments: Vec<Segment> = segments.into_iter().map(|(_, s)| s).collect();
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Err(KernelError::BadElf("ELF file with nothing to load"));
        };
        let (start, end) = (first.paddr, last.paddr + last.memsz);

        let mut found = notes::Found::default();
        for header in headers.iter().filter(|h| h.p_type == PT_NOTE) {
            found.scan(file, header.p_offset, header.p_filesz, header.p_align)?;
        }
        // Some images keep their notes in sections only.
        if let Some(sections) = elf.section_headers().filter(|_| found.entry.is_none()) {
            for section in sections.iter().filter(|s| s.sh_type == SHT_NOTE) {
                found.scan(
                    file,
                    section.sh_offset,
                    section.sh_size,
                    section.sh_addralign,
                )?;
            }
        }
        let entry = found.entry.ok_or(KernelError::NoEntry { xen: found.any })?;
        if !segments
            .iter()
            .any(|s| (s.paddr..s.paddr + s.memsz).contains(&entry))
        {
            return Err(KernelError::EntryOutside(entry));
        }
        let relocation = found.relocation.map(|mut r| {
            if r.align == 0 {
                let usable = align.is_power_of_two() && (4096..LIMIT).contains(&align);
                r.align = if usable { align } else { DEFAULT_ALIGN };
            }
            r
        });
        Ok(Self {
            segments,
            entry,
            start,
            end,
            relocation,
            features: found.features,
        })
    }
}
