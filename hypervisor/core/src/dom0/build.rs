//! Puts the parts together: from boot modules, options and host facts to a plan, and from the plan to dom0's memory.
//!
//! Making a plan touches no memory. Carrying it out is a list of copies in an order in which nothing is overwritten before
//! it has been read: first the RAM disk moves, then the kernel's segments are loaded, then the small tables are written.

mod entry;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range as Bytes;

use hv_hw::bootinfo::memmap::{Kind, Range};
use x86_model::Hpa;

use super::acpi::{self, HostTable, IoApic};
use super::bzimage::Image;
use super::elf::Kernel;
use super::memory::{Dom0Memory, HostMemory};
use super::place::{Placement, Request};
use super::start_info::{self, Contents, Module};
use super::{Dom0Error, KernelError};
use crate::options::Options;

/// Longest command line that Linux reads, in bytes, without its NUL.
const LINUX_COMMAND_LINE: usize = 2047;
/// GRUB's scripts put this word first, for boot loaders that take the file's name for a part of the line.
const PLACEHOLDER: &[u8] = b"placeholder";

/// Writes to physical memory that is dom0's. Each function says false if it cannot reach a byte.
pub trait PhysWriter {
    /// Copies `len` bytes. The ranges may overlap; the result is as if all had been read first.
    fn copy(&mut self, from: Hpa, to: Hpa, len: u64) -> bool;
    /// Writes bytes.
    fn write(&mut self, to: Hpa, bytes: &[u8]) -> bool;
    /// Writes zeros.
    fn zero(&mut self, to: Hpa, len: u64) -> bool;
}

/// A boot module in memory.
#[derive(Clone, Copy, Debug)]
pub struct BootModule<'a> {
    /// Where it lies.
    pub range: Range,
    /// Its command line.
    pub command_line: &'a [u8],
}

/// What dom0 is made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The kernel file.
    pub kernel: BootModule<'a>,
    /// The kernel file's bytes.
    pub kernel_bytes: &'a [u8],
    /// The initial RAM disk.
    pub initrd: Option<BootModule<'a>>,
    /// The hypervisor's options.
    pub options: &'a Options,
    /// The host's memory.
    pub memory: HostMemory<'a>,
    /// The host's ACPI tables; empty: dom0 gets none.
    pub tables: &'a [HostTable<'a>],
    /// APIC ID of each of dom0's vCPUs.
    pub apic_ids: &'a [u32],
    /// IO-APICs that dom0 sees.
    pub ioapics: &'a [IoApic],
}

/// A step of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Copy { from: u64, to: u64, len: u64 },
    Load { to: u64, file: Bytes<usize> },
    Zero { to: u64, len: u64 },
    Write { to: u64, bytes: Vec<u8> },
}

/// Everything that is needed to start dom0.
#[derive(Clone, Debug)]
pub struct Dom0Plan<'a> {
    elf: Cow<'a, [u8]>,
    steps: Vec<Step>,
    /// dom0's memory map and RAM. All RAM is mapped at its own address.
    pub memory: Dom0Memory,
    /// Where things went.
    pub placement: Placement,
    /// The 32-bit entry point.
    pub entry: u64,
    /// Things that the administrator should know, one line each.
    pub warnings: Vec<String>,
}

/// The kernel's ELF file: unpacked, or the bytes themselves if they are one. Takes most of the time of starting dom0.
pub fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, Dom0Error> {
    Image::parse(bytes)
        .and_then(Image::unpack)
        .map_err(Dom0Error::Kernel)
}

impl<'a> Dom0Plan<'a> {
    /// Makes a plan from a kernel file. The unpacked kernel lies in memory that was taken for it in here, so
    /// [`Input::memory`] cannot know it: where that matters, use [`unpack`] and [`Dom0Plan::with_kernel`].
    pub fn new(input: &Input<'a>) -> Result<Self, Dom0Error> {
        Self::with_kernel(input, unpack(input.kernel_bytes)?)
    }

