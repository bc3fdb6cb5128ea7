//! Maps as real machines have them, and any maps at all.

use proptest::prelude::*;
use std::vec::Vec;

use super::*;
use crate::options::Options;

fn region(base: u64, end: u64, kind: Kind) -> Region {
    Region {
        base,
        len: end - base,
        kind,
    }
}

fn range(start: u64, end: u64) -> Range {
    Range { start, end }
}

/// A 2 GiB QEMU machine with SeaBIOS.
pub(crate) fn qemu() -> Vec<Region> {
    vec![
        region(0, 0x9_fc00, Kind::Ram),
        region(0x9_fc00, 0xa_0000, Kind::Reserved),
        region(0xf_0000, 0x10_0000, Kind::Reserved),
        region(0x10_0000, 0x7ffd_f000, Kind::Ram),
        region(0x7ffd_f000, 0x8000_0000, Kind::Reserved),
        region(0xfeff_c000, 0xff00_0000, Kind::Reserved),
        region(0xfffc_0000, 0x1_0000_0000, Kind::Reserved),
    ]
}

fn build(regions: &[Region], hypervisor: &[Range], options: &str) -> Dom0Memory {
    let host = HostMemory {
        regions,
        hypervisor,
        tables: &[],
    };
    let (options, warnings) = Options::parse(options.as_bytes());
    assert!(warnings.is_empty(), "{warnings:?}");
    Dom0Memory::build(&host, &options.dom0_mem)
}

#[test]
fn half_a_gigabyte_of_two() {
    let m = build(&qemu(), &[range(0x7f80_0000, 0x7ffd_f000)], "dom0_mem=512M");
    assert_eq!(m.ram_bytes, 512 << 20);
    let low = 0x9f000;
    let top = 0x10_0000 + (512 << 20) - low;
    assert_eq!(
        m.map,
        [
            region(0, low, Kind::Ram),
            region(low, 0xa_0000, Kind::Reserved),
            region(0xf_0000, 0x10_0000, Kind::Reserved),
            region(0x10_0000, top, Kind::Ram),
            region(top, 0x7f80_0000, Kind::Bad),
            region(0x7f80_0000, 0x8000_0000, Kind::Reserved),
            region(0xfeff_c000, 0xff00_0000, Kind::Reserved),
            region(0xfffc_0000, 0x1_0000_0000, Kind::Reserved),
        ]
    );
    assert!(m.has_low_ram());
    assert_eq!(m.low_ram_bytes, 0x9e000);
    assert!(m.is_ram(range(0x100_0000, 0x4a0_0000)));
    assert!(!m.is_ram(range(top - 1, top + 1)) && !m.is_ram(range(5, 5)));
}

#[test]
fn amounts() {
    let total = build(&qemu(), &[], "dom0_mem=100%").ram_bytes;
    assert_eq!(total, 0x9f000 + 0x7fed_f000);
    assert_eq!(
        build(&qemu(), &[], "").ram_bytes,
        (total - (total / 16).min(128 << 20)) & !0xfff
    );
    assert_eq!(
        build(&qemu(), &[], "dom0_mem=64G").ram_bytes,
        total,
        "not more than there is"
    );
    assert_eq!(
        build(&qemu(), &[], "dom0_mem=-1G").ram_bytes,
        total - (1 << 30)
    );
    let m = build(&qemu(), &[], "dom0_mem=1G,max:512M");
    assert_eq!((m.ram_bytes, m.max_bytes), (512 << 20, Some(512 << 20)));
    assert_eq!(
        build(&qemu(), &[], "dom0_mem=64M,min:256M").ram_bytes,
        256 << 20
    );
    assert_eq!(
        build(&qemu(), &[], "dom0_mem=max:256M").ram_bytes,
        256 << 20
    );
    let m = build(&qemu(), &[], "dom0_mem=0");
    assert_eq!(m.ram_bytes, 0);
    assert!(!m.has_low_ram());
    let m = build(&[], &[], "");
    assert_eq!((m.map.len(), m.ram_bytes), (0, 0));
}

#[test]
fn small_machines_keep_a_sixteenth() {
    let m = build(&[region(0x10_0000, 0x1010_0000, Kind::Ram)], &[], "");
    assert_eq!(m.ram_bytes, 240 << 20);
}

#[test]
fn overlaps_go_to_the_more_careful_kind() {
    let regions = [
        region(0x20_0000, 0x60_0000, Kind::Ram),
        region(0x10_0000, 0x40_0000, Kind::Ram),
        region(0x30_0800, 0x31_0000, Kind::AcpiNvs),
        region(0x30_c000, 0x31_4000, Kind::Reserved),
        region(0x50_0000, 0x50_0010, Kind::Bad),
        region(0x70_0000, 0x70_0000, Kind::Ram),
    ];
    let m = build(&regions, &[], "dom0_mem=100%");
    assert_eq!(
        m.map,
        [
            region(0x10_0000, 0x30_0000, Kind::Ram),
            region(0x30_0000, 0x30_0800, Kind::Reserved),
            region(0x30_0800, 0x30_c000, Kind::AcpiNvs),
            region(0x30_c000, 0x31_4000, Kind::Reserved),
            region(0x31_4000, 0x50_0000, Kind::Ram),
            region(0x50_0000, 0x50_0010, Kind::Bad),
            region(0x50_0010, 0x50_1000, Kind::Reserved),
            region(0x50_1000, 0x60_0000, Kind::Ram),
        ]
    );
}

