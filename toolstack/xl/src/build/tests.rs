//! Guests built from small kernels, read back as a guest would read them.

use super::image::Parts;
use super::*;
use kernel_image::samples::{Builder, note};
use proptest::prelude::*;
use xen_abi::hvm::save::{HwCpu, HwMtrr, SaveDescriptor, SaveHeader, code};
use xen_abi::hvm::start_info::{HvmMemmapTableEntry, HvmModlistEntry, HvmStartInfo, memmap_type};
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;

fn at<'a>(image: &'a Image<'_>, address: u64) -> &'a [u8] {
    let found = image
        .chunks
        .iter()
        .find(|c| (c.at..c.at + c.bytes.len() as u64).contains(&address));
    let chunk = found.unwrap_or_else(|| panic!("nothing at {address:#x}"));
    &chunk.bytes[(address - chunk.at) as usize..]
}

fn struct_at<T: FromBytes>(image: &Image<'_>, address: u64) -> T {
    match T::read_from_prefix(at(image, address)) {
        Ok((value, _)) => value,
        Err(_) => panic!("too short"),
    }
}

fn parts<'a>(kernel: &'a [u8], ramdisk: Option<&'a [u8]>, memory: u64) -> Parts<'a> {
    Parts {
        kernel,
        ramdisk,
        cmdline: "console=hvc0",
        memory,
        vcpus: 2,
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |s, b| s.wrapping_add(*b))
}

#[test]
fn a_guest_finds_its_parts() {
    let kernel = Builder::small().build();
    let ramdisk = vec![7u8; 5000];
    let image = build(&parts(&kernel, Some(&ramdisk), 64 * MIB)).unwrap();
    assert_eq!(image.entry, 0x100_0002);
    assert_eq!(&at(&image, 16 * MIB)[..4], b"code");

    let info: HvmStartInfo = struct_at(&image, image.start_info);
    assert_eq!((info.magic, info.version, info.flags), (0x336e_c578, 1, 0));
    let module: HvmModlistEntry = struct_at(&image, info.modlist_paddr);
    assert_eq!((info.nr_modules, module.size), (1, 5000));
    assert_eq!(&at(&image, module.paddr)[..5000], &ramdisk[..]);
    assert!(at(&image, info.cmdline_paddr).starts_with(b"console=hvc0\0"));
    let entry = size_of::<HvmMemmapTableEntry>() as u64;
    let map: Vec<HvmMemmapTableEntry> = (0..info.memmap_entries)
        .map(|n| struct_at(&image, info.memmap_paddr + u64::from(n) * entry))
        .collect();
    assert_eq!(map.len(), image.map.len());
    assert!(
        map.iter()
            .zip(&image.map)
            .all(|(a, b)| (a.addr, a.size, a.kind) == (b.start, b.len, b.kind))
    );

    // Old kernels look for the root pointer below 1 MiB.
    assert_eq!(info.rsdp_paddr, 0xf_ffc0);
    let identity = at(&image, special::IDENTITY * PAGE);
    assert_eq!(&identity[4..8], &0x0040_00e7u32.to_le_bytes());
    assert_eq!(identity.len(), 4096);
}

#[test]
fn the_tables_lead_to_every_cpu() {
    let kernel = Builder::with_notes(&[
        note(b"Xen\0", 17, &0x2_8001_u32.to_le_bytes(), 4),
        note(b"Xen\0", 18, &0x100_0000_u32.to_le_bytes(), 4),
    ])
    .build();
    for vcpus in [1, 2, 64, 128] {
        let image = build(&Parts {
            vcpus,
            ..parts(&kernel, None, 32 * MIB)
        })
        .unwrap();
        let info: HvmStartInfo = struct_at(&image, image.start_info);
        assert_eq!((info.nr_modules, info.modlist_paddr), (0, 0));
        assert!(info.rsdp_paddr > HOLE, "this kernel takes it anywhere");
        let rsdp = &at(&image, info.rsdp_paddr)[..36];
        assert_eq!(
            (&rsdp[..8], sum(&rsdp[..20]), sum(rsdp)),
            (&b"RSD PTR "[..], 0, 0)
        );
        let table = |address: u64| {
            let bytes = at(&image, address);
            let len = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            assert_eq!(sum(&bytes[..len]), 0);
            bytes[..len].to_vec()
        };
        let address = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let xsdt = table(address(&rsdp[24..]));
        let (fadt, madt) = (table(address(&xsdt[36..])), table(address(&xsdt[44..])));
        assert_eq!(
            (&fadt[..4], fadt.len(), &madt[..4]),
            (&b"FACP"[..], 268, &b"APIC"[..])
        );
        assert_eq!(&at(&image, address(&fadt[132..]))[..4], b"FACS");
        assert_eq!(address(&fadt[132..]) % 64, 0);
        let dsdt = table(address(&fadt[140..]));
        assert_eq!(
            dsdt.windows(8).filter(|w| *w == b"ACPI0007").count(),
            vcpus as usize
        );
        let entries: Vec<&[u8]> = madt[44..].chunks_exact(8).collect();
        assert_eq!(entries.len(), vcpus as usize);
        for (n, e) in entries.iter().enumerate() {
            assert_eq!(*e, [0, 8, n as u8, 2 * n as u8, 1, 0, 0, 0]);
        }
    }
}

