use super::*;
extern crate std;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

fn table(flags: u8, structures: &[Vec<u8>]) -> Vec<u8> {
    let mut t = vec![0u8; FIRST];
    t[..4].copy_from_slice(b"DMAR");
    t[HEADER] = 38;
    t[HEADER + 1] = flags;
    t.extend(structures.concat());
    t
}

fn drhd(flags: u8, segment: u16, base: u64, scopes: &[Vec<u8>]) -> Vec<u8> {
    let scopes = scopes.concat();
    let mut s = vec![0, 0];
    s.extend((16 + scopes.len() as u16).to_le_bytes());
    s.extend([flags, 0]);
    s.extend(segment.to_le_bytes());
    s.extend(base.to_le_bytes());
    s.extend(scopes);
    s
}

fn scope(kind: u8, id: u8, bus: u8, path: &[(u8, u8)]) -> Vec<u8> {
    let mut s = vec![kind, 6 + 2 * path.len() as u8, 0, 0, id, bus];
    s.extend(path.iter().flat_map(|&(d, f)| [d, f]));
    s
}

#[test]
fn one_unit_as_an_emulator_makes_it() {
    let t = table(
        1,
        &[drhd(1, 0, 0xfed9_0000, &[scope(3, 0, 0xff, &[(0, 0)])])],
    );
    let d = parse(&t).unwrap();
    assert!(d.interrupt_remapping && !d.x2apic_opt_out);
    assert_eq!((d.address_bits, d.units.len()), (39, 1));
    assert_eq!((d.units[0].registers, d.units[0].size), (0xfed9_0000, 4096));
    assert!(d.units[0].include_all && d.refused.is_empty());
    assert_eq!(d.ioapic(0, |_| 0), Some(Bdf::new(0xff, 0, 0)));
    assert_eq!(d.ioapic(1, |_| 0), None);
}

#[test]
fn several_units_flags_and_paths_through_bridges() {
    let t = table(
        3,
        &[
            drhd(0, 1, 0xc000_0000, &[scope(1, 0, 0, &[(2, 0)])]),
            vec![
                1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 255, 15, 1, 0, 0, 0, 0, 0,
            ],
            drhd(
                1,
                1,
                0xc000_1000,
                &[
                    scope(3, 8, 0x10, &[(1, 1), (3, 2), (5, 4)]),
                    scope(4, 0, 0xf0, &[(0x1f, 0)]),
                ],
            ),
        ],
    );
    let d = parse(&t).unwrap();
    assert!(d.x2apic_opt_out);
    assert_eq!(d.units.len(), 2);
    let mut asked = Vec::new();
    let at = d.ioapic(8, |bridge| {
        asked.push(bridge);
        bridge.bus + 1
    });
    let on = |bus, device, function| Bdf {
        segment: 1,
        ..Bdf::new(bus, device, function)
    };
    assert_eq!(at, Some(on(0x12, 5, 4)));
    assert_eq!(asked, [on(0x10, 1, 1), on(0x11, 3, 2)]);
}

#[test]
fn wrong_lengths_are_named_and_end_the_parse() {
    for (bad, length) in [
        (vec![0u8, 0, 0, 0], 0),
        (vec![1, 0, 3, 0, 9], 3),
        (vec![0, 0, 200, 0, 0, 0], 200),
    ] {
        let kind = u16::from(bad[0]);
        let t = table(
            1,
            &[
                drhd(1, 0, 0xfed9_0000, &[]),
                bad,
                drhd(1, 0, 0xfed9_1000, &[]),
            ][..if length == 200 { 2 } else { 3 }],
        );
        let d = parse(&t).unwrap();
        assert_eq!(d.units.len(), 1);
        assert_eq!(
            d.refused,
            [Refused {
                offset: FIRST + 16,
                kind,
                why: Why::Length(length)
            }]
        );
        assert!(d.refused[0].to_string().contains("at offset 0x40"));
    }
}

#[test]
fn short_duplicate_and_impossible_units_are_left_out_by_name() {
    let t = table(
        1,
        &[
            vec![0, 0, 12, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            drhd(0, 0, 0, &[]),
            drhd(0, 0, u64::MAX, &[]),
            drhd(0, 0, 0xfed9_0800, &[]),
            drhd(0, 0, 0xfed9_0000, &[]),
            drhd(1, 0, 0xfed9_0000, &[]),
            vec![77, 0, 4, 0],
            drhd(1, 0, 0xfed9_1000, &[]),
        ],
    );
    let d = parse(&t).unwrap();
    assert_eq!(d.units.len(), 2);
    assert_eq!(d.unknown, 1);
    let why: Vec<_> = d.refused.iter().map(|r| r.why).collect();
    assert_eq!(
        why,
        [
            Why::Short(12),
            Why::Registers(0),
            Why::Registers(u64::MAX),
            Why::Registers(0xfed9_0800),
            Why::Duplicate(0xfed9_0000)
        ]
    );
    assert_eq!(
        d.refused[4].to_string(),
        "structure at offset 0x7c (type 0): a second unit with registers at 0xfed90000"
    );
}

#[test]
fn bad_scopes_do_not_take_the_unit_away() {
    let good = scope(3, 2, 0xf0, &[(0x1f, 7)]);
    for (bad, lost) in [
        (vec![1u8, 0, 0, 0, 0, 0], true),
        (vec![1, 6, 0, 0, 0, 0], true),
        (vec![1, 40, 0, 0, 0, 0, 0, 0], true),
        (scope(9, 0, 0, &[(0, 0)]), false),
    ] {
        let d = parse(&table(
            1,
            &[drhd(1, 0, 0xfed9_0000, &[bad.clone(), good.clone()])],
        ))
        .unwrap();
        assert_eq!(d.units.len(), 1);
        assert_eq!(d.refused.len(), 1, "{bad:?}");
        assert_eq!(d.ioapic(2, |_| 0).is_none(), lost);
        assert!(
            d.refused[0]
                .to_string()
                .contains("device scope at offset 0x40")
        );
    }
    // A scope header cut off by the end of its unit is no scope.
    let mut cut = drhd(1, 0, 0xfed9_0000, &[]);
    cut.push(3);
    cut[2] = 17;
    assert_eq!(parse(&table(1, &[cut])).unwrap().units[0].scopes, []);
}

#[test]
fn tables_without_a_fixed_part() {
    assert_eq!(parse(&[0; 37]), None);
    assert_eq!(parse(&[0; 38]).unwrap().units, []);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Some(d) = parse(&bytes) {
            for u in &d.units {
                prop_assert!(u.registers & 0xfff == 0 && u.registers != 0);
                for s in &u.scopes {
                    prop_assert!(!s.path.is_empty());
                    s.resolve(u.segment, |b| b.bus.wrapping_add(1));
                }
            }
            for r in &d.refused {
                prop_assert!(r.offset < bytes.len() && !r.to_string().is_empty());
            }
        }
    }

    /// Whatever a structure's bytes are, those before it and (if its length is right) those behind it are read.
    #[test]
    fn one_bad_structure_takes_no_other_with_it(kind in any::<u16>(), body in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut odd = kind.to_le_bytes().to_vec();
        odd.extend((4 + body.len() as u16).to_le_bytes());
        odd.extend(body);
        let t = table(1, &[drhd(0, 0, 0x1000, &[]), odd, drhd(1, 0, 0x2000, &[])]);
        let d = parse(&t).unwrap();
        prop_assert_eq!(d.units.first().map(|u| u.registers), Some(0x1000));
        prop_assert!(d.units.iter().any(|u| u.registers == 0x2000));
    }
}
