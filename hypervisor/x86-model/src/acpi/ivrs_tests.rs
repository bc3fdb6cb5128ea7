use super::*;
extern crate std;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

fn table(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut t = vec![0u8; FIRST];
    t[..4].copy_from_slice(b"IVRS");
    t.extend(blocks.concat());
    t
}

fn ivhd(kind: u8, device: u16, base: u64, features: u64, entries: &[Vec<u8>]) -> Vec<u8> {
    let mut b = vec![kind, 0x21, 0, 0];
    b.extend(device.to_le_bytes());
    b.extend(0x40u16.to_le_bytes());
    b.extend(base.to_le_bytes());
    b.extend([0; 8]);
    if kind != 0x10 {
        b.extend(features.to_le_bytes());
        b.extend([0; 8]);
    }
    b.extend(entries.concat());
    let length = b.len() as u16;
    b[2..4].copy_from_slice(&length.to_le_bytes());
    b
}

fn entry(kind: u8, id: u16, bits: u8) -> Vec<u8> {
    let [low, high] = id.to_le_bytes();
    vec![kind, low, high, bits]
}
fn alias(kind: u8, id: u16, bits: u8, to: u16) -> Vec<u8> {
    let mut e = entry(kind, id, bits);
    let [low, high] = to.to_le_bytes();
    e.extend([0, low, high, 0]);
    e
}
fn special(handle: u8, id: u16, variety: u8, bits: u8) -> Vec<u8> {
    let [low, high] = id.to_le_bytes();
    vec![0x48, 0, 0, bits, handle, low, high, variety]
}

#[test]
fn the_highest_block_of_an_iommu_is_taken() {
    let entries = [entry(1, 0, 0), special(0, 0xa0, 1, 0xc7)];
    for order in [[0x10, 0x11, 0x40], [0x40, 0x11, 0x10], [0x11, 0x40, 0x10]] {
        let blocks: Vec<_> = order
            .iter()
            .map(|&k| ivhd(k, 2, 0xfed8_0000, (0x84 + u64::from(k)) << 32, &entries))
            .collect();
        let i = parse(&table(&blocks)).unwrap();
        assert_eq!(i.units.len(), 1);
        assert_eq!(
            (i.units[0].kind, i.units[0].features),
            (0x40, (0x84 + 0x40) << 32)
        );
        assert_eq!(i.refused, []);
        assert_eq!(i.ioapic(0), Some((0, 0xa0)));
        assert_eq!(i.ioapic(1), None);
    }
    // Only the old kind.
    let i = parse(&table(&[ivhd(0x10, 2, 0xfed8_0000, 9, &entries)])).unwrap();
    assert_eq!((i.units[0].features, i.units[0].flags), (0, 0x21));
    // The better one is broken: the older one stays.
    let i = parse(&table(&[
        ivhd(0x10, 2, 0xfed8_0000, 0, &entries),
        ivhd(0x40, 2, 0, 0, &[]),
    ]))
    .unwrap();
    assert_eq!(i.units[0].kind, 0x10);
    assert_eq!(i.refused[0].why, Why::Registers(0));
}

#[test]
fn ranges_aliases_and_settings() {
    let i = parse(&table(&[ivhd(
        0x11,
        2,
        0xfed8_0000,
        0,
        &[
            entry(3, 0x08, 0x40),
            entry(4, 0xfffe, 0),
            alias(0x42, 0x100, 1, 0xa5),
            entry(0, 0, 0),
            alias(0x43, 0x200, 2, 0x1ff),
            entry(4, 0x2ff, 0),
            alias(0x46, 0x300, 4, 0),
            alias(0x47, 0x310, 8, 0),
            entry(4, 0x31f, 0),
        ],
    )]))
    .unwrap();
    let u = &i.units[0];
    assert_eq!((i.unknown, &i.refused[..]), (0, &[][..]));
    assert_eq!(
        u.settings[0],
        Setting {
            first: 8,
            last: 0xfffe,
            bits: 0x40
        }
    );
    assert_eq!(
        [0x100, 0x101, 0x200, 0x2ff, 0x300].map(|d| u.alias(d)),
        [0xa5, 0x101, 0x1ff, 0x1ff, 0x300]
    );
    assert!(u.settings.contains(&Setting {
        first: 0x1ff,
        last: 0x1ff,
        bits: 2
    }));
    assert!(u.settings.contains(&Setting {
        first: 0x310,
        last: 0x31f,
        bits: 8
    }));
}

#[test]
fn namespace_devices_with_uids_of_both_kinds() {
    let hid = |format: u8, uid: &[u8]| {
        let mut e = entry(0xf0, 0x98, 0x30);
        e.extend(b"AMDI0040\0\0\0\0\0\0\0\0");
        e.extend([format, uid.len() as u8]);
        e.extend(uid);
        e
    };
    let i = parse(&table(&[ivhd(
        0x40,
        2,
        0xfed8_0000,
        0,
        &[
            hid(0, b""),
            hid(1, &7u64.to_le_bytes()),
            hid(2, b"\\_SB.FUR0"),
            special(4, 0xa0, 1, 0),
        ],
    )]))
    .unwrap();
    assert_eq!(i.refused, []);
    assert_eq!(i.ioapic(4), Some((0, 0xa0)));
    assert_eq!(i.units[0].settings.len(), 4);
}

