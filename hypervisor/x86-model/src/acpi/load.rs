//! From a root pointer to copies of all tables, over any memory that can be read by address.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Fadt, HEADER, aml, checksum_ok, fadt, root};
use crate::Hpa;

/// More tables than any machine has; a list that is longer is cut.
const MAX_TABLES: usize = 256;
/// Bytes of all tables together; those beyond are not read.
const MAX_BYTES: usize = 64 << 20;

/// Physical memory.
pub trait Memory {
    /// Copies `length` bytes at `address`; `None` if they cannot be read.
    fn read(&mut self, address: Hpa, length: usize) -> Option<Vec<u8>>;
}

/// What is known of the root pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer<'a> {
    /// Nothing: look where PC firmware puts it.
    Unknown,
    /// Its address.
    At(Hpa),
    /// Its bytes.
    Copy(&'a [u8]),
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Signature.
    pub signature: [u8; 4],
    /// Where the firmware put it.
    pub address: Hpa,
    /// The whole table as it was read.
    pub bytes: Box<[u8]>,
}

impl Table {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.bytes.len() as u32
    }
    /// Never true: a table has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Those of the RSDT or XSDT in their order, then the DSDT. The FACS is not among them.
    pub tables: Vec<Table>,
    /// Where the root pointer is, unless only a copy was given.
    pub rsdp: Option<Hpa>,
    /// Where the RSDT or XSDT is.
    pub root: Option<Hpa>,
    /// The FADT's fields.
    pub fadt: Option<Fadt>,
    /// SLP_TYPa and SLP_TYPb for soft-off.
    pub sleep: Option<(u8, u8)>,
    /// Tables that are unreadable, have a malformed header, or are beyond the limits.
    pub ignored: u32,
}

/// Why there are no tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No root pointer was found.
    Pointer,
    /// The root pointer's signature or checksum is wrong.
    InvalidPointer,
    /// The RSDT or XSDT cannot be read or has a malformed header.
    Root,
}

/// Finds and copies all tables.
pub fn load(pointer: Pointer<'_>, memory: &mut dyn Memory) -> Result<Tables, Missing> {
    let (at, bytes) = match pointer {
        Pointer::Copy(bytes) => (None, bytes.to_vec()),
        Pointer::At(at) => (Some(at), read_pointer(at, memory)?),
        Pointer::Unknown => {
            let at = search(memory).ok_or(Missing::Pointer)?;
            (Some(at), read_pointer(at, memory)?)
        }
    };
    let top = root::rsdp(&bytes).ok_or(Missing::InvalidPointer)?;
    let (root::Root::Rsdt(list_at) | root::Root::Xsdt(list_at)) = top;
    let mut room = MAX_BYTES;
    let list = read_table(Hpa(list_at), memory, &mut room).ok_or(Missing::Root)?;
    let mut found = Tables {
        rsdp: at,
        root: Some(Hpa(list_at)),
        ..Tables::default()
    };
    for address in root::entries(top, &list.bytes).take(MAX_TABLES) {
        match read_table(Hpa(address), memory, &mut room) {
            Some(table) => found.tables.push(table),
            None => found.ignored += 1,
        }
    }
    found.fadt = found
        .tables
        .iter()
        .find(|t| &t.signature == b"FACP")
        .and_then(|t| fadt::parse(&t.bytes));
    if let Some(fadt) = &found.fadt
        && fadt.dsdt != 0
    {
        match read_table(Hpa(fadt.dsdt), memory, &mut room) {
            Some(dsdt) => found.tables.push(dsdt),
            None => found.ignored += 1,
        }
    }
    found.sleep = found
        .tables
        .iter()
        .filter(|t| matches!(&t.signature, b"DSDT" | b"SSDT"))
        .find_map(|t| aml::sleep_types_s5(&t.bytes));
    Ok(found)
}

fn read_pointer(at: Hpa, memory: &mut dyn Memory) -> Result<Vec<u8>, Missing> {
    // A first-generation pointer may end at a page border, so the longer form is only tried.
    memory
        .read(at, 36)
        .or_else(|| memory.read(at, 20))
        .ok_or(Missing::Pointer)
}

fn read_table(address: Hpa, memory: &mut dyn Memory, room: &mut usize) -> Option<Table> {
    let (signature, length) = root::header(&memory.read(address, HEADER)?)?;
    *room = room.checked_sub(length as usize)?;
    let bytes = memory.read(address, length as usize)?;
    Some(Table {
        signature,
        address,
        bytes: bytes.into(),
    })
}

/// The BIOS way: first KiB of the EBDA, then 0xe0000 to 0xfffff.
fn search(memory: &mut dyn Memory) -> Option<Hpa> {
    let ebda = memory
        .read(Hpa(0x40e), 2)
        .and_then(|b| Some(u64::from(u16::from_le_bytes(b.try_into().ok()?)) << 4))
        .filter(|a| (0x400..0xa_0000).contains(a));
    let areas = [(ebda.unwrap_or(0), 0x400), (0xe_0000, 0x2_0000)];
    areas
        .into_iter()
        .filter(|a| a.0 != 0)
        .find_map(|(at, len)| {
            let offset = root::scan(&memory.read(Hpa(at), len)?)?;
            Some(Hpa(at + offset as u64))
        })
}

