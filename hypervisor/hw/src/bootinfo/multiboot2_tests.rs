//! Tests of the Multiboot2 parser: what GRUB gives, what broken loaders gave, and noise.

use proptest::prelude::*;

use super::*;

const MAP: u32 = 6;

fn tag(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut t = Vec::new();
    t.extend_from_slice(&kind.to_le_bytes());
    t.extend_from_slice(&(8 + body.len() as u32).to_le_bytes());
    t.extend_from_slice(body);
    t
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A block of the given raw tags, each padded to 8 bytes, without an end tag.
fn open_block(tags: &[Vec<u8>]) -> Vec<u8> {
    let mut b = vec![0; 8];
    for t in tags {
        b.extend_from_slice(t);
        b.resize(b.len().next_multiple_of(8), 0);
    }
    let total = b.len() as u32;
    b[..4].copy_from_slice(&total.to_le_bytes());
    b
}

fn block(tags: &[Vec<u8>]) -> Vec<u8> {
    let mut all = tags.to_vec();
    all.push(tag(0, &[]));
    open_block(&all)
}

fn map_tag() -> Vec<u8> {
    tag(MAP, &words(&[24, 0, 0x1000, 0, 0x9f000, 0, 1, 0]))
}

fn run(b: &[u8]) -> (Result<(), BootError>, Box<BootInfo>) {
    let mut info = Box::new(BootInfo::new());
    (parse(b, &mut info), info)
}

fn error(tags: &[Vec<u8>]) -> BootError {
    run(&block(tags)).0.expect_err("the block is broken")
}

#[test]
fn reads_what_grub_gives() {
    let mut framebuffer = words(&[0xe000_0000, 0, 4096, 1024, 768]);
    framebuffer.extend_from_slice(&[32, 1, 0, 0, 16, 8, 8, 8, 0, 8]);
    let mut module = words(&[0x20_0000, 0x20_1000]);
    module.extend_from_slice(b"root=/dev/sda1 ro\0");
    let mut old_rsdp = b"RSD PTR ".to_vec();
    old_rsdp.resize(20, 0);
    let mut new_rsdp = old_rsdp.clone();
    new_rsdp.extend_from_slice(&36u32.to_le_bytes());
    new_rsdp.resize(36, 7);
    let b = block(&[
        tag(1, b"console=com1\0"),
        tag(2, b"GRUB 2.06\0"),
        tag(3, &module),
        map_tag(),
        tag(8, &framebuffer),
        tag(12, &0x7f00_0000u64.to_le_bytes()),
        tag(15, &new_rsdp),
        tag(14, &old_rsdp),
        tag(99, b"unknown"),
    ]);
    let (result, info) = run(&b);
    assert_eq!(result, Ok(()));
    assert_eq!(info.entry, EntryKind::Multiboot2);
    assert_eq!(info.command_line.as_str(), "console=com1");
    assert_eq!(info.loader.as_str(), "GRUB 2.06");
    let m = info.modules[0];
    assert_eq!((m.start, m.size), (0x20_0000, 0x1000));
    assert_eq!(info.module_line(&m), "root=/dev/sda1 ro");
    assert_eq!(
        info.regions[..],
        [Region {
            base: 0x1000,
            len: 0x9f000,
            kind: Kind::Ram
        }]
    );
    assert!(matches!(info.screen, Screen::Framebuffer(f)
        if f.width == 1024 && f.pitch == 4096 && f.channels[0] == (16, 8)));
    assert_eq!(info.efi_system_table, Some(0x7f00_0000));
    assert!(matches!(&info.rsdp, Rsdp::Copy(c) if c.len() == 36));
    assert!(info.notes.is_empty());
}

#[test]
fn converts_an_efi_map_only_without_the_other() {
    let mut efi = words(&[48, 1]);
    for (kind, start, pages) in [(7u32, 0u64, 160u64), (9, 0xa_0000, 1), (5, 0xb_0000, 2)] {
        let mut d = words(&[kind, 0]);
        for v in [start, 0, pages, 0xf, 0] {
            d.extend_from_slice(&v.to_le_bytes());
        }
        efi.extend_from_slice(&d);
    }
    let (result, info) = run(&block(&[tag(17, &efi)]));
    assert_eq!(result, Ok(()));
    let kinds: Vec<Kind> = info.regions.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [Kind::Ram, Kind::AcpiReclaim, Kind::Reserved]);
    assert_eq!(info.regions[0].len, 0xa_0000);
    for order in [[tag(17, &efi), map_tag()], [map_tag(), tag(17, &efi)]] {
        assert_eq!(run(&block(&order)).1.regions.len(), 1);
    }
}

