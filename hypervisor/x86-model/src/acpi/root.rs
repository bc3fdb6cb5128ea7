//! From the RSDP to the list of table addresses.

use super::{HEADER, checksum_ok, u8_at, u32_at, u64_at};

/// Where the list of tables is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// RSDT: 4-byte addresses.
    Rsdt(u64),
    /// XSDT: 8-byte addresses.
    Xsdt(u64),
}

/// Reads an RSDP (20 bytes for revision 0, 36 from revision 2 on). `None` if it is none. A second-generation RSDP with
/// a wrong extended checksum or no XSDT falls back to its RSDT.
pub fn rsdp(bytes: &[u8]) -> Option<Root> {
    if bytes.get(..8)? != b"RSD PTR " || !checksum_ok(bytes.get(..20)?) {
        return None;
    }
    let rsdt = u32_at(bytes, 16).filter(|&a| a != 0);
    if u8_at(bytes, 15)? >= 2
        && let Some(length) = u32_at(bytes, 20)
        && (36..=4096).contains(&length)
        && let Some(whole) = bytes.get(..length as usize)
        && checksum_ok(whole)
        && let Some(xsdt) = u64_at(bytes, 24).filter(|&a| a != 0)
    {
        return Some(Root::Xsdt(xsdt));
    }
    rsdt.map(|a| Root::Rsdt(a.into()))
}

/// Finds an RSDP on a 16-byte boundary of a memory area (the BIOS way: EBDA and 0xe0000-0xfffff). Its offset.
pub fn scan(area: &[u8]) -> Option<usize> {
    (0..area.len())
        .step_by(16)
        .find(|&at| area.get(at..).is_some_and(|rest| rsdp(rest).is_some()))
}

/// Table addresses in an RSDT or XSDT (the whole table with header), zeroes left out.
pub fn entries(root: Root, table: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let size = match root {
        Root::Rsdt(_) => 4,
        Root::Xsdt(_) => 8,
    };
    table
        .get(HEADER..)
        .unwrap_or_default()
        .chunks_exact(size)
        .map(|e| e.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b)))
        .filter(|&a| a != 0)
}

/// Signature and length from a header. `None` if the length is less than a header (FACS: 64) or more than 16 MiB, or
/// the signature is not printable.
pub fn header(bytes: &[u8]) -> Option<([u8; 4], u32)> {
    let signature: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let length = u32_at(bytes, 4)?;
    let printable = signature.iter().all(|c| (0x20..0x7f).contains(c));
    (printable && (HEADER as u32..=16 << 20).contains(&length)).then_some((signature, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn fix(b: &mut [u8], at: usize) {
        b[at] = 0;
        let sum = b.iter().fold(0u8, |s, &x| s.wrapping_add(x));
        b[at] = 0u8.wrapping_sub(sum);
    }

    fn sample(revision: u8) -> [u8; 36] {
        let mut b = [0u8; 36];
        b[..8].copy_from_slice(b"RSD PTR ");
        b[15] = revision;
        b[16..20].copy_from_slice(&0x1000u32.to_le_bytes());
        b[20..24].copy_from_slice(&36u32.to_le_bytes());
        b[24..32].copy_from_slice(&0x1_2345_6000u64.to_le_bytes());
        fix(&mut b[..20], 8);
        fix(&mut b, 32);
        b
    }

    #[test]
    fn rsdp_of_both_generations() {
        assert_eq!(rsdp(&sample(0)[..20]), Some(Root::Rsdt(0x1000)));
        assert_eq!(rsdp(&sample(2)), Some(Root::Xsdt(0x1_2345_6000)));
        let mut bad = sample(2);
        bad[33] ^= 1;
        assert_eq!(rsdp(&bad), Some(Root::Rsdt(0x1000)));
        bad[9] ^= 1;
        assert_eq!(rsdp(&bad), None);
        assert_eq!(rsdp(&sample(2)[..19]), None);
    }

    #[test]
    fn scan_finds_only_aligned_and_whole() {
        let mut area = [0u8; 200];
        area[64..100].copy_from_slice(&sample(2));
        assert_eq!(scan(&area), Some(64));
        assert_eq!(scan(&area[..70]), None);
        let mut shifted = [0u8; 200];
        shifted[72..108].copy_from_slice(&sample(2));
        assert_eq!(scan(&shifted), None);
    }

    #[test]
    fn entries_stop_at_the_end() {
        let mut t = [0u8; HEADER + 19];
        t[HEADER..HEADER + 8].copy_from_slice(&0x8_0000_0001u64.to_le_bytes());
        let v: Vec<_> = entries(Root::Xsdt(0), &t).collect();
        assert_eq!(v, [0x8_0000_0001]);
        let v: Vec<_> = entries(Root::Rsdt(0), &t).collect();
        assert_eq!(v, [1, 8]);
        assert_eq!(entries(Root::Rsdt(0), &t[..10]).count(), 0);
    }

    #[test]
    fn header_bounds() {
        let mut h = *b"APIC\x24\0\0\0";
        assert_eq!(header(&h), Some((*b"APIC", 36)));
        h[4] = 35;
        assert_eq!(header(&h), None);
        h[7] = 1;
        assert_eq!(header(&h), None);
    }
}
