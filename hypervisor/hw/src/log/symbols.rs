//! The symbol table inside the image, for back-traces.
//!
//! The linker reserves the section `.symbols` (zeroes). After linking, the build tool fills it with what [`pack`] makes
//! from the ELF's own symbols. Little-endian: magic number, number of entries, then for each entry, ascending by address,
//! the address and the offset of its name (each u32; addresses count from the start of the image's top 2 GiB, names from
//! the start of the table, NUL-terminated).

use crate::bootinfo::bytes::{c_string, slice, u32_at};

/// First word of a filled table.
pub const MAGIC: u32 = 0x4d59_5358;
/// Subtracted from addresses.
pub const BASE: u64 = 0xffff_ffff_8000_0000;

/// The function that contains `address`, and the offset in it. `None` without a table or below the first function.
pub fn lookup(table: &[u8], address: u64) -> Option<(&str, u64)> {
    let address = u32::try_from(address.checked_sub(BASE)?).ok()?;
    if u32_at(table, 0)? != MAGIC {
        return None;
    }
    let count = u32_at(table, 4)? as usize;
    let entries = slice(table, 8, count.checked_mul(8)?)?;
    let start = |i: usize| u32_at(entries, i * 8);
    // The last entry that is not above the address.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if start(middle)? <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let found = low.checked_sub(1)?;
    let name = u32_at(entries, found * 8 + 4)? as usize;
    let name = core::str::from_utf8(c_string(table.get(name..)?)?).ok()?;
    Some((name, u64::from(address - start(found)?)))
}

/// A table of `(address, name)` that fits `capacity` bytes; names are cut, all to the same length, if they must be.
/// `None` if not even the addresses fit.
#[cfg(not(target_os = "none"))]
pub fn pack(symbols: &[(u64, String)], capacity: usize) -> Option<Vec<u8>> {
    let mut sorted: Vec<(u32, &str)> = symbols
        .iter()
        .filter_map(|(a, n)| Some((u32::try_from(a.checked_sub(BASE)?).ok()?, n.as_str())))
        .collect();
    sorted.sort_unstable();
    sorted.dedup_by_key(|s| s.0);
    [512, 160, 96, 64, 48, 32, 16, 0]
        .into_iter()
        .find_map(|longest| {
            let mut head = Vec::new();
            let mut names = Vec::new();
            head.extend_from_slice(&MAGIC.to_le_bytes());
            head.extend_from_slice(&(sorted.len() as u32).to_le_bytes());
            for (address, name) in &sorted {
                let at = 8 + sorted.len() * 8 + names.len();
                head.extend_from_slice(&address.to_le_bytes());
                head.extend_from_slice(&(at as u32).to_le_bytes());
                // The end of a path says more than its start.
                let cut = name.len().saturating_sub(longest);
                let cut = (cut..=name.len()).find(|&i| name.is_char_boundary(i))?;
                names.extend_from_slice(&name.as_bytes()[cut..]);
                names.push(0);
            }
            head.extend_from_slice(&names);
            (head.len() <= capacity).then_some(head)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<u8> {
        let s = |a: u64, n: &str| (BASE + a, n.to_string());
        pack(
            &[
                s(0x300, "third"),
                s(0x100, "first"),
                s(0x200, "a::b::second"),
                (5, "low".into()),
            ],
            4096,
        )
        .unwrap()
    }

    #[test]
    fn finds_the_function_that_contains_an_address() {
        let t = table();
        assert_eq!(lookup(&t, BASE + 0x100), Some(("first", 0)));
        assert_eq!(lookup(&t, BASE + 0x2ff), Some(("a::b::second", 0xff)));
        assert_eq!(lookup(&t, BASE + 0x9000), Some(("third", 0x8d00)));
        assert_eq!(lookup(&t, BASE + 0xff), None);
        assert_eq!(lookup(&t, 5), None);
        assert_eq!(lookup(&[0; 64], BASE + 0x100), None);
    }

    #[test]
    fn shortens_names_until_the_table_fits() {
        let long: Vec<(u64, String)> = (0..10)
            .map(|i| (BASE + i, format!("{}::tail{i}", "x".repeat(100))))
            .collect();
        let t = pack(&long, 600).unwrap();
        assert!(t.len() <= 600);
        assert!(lookup(&t, BASE + 3).unwrap().0.ends_with("::tail3"));
        assert_eq!(pack(&long, 50), None);
    }

    #[test]
    fn damaged_tables_are_harmless() {
        let t = table();
        for cut in 0..t.len() {
            lookup(&t[..cut], BASE + 0x250);
            let mut bad = t.clone();
            bad[cut] = 0xff;
            lookup(&bad, BASE + 0x250);
        }
    }
}
