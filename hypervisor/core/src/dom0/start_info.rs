//! The block that a PVH kernel finds in EBX: start info version 1, module list, memory map and texts, in one piece.

use alloc::vec::Vec;

use hv_hw::bootinfo::memmap::Region;
use xen_abi::hvm::start_info::{HvmMemmapTableEntry, HvmModlistEntry, HvmStartInfo, sif, start};
use zerocopy::IntoBytes;

use super::memory::MAX_ENTRIES;

/// A module for dom0; the first is its initial RAM disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// Guest-physical address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Its own command line, without NUL.
    pub text: &'a [u8],
}

/// What goes into the block.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// dom0's command line, without NUL.
    pub command_line: &'a [u8],
    /// Modules.
    pub modules: &'a [Module<'a>],
    /// Address of the ACPI root pointer, 0 for none.
    pub rsdp: u64,
    /// Memory map, at most [`MAX_ENTRIES`].
    pub map: &'a [Region],
}

const INFO: u64 = size_of::<HvmStartInfo>() as u64;
const MODULE: u64 = size_of::<HvmModlistEntry>() as u64;
const ENTRY: u64 = size_of::<HvmMemmapTableEntry>() as u64;

/// Bytes that the block takes at most, whatever the map looks like in the end.
pub fn reserve(command_line: &[u8], modules: &[Module<'_>]) -> u64 {
    let texts: usize = modules.iter().map(|m| m.text.len() + 1).sum();
    INFO + MODULE * modules.len() as u64
        + ENTRY * MAX_ENTRIES as u64
        + (texts + command_line.len() + 1) as u64
}

/// The block for address `base` (a multiple of 8): at most [`reserve`] bytes, starting with the start info.
pub fn build(base: u64, contents: &Contents<'_>) -> Vec<u8> {
    let map = &contents.map[..contents.map.len().min(MAX_ENTRIES)];
    let modlist_paddr = base + INFO;
    let memmap_paddr = modlist_paddr + MODULE * contents.modules.len() as u64;
    let texts = memmap_paddr + ENTRY * map.len() as u64;
    let cmdline_paddr = texts;
    let mut next = texts + text(contents.command_line).len() as u64 + 1;

    let info = HvmStartInfo {
        magic: start::MAGIC,
        version: 1,
        flags: sif::PRIVILEGED | sif::INITDOMAIN,
        nr_modules: contents.modules.len() as u32,
        modlist_paddr: if contents.modules.is_empty() {
            0
        } else {
            modlist_paddr
        },
        cmdline_paddr,
        rsdp_paddr: contents.rsdp,
        memmap_paddr,
        memmap_entries: map.len() as u32,
        _reserved: 0,
    };
    let mut out = Vec::new();
    out.extend_from_slice(info.as_bytes());
    for module in contents.modules {
        let entry = HvmModlistEntry {
            paddr: module.address,
            size: module.size,
            cmdline_paddr: if module.text.is_empty() { 0 } else { next },
            _reserved: 0,
        };
        if !module.text.is_empty() {
            next += text(module.text).len() as u64 + 1;
        }
        out.extend_from_slice(entry.as_bytes());
    }
    for region in map {
        let entry = HvmMemmapTableEntry {
            addr: region.base,
            size: region.len,
            kind: region.kind.to_e820(),
            _reserved: 0,
        };
        out.extend_from_slice(entry.as_bytes());
    }
    let modules = contents.modules.iter().map(|m| m.text);
    for line in core::iter::once(contents.command_line).chain(modules.filter(|t| !t.is_empty())) {
        out.extend_from_slice(text(line));
        out.push(0);
    }
    out
}

/// Up to the first NUL.
fn text(line: &[u8]) -> &[u8] {
    line.split(|&b| b == 0).next().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hv_hw::bootinfo::memmap::Kind;
    use zerocopy::FromBytes;

    /// A block read back, addresses followed: (flags, rsdp, command line, modules, map).
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Read {
        pub(crate) flags: u32,
        pub(crate) rsdp: u64,
        pub(crate) command_line: Vec<u8>,
        pub(crate) modules: Vec<(u64, u64, Vec<u8>)>,
        pub(crate) map: Vec<(u64, u64, u32)>,
    }

    /// Reads it as a kernel would, through `at`, which gives the bytes from an address on.
    pub(crate) fn read<'a>(ebx: u64, at: impl Fn(u64) -> &'a [u8]) -> Read {
        let string = |address: u64| text(at(address)).to_vec();
        let (info, _) = HvmStartInfo::read_from_prefix(at(ebx)).unwrap();
        assert_eq!((info.magic, info.version), (0x336e_c578, 1));
        let modules = (0..u64::from(info.nr_modules))
            .map(|i| {
                let (m, _) =
                    HvmModlistEntry::read_from_prefix(at(info.modlist_paddr + 32 * i)).unwrap();
                let line = if m.cmdline_paddr == 0 {
                    Vec::new()
                } else {
                    string(m.cmdline_paddr)
                };
                (m.paddr, m.size, line)
            })
            .collect();
        let map = (0..u64::from(info.memmap_entries))
            .map(|i| {
                let (e, _) =
                    HvmMemmapTableEntry::read_from_prefix(at(info.memmap_paddr + 24 * i)).unwrap();
                (e.addr, e.size, e.kind)
            })
            .collect();
        Read {
            flags: info.flags,
            rsdp: info.rsdp_paddr,
            command_line: string(info.cmdline_paddr),
            modules,
            map,
        }
    }

    #[test]
    fn reads_back() {
        let modules = [
            Module {
                address: 0x800_0000,
                size: 4096 * 3,
                text: &[b'x'; 2048],
            },
            Module {
                address: 0x900_0000,
                size: 0,
                text: b"",
            },
            Module {
                address: 0xa00_0000,
                size: 5,
                text: b"third\0hidden",
            },
        ];
        let map = [
            Region {
                base: 0,
                len: 0x9f000,
                kind: Kind::Ram,
            },
            Region {
                base: 0x10_0000,
                len: 0x1000,
                kind: Kind::Bad,
            },
        ];
        let contents = Contents {
            command_line: b"root=/dev/xvda1 quiet",
            modules: &modules,
            rsdp: 0x7ff_0000,
            map: &map,
        };
        let block = build(0x500_0000, &contents);
        assert!(block.len() as u64 <= reserve(contents.command_line, &modules));
        let r = read(0x500_0000, |a| &block[(a - 0x500_0000) as usize..]);
        assert_eq!(r.flags, 3);
        assert_eq!(r.rsdp, 0x7ff_0000);
        assert_eq!(r.command_line, b"root=/dev/xvda1 quiet");
        assert_eq!(r.modules[0], (0x800_0000, 12288, vec![b'x'; 2048]));
        assert_eq!(r.modules[1], (0x900_0000, 0, vec![]));
        assert_eq!(r.modules[2], (0xa00_0000, 5, b"third".to_vec()));
        assert_eq!(r.map, [(0, 0x9f000, 1), (0x10_0000, 0x1000, 5)]);
    }

    #[test]
    fn without_modules_and_with_too_long_a_map() {
        let map = [Region {
            base: 0,
            len: 1,
            kind: Kind::Reserved,
        }; 200];
        let contents = Contents {
            command_line: b"",
            modules: &[],
            rsdp: 0,
            map: &map,
        };
        let block = build(0, &contents);
        assert_eq!(block.len() as u64, reserve(b"", &[]));
        let r = read(0, |a| &block[a as usize..]);
        assert_eq!(
            (r.map.len(), r.command_line.len(), r.modules.len()),
            (127, 0, 0)
        );
    }
}