#[test]
fn impossible_tag_sizes_name_tag_and_place() {
    for size in [0, 7, 0xffff_ffff_u32, 0x1000] {
        let mut bad = tag(2, b"GRUB\0");
        bad[4..8].copy_from_slice(&size.to_le_bytes());
        let e = error(&[map_tag(), bad]);
        let BootError::Tag { kind, offset, .. } = e else {
            panic!("{e:?}");
        };
        assert_eq!((kind, offset), (2, 8 + 40), "{size:#x}");
        assert!(e.to_string().contains("type 2 at offset 0x30"), "{e}");
    }
}

#[test]
fn blocks_without_an_end_are_refused() {
    let b = open_block(&[map_tag()]);
    assert_eq!(run(&b).0, Err(BootError::NoEnd { offset: b.len() }));
    for total in [0, 7, u32::MAX, MAX_BLOCK as u32 + 1] {
        let mut b = block(&[map_tag()]);
        b[..4].copy_from_slice(&total.to_le_bytes());
        assert!(
            matches!(run(&b).0, Err(BootError::Block { offset: 0, .. })),
            "{total}"
        );
    }
    let mut b = block(&[map_tag()]);
    b[..4].copy_from_slice(&8u32.to_le_bytes());
    assert_eq!(run(&b).0, Err(BootError::NoEnd { offset: 8 }));
}

#[test]
fn malformed_contents_are_refused() {
    let why = |e| match e {
        BootError::Tag { why, .. } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(error(&[map_tag(), map_tag()])), TWICE);
    assert_eq!(why(error(&[tag(1, b"a\0"), tag(1, b"b\0")])), TWICE);
    assert_eq!(why(error(&[tag(1, b"no end")])), NO_NUL);
    assert_eq!(why(error(&[tag(1, b"")])), NO_NUL);
    assert_eq!(why(error(&[tag(3, &words(&[1]))])), CUT);
    assert_eq!(
        why(error(&[tag(3, &words(&[2, 1, 0]))])),
        "module ends before it starts"
    );
    assert_eq!(why(error(&[tag(12, &[1, 2])])), CUT);
    assert_eq!(why(error(&[tag(15, &[0; 20])])), CUT);
    assert_eq!(why(error(&[tag(8, &[0; 21])])), CUT);
    for step in [0, 19] {
        assert!(why(error(&[tag(MAP, &words(&[step, 0, 1, 2]))])).contains("smaller than 20"));
    }
    assert!(why(error(&[tag(17, &words(&[39, 1]))])).contains("smaller than 40"));
    assert_eq!(error(&[]), BootError::NoMemoryMap);
}

#[test]
fn too_much_is_noted_not_lost_silently() {
    let mut module = words(&[0, 0]);
    module.extend_from_slice(b"x\0");
    let mut map = words(&[24, 0]);
    for i in 0..super::super::MAX_REGIONS as u32 + 5 {
        map.extend_from_slice(&words(&[i * 0x2000, 0, 0x1000, 0, 1, 0]));
    }
    let long = [vec![b'y'; 5000], vec![0]].concat();
    let mut tags = vec![module; 20];
    tags.push(tag(MAP, &map));
    let tags: Vec<Vec<u8>> = tags[..20]
        .iter()
        .map(|b| tag(3, b))
        .chain([tags[20].clone(), tag(1, &long)])
        .collect();
    let (result, info) = run(&block(&tags));
    assert_eq!(result, Ok(()));
    assert_eq!(info.modules.len(), super::super::MAX_MODULES);
    assert_eq!(info.command_line.len(), super::super::MAX_COMMAND_LINE);
    assert_eq!(info.notes.len(), 3, "{:?}", info.notes);
}

#[test]
fn text_that_is_not_utf8_is_kept_readable() {
    let (_, info) = run(&block(&[map_tag(), tag(1, b"a=\xff\xfeb \xc3\xa9\0")]));
    assert_eq!(info.command_line.as_str(), "a=??b é");
}

proptest! {
    #[test]
    fn noise_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if bytes.len() >= 8 {
            let total = bytes.len() as u32;
            bytes[..4].copy_from_slice(&total.to_le_bytes());
        }
        let _ = run(&bytes);
    }

    #[test]
    fn noise_inside_tags_never_panics(
        tags in proptest::collection::vec((0u32..20, proptest::collection::vec(any::<u8>(), 0..80)), 0..12),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let tags: Vec<Vec<u8>> = tags.iter().map(|(k, b)| tag(*k, b)).collect();
        let mut b = block(&tags);
        for (at, value) in flips {
            let at = at.index(b.len());
            b[at] = value;
        }
        let _ = run(&b);
    }
}