#[test]
fn ram_claimed_in_the_legacy_hole_is_not_believed() {
    let m = build(&[region(0, 64 << 20, Kind::Ram)], &[], "dom0_mem=100%");
    assert_eq!(
        m.map,
        [
            region(0, 0xa_0000, Kind::Ram),
            region(0xa_0000, 0x10_0000, Kind::Reserved),
            region(0x10_0000, 64 << 20, Kind::Ram),
        ]
    );
}

#[test]
fn tables_in_ram_and_the_hypervisor_are_kept_out() {
    let regions = [region(0x10_0000, 0x100_0000, Kind::Ram)];
    let host = HostMemory {
        regions: &regions,
        hypervisor: &[range(0x80_0001, 0x80_0002)],
        tables: &[range(0x90_0ff0, 0x90_1010)],
    };
    let mut m = Dom0Memory::build(&host, &Options::parse(b"dom0_mem=100%").0.dom0_mem);
    assert!(!m.is_ram(range(0x80_0000, 0x80_1000)));
    assert_eq!(
        m.map.iter().find(|r| r.kind == Kind::AcpiReclaim),
        Some(&region(0x90_0000, 0x90_2000, Kind::AcpiReclaim))
    );
    let before = m.ram_bytes;
    m.steal(range(0xff_f000, 0x100_0000), Kind::AcpiReclaim);
    assert_eq!(m.ram_bytes, before - 4096);
}

#[test]
fn too_many_entries_lose_the_least_missed() {
    let mut regions = Vec::new();
    for i in 0..300u64 {
        let kind = if i % 2 == 0 {
            Kind::Ram
        } else {
            Kind::Reserved
        };
        regions.push(region(i << 20, (i + 1) << 20, kind));
    }
    regions.push(region(400 << 20, 401 << 20, Kind::AcpiReclaim));
    let m = build(&regions, &[], "dom0_mem=100%");
    assert!(m.map.len() <= MAX_ENTRIES - SPARE);
    assert!(m.map.iter().any(|r| r.kind == Kind::AcpiReclaim));
    assert!(m.map.iter().filter(|r| r.kind == Kind::Ram).count() >= 120);
    assert!(m.dropped > 0);
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Ram,
        Kind::Ram,
        Kind::Ram,
        Kind::Reserved,
        Kind::AcpiReclaim,
        Kind::AcpiNvs,
        Kind::Bad,
        Kind::Persistent,
    ])
}

proptest! {
    #![proptest_config(crate::testing::cases(1000))]

    #[test]
    fn any_map_gives_a_sound_one(
        raw in prop::collection::vec((0u64..0x200_0000, 0u64..0x40_0000, kinds()), 0..60),
        edge in prop::option::of((any::<u64>(), any::<u64>(), kinds())),
        own in prop::collection::vec((0u64..0x200_0000, 0u64..0x10_0000), 0..4),
        want in prop::option::of(0u64..0x300_0000),
    ) {
        let mut regions: Vec<Region> =
            raw.iter().map(|&(base, len, kind)| Region { base, len, kind }).collect();
        regions.extend(edge.map(|(base, len, kind)| Region { base, len, kind }));
        let own: Vec<Range> = own.iter().map(|&(start, len)| range(start, start + len)).collect();
        let host = HostMemory { regions: &regions, hypervisor: &own, tables: &[] };
        let want = Dom0Mem {
            initial: want.map(|bytes| crate::options::Amount { bytes, all_but: false, percent: 0 }),
            ..Dom0Mem::default()
        };
        let m = Dom0Memory::build(&host, &want);
        prop_assert!(m.map.len() <= MAX_ENTRIES - SPARE);
        let mut last = 0;
        for r in &m.map {
            prop_assert!(r.base >= last && r.len > 0);
            last = r.base + r.len;
        }
        for r in m.ram() {
            prop_assert!(r.start % 4096 == 0 && r.end % 4096 == 0);
            // A byte of RAM is RAM in every region that has it, is not the hypervisor's and not in the hole.
            prop_assert!(r.end <= 0xa_0000 || r.start >= 0x10_0000);
            for at in [r.start, r.end - 1, r.start + r.len() / 2] {
                let inside = |g: &&Region| g.base <= at && at < g.base.saturating_add(g.len);
                prop_assert!(regions.iter().filter(inside).all(|g| g.kind == Kind::Ram));
                prop_assert!(regions.iter().any(|g| inside(&g)));
                prop_assert!(own.iter().all(|o| o.is_empty() || at < o.start & !0xfff || at >= Range::pages(o.start, o.len()).end));
            }
        }
        if let Some(a) = want.initial {
            prop_assert!(m.ram_bytes <= a.bytes);
        }
    }
}
