//! Where everything goes in dom0's RAM: kernel, initial RAM disk, start-info block, ACPI tables.
//!
//! Rules: the kernel at its linked address, or moved only if it cannot be there and says that it may; the RAM disk stays
//! where the boot loader put it if it can; the start-info block lies above the kernel (old kernels count on that) and below
//! 1 GiB (Linux reads it through a first map of that size); everything lies below 4 GiB.

#[cfg(test)]
mod tests;

use hv_hw::bootinfo::memmap::Range;
use x86_model::PAGE_SIZE;

use super::Dom0Error;
use super::elf::Kernel;
use super::memory::Dom0Memory;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const FOUR_GIB: u64 = 4 * GIB;

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// dom0's memory.
    pub memory: &'a Dom0Memory,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Where the RAM disk is now; it may be anywhere in the machine.
    pub initrd: Option<Range>,
    /// A range that must not be overwritten by the moved RAM disk: the kernel file, if it is read from where it lies.
    pub keep: Option<Range>,
    /// Bytes of the start-info block.
    pub block_len: u64,
    /// Bytes of the ACPI tables.
    pub tables_len: u64,
}

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The kernel, from its first byte to its last, gaps included.
    pub kernel: Range,
    /// The RAM disk.
    pub initrd: Option<Range>,
    /// The start-info block, page aligned.
    pub block: Range,
    /// The ACPI tables: whole pages.
    pub tables: Range,
}

impl Placement {
    /// Finds a place for everything.
    pub fn find(request: &Request<'_>) -> Result<Self, Dom0Error> {
        let memory = request.memory;
        let kernel = place_kernel(memory, request.kernel)?;
        let source = request.initrd.filter(|r| !r.is_empty());
        let stays = source.filter(|&r| {
            let pages = Range::pages(r.start, r.len());
            r.start >= MIB && r.end <= FOUR_GIB && memory.is_ram(pages) && !overlap(pages, kernel)
        });

        // At most: kernel, RAM disk, block, tables, kept range.
        let none = Range { start: 0, end: 0 };
        let mut busy = [
            kernel,
            stays.map_or(none, |r| Range::pages(r.start, r.len())),
            none,
            none,
            none,
        ];
        let block_len = request.block_len.next_multiple_of(PAGE_SIZE);
        let bounds = |start, end| Range { start, end };
        let block = find_low(memory, &busy, block_len, bounds(kernel.end, GIB))
            .or_else(|| find_low(memory, &busy, block_len, bounds(MIB, GIB)))
            .ok_or(Dom0Error::NoRoomForInfo)?;
        busy[2] = block;
        let tables_len = request.tables_len.next_multiple_of(PAGE_SIZE);
        let tables = find_high(memory, &busy, tables_len, bounds(MIB, FOUR_GIB))
            .ok_or(Dom0Error::NoRoomForInfo)?;
        busy[3] = tables;
        busy[4] = request
            .keep
            .map_or(none, |r| Range::pages(r.start, r.len()));
        let initrd = match (source, stays) {
            (Some(r), None) => {
                let len = r.len().next_multiple_of(PAGE_SIZE);
                let to = find_high(memory, &busy, len, bounds(MIB, FOUR_GIB))
                    .ok_or(Dom0Error::NoRoomForInitrd(r.len()))?;
                Some(Range {
                    start: to.start,
                    end: to.start + r.len(),
                })
            }
            (_, stays) => stays,
        };
        Ok(Self {
            kernel,
            initrd,
            block: Range {
                start: block.start,
                end: block.start + request.block_len,
            },
            tables,
        })
    }
}

/// The kernel's range: as linked if all segments find RAM there, else moved.
fn place_kernel(memory: &Dom0Memory, kernel: &Kernel) -> Result<Range, Dom0Error> {
    let linked = Range {
        start: kernel.start,
        end: kernel.end,
    };
    let fits = kernel
        .segments
        .iter()
        .all(|s| memory.is_ram(Range::pages(s.paddr, s.memsz)));
    if fits {
        return Ok(linked);
    }
    let refused = Dom0Error::NoRoom {
        start: kernel.start,
        end: kernel.end,
        movable: kernel.relocation.is_some(),
    };
    let relocation = kernel.relocation.ok_or(refused)?;
    // The distance is a multiple of the alignment, the start itself need not be.
    let skew = kernel.start % relocation.align;
    let len = kernel.end - kernel.start + skew;
    let lowest = relocation.min.max(MIB).saturating_sub(skew);
    // Inclusive end of the note; all these numbers are below 2^33.
    let highest = relocation.max + 1;
    memory
        .ram()
        .filter(|ram| ram.start < FOUR_GIB)
        .find_map(|ram| {
            let base = ram.start.max(lowest).next_multiple_of(relocation.align);
            (base + len <= ram.end.min(highest)).then_some(Range {
                start: base + skew,
                end: base + len,
            })
        })
        .ok_or(refused)
}

fn overlap(a: Range, b: Range) -> bool {
    !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
}

/// The lowest free pages in `bounds`. `len` is a multiple of the page size.
fn find_low(memory: &Dom0Memory, busy: &[Range], len: u64, bounds: Range) -> Option<Range> {
    memory.ram().find_map(|ram| {
        let mut start = ram.start.max(bounds.start).next_multiple_of(PAGE_SIZE);
        // Each turn passes one busy range, which starts before `start` from then on.
        loop {
            let here = Range {
                start,
                end: start.checked_add(len)?,
            };
            if here.end > ram.end.min(bounds.end) {
                return None;
            }
            match busy.iter().find(|&&b| overlap(b, here)) {
                None => return Some(here),
                Some(b) => start = b.end.next_multiple_of(PAGE_SIZE),
            }
        }
    })
}

/// The highest free pages in `bounds`.
fn find_high(memory: &Dom0Memory, busy: &[Range], len: u64, bounds: Range) -> Option<Range> {
    memory.ram().rev().find_map(|ram| {
        let mut end = ram.end.min(bounds.end) & !(PAGE_SIZE - 1);
        loop {
            let start = end.checked_sub(len)?;
            let here = Range { start, end };
            if start < ram.start.max(bounds.start) {
                return None;
            }
            match busy.iter().find(|&&b| overlap(b, here)) {
                None => return Some(here),
                Some(b) => end = b.start & !(PAGE_SIZE - 1),
            }
        }
    })
}