#[test]
fn lengths_of_aml_packages() {
    // 63 bytes are the most with one length byte, which counts itself.
    let dsdt = |vcpus| {
        let t = acpi::tables(HOLE, vcpus);
        let at = t.bytes.windows(4).position(|w| w == b"DSDT").unwrap();
        t.bytes[at..].to_vec()
    };
    for (vcpus, lead) in [(1, 0), (2, 1), (100, 1), (128, 2)] {
        let t = dsdt(vcpus);
        let len = u32::from_le_bytes(t[4..8].try_into().unwrap()) as usize;
        // Table header, scope operator, then the length: bits 7:6 of the first byte are how many follow.
        let first = t[37];
        assert_eq!(first >> 6, lead, "{vcpus}");
        let mut package = usize::from(if lead == 0 { first & 63 } else { first & 15 });
        for n in 0..usize::from(lead) {
            package |= usize::from(t[38 + n]) << (4 + 8 * n);
        }
        assert_eq!(37 + package, len, "{vcpus}");
    }
}

#[test]
fn memory_above_4_gib() {
    let kernel = Builder::small().build();
    let image = build(&parts(&kernel, None, 5 << 30)).unwrap();
    let ram: u64 = image
        .map
        .iter()
        .filter(|e| e.kind == memmap_type::RAM)
        .map(|e| e.len)
        .sum();
    assert_eq!(ram, (5 << 30) - PAGE, "a page of it holds the root pointer");
    let last = image.map.last().unwrap();
    assert_eq!((last.start, last.len), (HIGH, (5 << 30) - HOLE));
    let pages: u64 = frames(5 << 30, 1).iter().map(|r| r.end - r.start).sum();
    assert_eq!(pages, (5 << 18) + special::COUNT + 2);
}

#[test]
fn too_little_memory_is_said_with_what_is_enough() {
    let kernel = Builder::small().build();
    let error = |ramdisk: Option<&[u8]>, memory| {
        build(&parts(&kernel, ramdisk, memory))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(error(None, 16 * MIB), "the kernel needs at least memory=17");
    let disk = vec![0; 4 << 20];
    assert_eq!(
        error(Some(&disk), 18 * MIB),
        "the kernel with its RAM disk needs at least memory=21"
    );
    assert!(error(None, 16 * MIB + 0x3000).contains("command line"));
    let text = build(&parts(b"not a kernel", None, MIB))
        .unwrap_err()
        .to_string();
    assert!(text.contains("ELF"), "{text}");
}

#[test]
fn start_state() {
    let header = SaveHeader {
        magic: 0x5438_1286,
        version: 1,
        ..SaveHeader::default()
    };
    let mut state = Vec::new();
    for (typecode, body) in [
        (code::HEADER, header.as_bytes().to_vec()),
        (code::MTRR, vec![3; 240]),
        (code::END, vec![]),
    ] {
        let d = SaveDescriptor {
            typecode,
            instance: 0,
            length: body.len() as u32,
        };
        state.extend_from_slice(d.as_bytes());
        state.extend(body);
    }
    let (found, mtrr) = context::template(&state).unwrap();
    assert_eq!(found.magic, header.magic);
    let types = context::memory_types(&found, &mtrr, 5);
    let d = SaveDescriptor::read_from_prefix(&types[32..]).unwrap().0;
    assert_eq!((d.typecode, d.instance, d.length), (code::MTRR, 5, 240));
    let set = HwMtrr::read_from_prefix(&types[40..]).unwrap().0;
    assert_eq!(
        (set.msr_mtrr_def_type, set.msr_pat_cr),
        (0x806, 0x0303_0303_0303_0303)
    );
    let first = context::first_vcpu(&found, 0x100_0000, 0x200_0000);
    let cpu = HwCpu::read_from_prefix(&first[40..]).unwrap().0;
    assert_eq!(
        (cpu.rip, cpu.rbx, cpu.cr0, cpu.flags),
        (0x100_0000, 0x200_0000, 0x11, 0)
    );
    assert_eq!(first.len(), 8 + 24 + 8 + 1032 + 8);
    for cut in 0..state.len() - 8 {
        assert!(context::template(&state[..cut]).is_err(), "{cut}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever the kernel is and however large everything is: nothing overlaps, all of it is in populated memory, and the
    /// map is in order.
    #[test]
    fn nothing_overlaps(
        at in 0u64..64, size in 1u64..0x40_0000, disk in 0usize..0x20_0000, memory in 1u64..0x2000, line in "[ -~]{0,200}",
        vcpus in 1u32..=128,
    ) {
        let mut b = Builder::small();
        b.loads = vec![(at << 20, vec![1; (size / 2) as usize], size)];
        b.notes = note(b"Xen\0", 18, &(at << 20).to_le_bytes(), 4);
        let (kernel, disk) = (b.build(), vec![2; disk]);
        let parts = Parts { kernel: &kernel, ramdisk: Some(&disk), cmdline: &line, memory: memory << 20, vcpus };
        let Ok(image) = build(&parts) else { return Ok(()) };
        for pair in image.map.windows(2) {
            prop_assert!(pair[0].start + pair[0].len <= pair[1].start);
        }
        for pair in image.chunks.windows(2) {
            prop_assert!(pair[0].at + pair[0].bytes.len() as u64 <= pair[1].at, "{:?}", image.chunks);
        }
        let populated = frames(memory << 20, vcpus);
        for c in &image.chunks {
            let frames = c.at / PAGE..(c.at + c.bytes.len() as u64).div_ceil(PAGE);
            prop_assert!(populated.iter().any(|p| p.start <= frames.start && frames.end <= p.end), "{c:?}");
        }
    }
}
