//! `hvm_start_info`, the PVH entry's information block (Xen public header `arch-x86/hvm/start_info.h`, versions 0
//! and 1), and its module and memory-map tables.

use arrayvec::ArrayVec;

use super::bytes::{u32_at, u64_at};
use super::memmap::{Kind, Region};
use super::{BootError, BootInfo, EntryKind, MAX_COMMAND_LINE, MAX_MODULES, MAX_REGIONS, Rsdp};

/// First word of the block; the entry stub passes it on.
pub const MAGIC: u32 = 0x336e_c578;
/// Bytes of version 1.
const BLOCK: usize = 56;

/// Access to physical memory, since the tables lie anywhere.
pub trait Memory {
    /// `len` bytes at a physical address; `None` if they cannot be reached.
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]>;
}

fn cut(what: &'static str, offset: usize) -> BootError {
    BootError::Block { what, offset }
}

/// Reads the block at `address` into `info`.
pub fn parse(address: u64, memory: &impl Memory, info: &mut BootInfo) -> Result<(), BootError> {
    const WHAT: &str = "PVH start information";
    info.entry = EntryKind::Pvh;
    // Version 0 is 40 bytes, but nothing useful is at the end of memory: ask for the whole of version 1.
    let block = memory.bytes(address, BLOCK).ok_or(cut(WHAT, 0))?;
    let get32 = |at| u32_at(block, at).ok_or(cut(WHAT, at));
    let get64 = |at| u64_at(block, at).ok_or(cut(WHAT, at));
    let magic = get32(0)?;
    if magic != MAGIC {
        return Err(BootError::Magic(magic));
    }
    let version = get32(4)?;
    let modules = get32(12)? as usize;
    let module_list = get64(16)?;
    let command_line = get64(24)?;
    if command_line != 0 {
        let line = text(memory, command_line).ok_or(cut("PVH command line", 0))?;
        info.set_command_line(&line);
    }
    match get64(32)? {
        0 => {}
        rsdp => info.rsdp = Rsdp::Address(rsdp),
    }
    if modules > MAX_MODULES {
        info.note("too many modules: the rest is ignored");
    }
    for i in 0..modules.min(MAX_MODULES) {
        let at = module_list.checked_add(32 * i as u64);
        let entry = at.and_then(|at| memory.bytes(at, 32));
        let fields = entry.and_then(|e| Some((u64_at(e, 0)?, u64_at(e, 8)?, u64_at(e, 16)?)));
        let (start, size, line) = fields.ok_or(cut("PVH module list", 32 * i))?;
        let line = match line {
            0 => ArrayVec::new(),
            at => text(memory, at).ok_or(cut("PVH module command line", 32 * i))?,
        };
        if start.checked_add(size).is_none() {
            return Err(cut("PVH module", 32 * i));
        }
        info.push_module(start, size, &line);
    }
    if version == 0 {
        return Err(BootError::NoMemoryMap);
    }
    let (table, count) = (get64(40)?, get32(48)? as usize);
    if count == 0 || table == 0 {
        return Err(BootError::NoMemoryMap);
    }
    if count > MAX_REGIONS {
        info.note("memory map too long: the rest is ignored");
    }
    for i in 0..count.min(MAX_REGIONS) {
        let at = table.checked_add(24 * i as u64);
        let entry = at.and_then(|at| memory.bytes(at, 24));
        let fields = entry.and_then(|e| Some((u64_at(e, 0)?, u64_at(e, 8)?, u32_at(e, 16)?)));
        let (base, len, kind) = fields.ok_or(cut("PVH memory map", 24 * i))?;
        info.push_region(Region {
            base,
            len,
            kind: Kind::from_e820(kind),
        });
    }
    Ok(())
}

/// The text at `address` up to its NUL, cut at one byte more than is kept (so that the cut is noticed). Read byte by
/// byte: what follows the text may be anything.
fn text(memory: &impl Memory, address: u64) -> Option<ArrayVec<u8, { MAX_COMMAND_LINE + 1 }>> {
    let mut out = ArrayVec::new();
    while !out.is_full() {
        let at = address.checked_add(out.len() as u64)?;
        match memory.bytes(at, 1)? {
            [0] => break,
            b => out.extend(b.iter().copied()),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Physical memory of a few KiB, from address 0.
    struct Fake(Vec<u8>);

    impl Memory for Fake {
        fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
            let at = usize::try_from(address).ok()?;
            self.0.get(at..at.checked_add(len)?)
        }
    }

    impl Fake {
        fn put(&mut self, at: usize, bytes: &[u8]) {
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }
        fn words(&mut self, at: usize, values: &[u64]) {
            for (i, v) in values.iter().enumerate() {
                self.put(at + i * 8, &v.to_le_bytes());
            }
        }
    }

    fn sample() -> Fake {
        let mut m = Fake(vec![0; 8192]);
        // Magic and version 1; no flags, one module; lists; RSDP; one map entry.
        m.words(
            0x100,
            &[
                MAGIC as u64 | 1 << 32,
                1 << 32,
                0x200,
                0x300,
                0xe_0000,
                0x400,
                1,
            ],
        );
        m.words(0x200, &[0x10_0000, 0x5000, 0x380, 0]);
        m.put(0x300, b"loglvl=all\0");
        m.put(0x380, b"quiet\0");
        m.words(0x400, &[0, 0x9_f000, 1]);
        m
    }

    fn run(m: &Fake) -> (Result<(), BootError>, Box<BootInfo>) {
        let mut info = Box::new(BootInfo::new());
        (parse(0x100, m, &mut info), info)
    }

    #[test]
    fn reads_what_a_loader_gives() {
        let (result, info) = run(&sample());
        assert_eq!(result, Ok(()));
        assert_eq!(info.entry, EntryKind::Pvh);
        assert_eq!(info.command_line.as_str(), "loglvl=all");
        assert_eq!(info.rsdp, Rsdp::Address(0xe_0000));
        assert_eq!(
            (info.modules[0].start, info.modules[0].size),
            (0x10_0000, 0x5000)
        );
        assert_eq!(info.module_line(&info.modules[0]), "quiet");
        assert_eq!(info.regions.len(), 1);
    }

    #[test]
    fn refuses_what_it_cannot_use() {
        let change = |at: usize, v: u32| {
            let mut m = sample();
            m.put(0x100 + at, &v.to_le_bytes());
            run(&m).0
        };
        assert_eq!(change(0, 7), Err(BootError::Magic(7)));
        assert_eq!(change(4, 0), Err(BootError::NoMemoryMap));
        assert_eq!(change(48, 0), Err(BootError::NoMemoryMap));
        for pointer in [16, 24, 40] {
            assert!(
                matches!(change(pointer, 0xffff_0000), Err(BootError::Block { .. })),
                "{pointer}"
            );
        }
        let mut m = sample();
        m.words(0x200, &[u64::MAX, 2]);
        assert!(matches!(
            run(&m).0,
            Err(BootError::Block {
                what: "PVH module",
                ..
            })
        ));
    }

    #[test]
    fn counts_beyond_the_capacity_are_noted() {
        let mut m = sample();
        m.put(0x10c, &40u32.to_le_bytes());
        let (result, info) = run(&m);
        assert_eq!(result, Ok(()));
        assert_eq!((info.modules.len(), info.notes.len()), (MAX_MODULES, 1));
    }

    proptest! {
        #[test]
        fn noise_never_panics(flips in proptest::collection::vec((0x100usize..0x420, any::<u8>()), 0..40)) {
            let mut m = sample();
            for (at, v) in flips {
                m.0[at] = v;
            }
            let _ = run(&m);
        }
    }
}
