//! Placement on small machines, one rule each.

use std::vec::Vec;

use super::*;
use crate::dom0::elf::{Relocation, Segment};
use crate::dom0::memory::HostMemory;
use crate::options::Options;
use hv_hw::bootinfo::memmap::{Kind, Region};

fn range(start: u64, end: u64) -> Range {
    Range { start, end }
}

fn memory(ram: &[(u64, u64)]) -> Dom0Memory {
    let regions: Vec<Region> = ram
        .iter()
        .map(|&(base, end)| Region {
            base,
            len: end - base,
            kind: Kind::Ram,
        })
        .collect();
    let host = HostMemory {
        regions: &regions,
        hypervisor: &[],
        tables: &[],
    };
    Dom0Memory::build(&host, &Options::parse(b"dom0_mem=100%").0.dom0_mem)
}

fn kernel(parts: &[(u64, u64)], relocation: Option<Relocation>) -> Kernel {
    Kernel {
        features: None,
        segments: parts
            .iter()
            .map(|&(paddr, end)| Segment {
                paddr,
                file: 0..0,
                memsz: end - paddr,
            })
            .collect(),
        entry: parts[0].0,
        start: parts[0].0,
        end: parts[parts.len() - 1].1,
        relocation,
    }
}

/// Debian 6.1: 16 MiB to 74 MiB, not movable.
fn debian() -> Kernel {
    kernel(&[(16 * MIB, 74 * MIB)], None)
}

fn find(
    memory: &Dom0Memory,
    kernel: &Kernel,
    initrd: Option<Range>,
) -> Result<Placement, Dom0Error> {
    Placement::find(&Request {
        memory,
        kernel,
        initrd,
        keep: None,
        block_len: 5000,
        tables_len: 600,
    })
}

#[test]
fn everything_in_its_preferred_place() {
    let m = memory(&[(0, 0xa_0000), (MIB, 512 * MIB)]);
    let initrd = range(0x1b00_0123, 0x1e00_0456);
    let p = find(&m, &debian(), Some(initrd)).unwrap();
    assert_eq!(
        p,
        Placement {
            kernel: range(16 * MIB, 74 * MIB),
            initrd: Some(initrd),
            block: range(74 * MIB, 74 * MIB + 5000),
            tables: range(512 * MIB - 4096, 512 * MIB),
        }
    );
}

#[test]
fn an_initrd_in_the_way_moves() {
    let m = memory(&[(MIB, 512 * MIB)]);
    // On the kernel's place, in low memory, and above what dom0 gets.
    for initrd in [
        range(20 * MIB + 1, 40 * MIB),
        range(70 * MIB, 80 * MIB),
        range(0x1000, 0x2000),
        range(508 * MIB, 520 * MIB),
        range(6000 * MIB, 6010 * MIB),
    ] {
        let p = find(&m, &debian(), Some(initrd)).unwrap();
        let to = p.initrd.unwrap();
        assert_ne!(to, initrd);
        assert_eq!(to.len(), initrd.len());
        assert!(m.is_ram(to) && to.end <= p.tables.start && to.start >= p.block.end);
    }
    // Directly behind the kernel it may stay, and the block goes above it.
    let initrd = range(74 * MIB, 80 * MIB);
    let p = find(&m, &debian(), Some(initrd)).unwrap();
    assert_eq!(p.initrd, Some(initrd));
    assert_eq!(p.block.start, 80 * MIB);
    // None and an empty one are the same.
    assert_eq!(find(&m, &debian(), Some(range(5, 5))).unwrap().initrd, None);
}

#[test]
fn the_moved_initrd_spares_a_kernel_file_that_is_read_in_place() {
    let m = memory(&[(MIB, 512 * MIB)]);
    let p = Placement::find(&Request {
        memory: &m,
        kernel: &debian(),
        initrd: Some(range(16 * MIB, 36 * MIB)),
        keep: Some(range(400 * MIB, 511 * MIB)),
        block_len: 100,
        tables_len: 100,
    })
    .unwrap();
    assert_eq!(p.initrd, Some(range(380 * MIB, 400 * MIB)));
}

