//! Distribution kernels through the unpacker and the ELF reader. `XENOLITH_KERNELS` holds paths separated by `:`; run with
//! `cargo test -p kernel-image --release --test real_kernels -- --ignored --nocapture`.

use std::time::Instant;

use kernel_image::bzimage::Image;
use kernel_image::elf::Kernel;

#[test]
#[ignore = "needs XENOLITH_KERNELS and a release build; the VM tests unpack the same kernels"]
fn distribution_kernels_unpack_and_parse() {
    let list = std::env::var("XENOLITH_KERNELS").expect("XENOLITH_KERNELS is not set");
    for path in list.split(':') {
        let file = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let image = Image::parse(&file).unwrap_or_else(|e| panic!("{path}: {e}"));
        let Image::Compressed { format, .. } = image else {
            panic!("{path}: not compressed");
        };
        let start = Instant::now();
        let elf = image.unpack().unwrap_or_else(|e| panic!("{path}: {e}"));
        let took = start.elapsed();
        println!("{path}: {format}, {} bytes in {took:?}", elf.len());
        match Kernel::parse(&elf) {
            Ok(kernel) => {
                println!("  entry {:#x}, {kernel:x?}", kernel.entry);
                assert_eq!(kernel.start, 16 << 20);
                assert!(kernel.segments.len() >= 3);
                assert!(kernel.can_be_dom0() || path.contains("cloud"), "{path}");
            }
            Err(e) => panic!("{path}: {e}"),
        }
    }
}
