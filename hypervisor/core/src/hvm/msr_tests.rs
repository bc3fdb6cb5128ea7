//! Tests of the MSR decisions.

use super::*;
use proptest::prelude::*;

fn policy(vendor: Vendor, hardware_view: bool) -> MsrPolicy {
    let f = MsrFeatures {
        vendor,
        ffxsr: false,
        tsc_aux: true,
        xsaves: false,
        invariant_tsc: true,
        hardware_view,
    };
    MsrPolicy::build(f, |i| match i {
        0x8b => Some(0x0800_1250),
        0xc001_001a => Some(0x8000_0000),
        0xc001_0010 => Some(u64::MAX),
        0x1a0 => Some(1 << 34 | 1 << 18 | 1),
        _ => None,
    })
}
const LONG: Live = Live {
    cr0: CR0_PG | 1,
    cr4: CR4_PAE,
    efer: 0xd00,
};

#[test]
fn early_boot_needs() {
    let p = policy(Vendor::Amd, true);
    let mut s = MsrState::default();
    for i in [
        EFER,
        0xc000_0081,
        0xc000_0084,
        0xc000_0100,
        0xc000_0102,
        0xc000_0103,
        0x174,
        0x277,
    ] {
        assert_eq!(p.read(i, &s), MsrRead::Context, "{i:#x}");
    }
    assert_eq!(
        p.write(0xc000_0101, 0xffff_ffff_8200_0000, &mut s, &LONG),
        MsrWrite::Context(0xffff_ffff_8200_0000)
    );
    assert_eq!(p.write(0xc000_0101, 1 << 47, &mut s, &LONG), MsrWrite::Gp);
    for i in [0x1b, 0x802, 0x8ff, 0x6e0] {
        assert_eq!(
            (p.read(i, &s), p.write(i, 0, &mut s, &LONG)),
            (MsrRead::Apic, MsrWrite::Apic)
        );
    }
    assert_eq!(p.read(0xc001_0015, &s), MsrRead::Value(1 << 24));
    assert_eq!(p.read(0xc001_1029, &s), MsrRead::Value(2));
    assert_eq!(p.read(0x179, &s), MsrRead::Value(0));
    assert_eq!(p.write(0x8b, 0, &mut s, &LONG), MsrWrite::Done);
    assert_eq!(p.read(0x8b, &s), MsrRead::Value(0x0800_1250));
    assert_eq!(
        p.write(HYPERCALL_PAGE, 0x5000, &mut s, &LONG),
        MsrWrite::HypercallPage(0x5000)
    );
}

#[test]
fn vendors_and_views_differ() {
    let s = MsrState::default();
    let (amd, intel, domu) = (
        policy(Vendor::Amd, true),
        policy(Vendor::Intel, true),
        policy(Vendor::Amd, false),
    );
    assert_eq!(intel.read(0x1a0, &s), MsrRead::Value(0x1801));
    assert_eq!(amd.read(0x1a0, &s), MsrRead::Gp);
    assert_eq!(intel.read(0xc001_0015, &s), MsrRead::Gp);
    assert_eq!(
        (amd.read(0xc001_001a, &s), domu.read(0xc001_001a, &s)),
        (MsrRead::Value(0x8000_0000), MsrRead::Value(0))
    );
    assert_eq!(amd.read(0xc001_0010, &s), MsrRead::Value(0x007c_0000));
    // Hidden features: speculation controls, TSC_ADJUST, XSS, performance counters, unknown.
    for i in [
        0x48,
        0x49,
        0x10a,
        0x3b,
        0xda0,
        0xc1,
        0xc001_0004,
        0x1234_5678,
        0xc000_0104,
    ] {
        assert_eq!(amd.read(i, &s), MsrRead::Gp, "{i:#x}");
    }
}

#[test]
fn efer_rules() {
    let p = policy(Vendor::Amd, true);
    let mut s = MsrState::default();
    let mut w = |v, live: &Live| p.write(EFER, v, &mut s, live);
    let off = Live::default();
    assert_eq!(w(EFER_LME, &off), MsrWrite::Context(EFER_LME));
    assert_eq!(w(EFER_LME | EFER_LMA, &off), MsrWrite::Context(EFER_LME));
    assert_eq!(w(0xd01, &LONG), MsrWrite::Context(0xd01));
    assert_eq!(w(0x901, &LONG), MsrWrite::Context(0xd01));
    assert_eq!(w(0, &LONG), MsrWrite::Gp);
    assert_eq!(w(1 << 12, &off), MsrWrite::Gp);
    assert_eq!(w(EFER_FFXSR, &off), MsrWrite::Gp);
}

#[test]
fn mtrrs_remember_valid_types_only() {
    let p = policy(Vendor::Amd, true);
    let mut s = MsrState::default();
    assert_eq!(
        (p.read(0xfe, &s), p.read(0x2ff, &s)),
        (MsrRead::Value(0x508), MsrRead::Value(0x806))
    );
    for (i, v, ok) in [
        (0x2ff, 0xc06, true),
        (0x2ff, 0xc02, false),
        (0x2ff, 0x1000, false),
        (0x200, 0xe000_0000, true),
        (0x200, 0xe000_0007, false),
        (0x201, 0xff_e000_0800, true),
        (0x201, 0x7, false),
        (0x20f, 0x800, true),
        (0x210, 0, false),
        (0x250, 0x0606_0606_0606_0600, true),
        (0x251, 0, false),
        (0x26f, 0x0505_0505_0505_0502, false),
        (0xfe, 0, false),
    ] {
        assert_eq!(
            p.write(i, v, &mut s, &LONG) == MsrWrite::Done,
            ok,
            "{i:#x} <- {v:#x}"
        );
        if ok {
            assert_eq!(p.read(i, &s), MsrRead::Value(v));
        }
    }
}

#[test]
fn pat_and_others_are_validated() {
    let p = policy(Vendor::Intel, true);
    let mut s = MsrState::default();
    assert_eq!(
        p.write(0x277, 0x0007_0406_0007_0406, &mut s, &LONG),
        MsrWrite::Context(0x0007_0406_0007_0406)
    );
    for (i, v) in [
        (0x277, 2),
        (0xc000_0103, 1 << 32),
        (0x140, 1),
        (0x1d9, 1),
        (0x179, 0),
        (0x17, 0),
        (0x3a, 5),
    ] {
        assert_eq!(p.write(i, v, &mut s, &LONG), MsrWrite::Gp, "{i:#x}");
    }
}

proptest! {
    #[test]
    fn anything_goes(index: u32, value: u64, cr0: u64, cr4: u64, efer: u64, amd: bool) {
        let p = policy(if amd { Vendor::Amd } else { Vendor::Intel }, true);
        let mut s = MsrState::default();
        for i in [index, index & 0xfff, 0xc000_0000 | index & 0x1ff, 0xc001_0000 | index & 0x1fff] {
            p.read(i, &s);
            p.write(i, value, &mut s, &Live { cr0, cr4, efer });
        }
    }
}
