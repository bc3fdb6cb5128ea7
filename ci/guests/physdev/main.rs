//! What do physdev_op, platform_op and the rest of the dom0 calls answer?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{
    DOMID_SELF, PHYSDEV_OP, PLATFORM_OP, Ret, call, get_param, hvm_op, op, ptr, set_param,
};
use guest_rt::{check, fact};

guest_rt::entry!("physdev", run);

fn physdev<T>(sub: u64, mut arg: T) -> Ret {
    op(PHYSDEV_OP, sub, &mut arg)
}

fn platform(sub: u32, version: u32, payload: &mut [u32; 34]) -> Ret {
    payload[0] = sub;
    payload[1] = version;
    Ret(call(PLATFORM_OP, [ptr(payload), 0, 0, 0, 0]))
}

fn run() {
    for sub in 0..=32 {
        // Zeroes: device 0000:00:00.0, GSI 0, PIRQ 0.
        if ![24, 25, 26].contains(&sub) {
            fact!(("physdev-{sub}"), "{}", physdev(sub, [0u32; 16]));
        }
    }
    // seg, bus, devfn, flags.
    fact!("device-add-00.0", "{}", physdev(25, [0u32, 0, 0, 0]));
    fact!("device-add-again", "{}", physdev(25, [0u32, 0, 0, 0]));
    fact!(
        "device-add-absent",
        "{}",
        physdev(25, [0x00a0_0077u32 << 16, 0, 0, 0])
    );
    fact!(
        "device-remove-absent",
        "{}",
        physdev(26, [0x00a0_0000u32 | 0x77 << 16])
    );
    // address, segment, start and end bus, flags.
    let mmcfg = |address: u64, segment: u16, end: u8, flags: u32| {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..10].copy_from_slice(&segment.to_le_bytes());
        bytes[11] = end;
        bytes[12..].copy_from_slice(&flags.to_le_bytes());
        physdev(24, bytes)
    };
    fact!("mmcfg-reserved", "{}", mmcfg(0xb000_0000, 0, 255, 1));
    fact!("mmcfg-again", "{}", mmcfg(0xb000_0000, 0, 255, 1));
    fact!("mmcfg-not-reserved", "{}", mmcfg(0xb000_0000, 0, 255, 0));
    fact!("mmcfg-nowhere", "{}", mmcfg(0x1234_5000, 7, 3, 1));

    let mut payload = [0u32; 34];
    for version in [0u32, 0x0300_0000, 0x0300_0001, 0x0300_0002] {
        fact!(
            ("platform-version-{version:#x}"),
            "{}",
            platform(99, version, &mut payload)
        );
    }
    for sub in [
        17u32, 31, 32, 33, 35, 39, 50, 55, 58, 61, 63, 64, 65, 66, 67, 1000,
    ] {
        let mut payload = [0u32; 34];
        fact!(
            ("platform-{sub}"),
            "{}",
            platform(sub, 0x0300_0001, &mut payload)
        );
    }
    // Settime with must-be-zero set changes nothing.
    let mut payload = [0u32; 34];
    payload[5] = 1;
    fact!(
        "settime64-mbz",
        "{}",
        platform(62, 0x0300_0001, &mut payload)
    );
    for cpu in 0..3u32 {
        let mut payload = [0u32; 34];
        payload[2] = cpu;
        let ret = platform(55, 0x0300_0001, &mut payload);
        fact!(
            ("cpuinfo-{cpu}"),
            "{ret} max={} flags={:#x} apic={} acpi={}",
            payload[3],
            payload[4],
            payload[5],
            payload[6]
        );
    }
    for kind in [1u32, 2, 3, 4, 5, 9] {
        let mut payload = [0u32; 34];
        payload[2] = kind;
        fact!(
            ("firmware-info-{kind}"),
            "{}",
            platform(50, 0x0300_0001, &mut payload)
        );
    }
    params();
}

fn params() {
    for index in 0..40u32 {
        match get_param(index) {
            // The console and store of dom0 are nowhere.
            Ok(value) => fact!(("param-{index}"), "{value:#x}"),
            Err(ret) => fact!(("param-{index}"), "{ret}"),
        }
    }
    // Not 37: a TSS too small crashes the domain on Xen 4.17.
    for index in [
        1u32,
        2,
        5,
        12,
        15,
        17,
        18,
        19,
        31,
        34,
        38,
        39,
        1000,
        u32::MAX,
    ] {
        fact!(("set-param-{index}"), "{}", set_param(index, 0));
    }
    if let Ok(value) = get_param(2) {
        check!(value == 0, "STORE_EVTCHN of dom0 is {value}");
    }
    let mut param = [1234u64, 0];
    fact!("get-param-nobody", "{}", hvm_op(1, &mut param));
    fact!(
        "pagetable-dying",
        "{}",
        hvm_op(9, &mut [u64::from(DOMID_SELF), 0])
    );
    let mut kind = [u64::from(DOMID_SELF), 0x200];
    fact!(
        "mem-type-ram",
        "{} {}",
        hvm_op(15, &mut kind),
        kind[0] >> 16 & 0xffff
    );
    let mut kind = [u64::from(DOMID_SELF), 0x100_0000];
    fact!(
        "mem-type-hole",
        "{} {}",
        hvm_op(15, &mut kind),
        kind[0] >> 16 & 0xffff
    );
    let mut buffer = [0u64; 16];
    for sub in [
        2u64, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 24, 25,
    ] {
        fact!(("hvm-{sub}"), "{}", hvm_op(sub, &mut buffer));
    }
}
