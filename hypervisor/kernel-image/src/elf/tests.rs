//! Kernels put together byte by byte: good ones, odd ones, damaged ones.

use proptest::prelude::*;
use std::vec::Vec;

use super::*;
use crate::samples::{Builder, note};

fn xen(kind: u32, desc: &[u8]) -> Vec<u8> {
    note(b"Xen\0", kind, desc, 4)
}

fn entry(at: u32) -> Vec<u8> {
    xen(18, &at.to_le_bytes())
}

fn parse(builder: &Builder) -> Result<Kernel, KernelError> {
    Kernel::parse(&builder.build())
}

#[test]
fn a_small_kernel() {
    let kernel = parse(&Builder::small()).unwrap();
    assert_eq!(kernel.entry, 0x100_0002);
    assert_eq!((kernel.start, kernel.end), (16 << 20, (16 << 20) + 0x3000));
    assert_eq!(kernel.relocation, None);
    let file = Builder::small().build();
    assert_eq!(&file[kernel.segments[0].file.clone()], b"code");
}

#[test]
fn segments_are_sorted_and_must_not_overlap() {
    let mut b = Builder::small();
    b.loads.insert(0, (0x200_0000, vec![1; 8], 0x1000));
    b.loads.push((0x1000, vec![2; 4], 4));
    // An empty one between is dropped.
    b.loads.push((0x100_0001, vec![], 0));
    let kernel = parse(&b).unwrap();
    let starts: Vec<u64> = kernel.segments.iter().map(|s| s.paddr).collect();
    assert_eq!(starts, [0x1000, 0x100_0000, 0x200_0000]);
    assert_eq!((kernel.start, kernel.end), (0x1000, 0x200_1000));
    b.loads.push((0x100_2fff, vec![], 1));
    assert!(matches!(
        parse(&b),
        Err(KernelError::BadSegment { what, .. }) if what.contains("overlaps")
    ));
}

#[test]
fn bad_segments_are_refused() {
    for (paddr, memsz) in [(u64::MAX, 2), (0xffff_f000, 0x1001), (0, u64::MAX)] {
        let mut b = Builder::small();
        b.loads.push((paddr, vec![], memsz));
        assert!(
            matches!(parse(&b), Err(KernelError::BadSegment { .. })),
            "{paddr:#x}"
        );
    }
    let mut b = Builder::small();
    b.loads[0].2 = 3;
    assert!(
        matches!(parse(&b), Err(KernelError::BadSegment { what, .. }) if what.contains("larger in the file"))
    );
    let mut b = Builder::small();
    b.loads.clear();
    assert!(matches!(parse(&b), Err(KernelError::BadElf(_))));
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    let good = Builder::small().build();
    let with = |at: usize, value: u8| {
        let mut file = good.clone();
        file[at] = value;
        std::format!("{}", Kernel::parse(&file).unwrap_err())
    };
    assert!(with(0, 0).contains("ELF header"));
    assert!(with(5, 2).contains("ELF header"), "big endian");
    assert!(with(16, 1).contains("no executable"));
    assert!(with(18, 40).contains("another kind of CPU"));
    // A 64-bit file for a 32-bit CPU, and the other way round.
    assert!(with(18, 3).contains("another kind of CPU"));
    let mut file = small_32();
    file[18] = 62;
    let text = std::format!("{}", Kernel::parse(&file).unwrap_err());
    assert_eq!(
        text,
        "ELF file for another kind of CPU: a 64-bit x86 Linux kernel is needed"
    );
    for cut in 0..good.len() {
        assert!(Kernel::parse(&good[..cut]).is_err(), "cut to {cut}");
    }
}

/// What [`Builder::small`] makes, as a 32-bit file, whose note is in a segment.
fn small_32() -> Vec<u8> {
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    let words = |file: &mut Vec<u8>, words: &[u32]| {
        words.iter().for_each(|w| file.extend(w.to_le_bytes()));
    };
    // Executable for a 386, version, entry (not the one that counts), program headers, no sections, flags.
    words(&mut file, &[2 | 3 << 16, 1, 0, 52, 0, 0]);
    // Sizes and numbers of headers.
    words(&mut file, &[52 | 32 << 16, 2 | 40 << 16, 0]);
    let note = entry(0x100_0002);
    words(&mut file, &[1, 116, 16 << 20, 16 << 20, 4, 0x3000, 7, 4096]);
    let len = note.len() as u32;
    words(&mut file, &[4, 120, 0, 0, len, len, 4, 4]);
    file.extend(b"code");
    file.extend(note);
    file
}

