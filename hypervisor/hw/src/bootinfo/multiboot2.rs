//! The Multiboot2 information block (Multiboot2 specification 2.0, section 3.6).
//!
//! A list of tags, each with its type and its size (header included), on 8-byte borders, ended by a tag of type 0. The
//! parser is our own because a loader's broken block must end in a message that names offset and tag, before there is a
//! heap (ADR 4).

use super::bytes::{c_string, slice, u32_at, u64_at};
use super::memmap::{Kind, Region};
use super::{BootError, BootInfo, EntryKind, Framebuffer, Rsdp, Screen, copy_text};

/// What EAX holds at entry.
pub const MAGIC: u32 = 0x36d7_6289;
/// Longest information block that is accepted, in bytes.
pub const MAX_BLOCK: usize = 16 << 20;

const HEADER: usize = 8;

/// Total length of the block that starts with `head` (its first 8 bytes), checked.
pub fn total_size(head: &[u8]) -> Result<usize, BootError> {
    let bad = BootError::Block {
        what: "Multiboot2 information",
        offset: 0,
    };
    let size = u32_at(head, 0).ok_or(bad)? as usize;
    if (HEADER..=MAX_BLOCK).contains(&size) {
        Ok(size)
    } else {
        Err(bad)
    }
}

/// Reads the block (all of it: [`total_size`] bytes) into `info`.
pub fn parse(block: &[u8], info: &mut BootInfo) -> Result<(), BootError> {
    info.entry = EntryKind::Multiboot2;
    let total = total_size(block)?;
    let block = block.get(..total).ok_or(BootError::Block {
        what: "Multiboot2 information",
        offset: block.len(),
    })?;
    let mut seen = Seen::default();
    let mut at = HEADER;
    loop {
        let (Some(kind), Some(size)) = (u32_at(block, at), u32_at(block, at + 4)) else {
            return Err(BootError::NoEnd { offset: at });
        };
        let error = |why| BootError::Tag {
            kind,
            offset: at,
            why,
        };
        let size = size as usize;
        if size < HEADER {
            return Err(error("size is smaller than the tag's header"));
        }
        let Some(tag) = slice(block, at, size) else {
            return Err(error("reaches past the end of the information block"));
        };
        if kind == 0 {
            break;
        }
        read_tag(kind, tag, info, &mut seen).map_err(error)?;
        // Cannot overflow: both are at most MAX_BLOCK.
        at = (at + size).next_multiple_of(8);
    }
    if !seen.memory_map && !seen.efi_map {
        return Err(BootError::NoMemoryMap);
    }
    Ok(())
}

#[derive(Default)]
struct Seen {
    memory_map: bool,
    efi_map: bool,
    command_line: bool,
}

const CUT: &str = "too short for its contents";
const NO_NUL: &str = "text without a terminating NUL";
const TWICE: &str = "appears twice";

