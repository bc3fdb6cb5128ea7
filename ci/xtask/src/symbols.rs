//! Puts the image's function names into its own `.symbols` section, so that a panic's back-trace has names. The format is
//! `hv_hw::log::symbols`'s.

use anyhow::{Context, Result, bail};
use elf::ElfBytes;
use elf::endian::LittleEndian;
use std::path::Path;

/// Fills the section in `image` in place; returns the number of names.
pub fn embed(image: &Path) -> Result<usize> {
    let mut file = std::fs::read(image).with_context(|| format!("read {}", image.display()))?;
    let count = fill(&mut file).with_context(|| image.display().to_string())?;
    std::fs::write(image, file).with_context(|| format!("write {}", image.display()))?;
    Ok(count)
}

fn fill(file: &mut [u8]) -> Result<usize> {
    let elf = ElfBytes::<LittleEndian>::minimal_parse(file)?;
    let section = elf
        .section_header_by_name(".symbols")?
        .context("the image has no .symbols section")?;
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
    let room = usize::try_from(section.sh_size)?;
    let Some(table) = hv_hw::log::symbols::pack(&found, room) else {
        bail!(
            "{} symbols do not fit the {room} bytes of .symbols",
            found.len()
        );
    };
    let start = usize::try_from(section.sh_offset)?;
    file.get_mut(start..start + table.len())
        .context("the .symbols section reaches past the end of the file")?
        .copy_from_slice(&table);
    Ok(found.len())
}

/// The readable name, without hash and crate disambiguators.
fn short(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}
