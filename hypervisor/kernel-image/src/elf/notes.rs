//! Notes of owner "Xen" (numbers and meaning: Xen's public `elfnote.h`).

use crate::KernelError;

const FEATURES_SUPPORTED: u32 = 17;
const PHYS32_ENTRY: u32 = 18;
const PHYS32_RELOC: u32 = 19;
const OWNER: &[u8] = b"Xen\0";
const HEADER: usize = 12;

/// Where a kernel may be moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The distance is a multiple of this power of two.
    pub align: u64,
    /// Lowest address.
    pub min: u64,
    /// Highest address of its last byte.
    pub max: u64,
}

/// What the notes say; the first of each kind counts.
#[derive(Default)]
pub(super) struct Found {
    pub entry: Option<u64>,
    /// `align` is 0 if the note leaves it out.
    pub relocation: Option<Relocation>,
    pub features: Option<u32>,
    /// Any note of this owner.
    pub any: bool,
}

impl Found {
    /// Reads the notes in `size` bytes of the file at `offset`.
    pub(super) fn scan(
        &mut self,
        file: &[u8],
        offset: u64,
        size: u64,
        align: u64,
    ) -> Result<(), KernelError> {
        let area = offset
            .checked_add(size)
            .and_then(|end| file.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?))
            .ok_or(KernelError::BadElf("ELF notes past the end of the file"))?;
        // Notes are padded to 4 bytes, and to 8 only where the header says so; tools also write 0 and 1 for 4.
        let align = if align == 8 { 8 } else { 4 };
        let mut at = 0;
        // What is left after the last note is padding, shorter than a header.
        while let Some(header) = area.get(at..).and_then(|rest| rest.first_chunk::<HEADER>()) {
            let word = |n: usize| {
                u32::from_le_bytes([header[n], header[n + 1], header[n + 2], header[n + 3]])
            };
            let (name_len, desc_len, kind) = (word(0) as usize, word(4) as usize, word(8));
            // No overflow: 32-bit lengths in 64-bit arithmetic.
            let name_at = at + HEADER;
            let desc_at = (name_at + name_len).next_multiple_of(align);
            let desc_end = desc_at + desc_len;
            let (Some(name), Some(desc)) = (
                area.get(name_at..name_at + name_len),
                area.get(desc_at..desc_end),
            ) else {
                return Err(KernelError::BadElf("ELF note cut short"));
            };
            if name == OWNER {
                self.take(kind, desc)?;
            }
            at = desc_end.next_multiple_of(align);
        }
        Ok(())
    }

    fn take(&mut self, kind: u32, desc: &[u8]) -> Result<(), KernelError> {
        self.any = true;
        match kind {
            PHYS32_ENTRY if self.entry.is_none() => self.entry = Some(entry(desc)?),
            PHYS32_RELOC if self.relocation.is_none() => self.relocation = Some(relocation(desc)?),
            FEATURES_SUPPORTED if self.features.is_none() => {
                self.features = desc.first_chunk().map(|b| u32::from_le_bytes(*b));
            }
            _ => {}
        }
        Ok(())
    }
}

fn entry(desc: &[u8]) -> Result<u64, KernelError> {
    let bad = |what| KernelError::BadNote {
        name: "PHYS32_ENTRY",
        what,
    };
    if let Ok(bytes) = <[u8; 4]>::try_from(desc) {
        return Ok(u64::from(u32::from_le_bytes(bytes)));
    }
    let bytes = <[u8; 8]>::try_from(desc).map_err(|_| bad("is neither 4 nor 8 bytes long"))?;
    let entry = u64::from_le_bytes(bytes);
    if entry > u64::from(u32::MAX) {
        return Err(bad("names an address above 4 GiB"));
    }
    Ok(entry)
}

/// Up to three words: alignment, lowest address, highest address. What is missing has a default.
fn relocation(desc: &[u8]) -> Result<Relocation, KernelError> {
    let bad = |what| KernelError::BadNote {
        name: "PHYS32_RELOC",
        what,
    };
    let (words, rest) = desc.as_chunks::<4>();
    if !rest.is_empty() || words.len() > 3 {
        return Err(bad("is not 0, 4, 8 or 12 bytes long"));
    }
    let word = |n: usize| words.get(n).map(|w| u64::from(u32::from_le_bytes(*w)));
    let relocation = Relocation {
        align: word(0).unwrap_or(0),
        min: word(1).unwrap_or(0),
        max: word(2).unwrap_or(u64::from(u32::MAX)),
    };
    if relocation.align != 0 && (!relocation.align.is_power_of_two() || relocation.align < 4096) {
        return Err(bad("has an alignment that is no power of two of pages"));
    }
    if relocation.min > relocation.max {
        return Err(bad("has its lowest address above the highest"));
    }
    Ok(relocation)
}
