//! What do the sub-operations of xen_version answer?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{Ret, XEN_VERSION, call, op};
use guest_rt::{check, fact};

guest_rt::entry!("version", run);

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[..end]).unwrap_or("?")
}

/// Asks `sub` with a buffer of `N` bytes filled with 0xaa: return value, text, and how many bytes were written.
fn ask<const N: usize>(name: &str, sub: u64) {
    let mut buffer = [0xaau8; N];
    let ret = op(XEN_VERSION, sub, &mut buffer);
    fact!(("{name}"), "ret={ret} \"{}\"", text(&buffer));
}

fn run() {
    let version = call(XEN_VERSION, [0; 5]);
    fact!("version", "{version:#x}");
    check!(version >> 16 == 4, "major version is {}", version >> 16);
    fact!(
        "version-with-pointer",
        "{}",
        Ret(call(XEN_VERSION, [0, 1 << 63, 0, 0, 0]))
    );
    ask::<16>("extraversion", 1);
    let mut compile = [0u8; 144];
    fact!("compile-info-ret", "{}", op(XEN_VERSION, 2, &mut compile));
    fact!("compile-info-compiler", "\"{}\"", text(&compile[..64]));
    ask::<1024>("capabilities", 3);
    ask::<64>("changeset", 4);
    let mut start = [0u64; 1];
    fact!(
        "platform-parameters-ret",
        "{}",
        op(XEN_VERSION, 5, &mut start)
    );
    fact!("platform-parameters", "{:#x}", start[0]);
    for map in [0u32, 1, 2] {
        let mut features = [map, 0xdead_beef];
        let ret = op(XEN_VERSION, 6, &mut features);
        fact!(("features-{map}"), "ret={ret} {:#x}", features[1]);
        if map == 0 {
            check!(
                features[1] & 0x305 == 0x305,
                "a PVH kernel needs features 0x305, has {:#x}",
                features[1]
            );
            check!(features[1] & 1 << 10 == 0, "PIRQ feature for PVH");
        }
    }
    fact!("pagesize", "{}", Ret(call(XEN_VERSION, [7, 0, 0, 0, 0])));
    let mut handle = [0xaau8; 16];
    fact!("handle-ret", "{}", op(XEN_VERSION, 8, &mut handle));
    fact!("handle", "{handle:x?}");
    let mut line = [0u8; 1024];
    fact!("commandline-ret", "{}", op(XEN_VERSION, 9, &mut line));
    check!(
        !text(&line).is_empty(),
        "dom0 sees an empty hypervisor command line"
    );
    let size = call(XEN_VERSION, [10, 0, 0, 0, 0]);
    fact!("build-id-size", "{}", Ret(size));
    let mut id = [0u32; 17];
    id[0] = 64;
    let ret = op(XEN_VERSION, 10, &mut id);
    check!(ret.0 == size, "build ID: size {size} but read {ret}");
    id[0] = 4;
    fact!("build-id-short", "{}", op(XEN_VERSION, 10, &mut id));
    for sub in 11..=16 {
        let mut buffer = [0u32; 64];
        fact!(("sub-{sub}"), "{}", op(XEN_VERSION, sub, &mut buffer));
    }
}
