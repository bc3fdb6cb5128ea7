//! Tests of the CPUID policy on a machine that has every feature, and on random ones.

use super::*;
use proptest::prelude::*;

const ON: Live = Live {
    cr4: 0,
    xcr0: 1,
    apic_on: true,
};

fn config(vcpu: u32, vcpus: u32) -> CpuidConfig {
    CpuidConfig {
        vcpu,
        vcpus,
        domid: 0,
        version: (4, 20),
        phys_bits: 40,
        xcr0_allowed: 7,
        tsc_reliable: true,
        tsc_mode: 0,
        tsc_khz: 2_000_000,
        tsc_scale: (5, 0x8000_0000, -1),
        upcall_vector: true,
        xapic_assist: false,
        x2apic_assist: false,
        tsc_deadline: false,
    }
}

/// A machine with every feature bit set.
fn amd(leaf: u32, sub: u32) -> Regs {
    match (leaf, sub) {
        (0, _) => [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
        (0x8000_0000, _) => [0x8000_0028, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
        (0xd, 0) => [0xffff_ffff, 0, 0, 0xffff_ffff],
        (0xd, 2) => [256, 576, 0, 0],
        (4 | 0x8000_001d, 0..3) => [0x121 + sub * 0x20, 1, 2, 3],
        (4 | 0x8000_001d, _) => [0; 4],
        (0x8000_0008, _) => [0x0030_3930, u32::MAX, u32::MAX, u32::MAX],
        _ => [u32::MAX; 4],
    }
}

#[test]
fn xen_leaves() {
    let t = CpuidTable::build(
        amd,
        &CpuidConfig {
            domid: 7,
            ..config(3, 4)
        },
    );
    assert_eq!(
        t.lookup(XEN_BASE, 0, &ON),
        [0x4000_0005, 0x566e_6558, 0x6558_4d4d, 0x4d4d_566e]
    );
    assert_eq!(t.lookup(XEN_BASE + 1, 9, &ON), [4 << 16 | 20, 0, 0, 0]);
    assert_eq!(t.lookup(XEN_BASE + 2, 0, &ON), [1, 0x4000_0000, 0, 0]);
    assert_eq!(t.lookup(XEN_BASE + 3, 0, &ON), [6, 0, 2_000_000, 0]);
    assert_eq!(
        t.lookup(XEN_BASE + 3, 1, &ON),
        [5, 0, 0x8000_0000, u32::MAX]
    );
    assert_eq!(t.lookup(XEN_BASE + 4, 0, &ON), [0x5c, 3, 7, 0]);
    assert_eq!(t.lookup(XEN_BASE + 4, 1, &ON), [0; 4]);
    assert_eq!(t.lookup(XEN_BASE + 6, 0, &ON), [0; 4]);
    assert_eq!(t.lookup(XEN_BASE + 0x100, 0, &ON), [0; 4]);
}

#[test]
fn what_must_be_hidden_is_hidden() {
    let t = CpuidTable::build(amd, &config(0, 4));
    // MONITOR, VMX, PDCM, deadline timer; SVM, OSVW, IBS, performance counters, MONITORX.
    for bit in [2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 18, 24, 27] {
        assert!(!t.has(1, 2, bit), "1.ecx.{bit}");
    }
    for bit in [2, 3, 9, 10, 12, 13, 15, 19, 23, 24, 26, 27, 28, 29] {
        assert!(!t.has(0x8000_0001, 2, bit), "ext1.ecx.{bit}");
    }
    // LA57, WAITPKG, SGX, speculation controls, AVX-512 and PKU without their state.
    for (reg, bit) in [
        (2, 16),
        (2, 5),
        (1, 2),
        (3, 26),
        (3, 29),
        (3, 31),
        (1, 16),
        (1, 31),
        (2, 3),
        (2, 7),
    ] {
        assert!(!t.has(7, reg, bit), "7.{reg}.{bit}");
    }
    for leaf in [
        5,
        6,
        0xa,
        0xf,
        0x10,
        0x12,
        0x14,
        0x15,
        0x1f,
        0x8000_000a,
        0x8000_001b,
        0x8000_001f,
        0x8000_0022,
    ] {
        assert_eq!(t.lookup(leaf, 0, &ON), [0; 4], "{leaf:#x}");
    }
    assert_eq!(t.lookup(0x8000_0007, 0, &ON), [0, 0, 0, 1 << 8]);
    assert_eq!(t.lookup(0, 0, &ON)[0], 0xd);
    assert_eq!(t.lookup(0x8000_0000, 0, &ON)[0], 0x8000_0021);
    assert_eq!(t.lookup(0x8000_0008, 0, &ON)[0], 40 | 48 << 8);
}

#[test]
fn bits_follow_registers() {
    let t = CpuidTable::build(amd, &config(0, 1));
    let on = t.lookup(
        1,
        0,
        &Live {
            cr4: CR4_OSXSAVE,
            ..ON
        },
    );
    let off = t.lookup(
        1,
        0,
        &Live {
            apic_on: false,
            ..ON
        },
    );
    assert_eq!((on[2] >> 27 & 1, on[3] >> 9 & 1), (1, 1));
    assert_eq!((off[2] >> 27 & 1, off[3] >> 9 & 1), (0, 0));
    assert_eq!(t.lookup(0xd, 0, &Live { xcr0: 7, ..ON }), [7, 832, 832, 0]);
    assert_eq!(t.lookup(0xd, 0, &Live { xcr0: 3, ..ON }), [7, 576, 832, 0]);
    assert_eq!(t.lookup(0xd, 1, &Live { xcr0: 7, ..ON }), [7, 832, 0, 0]);
    assert_eq!(t.lookup(0xd, 2, &ON), [256, 576, 0, 0]);
    let pku = CpuidTable::build(
        amd,
        &CpuidConfig {
            xcr0_allowed: 0x207,
            ..config(0, 1)
        },
    );
    assert_eq!(
        pku.lookup(7, 0, &Live { cr4: CR4_PKE, ..ON })[2] >> 3 & 3,
        3
    );
    assert_eq!(pku.lookup(7, 0, &ON)[2] >> 3 & 3, 1);
}

#[test]
fn every_leaf_tells_the_same_topology() {
    for n in [1, 2, 3, 16, 17, 130, 300] {
        for vcpu in [0, n / 2, n - 1] {
            let t = CpuidTable::build(amd, &config(vcpu, n));
            let id = vcpu * 2;
            assert_eq!(t.lookup(1, 0, &ON)[1] >> 24, id & 0xff);
            for sub in [0, 1, 2, 0xff] {
                let regs = t.lookup(0xb, sub, &ON);
                assert_eq!((regs[3], regs[2] & 0xff), (id, sub));
            }
            let shift = t.lookup(0xb, 1, &ON)[0];
            assert_eq!(t.lookup(0x8000_0008, 0, &ON)[2] >> 12, shift);
            assert_eq!(id >> shift, 0);
            assert_eq!(t.lookup(0x8000_001e, 0, &ON)[0], id);
            assert_eq!(t.has(1, 3, 28), n > 1);
            assert_eq!(t.has(0x8000_0001, 2, 1), n > 1);
        }
    }
}

#[test]
fn a_machine_without_xsave_shows_none() {
    let old = |l, s| match l {
        0 => [5, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
        1 => [0x663, 0x800, !f::XSAVE, u32::MAX],
        0x8000_0000 => [0x8000_0008, 0, 0, 0],
        _ => {
            if s == 0 {
                [0; 4]
            } else {
                [1; 4]
            }
        }
    };
    let t = CpuidTable::build(old, &config(0, 1));
    assert!(!t.has(1, 2, 26) && !t.has(1, 2, 28));
    assert_eq!(
        (
            t.lookup(0, 0, &ON)[0],
            t.lookup(0xd, 0, &ON),
            t.lookup(7, 0, &ON)
        ),
        (0xb, [0; 4], [0; 4])
    );
    assert_eq!(t.lookup(0xb, 0, &ON), [1, 1, 0x100, 0]);
}

proptest! {
    #[test]
    fn any_machine_and_any_leaf(seed: u64, leaf: u32, sub: u32, vcpus in 0..5000u32, vcpu in 0..5000u32, cr4: u64, xcr0: u64) {
        let native = |l: u32, s: u32| {
            let x = (u64::from(l) << 20 ^ u64::from(s) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            [x as u32, (x >> 32) as u32, (x >> 13) as u32, (x >> 21) as u32]
        };
        let t = CpuidTable::build(native, &config(vcpu, vcpus));
        prop_assert!(t.leaves.len() <= 64);
        prop_assert!(t.leaves.is_sorted_by(|a, b| a.key < b.key));
        for l in [leaf, leaf & 0xf, 0x8000_0000 | leaf & 0x2f, XEN_BASE | leaf & 7] {
            for s in [sub, sub & 15] {
                t.lookup(l, s, &Live { cr4, xcr0, apic_on: cr4 & 1 == 0 });
            }
        }
    }
}
