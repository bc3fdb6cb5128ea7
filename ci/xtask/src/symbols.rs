//! Completes the linked image: its function names go into its own `.symbols` section, so that a panic's back-trace has names,
//! and revision and compiler into `.origin`. The formats are those of `hv_hw::log::symbols` and `hv_hw::origin`.

use anyhow::{Context, Result, bail};
use elf::ElfBytes;
use elf::endian::LittleEndian;
use hv_hw::origin::Origin;
use std::path::Path;

/// Fills the sections in `image` in place.
pub fn embed(image: &Path, origin: &Origin<'_>) -> Result<()> {
    let mut file = std::fs::read(image).with_context(|| format!("read {}", image.display()))?;
    let filled = names(&mut file).and_then(|()| {
        let texts = origin
            .pack()
            .context("revision and compiler are too long")?;
        section(&mut file, ".origin")?[..texts.len()].copy_from_slice(&texts);
        Ok(())
    });
    filled.with_context(|| image.display().to_string())?;
    std::fs::write(image, file).with_context(|| format!("write {}", image.display()))
}

/// The content of a section.
fn section<'a>(file: &'a mut [u8], name: &str) -> Result<&'a mut [u8]> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file)?;
    let header = elf
        .section_header_by_name(name)?
        .with_context(|| format!("the image has no {name} section"))?;
    let start = usize::try_from(header.sh_offset)?;
    let end = start + usize::try_from(header.sh_size)?;
    file.get_mut(start..end)
        .with_context(|| format!("the {name} section reaches past the end of the file"))
}

fn names(file: &mut [u8]) -> Result<()> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file)?;
    let (symbols, names) = elf
        .symbol_table()?
        .context("the image has no symbol table")?;
    let mut found = Vec::new();
    for s in symbols.iter() {
        // Functions, and labels of the assembly parts, which have no type.
        if !s.is_undefined() && matches!(s.st_symtype(), 0 | 2) {
            let name = names.get(s.st_name as usize)?;
            if !name.is_empty() && !name.starts_with("__") {
                found.push((s.st_value, short(name)));
            }
        }
    }
    let content = section(file, ".symbols")?;
    let room = content.len();
    let Some(table) = hv_hw::log::symbols::pack(&found, room) else {
        bail!(
            "{} symbols do not fit the {room} bytes of .symbols",
            found.len()
        );
    };
    content[..table.len()].copy_from_slice(&table);
    Ok(())
}

/// The readable name, without hash and crate disambiguators.
fn short(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}