/// `tag` is the whole tag, header included.
fn read_tag(
    kind: u32,
    tag: &[u8],
    info: &mut BootInfo,
    seen: &mut Seen,
) -> Result<(), &'static str> {
    match kind {
        1 => {
            if core::mem::replace(&mut seen.command_line, true) {
                return Err(TWICE);
            }
            info.set_command_line(c_string(&tag[HEADER..]).ok_or(NO_NUL)?);
        }
        2 => {
            let fits = copy_text(c_string(&tag[HEADER..]).ok_or(NO_NUL)?, &mut info.loader);
            if !fits {
                info.note("the loader's name is too long: cut");
            }
        }
        3 => {
            let start = u32_at(tag, 8).ok_or(CUT)?;
            let end = u32_at(tag, 12).ok_or(CUT)?;
            let size = end
                .checked_sub(start)
                .ok_or("module ends before it starts")?;
            let text = c_string(tag.get(16..).ok_or(CUT)?).ok_or(NO_NUL)?;
            info.push_module(start.into(), size.into(), text);
        }
        6 => {
            if core::mem::replace(&mut seen.memory_map, true) {
                return Err(TWICE);
            }
            // Firmware's own types are finer, but loaders adjust this map: it wins over the EFI one.
            info.regions.clear();
            memory_map(tag, info)?;
        }
        8 => info.screen = screen(tag)?.unwrap_or(info.screen),
        12 => info.efi_system_table = Some(u64_at(tag, 8).ok_or(CUT)?),
        14 | 15 => rsdp(kind, tag, info)?,
        17 => {
            if core::mem::replace(&mut seen.efi_map, true) {
                return Err(TWICE);
            }
            if !seen.memory_map {
                efi_map(tag, info)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn memory_map(tag: &[u8], info: &mut BootInfo) -> Result<(), &'static str> {
    let step = u32_at(tag, 8).ok_or(CUT)? as usize;
    if step < 20 {
        return Err("memory-map entries are smaller than 20 bytes");
    }
    for e in tag.get(16..).ok_or(CUT)?.chunks_exact(step) {
        let (Some(base), Some(len), Some(kind)) = (u64_at(e, 0), u64_at(e, 8), u32_at(e, 16))
        else {
            return Err(CUT);
        };
        info.push_region(Region {
            base,
            len,
            kind: Kind::from_e820(kind),
        });
    }
    Ok(())
}

/// UEFI specification 2.10, 7.2.3: descriptors of type, physical start, virtual start, 4 KiB pages, attributes.
fn efi_map(tag: &[u8], info: &mut BootInfo) -> Result<(), &'static str> {
    let step = u32_at(tag, 8).ok_or(CUT)? as usize;
    if step < 40 {
        return Err("EFI memory descriptors are smaller than 40 bytes");
    }
    for e in tag.get(16..).ok_or(CUT)?.chunks_exact(step) {
        let (Some(kind), Some(base), Some(pages)) = (u32_at(e, 0), u64_at(e, 8), u64_at(e, 24))
        else {
            return Err(CUT);
        };
        info.push_region(Region {
            base,
            len: pages.saturating_mul(4096),
            kind: Kind::from_efi(kind),
        });
    }
    Ok(())
}

fn screen(tag: &[u8]) -> Result<Option<Screen>, &'static str> {
    let address = u64_at(tag, 8).ok_or(CUT)?;
    let (pitch, width) = (u32_at(tag, 16).ok_or(CUT)?, u32_at(tag, 20).ok_or(CUT)?);
    let height = u32_at(tag, 24).ok_or(CUT)?;
    let &[bits, kind] = slice(tag, 28, 2).ok_or(CUT)? else {
        return Err(CUT);
    };
    match kind {
        1 => {
            let c = slice(tag, 32, 6).ok_or(CUT)?;
            Ok(Some(Screen::Framebuffer(Framebuffer {
                address,
                pitch,
                width,
                height,
                bits,
                channels: [(c[0], c[1]), (c[2], c[3]), (c[4], c[5])],
            })))
        }
        2 => Ok(Some(Screen::Text(address, width, height))),
        // Indexed colour: nothing that we draw on.
        _ => Ok(None),
    }
}

fn rsdp(kind: u32, tag: &[u8], info: &mut BootInfo) -> Result<(), &'static str> {
    let bytes = &tag[HEADER..];
    // ACPI 6.5, 5.2.5.3: revision 0 has 20 bytes, later ones say their length at offset 20.
    let len = match kind {
        14 => 20,
        _ => u32_at(bytes, 20).ok_or(CUT)? as usize,
    };
    let bytes = bytes.get(..len.clamp(20, 64)).ok_or(CUT)?;
    // The newer one wins whatever the order.
    if kind == 15 || !matches!(info.rsdp, Rsdp::Copy(_)) {
        info.rsdp = Rsdp::Copy(bytes.iter().copied().collect());
    }
    Ok(())
}

#[cfg(test)]
#[path = "multiboot2_tests.rs"]
mod tests;