#[test]
fn a_32_bit_file_says_the_same_as_a_64_bit_one() {
    let file = small_32();
    let kernel = Kernel::parse(&file).unwrap();
    assert_eq!(kernel.entry, 0x100_0002);
    assert_eq!((kernel.start, kernel.end), (16 << 20, (16 << 20) + 0x3000));
    assert_eq!(&file[kernel.segments[0].file.clone()], b"code");
    for cut in 0..file.len() {
        assert!(Kernel::parse(&file[..cut]).is_err(), "cut to {cut}");
    }
}

#[test]
fn the_entry_needs_owner_and_type_together() {
    // Type 18 of another owner comes first and is not taken.
    let b = Builder::with_notes(&[
        note(b"Linux\0", 18, &7_u32.to_le_bytes(), 4),
        note(b"Xen", 18, &7_u32.to_le_bytes(), 4),
        note(b"XenServer\0", 18, &7_u32.to_le_bytes(), 4),
        entry(0x100_0010),
    ]);
    assert_eq!(parse(&b).unwrap().entry, 0x100_0010);
    let b = Builder::with_notes(&[note(b"Linux\0", 18, &[0; 4], 4)]);
    assert_eq!(parse(&b), Err(KernelError::NoEntry { xen: false }));
    // The virtual PV entry (type 1) is no substitute.
    let b = Builder::with_notes(&[xen(1, &0xffff_ffff_8100_0000_u64.to_le_bytes())]);
    assert_eq!(parse(&b), Err(KernelError::NoEntry { xen: true }));
}

#[test]
fn entry_descriptors_of_4_and_8_bytes() {
    assert_eq!(
        parse(&Builder::with_notes(&[entry(0x100_0004)]))
            .unwrap()
            .entry,
        0x100_0004
    );
    let b = Builder::with_notes(&[xen(18, &0x100_0008_u64.to_le_bytes())]);
    assert_eq!(parse(&b).unwrap().entry, 0x100_0008);
    for desc in [
        &[0u8; 0][..],
        &[0; 3],
        &[0; 12],
        &0x1_0100_0000_u64.to_le_bytes(),
    ] {
        let b = Builder::with_notes(&[xen(18, desc)]);
        assert!(
            matches!(
                parse(&b),
                Err(KernelError::BadNote {
                    name: "PHYS32_ENTRY",
                    ..
                })
            ),
            "{desc:?}"
        );
    }
}

#[test]
fn an_entry_outside_every_segment_is_refused() {
    for at in [0, 0xff_ffff, 0x100_3000] {
        let b = Builder::with_notes(&[entry(at)]);
        assert_eq!(parse(&b), Err(KernelError::EntryOutside(u64::from(at))));
    }
}

#[test]
fn pv_notes_beside_a_pvh_entry_do_not_matter() {
    let b = Builder::with_notes(&[
        xen(1, &0xffff_ffff_8100_0000_u64.to_le_bytes()),
        xen(4, &0_u64.to_le_bytes()),
        xen(10, b"!writable_page_tables|no_such_feature\0"),
        xen(17, &0x8801_u32.to_le_bytes()),
        entry(0x100_0000),
    ]);
    let features = |b: &Builder| parse(b).map(|k| (k.can_be_dom0(), k.takes_rsdp_anywhere()));
    assert_eq!(features(&b), Ok((true, false)));
    let b = Builder::with_notes(&[xen(17, &0x2_8001_u32.to_le_bytes()), entry(0x100_0000)]);
    assert_eq!(features(&b), Ok((false, true)));
    assert_eq!(features(&Builder::small()), Ok((true, false)));
}