#[test]
fn an_iommu_may_lack_an_ioapic_and_name_one_twice() {
    let i = parse(&table(&[
        ivhd(0x11, 2, 0xfed8_0000, 0, &[special(0x81, 0xa0, 1, 0)]),
        ivhd(
            0x11,
            0x8002,
            0xfec1_0000,
            0,
            &[
                special(0x82, 0x80a0, 1, 0),
                special(0x82, 0x80a1, 1, 0),
                special(0, 0xa0, 2, 0),
                special(0, 0xa0, 9, 0),
            ],
        ),
    ]))
    .unwrap();
    assert_eq!(
        [0x80, 0x81, 0x82].map(|id| i.ioapic(id)),
        [None, Some((0, 0xa0)), Some((0, 0x80a0))]
    );
    assert_eq!(i.refused[0].why, Why::Again(0x82));
    assert_eq!((i.unknown, i.units[1].hpets.len()), (1, 1));
    assert!(
        i.refused[0]
            .to_string()
            .contains("(type 0x48): a second one for number 130")
    );
}

#[test]
fn the_administrator_knows_an_ioapics_source_better() {
    let t = table(&[
        ivhd(
            0x11,
            0x02,
            0xfed8_0000,
            0,
            &[special(4, 0xa0, 1, 0), entry(2, 0x98, 0)],
        ),
        ivhd(0x11, 0x4002, 0xfed9_0000, 0, &[special(5, 0x40a0, 1, 0)]),
    ]);
    let mut t = parse(&t).unwrap();
    assert_eq!(t.ioapic(4), Some((0, 0xa0)));
    // Wrong in the table: of the unit that has the device.
    assert!(t.set_ioapic(4, 0, 0x98));
    assert_eq!(
        (t.ioapic(4), t.units[0].ioapics.len()),
        (Some((0, 0x98)), 1)
    );
    // Missing in the table: of the segment's last unit.
    assert!(t.set_ioapic(9, 0, 0x1234));
    assert_eq!(
        (t.ioapic(9), t.units[1].ioapics.len()),
        (Some((0, 0x1234)), 2)
    );
    // Moved from one unit to another.
    assert!(t.set_ioapic(5, 0, 0xa0));
    assert_eq!(
        (t.ioapic(5), t.units[1].ioapics.len()),
        (Some((0, 0xa0)), 1)
    );
    let before = t.clone();
    assert!(!t.set_ioapic(4, 7, 0xa0));
    assert_eq!(t, before);
}

#[test]
fn wrong_lengths_are_named_and_end_the_parse() {
    for (bad, length) in [(vec![0x11u8, 0, 0, 0], 0), (vec![0x20, 0, 99, 0], 99)] {
        let kind = bad[0];
        let good = ivhd(0x10, 2, 0xfed8_0000, 0, &[]);
        let t = table(&[good, bad]);
        let i = parse(&t).unwrap();
        assert_eq!(i.units.len(), 1);
        assert_eq!(
            i.refused,
            [Refused {
                offset: FIRST + 24,
                kind,
                why: Why::Length(length)
            }]
        );
    }
}

#[test]
fn malformed_blocks_and_entries_are_left_out_by_name() {
    let i = parse(&table(&[
        vec![
            0x11, 0, 24, 0, 2, 0, 0, 0, 0, 0, 0xd8, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        ivhd(0x10, 2, 0xfed8_0800, 0, &[]),
        ivhd(0x10, 2, 0xfed8_0000, 0, &[]),
        ivhd(0x10, 2, 0xfed8_4000, 0, &[]),
        ivhd(0x10, 3, 0xfed8_0000, 0, &[]),
        vec![0x21, 8, 4, 0],
        vec![0x77, 0, 4, 0],
    ]))
    .unwrap();
    let why: Vec<_> = i.refused.iter().map(|r| r.why).collect();
    assert_eq!(
        why,
        [
            Why::Short(24),
            Why::Registers(0xfed8_0800),
            Why::Duplicate(0xfed8_4000),
            Why::Duplicate(0xfed8_0000)
        ]
    );
    assert_eq!((i.units.len(), i.unknown), (1, 1));
    // Entries: an end without a start, a start without an end, an end before its start, one cut off.
    let i = parse(&table(&[ivhd(
        0x10,
        2,
        0xfed8_0000,
        0,
        &[
            entry(4, 9, 0),
            entry(3, 0x10, 0),
            entry(2, 0x20, 0),
            entry(3, 0x30, 0),
            entry(4, 0x2f, 0),
            vec![0x42, 0, 0],
        ],
    )]))
    .unwrap();
    let why: Vec<_> = i.refused.iter().map(|r| r.why).collect();
    assert_eq!(
        why,
        [
            Why::Range(9),
            Why::Range(0x10),
            Why::Range(0x30),
            Why::EntryLength(3)
        ]
    );
    assert_eq!(i.units[0].settings.len(), 1);
}

#[test]
fn tables_without_a_fixed_part() {
    assert_eq!(parse(&[0; 47]), None);
    assert_eq!(parse(&[0; 48]).unwrap(), Ivrs::default());
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Some(i) = parse(&bytes) {
            for u in &i.units {
                prop_assert!(u.settings.iter().all(|s| s.first <= s.last));
                prop_assert!(u.aliases.iter().all(|a| a.first <= a.last));
            }
            for r in &i.refused {
                prop_assert!(r.offset < bytes.len() && !r.to_string().is_empty());
            }
        }
    }

    /// Blocks that start right and then hold anything: the entries' parse ends, and the next block is found.
    #[test]
    fn one_bad_block_takes_no_other_with_it(kind in any::<u8>(), body in proptest::collection::vec(any::<u8>(), 0..120)) {
        let mut odd = vec![kind, 0];
        odd.extend((4 + body.len() as u16).to_le_bytes());
        odd.extend(body);
        let t = table(&[odd, ivhd(0x40, 0x7777, 0x7_7777_0000, 0, &[])]);
        prop_assert!(parse(&t).unwrap().units.iter().any(|u| u.registers == 0x7_7777_0000));
    }
}