#[test]
fn a_fixed_kernel_needs_its_place() {
    let m = memory(&[(MIB, 20 * MIB), (24 * MIB, 512 * MIB)]);
    let error = find(&m, &debian(), None).unwrap_err();
    let text = std::format!("{error}");
    assert!(
        text.contains("0x1000000-0x4a00000") && text.contains("cannot be moved"),
        "{text}"
    );
}

#[test]
fn a_movable_kernel_moves_only_if_it_must() {
    let relocation = Some(Relocation {
        align: 2 * MIB,
        min: 16 * MIB,
        max: 0x3fff_ffff,
    });
    let k = kernel(&[(16 * MIB, 74 * MIB)], relocation);
    let start = |ram: &[(u64, u64)]| find(&memory(ram), &k, None).map(|p| p.kernel.start);
    assert_eq!(start(&[(MIB, 512 * MIB)]), Ok(16 * MIB));
    assert_eq!(
        start(&[(MIB, 20 * MIB), (25 * MIB, 512 * MIB)]),
        Ok(26 * MIB)
    );
    // Only below the minimum or above the maximum: refused.
    assert!(start(&[(MIB, 60 * MIB), (1024 * MIB, 2048 * MIB)]).is_err());
    // The last byte may be the maximum itself.
    assert_eq!(
        start(&[(966 * MIB, 1024 * MIB), (1200 * MIB, 1300 * MIB)]),
        Err(Dom0Error::NoRoomForInfo)
    );
    assert_eq!(
        start(&[(MIB, 2 * MIB), (966 * MIB, 1024 * MIB)]),
        Ok(966 * MIB)
    );
}

#[test]
fn a_start_off_the_alignment_keeps_its_offset() {
    let relocation = Some(Relocation {
        align: 2 * MIB,
        min: 0,
        max: 0xffff_ffff,
    });
    let k = kernel(&[(17 * MIB, 18 * MIB)], relocation);
    let p = find(&memory(&[(32 * MIB, 64 * MIB)]), &k, None).unwrap();
    assert_eq!(p.kernel, range(33 * MIB, 34 * MIB));
}

#[test]
fn separate_segments_and_the_gap_between_them() {
    // Zephyr-like: one segment in low memory, one at 1 MiB, the legacy hole between them.
    let k = kernel(
        &[(0x1000, 0x3000), (MIB, MIB + 0x4000), (3 * MIB, 4 * MIB)],
        None,
    );
    let m = memory(&[(0, 0xa_0000), (MIB, 64 * MIB)]);
    let initrd = range(2 * MIB, 3 * MIB);
    let p = find(&m, &k, Some(initrd)).unwrap();
    assert_eq!(p.kernel, range(0x1000, 4 * MIB));
    assert_eq!(p.block.start, 4 * MIB);
    let to = p.initrd.unwrap();
    assert!(to.start >= 4 * MIB, "not in the kernel's gap: {to:x?}");
}

#[test]
fn limits_of_1_and_4_gib() {
    let m = memory(&[
        (MIB, 74 * MIB),
        (2048 * MIB, 3072 * MIB),
        (4096 * MIB, 8192 * MIB),
    ]);
    let p = find(&m, &debian(), Some(range(5000 * MIB, 5100 * MIB))).unwrap();
    assert!(
        p.block.start < 16 * MIB,
        "no RAM between the kernel and 1 GiB"
    );
    assert_eq!(p.tables.end, 3072 * MIB);
    assert!(p.initrd.unwrap().end <= 3072 * MIB);
    let m = memory(&[(16 * MIB, 74 * MIB), (2048 * MIB, 3072 * MIB)]);
    assert_eq!(find(&m, &debian(), None), Err(Dom0Error::NoRoomForInfo));
    let m = memory(&[(MIB, 100 * MIB)]);
    assert_eq!(
        find(&m, &debian(), Some(range(200 * MIB, 240 * MIB))),
        Err(Dom0Error::NoRoomForInitrd(40 * MIB))
    );
}

#[test]
fn ram_at_the_end_of_the_address_space_is_no_trap() {
    let top = !0xfff_u64;
    let m = memory(&[(MIB, 64 * MIB), (top - 0x10_0000, top)]);
    let relocation = Some(Relocation {
        align: 1 << 31,
        min: 0,
        max: 0xffff_ffff,
    });
    let k = kernel(&[(128 * MIB, 129 * MIB)], relocation);
    assert!(find(&m, &k, None).is_err());
}
