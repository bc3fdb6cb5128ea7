//! The block that EBX points at.

use super::MapEntry;
use xen_abi::hvm::start_info::{HvmMemmapTableEntry, HvmModlistEntry, HvmStartInfo, start};
use zerocopy::IntoBytes;

/// What it says.
pub(super) struct Contents<'a> {
    /// Where it will be.
    pub at: u64,
    pub cmdline: &'a str,
    /// Address and length of the RAM disk.
    pub module: Option<(u64, u64)>,
    pub rsdp: u64,
    pub map: &'a [MapEntry],
}

/// Start information, module list, memory map and command line in one piece.
pub(super) fn block(c: &Contents<'_>) -> Vec<u8> {
    let modules = c.at + size_of::<HvmStartInfo>().next_multiple_of(8) as u64;
    let count = u32::from(c.module.is_some());
    let map = modules + u64::from(count) * size_of::<HvmModlistEntry>() as u64;
    let cmdline = map + (c.map.len() * size_of::<HvmMemmapTableEntry>()) as u64;
    let info = HvmStartInfo {
        magic: start::MAGIC,
        version: 1,
        nr_modules: count,
        modlist_paddr: if count > 0 { modules } else { 0 },
        cmdline_paddr: if c.cmdline.is_empty() { 0 } else { cmdline },
        rsdp_paddr: c.rsdp,
        memmap_paddr: map,
        memmap_entries: c.map.len() as u32,
        ..HvmStartInfo::default()
    };
    let mut out = info.as_bytes().to_vec();
    out.resize((modules - c.at) as usize, 0);
    if let Some((paddr, size)) = c.module {
        let module = HvmModlistEntry {
            paddr,
            size,
            ..HvmModlistEntry::default()
        };
        out.extend_from_slice(module.as_bytes());
    }
    for e in c.map {
        let entry = HvmMemmapTableEntry {
            addr: e.start,
            size: e.len,
            kind: e.kind,
            ..HvmMemmapTableEntry::default()
        };
        out.extend_from_slice(entry.as_bytes());
    }
    out.extend_from_slice(c.cmdline.as_bytes());
    out.push(0);
    out
}
