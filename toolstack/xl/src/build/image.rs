//! Where everything goes.

use super::start_info::{self, Contents};
use super::{Chunk, HIGH, HOLE, MapEntry, PAGE, acpi, special};
use kernel_image::KernelError;
use kernel_image::elf::Kernel;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use xen_abi::hvm::start_info::memmap_type;

/// A guest that is ready to be copied into a domain.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    /// Memory map, ascending, without overlaps.
    pub map: Vec<MapEntry>,
    /// What to write, ascending, without overlaps.
    pub chunks: Vec<Chunk<'a>>,
    /// Address of the first instruction.
    pub entry: u64,
    /// Address of the start information.
    pub start_info: u64,
}

/// Why a guest cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The kernel's file.
    Kernel(KernelError),
    /// It does not fit: what, and how many MiB of memory it needs.
    Memory(&'static str, u64),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Kernel(error) => write!(f, "{error}"),
            BuildError::Memory(what, mib) => {
                write!(f, "the {what} needs at least memory={mib}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// What a guest is made of.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The kernel as an unpacked ELF file.
    pub kernel: &'a [u8],
    /// RAM disk.
    pub ramdisk: Option<&'a [u8]>,
    /// Command line.
    pub cmdline: &'a str,
    /// Bytes of RAM, whole pages.
    pub memory: u64,
    /// Number of vCPUs.
    pub vcpus: u32,
}

/// Where the ACPI root pointer goes for kernels that look for it in the BIOS area.
const LOW_RSDP: u64 = 0x10_0000 - 64;

/// Where the ACPI tables begin.
const TABLES: u64 = HOLE + PAGE;

/// Where the root pointer goes if not below 1 MiB.
fn rsdp_behind(tables: &acpi::Tables) -> u64 {
    TABLES + (tables.bytes.len() as u64).next_multiple_of(64)
}

/// Where the pages of the tables end, which have room for the root pointer whether it is there or not.
fn end_of(tables: &acpi::Tables) -> u64 {
    (rsdp_behind(tables) + acpi::rsdp(tables.xsdt).len() as u64).next_multiple_of(PAGE)
}

/// The frames that a guest with so many bytes of RAM and so many vCPUs has, ascending; its kernel makes no difference.
pub fn frames(memory: u64, vcpus: u32) -> Vec<Range<u64>> {
    let frames = |start: u64, end: u64| start / PAGE..end / PAGE;
    let low = memory.min(HOLE);
    let acpi_end = end_of(&acpi::tables(TABLES, vcpus));
    let mut all = vec![
        frames(0, low),
        frames(HOLE, acpi_end),
        special::FIRST..special::FIRST + special::COUNT,
    ];
    if memory > low {
        all.push(frames(HIGH, HIGH + memory - low));
    }
    all
}

/// Places everything.
///
/// # Errors
/// If the kernel cannot be used, or something does not fit.
pub fn build<'a>(parts: &Parts<'a>) -> Result<Image<'a>, BuildError> {
    let kernel = Kernel::parse(parts.kernel).map_err(BuildError::Kernel)?;
    let low = parts.memory.min(HOLE);
    let high = parts.memory - low;

    let mut chunks = Vec::new();
    for segment in kernel.segments.iter().filter(|s| !s.file.is_empty()) {
        chunks.push(Chunk {
            what: "kernel",
            at: segment.paddr,
            bytes: Cow::Borrowed(&parts.kernel[segment.file.clone()]),
        });
    }
    let mut next = fits("kernel", kernel.end.next_multiple_of(PAGE), low)?;
    let mut module = None;
    if let Some(ramdisk) = parts.ramdisk.filter(|r| !r.is_empty()) {
        module = Some((next, ramdisk.len() as u64));
        chunks.push(Chunk {
            what: "RAM disk",
            at: next,
            bytes: Cow::Borrowed(ramdisk),
        });
        let end = (next + ramdisk.len() as u64).next_multiple_of(PAGE);
        next = fits("kernel with its RAM disk", end, low)?;
    }

    let mut tables = acpi::tables(TABLES, parts.vcpus);
    let acpi_end = end_of(&tables);
    // A kernel below 1 MiB leaves no room there.
    let low_rsdp = !kernel.takes_rsdp_anywhere() && low >= 1 << 20 && kernel.start >= 1 << 20;
    let rsdp_at = if low_rsdp {
        LOW_RSDP
    } else {
        rsdp_behind(&tables)
    };
    let rsdp = acpi::rsdp(tables.xsdt);
    if !low_rsdp {
        tables.bytes.resize((rsdp_at - TABLES) as usize, 0);
        tables.bytes.extend_from_slice(&rsdp);
    }
    let map = memory_map(low, high, low_rsdp, acpi_end);

    let block = start_info::block(&Contents {
        at: next,
        cmdline: parts.cmdline,
        module,
        rsdp: rsdp_at,
        map: &map,
    });
    fits(
        "kernel with RAM disk and command line",
        (next + block.len() as u64).next_multiple_of(PAGE),
        low,
    )?;
    chunks.push(Chunk {
        what: "start information",
        at: next,
        bytes: Cow::Owned(block),
    });
    if low_rsdp {
        chunks.push(Chunk {
            what: "ACPI root pointer",
            at: LOW_RSDP,
            bytes: Cow::Owned(rsdp),
        });
    }
    chunks.push(Chunk {
        what: "ACPI tables",
        at: TABLES,
        bytes: Cow::Owned(tables.bytes),
    });
    chunks.push(Chunk {
        what: "identity page directory",
        at: special::IDENTITY * PAGE,
        bytes: Cow::Owned(identity()),
    });
    chunks.sort_by_key(|c| c.at);

    Ok(Image {
        map,
        chunks,
        entry: kernel.entry,
        start_info: next,
    })
}

fn fits(what: &'static str, end: u64, low: u64) -> Result<u64, BuildError> {
    if end <= low {
        Ok(end)
    } else {
        Err(BuildError::Memory(what, end.div_ceil(1 << 20)))
    }
}

fn memory_map(low: u64, high: u64, low_rsdp: bool, acpi_end: u64) -> Vec<MapEntry> {
    let entry = |start: u64, end: u64, kind| MapEntry {
        start,
        len: end - start,
        kind,
    };
    let mut map = Vec::new();
    if low_rsdp {
        let page = LOW_RSDP & !(PAGE - 1);
        map.push(entry(0, page, memmap_type::RAM));
        map.push(entry(page, page + PAGE, memmap_type::ACPI));
        map.push(entry(page + PAGE, low, memmap_type::RAM));
    } else {
        map.push(entry(0, low, memmap_type::RAM));
    }
    map.push(entry(HOLE, acpi_end, memmap_type::ACPI));
    let shared = special::FIRST * PAGE;
    map.push(entry(
        shared,
        shared + special::COUNT * PAGE,
        memmap_type::RESERVED,
    ));
    if high > 0 {
        map.push(entry(HIGH, HIGH + high, memmap_type::RAM));
    }
    map.retain(|e| e.len > 0);
    map
}

/// 1,024 entries of 4 MiB: present, writable, for user mode, accessed, dirty, large.
fn identity() -> Vec<u8> {
    (0..1024u32)
        .flat_map(|i| (i << 22 | 0xe7).to_le_bytes())
        .collect()
}
