//! Tests of the page walk on small hand-made tables and on random ones.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

const PG: u64 = CR0_PG | CR0_WP | 1;

fn long(cr4: u64) -> PagingInputs {
    PagingInputs {
        cr0: PG,
        cr3: 0x1000,
        cr4: CR4_PAE | cr4,
        efer: EFER_LMA | EFER_NXE | 0x100,
        ac: false,
        phys_bits: 40,
    }
}

fn run(
    p: &PagingInputs,
    va: u64,
    a: Access,
    entries: &[(u64, u64)],
) -> Result<Translation, WalkFault> {
    let map: BTreeMap<u64, u64> = entries.iter().copied().collect();
    walk(p, Gva(va), a, |at, _| {
        Some(map.get(&at.0).copied().unwrap_or(0))
    })
}

/// Tables that lead 0xffff_ffff_8123_4567 to 0x5567 in 4 KiB steps, with given flags in the leaf.
fn high(leaf: u64) -> [(u64, u64); 4] {
    [
        (0x1ff8, 0x2007),
        (0x2ff0, 0x3007),
        (0x3048, 0x4007),
        (0x41a0, 0x5000 | leaf),
    ]
}
const HIGH: u64 = 0xffff_ffff_8123_4567;

#[test]
fn no_paging_is_identity_below_4g() {
    let mut p = long(0);
    p.cr0 = 1;
    assert_eq!(
        run(&p, 0x1_2345_6789, Access::WRITE, &[]).unwrap().gpa,
        Gpa(0x2345_6789)
    );
}

#[test]
fn four_level_small_page() {
    let t = run(&long(0), HIGH, Access::WRITE, &high(0x63)).unwrap();
    assert_eq!((t.gpa, t.page_shift), (Gpa(0x5567), 12));
    assert!(t.writable && !t.user && t.executable);
    assert_eq!(t.bytes_left(), 0x1000 - 0x567);
}

#[test]
fn four_level_large_pages() {
    let p = long(0);
    let t = run(
        &p,
        0x1234_5678,
        Access::READ,
        &[(0x1000, 0x2003), (0x2000, 0x3003), (0x3488, 0x4000_0083)],
    )
    .unwrap();
    assert_eq!((t.gpa, t.page_shift), (Gpa(0x4014_5678), 21));
    let t = run(
        &p,
        0x1234_5678,
        Access::READ,
        &[(0x1000, 0x2003), (0x2000, 0x8000_0083)],
    )
    .unwrap();
    assert_eq!((t.gpa, t.page_shift), (Gpa(0x9234_5678), 30));
    // Misaligned 2 MiB frame: reserved bits.
    let e = run(
        &p,
        0,
        Access::READ,
        &[(0x1000, 0x2003), (0x2000, 0x3003), (0x3000, 0x4000_2083)],
    );
    assert_eq!(e.unwrap_err().error_code(), Some(PF_PRESENT | PF_RESERVED));
}

#[test]
fn pat_bit_of_a_large_page_is_not_address() {
    let t = run(
        &long(0),
        0,
        Access::READ,
        &[(0x1000, 0x2003), (0x2000, 0x3003), (0x3000, 0x4000_1083)],
    )
    .unwrap();
    assert_eq!(t.gpa, Gpa(0x4000_0000));
}

#[test]
fn faults_carry_the_processors_code() {
    let p = long(0);
    let pf = |r: Result<Translation, WalkFault>| r.unwrap_err().error_code().unwrap();
    assert_eq!(pf(run(&p, HIGH, Access::READ, &[])), 0);
    assert_eq!(pf(run(&p, HIGH, Access::WRITE, &high(0))), PF_WRITE);
    assert_eq!(
        pf(run(&p, HIGH, Access::WRITE, &high(0x61))),
        PF_PRESENT | PF_WRITE
    );
    assert_eq!(
        pf(run(&p, HIGH, Access::READ.at_cpl(3), &high(0x63))),
        PF_PRESENT | PF_USER
    );
    assert_eq!(
        pf(run(&p, HIGH, Access::FETCH, &high(NX | 0x63))),
        PF_PRESENT | PF_FETCH
    );
    assert_eq!(
        run(&p, 0x8000_0000_0000, Access::READ, &[]),
        Err(WalkFault::NonCanonical)
    );
    assert_eq!(
        run(&long(CR4_LA57), 0, Access::READ, &[]),
        Err(WalkFault::Unsupported)
    );
    // Address bits above the width are reserved; bits 62:52 are software's.
    assert_eq!(
        pf(run(&p, HIGH, Access::READ, &high(1 << 41 | 1))),
        PF_PRESENT | PF_RESERVED
    );
    assert!(run(&p, HIGH, Access::READ, &high(1 << 55 | 1)).is_ok());
    // Without NXE, bit 63 is reserved and a fetch is not reported as one.
    let q = PagingInputs {
        efer: EFER_LMA,
        ..p
    };
    assert_eq!(
        pf(run(&q, HIGH, Access::FETCH, &high(NX | 1))),
        PF_PRESENT | PF_RESERVED
    );
}