impl Tables {
    /// Tables whose bytes do not add up to zero: common on real boards, and harmless to parsers that trust no byte.
    pub fn wrong_checksums(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|t| !checksum_ok(&t.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::collections::BTreeMap;
    use std::vec;

    /// Memory made of a few pieces; reads across their ends fail.
    #[derive(Default)]
    struct Pieces(BTreeMap<u64, Vec<u8>>);
    impl Memory for Pieces {
        fn read(&mut self, address: Hpa, length: usize) -> Option<Vec<u8>> {
            let (&start, bytes) = self.0.range(..=address.0).next_back()?;
            let at = usize::try_from(address.0 - start).ok()?;
            Some(bytes.get(at..)?.get(..length)?.to_vec())
        }
    }

    fn sum(b: &mut [u8], at: usize) {
        b[at] = 0;
        let total = b.iter().fold(0u8, |s, &x| s.wrapping_add(x));
        b[at] = 0u8.wrapping_sub(total);
    }

    fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut t = vec![0; HEADER];
        t[..4].copy_from_slice(signature);
        t.extend_from_slice(body);
        let length = t.len() as u32;
        t[4..8].copy_from_slice(&length.to_le_bytes());
        sum(&mut t, 9);
        t
    }

    fn rsdp(xsdt: u64) -> Vec<u8> {
        let mut b = vec![0; 36];
        b[..8].copy_from_slice(b"RSD PTR ");
        b[15] = 2;
        b[20] = 36;
        b[24..32].copy_from_slice(&xsdt.to_le_bytes());
        sum(&mut b[..20], 8);
        sum(&mut b, 32);
        b
    }

    fn machine() -> Pieces {
        let mut fadt = vec![0; 240];
        fadt[140 - HEADER..148 - HEADER].copy_from_slice(&0x5000u64.to_le_bytes());
        let xsdt: Vec<u8> = [0x2000u64, 0x3000, 0xdead_0000, 0, 0x4000]
            .iter()
            .flat_map(|a| a.to_le_bytes())
            .collect();
        let mut broken = table(b"SSDT", &[0; 10]);
        broken[4] = 3;
        Pieces(BTreeMap::from([
            (0xe_0000, vec![0; 0x4560]),
            (0xe_4560, {
                let mut rest = rsdp(0x1000);
                rest.resize(0x2_0000 - 0x4560, 0);
                rest
            }),
            (0x1000, table(b"XSDT", &xsdt)),
            (0x2000, table(b"FACP", &fadt)),
            (0x3000, broken),
            (0x4000, table(b"APIC", &[0; 8])),
            (
                0x5000,
                table(b"DSDT", b"\x08_S5_\x12\x06\x02\x0a\x05\x0a\x06"),
            ),
        ]))
    }

    #[test]
    fn follows_the_chain_and_counts_what_it_leaves_out() {
        for pointer in [Pointer::At(Hpa(0xe_4560)), Pointer::Copy(&rsdp(0x1000))] {
            let t = load(pointer, &mut machine()).unwrap();
            let names: Vec<_> = t.tables.iter().map(|t| t.signature).collect();
            assert_eq!(names, [*b"FACP", *b"APIC", *b"DSDT"]);
            assert_eq!(t.tables[1].address, Hpa(0x4000));
            assert_eq!(t.ignored, 2, "one malformed, one unreadable");
            assert_eq!(t.sleep, Some((5, 6)));
            assert_eq!(t.root, Some(Hpa(0x1000)));
            assert_eq!(t.wrong_checksums().count(), 0);
            assert_eq!(t.rsdp.is_some(), matches!(pointer, Pointer::At(_)));
        }
    }

    #[test]
    fn the_bios_area_is_searched() {
        let mut m = machine();
        // One piece, as the area is in a machine.
        let mut area = m.0.remove(&0xe_0000).unwrap();
        area.extend(m.0.remove(&0xe_4560).unwrap());
        m.0.insert(0xe_0000, area);
        let t = load(Pointer::Unknown, &mut m).unwrap();
        assert_eq!(t.rsdp, Some(Hpa(0xe_4560)));
        // The EBDA comes first, and a segment of nonsense there does not stop the search.
        m.0.insert(0x40e, vec![0xff, 0xff]);
        assert!(load(Pointer::Unknown, &mut m).is_ok());
        m.0.insert(0x40e, vec![0x00, 0x9f]);
        let mut ebda = vec![0; 0x400];
        ebda[0x20..0x44].copy_from_slice(&rsdp(0x1000));
        m.0.insert(0x9_f000, ebda);
        let t = load(Pointer::Unknown, &mut m).unwrap();
        assert_eq!(t.rsdp, Some(Hpa(0x9_f020)));
    }

    #[test]
    fn each_missing_piece_has_its_name() {
        let mut m = machine();
        assert_eq!(
            load(Pointer::At(Hpa(0x7777_0000)), &mut m),
            Err(Missing::Pointer)
        );
        assert_eq!(
            load(Pointer::Copy(b"RSD PTR "), &mut m),
            Err(Missing::InvalidPointer)
        );
        m.0.remove(&0x1000);
        assert_eq!(load(Pointer::At(Hpa(0xe_4560)), &mut m), Err(Missing::Root));
        assert_eq!(
            load(Pointer::Unknown, &mut Pieces::default()),
            Err(Missing::Pointer)
        );
    }

    #[test]
    fn a_list_that_repeats_one_huge_table_is_bounded() {
        let mut m = machine();
        let big = table(b"SSDT", &vec![0; (16 << 20) - HEADER]);
        m.0.insert(0x1000_0000, big);
        let list: Vec<u8> = (0..1000)
            .flat_map(|_| 0x1000_0000u64.to_le_bytes())
            .collect();
        m.0.insert(0x1000, table(b"XSDT", &list));
        m.0.remove(&0x2000);
        let t = load(Pointer::Copy(&rsdp(0x1000)), &mut m).unwrap();
        assert_eq!(t.tables.len(), 3);
        assert_eq!(t.ignored, MAX_TABLES as u32 - 3);
    }
}
