//! Each decoder against streams made by an encoder, and all of them against damaged streams.

use proptest::prelude::*;
use std::vec::Vec;

use lzma_rust2::{CheckType, FilterType, LzmaOptions, LzmaWriter, Write, XzOptions, XzWriter};

use super::crc32::crc32;
use super::*;
use crate::samples::{lz4, sample};

/// As the kernel's build does it: x86 filter, CRC32, one block.
pub(crate) fn xz(data: &[u8]) -> Vec<u8> {
    let mut options = XzOptions::with_preset(1);
    options.set_check_sum_type(CheckType::Crc32);
    options.prepend_pre_filter(FilterType::BcjX86, 0);
    let mut writer = XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap()
}

fn lzma(data: &[u8]) -> Vec<u8> {
    let options = LzmaOptions::with_preset(1);
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, None).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut out = b"\x1f\x8b\x08\x1e\0\0\0\0\0\x03".to_vec();
    // One of each optional field: extra, name, comment, header checksum.
    out.extend_from_slice(b"\x04\0xxxxname\0comment\0hc");
    out.extend(miniz_oxide::deflate::compress_to_vec(data, 6));
    out.extend(crc32(data).to_le_bytes());
    out.extend((data.len() as u32).to_le_bytes());
    out
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

/// `sample(600)` by the reference bzip2.
const BZIP2_SAMPLE: &str = "425a6831314159265359924ac0da0000237ff3cb002038e0080061000270400a0d14c14664\
    8081620081004040100820006a1a480000000686801a0952134c9813260004c003446c7549e3f9c774bda7ba103800c5323dba0ea86f9ab\
    8dc01b801f003789b3bf2a3d6806a02804802c07d55601413ed5426c473b77a6d3a134278ea440ecc143927925664fc9a7f177245385090\
    924ac0da";
/// 300,000 zero bytes and "abc" by the reference bzip2.
const BZIP2_RUN: &str = "425a6831314159265359f477d67c00024c4180c000380004000008200030c002950c9a288ced22a5b9\
    be8a23e2ee48a70a121e8efacf80";

/// `sample(3000)` by the reference zstd at level 19.
const ZSTD_SAMPLE: &str = "28b52ffd04688d0900b40b6b65726e656c207465787420e01a8852f27e2b3e39e88f970000af7763e851840000e81f9e000078218980af\
    a58c03a011501958a185d6e8dd010000e88984000044c29e946168e8a3170000e83b8a0000e8f7950000550b20cd369916689ee8d11400\
    00e80882000038c197f436e6237147ea4f921040e8aa0800009343e8339f0000298d00004a1bbfc5f8e8ed0d0000e8f41a0000be4d63e3\
    2ce87d190000c1e8e31c00007102e8d5830000d4d6f3ce6ee8b61f0000e6f447a72f20b06ca6a4d50194296270b8c3850cc927e4c22cc5\
    c80c9d600e6fabbba6440c0e73b8309c3710d22016bd83e118847717c9c4934269bd1d821a270a9931a45efd8228208a29c565edd41e78\
    c460a35cde02830b29943e077a841aa55cdd4160c581060ddf4123f59366566e7f79b1e29e3b491161dce3";

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Every format with the same data.
fn all(len: usize) -> (Vec<u8>, Vec<(Format, Vec<u8>)>) {
    let data = sample(len);
    let packed = vec![
        (Format::Gzip, gzip(&data)),
        (Format::Xz, xz(&data)),
        (Format::Lzma, lzma(&data)),
        (Format::Zstd, zstd(&data)),
        (Format::Lz4, lz4(&data)),
    ];
    (data, packed)
}

#[test]
fn every_format_round_trips() {
    for len in [1, 600, 300_000] {
        let (data, packed) = all(len);
        for (format, stream) in packed {
            assert_eq!(Format::probe(&stream), Ok(format));
            assert!(
                decompress(format, &stream, len as u64).as_ref() == Ok(&data),
                "{format} {len}"
            );
        }
    }
    let packed = hex(BZIP2_SAMPLE);
    assert_eq!(Format::probe(&packed), Ok(Format::Bzip2));
    assert_eq!(decompress(Format::Bzip2, &packed, 600), Ok(sample(600)));
    let stream = hex(ZSTD_SAMPLE);
    assert!(decompress(Format::Zstd, &stream, 3000) == Ok(sample(3000)));
    // Skipped frames before and after, and a second frame.
    let skipped = b"\x5f\x2a\x4d\x18\x03\0\0\0abc";
    let two = [&skipped[..], &stream, skipped, &stream].concat();
    assert!(decompress(Format::Zstd, &two, 6000) == Ok([sample(3000), sample(3000)].concat()));
    let mut run = vec![0; 300_000];
    run.extend(b"abc");
    assert!(decompress(Format::Bzip2, &hex(BZIP2_RUN), 300_003) == Ok(run));
}

#[test]
fn a_wrong_size_word_is_refused_both_ways() {
    let (_, mut packed) = all(5000);
    packed.push((Format::Bzip2, hex(BZIP2_SAMPLE)));
    for (format, stream) in packed {
        let size = if format == Format::Bzip2 { 600 } else { 5000 };
        for wrong in [size - 1, size + 1] {
            let error = decompress(format, &stream, wrong).unwrap_err();
            assert!(
                matches!(
                    error,
                    KernelError::WrongSize { .. } | KernelError::Corrupt { .. }
                ),
                "{format}: {error}"
            );
        }
    }
    assert_eq!(
        decompress(Format::Xz, b"", MAX_UNPACKED + 1),
        Err(KernelError::TooLarge(MAX_UNPACKED + 1))
    );
}