    /// Makes a plan for an unpacked kernel.
    pub fn with_kernel(input: &Input<'a>, mut elf: Cow<'a, [u8]>) -> Result<Self, Dom0Error> {
        let kernel_error = Dom0Error::Kernel;
        let kernel = Kernel::parse(&elf).map_err(kernel_error)?;
        if !kernel.can_be_dom0() {
            return Err(Dom0Error::NotDom0);
        }
        if cfg!(CONFIG_VERBOSE_DEBUG) {
            for part in kernel.describe() {
                hv_hw::debug!("dom0 kernel: {part}");
            }
        }

        let mut memory = Dom0Memory::build(&input.memory, &input.options.dom0_mem);
        let mut warnings = Vec::new();
        let command_line = command_line(input.kernel.command_line, input.options);
        if command_line.len() > LINUX_COMMAND_LINE {
            warnings.push(format!(
                "dom0's command line has {} bytes; Linux reads {LINUX_COMMAND_LINE}",
                command_line.len()
            ));
        }
        if !memory.has_low_ram() {
            warnings.push(String::from(
                "dom0 has less than 64 KiB of RAM below 640 KiB: Linux cannot start",
            ));
        }
        if memory.dropped > 0 {
            warnings.push(format!(
                "memory map too long for dom0: {} entries left out",
                memory.dropped
            ));
        }

        let facts = acpi::Facts {
            tables: input.tables,
            apic_ids: input.apic_ids,
            ioapics: input.ioapics,
        };
        // The tables' length and the block's bound do not depend on their place.
        let tables_len = if input.tables.is_empty() {
            0
        } else {
            acpi::build(0, &facts).len() as u64
        };
        let initrd_text = input.initrd.map_or(&b""[..], |m| m.command_line);
        let initrd = input.initrd.map(|m| m.range).filter(|r| !r.is_empty());
        let module = |range: Range| Module {
            address: range.start,
            size: range.len(),
            text: initrd_text,
        };
        let reserve = start_info::reserve(
            &command_line,
            &initrd.map(module).map_or(Vec::new(), |m| Vec::from([m])),
        );

        let borrowed = matches!(elf, Cow::Borrowed(_));
        let placement = Placement::find(&Request {
            memory: &memory,
            kernel: &kernel,
            initrd,
            keep: borrowed.then_some(input.kernel.range),
            block_len: reserve,
            tables_len,
        })?;
        // An unpacked kernel lies in the hypervisor's memory; a plain one may lie where it is to be loaded.
        let source = input.kernel.range;
        if borrowed && source.start < placement.kernel.end && placement.kernel.start < source.end {
            elf = Cow::Owned(copy(&elf)?);
        }
        memory.steal(placement.tables, Kind::AcpiReclaim);

        let mut steps = Vec::new();
        if let (Some(from), Some(to)) = (initrd, placement.initrd)
            && from.start != to.start
        {
            steps.push(Step::Copy {
                from: from.start,
                to: to.start,
                len: from.len(),
            });
        }
        let moved = |address: u64| address - kernel.start + placement.kernel.start;
        for segment in &kernel.segments {
            let to = moved(segment.paddr);
            let len = segment.file.len() as u64;
            steps.push(Step::Load {
                to,
                file: segment.file.clone(),
            });
            steps.push(Step::Zero {
                to: to + len,
                len: segment.memsz - len,
            });
        }
        let rsdp = if tables_len == 0 {
            0
        } else {
            let base = placement.tables.start;
            steps.push(Step::Write {
                to: base,
                bytes: acpi::build(base, &facts),
            });
            base
        };
        let modules: Vec<Module<'_>> = placement.initrd.map(module).into_iter().collect();
        let contents = Contents {
            command_line: &command_line,
            modules: &modules,
            rsdp,
            map: &memory.map,
        };
        steps.push(Step::Write {
            to: placement.block.start,
            bytes: start_info::build(placement.block.start, &contents),
        });
        Ok(Self {
            elf,
            steps,
            entry: moved(kernel.entry),
            memory,
            placement,
            warnings,
        })
    }

    /// Carries the plan out.
    pub fn load(&self, to: &mut impl PhysWriter) -> Result<(), Dom0Error> {
        for step in &self.steps {
            let (done, at) = match *step {
                Step::Copy {
                    from,
                    to: target,
                    len,
                } => (to.copy(Hpa(from), Hpa(target), len), target),
                Step::Load {
                    to: target,
                    ref file,
                } => (to.write(Hpa(target), &self.elf[file.clone()]), target),
                Step::Zero { to: target, len } => (len == 0 || to.zero(Hpa(target), len), target),
                Step::Write {
                    to: target,
                    ref bytes,
                } => (to.write(Hpa(target), bytes), target),
            };
            if !done {
                return Err(Dom0Error::WriteRefused(Hpa(at)));
            }
        }
        Ok(())
    }

    /// One line that sums the plan up.
    pub fn summary(&self) -> String {
        let p = &self.placement;
        let initrd = match p.initrd {
            Some(r) => format!("initrd {:#x}-{:#x}", r.start, r.end),
            None => String::from("no initrd"),
        };
        format!(
            "dom0: {} MiB, kernel {:#x}-{:#x} entry {:#x}, {initrd}, start info {:#x}, ACPI {:#x}",
            self.memory.ram_bytes >> 20,
            p.kernel.start,
            p.kernel.end,
            self.entry,
            p.block.start,
            p.tables.start
        )
    }
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>, Dom0Error> {
    let mut out = Vec::new();
    out.try_reserve_exact(bytes.len())
        .map_err(|_| Dom0Error::Kernel(KernelError::OutOfMemory(bytes.len() as u64)))?;
    out.extend_from_slice(bytes);
    Ok(out)
}

/// dom0's command line: the module's, without GRUB's filler, then what the hypervisor's line has after `--`, then the
/// options that concern both and that the line does not have already.
fn command_line(module: &[u8], options: &Options) -> Vec<u8> {
    let module = module.split(|&b| b == 0).next().unwrap_or_default();
    let module = module.trim_ascii();
    let mut line = match module.strip_prefix(PLACEHOLDER) {
        Some(rest) if rest.first().is_none_or(u8::is_ascii_whitespace) => rest.trim_ascii_start(),
        _ => module,
    }
    .to_vec();
    let mut add = |text: &[u8]| {
        if !line.is_empty() && !text.is_empty() {
            line.push(b' ');
        }
        line.extend_from_slice(text);
    };
    add(options.dom0_extra.as_bytes());
    let has = |name: &[u8]| {
        [module, options.dom0_extra.as_bytes()]
            .iter()
            .flat_map(|part| part.split(u8::is_ascii_whitespace))
            .any(|word| word.starts_with(name))
    };
    if options.noapic && !has(b"noapic") {
        add(b"noapic");
    }
    let acpi = &options.acpi;
    if let Some((_, text)) = [
        (acpi.off, &b"acpi=off"[..]),
        (acpi.ht, b"acpi=ht"),
        (acpi.noirq, b"acpi=noirq"),
    ]
    .iter()
    .find(|(on, _)| *on)
        && !has(b"acpi=")
    {
        add(text);
    }
    line
}