#[test]
fn notes_padded_to_8_and_notes_in_sections() {
    let mut b = Builder::small();
    b.note_align = 8;
    b.notes = [
        note(b"GNU\0", 3, &[1; 20], 8),
        note(b"Xen\0", 18, &0x100_0001_u32.to_le_bytes(), 8),
    ]
    .concat();
    assert_eq!(parse(&b).unwrap().entry, 0x100_0001);
    b.note_section = true;
    assert_eq!(parse(&b).unwrap().entry, 0x100_0001);
    for align in [0, 1, 2] {
        let b = Builder {
            note_align: align,
            ..Builder::small()
        };
        assert!(parse(&b).is_ok(), "alignment {align} means 4");
    }
}

#[test]
fn truncated_notes_are_refused() {
    let mut b = Builder::small();
    b.notes.extend(note(b"Xen\0", 5, b"xen-3.0\0", 4));
    let len = b.notes.len();
    b.notes[len - 20..len - 16].copy_from_slice(&100_u32.to_le_bytes());
    assert_eq!(parse(&b), Err(KernelError::BadElf("ELF note cut short")));
    b.notes[len - 20..len - 16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(parse(&b), Err(KernelError::BadElf("ELF note cut short")));
    // A note segment past the file's end.
    let mut file = Builder::small().build();
    let note_header = 64 + 56;
    file[note_header + 8] = 0xff;
    assert_eq!(
        Kernel::parse(&file),
        Err(KernelError::BadElf("ELF notes past the end of the file"))
    );
}

#[test]
fn relocation_notes_of_every_length() {
    let with = |desc: &[u8]| parse(&Builder::with_notes(&[entry(0x100_0000), xen(19, desc)]));
    let words = |w: &[u32]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let all = Relocation {
        align: 2 << 20,
        min: 0,
        max: 0xffff_ffff,
    };
    assert_eq!(with(&[]).unwrap().relocation, Some(all));
    assert_eq!(
        with(&words(&[0x40_0000])).unwrap().relocation,
        Some(Relocation {
            align: 4 << 20,
            ..all
        })
    );
    assert_eq!(
        with(&words(&[0x20_0000, 0x100_0000])).unwrap().relocation,
        Some(Relocation {
            min: 16 << 20,
            ..all
        })
    );
    assert_eq!(
        with(&words(&[0x20_0000, 0x100_0000, 0x3fff_ffff]))
            .unwrap()
            .relocation,
        Some(Relocation {
            min: 16 << 20,
            max: 0x3fff_ffff,
            ..all
        })
    );
    for bad in [
        words(&[3]),
        words(&[1024]),
        words(&[0, 2, 1]),
        words(&[0, 0, 0, 0]),
        vec![0; 5],
    ] {
        assert!(
            matches!(
                with(&bad),
                Err(KernelError::BadNote {
                    name: "PHYS32_RELOC",
                    ..
                })
            ),
            "{bad:?}"
        );
    }
}

proptest! {
    #![proptest_config(crate::cases(3000))]

    /// Good files with a few bytes changed reach every check.
    #[test]
    fn damaged_kernels_never_panic_and_results_hold(
        section: bool,
        align in prop::sample::select(vec![0u64, 4, 8]),
        changes in prop::collection::vec((0usize..600, any::<u8>()), 0..6),
        desc in prop::collection::vec(any::<u8>(), 0..16),
        kind in 0u32..20,
    ) {
        let mut b = Builder::small();
        b.note_section = section;
        b.note_align = align;
        b.notes.extend(xen(kind, &desc));
        b.loads.push((0x200_0000, vec![3; 40], 0x2000));
        let mut file = b.build();
        let len = file.len();
        for (at, value) in changes {
            file[at % len] = value;
        }
        if let Ok(kernel) = Kernel::parse(&file) {
            prop_assert!(kernel.start < kernel.end && kernel.end <= 1 << 32);
            let mut last = 0;
            for s in &kernel.segments {
                prop_assert!(s.paddr >= last && s.file.end <= len && s.file.len() as u64 <= s.memsz);
                last = s.paddr + s.memsz;
            }
            prop_assert!((kernel.start..kernel.end).contains(&kernel.entry));
        }
    }

    #[test]
    fn any_bytes_after_the_magic_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.extend(tail);
        let _ = Kernel::parse(&file);
    }
}