#[test]
fn truncated_streams_are_refused() {
    let (_, mut packed) = all(3000);
    packed.push((Format::Bzip2, hex(BZIP2_SAMPLE)));
    for (format, stream) in packed {
        let size = if format == Format::Bzip2 { 600 } else { 3000 };
        for cut in 0..stream.len() {
            // LZMA-alone has no checksum and its end may already be decided by earlier bytes; gzip's last word is the size.
            let slack = match format {
                Format::Lzma => 16,
                Format::Gzip => 4,
                // The index and footer follow all data.
                Format::Xz => 64,
                _ => 0,
            };
            if cut + slack < stream.len() {
                assert!(
                    decompress(format, &stream[..cut], size).is_err(),
                    "{format} cut to {cut}"
                );
            }
        }
    }
}

#[test]
fn flipped_bits_never_panic_and_checked_formats_notice() {
    let (data, mut packed) = all(3000);
    packed.push((Format::Zstd, hex(ZSTD_SAMPLE)));
    packed.push((Format::Bzip2, hex(BZIP2_SAMPLE)));
    for (format, stream) in packed {
        let size = if format == Format::Bzip2 { 600 } else { 3000 };
        let checked = !matches!(format, Format::Lzma | Format::Lz4);
        for at in 0..stream.len() {
            for bit in [0, 3, 7] {
                let mut bad = stream.clone();
                bad[at] ^= 1 << bit;
                if let Ok(out) = decompress(format, &bad, size) {
                    assert!(
                        !checked || out == data[..size as usize],
                        "{format} byte {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn messages_are_one_line() {
    let error = decompress(Format::Xz, &xz(b"abc")[..20], 3).unwrap_err();
    let text = std::format!("{error}");
    assert!(text.starts_with("corrupt xz payload ("), "{text}");
    assert!(!text.contains('\n'));
}

/// Bytes that the branch filter, matches and literals all find something in.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        prop::collection::vec(
            prop::sample::select(vec![0xe8u8, 0xe9, 0, 0xff, 0xff, 0, 1]),
            0..60
        ),
        prop::collection::vec(any::<u8>(), 0..40),
        (any::<u8>(), 0usize..700).prop_map(|(b, n)| vec![b; n]),
        (0usize..2000).prop_map(sample),
    ];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(crate::cases(150))]

    #[test]
    fn xz_and_lzma_agree_with_the_encoder(data in data(), preset in 0u32..7, branch: bool, lc in 0u32..5, lp in 0u32..5, pb in 0u32..5) {
        let mut options = XzOptions::with_preset(preset);
        options.set_check_sum_type(CheckType::Crc32);
        options.lzma_options.lc = lc.min(4 - lp);
        options.lzma_options.lp = lp;
        options.lzma_options.pb = pb;
        let alone = options.lzma_options.clone();
        if branch {
            options.prepend_pre_filter(FilterType::BcjX86, 0);
        }
        let mut writer = XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(&data).unwrap();
        let packed = writer.finish().unwrap();
        prop_assert!(decompress(Format::Xz, &packed, data.len() as u64).as_ref() == Ok(&data));

        for known in [None, Some(data.len() as u64)] {
            let mut writer = LzmaWriter::new_use_header(Vec::new(), &alone, known).unwrap();
            writer.write_all(&data).unwrap();
            let packed = writer.finish().unwrap();
            prop_assert!(decompress(Format::Lzma, &packed, data.len() as u64).as_ref() == Ok(&data));
        }
    }

    #[test]
    fn matches_are_copied_as_byte_by_byte(
        mut out in prop::collection::vec(any::<u8>(), 1..400),
        pos in 0usize..420,
        distance in prop_oneof![0usize..20, 0usize..400],
        len in 2usize..280,
    ) {
        let end = pos + len;
        let fits = distance > 0 && distance <= pos && end <= out.len();
        let before = out.clone();
        let copied = super::copy_match(&mut out, pos, distance, len);
        prop_assert_eq!(copied, fits.then_some(end));
        if fits {
            let mut wanted = before.clone();
            for at in pos..end {
                wanted[at] = wanted[at - distance];
            }
            prop_assert_eq!(&out[..end], &wanted[..end]);
            let after = (end + 7).min(out.len());
            prop_assert_eq!(&out[after..], &before[after..]);
        }
    }

    #[test]
    fn any_bytes_after_the_magic_never_panic(
        format in prop::sample::select(vec![
            Format::Gzip, Format::Xz, Format::Zstd, Format::Lz4, Format::Lzma, Format::Bzip2,
        ]),
        keep in 0usize..100,
        tail in prop::collection::vec(any::<u8>(), 0..300),
        size in 0u64..5000,
    ) {
        let (_, packed) = all(600);
        let good = match packed.into_iter().find(|(f, _)| *f == format) {
            Some((_, stream)) => stream,
            None => hex(BZIP2_SAMPLE),
        };
        let mut stream = good[..keep.min(good.len())].to_vec();
        stream.extend(&tail);
        if let Ok(out) = decompress(format, &stream, size) {
            prop_assert_eq!(out.len() as u64, size);
        }
        let mut file = crate::samples::wrap(&stream);
        let len = file.len();
        for (at, byte) in tail.iter().enumerate().take(4) {
            file[(at * 97 + usize::from(*byte) * 5) % len] = *byte;
        }
        // Sizes up to the limit are fine but slow: unpack only small ones.
        match crate::bzimage::Image::parse(&file) {
            Ok(crate::bzimage::Image::Compressed { unpacked, .. }) if unpacked > 1 << 20 => {}
            Ok(image) => drop(image.unpack()),
            Err(error) => {
                let text = std::format!("{error}");
                prop_assert!(!text.contains('\n'));
            }
        }
    }
}
