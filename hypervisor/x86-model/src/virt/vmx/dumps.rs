//! Capability MSRs of real processors, as VirtualBox's table of CPUs records them (`src/VBox/VMM/VMMR3/cpus`), and of one
//! model of Bochs; with what must come out of them.

use super::capability::ApicFeatures;
use super::control::secondary::*;

/// MSRs 0x480 to 0x490.
pub struct Dump(pub [u64; 17]);

impl Dump {
    /// Reads one; panics where the processor would.
    pub fn read(&self, index: u32) -> u64 {
        match self.0[(index - 0x480) as usize] {
            0 => panic!("this processor has no MSR {index:#x}"),
            value => value,
        }
    }
}

/// What must be chosen.
pub struct Expected {
    pub secondary: u32,
    pub apic: ApicFeatures,
    pub largest_order: u8,
}

const TRUE_PIN: u64 = 0x7f_0000_0016;
const TRUE_PRIMARY: u64 = 0xfff9_fffe_0400_6172;
const TRUE_EXIT: u64 = 0x007f_ffff_0003_6dfb;
const TRUE_ENTRY: u64 = 0xffff_0000_11fb;

/// Words that are alike from Sandy Bridge to Broadwell; BASIC, CR4_FIXED1, secondary and EPT words differ.
const fn core(basic: u64, misc: u64, cr4: u64, secondary: u64, ept: u64) -> Dump {
    Dump([
        basic,
        TRUE_PIN,
        0xfff9_fffe_0401_e172,
        0x007f_ffff_0003_6dff,
        0xffff_0000_11ff,
        misc,
        0x8000_0021,
        0xffff_ffff,
        0x2000,
        cr4,
        0x2a,
        secondary,
        ept,
        TRUE_PIN,
        TRUE_PRIMARY,
        TRUE_EXIT,
        TRUE_ENTRY,
    ])
}

const OLD: ApicFeatures = ApicFeatures {
    accesses: true,
    x2apic: true,
    registers: false,
    delivery: false,
    posted: false,
};
const BASE: u32 = EPT | UNRESTRICTED | VPID | RDTSCP | WBINVD;

/// Name, MSRs, and the choice or a part of the refusal.
pub const MACHINES: &[(&str, &Dump, Result<Expected, &str>)] = &[
    (
        "Core i7-5600U (Broadwell)",
        &core(
            0x00da_0400_0000_0012,
            0x3004_81e5,
            0x0037_67ff,
            0x5_7cff_0000_0000,
            0xf01_0633_4141,
        ),
        Ok(Expected {
            secondary: BASE | INVPCID,
            apic: OLD,
            largest_order: 18,
        }),
    ),
    (
        "Core i5-3570 (Ivy Bridge)",
        &core(
            0x00da_0400_0000_0010,
            0x1004_01e5,
            0x0017_67ff,
            0x8ff_0000_0000,
            0xf01_0611_4141,
        ),
        Ok(Expected {
            secondary: BASE,
            apic: OLD,
            largest_order: 9,
        }),
    ),
    (
        "Core i7-3960X (Sandy Bridge E)",
        &core(
            0x00da_0400_0000_0010,
            0x1004_01e5,
            0x0006_27ff,
            0x4ff_0000_0000,
            0xf01_0613_4141,
        ),
        Ok(Expected {
            secondary: BASE,
            apic: OLD,
            largest_order: 18,
        }),
    ),
    (
        "Core i7-2635QM (Sandy Bridge)",
        &core(
            0x00da_0400_0000_0010,
            0x1004_01e5,
            0x0006_27ff,
            0xff_0000_0000,
            0xf01_0611_4141,
        ),
        Ok(Expected {
            secondary: BASE,
            apic: OLD,
            largest_order: 9,
        }),
    ),
    (
        "Pentium N3530 (Silvermont)",
        &core(
            0x00da_0400_0000_0002,
            0x4_81e6,
            0x0010_27ff,
            0x28ef_0000_0000,
            0xf01_0611_4141,
        ),
        Ok(Expected {
            secondary: BASE,
            apic: ApicFeatures {
                x2apic: false,
                ..OLD
            },
            largest_order: 9,
        }),
    ),
    (
        "Core 2 T7600 (Merom)",
        &Dump([
            0x001a_0400_0000_0007,
            0x1f_0000_0016,
            0x77b9_fffe_0401_e172,
            0x0003_efff_0003_6dff,
            0x1fff_0000_11ff,
            0,
            0x8000_0021,
            0xffff_ffff,
            0x2000,
            0x27ff,
            0x2c,
            0,
            0,
            0,
            0,
            0,
            0,
        ]),
        Err("without second-stage translation"),
    ),
    (
        "Xeon X5482 (Harpertown)",
        &Dump([
            0x005a_0800_0000_000d,
            0x3f_0000_0016,
            0xf7f9_fffe_0401_e172,
            0x0003_ffff_0003_6dff,
            0x3fff_0000_11ff,
            0x4_03c0,
            0x8000_0021,
            0xffff_ffff,
            0x2000,
            0x27ff,
            0x2c,
            0x41_0000_0000,
            0,
            0,
            0,
            0,
            0,
        ]),
        // Of two reasons, the first that is found.
        Err("cannot be turned off"),
    ),
];