#[test]
fn wp_smep_smap() {
    let p = long(0);
    let no_wp = PagingInputs {
        cr0: PG & !CR0_WP,
        ..p
    };
    assert!(run(&no_wp, HIGH, Access::WRITE, &high(0x61)).is_ok());
    assert!(run(&no_wp, HIGH, Access::WRITE.at_cpl(3), &high(0x65)).is_err());
    let s = long(CR4_SMEP | CR4_SMAP);
    assert!(run(&s, HIGH, Access::FETCH, &high(0x67)).is_err());
    assert!(run(&s, HIGH, Access::READ, &high(0x67)).is_err());
    assert!(
        run(
            &PagingInputs { ac: true, ..s },
            HIGH,
            Access::READ,
            &high(0x67)
        )
        .is_ok()
    );
    assert!(
        run(
            &s,
            HIGH,
            Access {
                ignore_smap: true,
                ..Access::WRITE
            },
            &high(0x67)
        )
        .is_ok()
    );
    assert!(run(&s, HIGH, Access::READ.at_cpl(3), &high(0x67)).is_ok());
    // A supervisor page is untouched by both.
    assert!(run(&s, HIGH, Access::FETCH, &high(0x63)).is_ok());
}

#[test]
fn thirty_two_bit() {
    let p = PagingInputs {
        cr0: PG,
        cr3: 0x1000,
        cr4: 0,
        efer: 0,
        ac: false,
        phys_bits: 40,
    };
    let t = run(
        &p,
        0x0040_3004,
        Access::READ,
        &[(0x1004, 0x2007), (0x200c, 0x7007)],
    )
    .unwrap();
    assert_eq!((t.gpa, t.user), (Gpa(0x7004), true));
    // PS counts only with CR4.PSE; then bits 20:13 extend the address.
    let pse = PagingInputs { cr4: CR4_PSE, ..p };
    let big = [(0x1004, 0x0080_0083 | 5 << 13)];
    assert_eq!(
        run(&pse, 0x0040_3004, Access::READ, &big).unwrap().gpa,
        Gpa(5 << 32 | 0x80_3004)
    );
    assert_ne!(
        run(&p, 0x0040_3004, Access::READ, &big),
        run(&pse, 0x0040_3004, Access::READ, &big)
    );
    assert!(run(&pse, 0x0040_3004, Access::READ, &[(0x1004, 1 << 21 | 0x83)]).is_err());
}

#[test]
fn pae() {
    let p = PagingInputs {
        cr0: PG,
        cr3: 0x1020,
        cr4: CR4_PAE,
        efer: EFER_NXE,
        ac: false,
        phys_bits: 36,
    };
    // The root entry has no R/W or U/S bits.
    let tables = [(0x1038, 0x2001), (0x2000, 0x3007), (0x3008, 0x8_0000_9007)];
    let t = run(&p, 0xc000_1004, Access::WRITE.at_cpl(3), &tables).unwrap();
    assert_eq!(t.gpa, Gpa(0x8_0000_9004));
    assert!(run(&p, 0xc000_1004, Access::READ, &[(0x1038, 0x2003)]).is_err());
}

#[test]
fn unreadable_tables_are_named() {
    let r = walk(&long(0), Gva(0), Access::READ, |_, _| None);
    assert_eq!(r, Err(WalkFault::BadTable { at: Gpa(0x1000) }));
}

#[test]
fn marks_what_the_processor_would_set() {
    let map: BTreeMap<u64, u64> = high(0x23).into_iter().collect();
    let go = |a| {
        let mut marks = Vec::new();
        walk_marking(
            &long(0),
            Gva(HIGH),
            a,
            |at, _| map.get(&at.0).copied(),
            |at, w, b| marks.push((at.0, w, b)),
        )
        .unwrap();
        marks
    };
    let upper = [
        (0x1ff8, Width::B8, ACCESSED),
        (0x2ff0, Width::B8, ACCESSED),
        (0x3048, Width::B8, ACCESSED),
    ];
    assert_eq!(go(Access::READ), upper);
    let mut with_dirty = upper.to_vec();
    with_dirty.push((0x41a0, Width::B8, DIRTY));
    assert_eq!(go(Access::WRITE), with_dirty);
}

proptest! {
    /// Random registers and tables: no panic, a bounded number of reads, and aligned entry addresses.
    #[test]
    fn any_input_ends(
        cr0: u64, cr3: u64, cr4: u64, efer: u64, va: u64, ac: bool, phys_bits: u8, seed: u64,
        write: bool, fetch: bool, user: bool,
    ) {
        let p = PagingInputs { cr0, cr3, cr4, efer, ac, phys_bits };
        let mut reads = 0;
        let r = walk(&p, Gva(va), Access { write, fetch, user, ignore_smap: false }, |at, w| {
            reads += 1;
            assert_eq!(at.0 % w.bytes() as u64, 0);
            let v = (at.0 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            // Mostly plausible entries, so that deep levels are reached.
            Some(if seed % 4 == 0 { v & w.mask() } else { v & 0x7f_ffff_f067 & w.mask() | 1 })
        });
        prop_assert!(reads <= 4);
        if let Ok(t) = r {
            prop_assert_eq!(t.gpa.0 & 0xfff, va & 0xfff);
            prop_assert!(t.gpa.0 < 1 << 52);
        }
    }
}
