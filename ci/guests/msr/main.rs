//! Which MSRs exist for the guest, with what values, and which writes are accepted?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::cpu::{cpuid, rdmsr_safe, set_cr4_safe, ud2_safe, wrmsr_safe, xsetbv_safe};
use guest_rt::{check, cpu, fact};

guest_rt::entry!("msr", run);

/// Values that the machine or the moment decides: only existence is a fact.
const VARIABLE: [u32; 6] = [0x10, 0x8b, 0xe7, 0xe8, 0xc000_0101, 0xc001_0015];

const LIST: [u32; 96] = [
    0x0,
    0x1,
    0x10,
    0x17,
    0x1b,
    0x3a,
    0x3b,
    0x48,
    0x49,
    0x79,
    0x8b,
    0xc1,
    0xce,
    0xe2,
    0xe7,
    0xe8,
    0xfe,
    0x10a,
    0x10b,
    0x11e,
    0x122,
    0x140,
    0x174,
    0x175,
    0x176,
    0x179,
    0x17a,
    0x17b,
    0x186,
    0x198,
    0x199,
    0x19a,
    0x19c,
    0x1a0,
    0x1a2,
    0x1a4,
    0x1ad,
    0x1b0,
    0x1d9,
    0x1db,
    0x1fc,
    0x200,
    0x201,
    0x202,
    0x20e,
    0x210,
    0x250,
    0x258,
    0x259,
    0x268,
    0x26f,
    0x277,
    0x280,
    0x2ff,
    0x345,
    0x38d,
    0x400,
    0x401,
    0x402,
    0x410,
    0x480,
    0x600,
    0x606,
    0x611,
    0x6e0,
    0x770,
    0x800,
    0x802,
    0x808,
    0xc80,
    0xd90,
    0xda0,
    0x4000_0000,
    0x4000_0001,
    0x4b56_4d00,
    0xc000_0080,
    0xc000_0081,
    0xc000_0082,
    0xc000_0083,
    0xc000_0084,
    0xc000_0100,
    0xc000_0101,
    0xc000_0102,
    0xc000_0103,
    0xc000_0104,
    0xc000_0408,
    0xc001_0000,
    0xc001_0004,
    0xc001_0010,
    0xc001_0015,
    0xc001_001a,
    0xc001_001d,
    0xc001_001f,
    0xc001_0058,
    0xc001_0061,
    0xc001_0063,
];
const LIST_AMD: [u32; 18] = [
    0xc001_0064,
    0xc001_0111,
    0xc001_0112,
    0xc001_0114,
    0xc001_0117,
    0xc001_011f,
    0xc001_0130,
    0xc001_0140,
    0xc001_0141,
    0xc001_0200,
    0xc001_0230,
    0xc001_0299,
    0xc001_1004,
    0xc001_1020,
    0xc001_1022,
    0xc001_1029,
    0xc001_102a,
    0xc001_1030,
];

fn show<T: core::fmt::LowerHex>(result: Result<T, cpu::Fault>) -> Shown<T> {
    Shown(result)
}

struct Shown<T>(Result<T, cpu::Fault>);

impl<T: core::fmt::LowerHex> core::fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.0 {
            Ok(value) => write!(f, "{value:#x}"),
            Err(fault) => write!(f, "{fault}"),
        }
    }
}

fn run() {
    check!(
        ud2_safe() == Err(cpu::Fault { vector: 6, code: 0 }),
        "recovery from #UD does not work"
    );
    for msr in LIST.into_iter().chain(LIST_AMD) {
        let value = rdmsr_safe(msr);
        // Writing back what was read changes nothing, whatever the register.
        let back = match value {
            Ok(value) if msr != 0x10 && msr != 0xc000_0101 => Some(wrmsr_safe(msr, value)),
            _ => None,
        };
        let back = match back {
            None => "-",
            Some(Ok(())) => "accepted",
            Some(Err(_)) => "fault",
        };
        match value {
            Ok(_) if VARIABLE.contains(&msr) => fact!(("{msr:#x}"), "present write-back={back}"),
            _ => fact!(("{msr:#x}"), "{} write-back={back}", show(value)),
        }
    }
    writes();
    registers();
}

fn writes() {
    for (name, msr, value) in [
        ("efer-reserved", 0xc000_0080u32, 1 << 1 | 0x500),
        ("efer-svme", 0xc000_0080, 0x1d00),
        ("efer-lme-off", 0xc000_0080, 0x400),
        ("pat-reserved-type", 0x277, 0x0007_0406_0007_0402),
        ("pat-uc", 0x277, 0x0007_0406_0007_0400),
        ("mtrr-def-reserved", 0x2ff, 0xff00),
        ("mtrr-def-type-2", 0x2ff, 0xc02),
        ("mtrr-cap", 0xfe, 0x508),
        ("mtrr-fixed-type-2", 0x250, 0x0202_0202_0202_0202),
        ("star", 0xc000_0081, 0x0123_4567_89ab_cdef),
        ("lstar-noncanonical", 0xc000_0082, 1 << 63),
        ("lstar", 0xc000_0082, 0xffff_8000_0000_1000),
        ("kernel-gs-noncanonical", 0xc000_0102, 1 << 60),
        ("sysenter-eip-noncanonical", 0x176, 1 << 60),
        ("tsc-aux-wide", 0xc000_0103, 1 << 32),
        ("tsc-adjust", 0x3b, 0),
        ("ucode-load-0", 0x79, 0),
        ("patch-level-0", 0x8b, 0),
        ("patch-level-1", 0x8b, 1),
        ("amd-patch-loader", 0xc001_0020, 0),
        ("apic-base-move", 0x1b, 0xfed0_0900),
        ("apic-base-reserved", 0x1b, 0xfee0_0901),
        ("apic-base-wide", 0x1b, 1 << 50 | 0xfee0_0900),
        ("apic-base-extd-without-en", 0x1b, 0xfee0_0500),
        ("hwcr", 0xc001_0015, 0),
        ("hwcr-bit-0", 0xc001_0015, 1),
        ("syscfg", 0xc001_0010, 0),
        ("de-cfg", 0xc001_1029, 0),
        ("mcg-ctl", 0x17b, !0),
        ("mc0-status-0", 0x401, 0),
        ("mc0-status-1", 0x401, 1),
        ("mc0-ctl", 0x400, !0),
        ("spec-ctrl-1", 0x48, 1),
        ("spec-ctrl-reserved", 0x48, 1 << 40),
        ("pred-cmd-1", 0x49, 1),
        ("misc-enable", 0x1a0, 0x0040_0000),
        ("debugctl-lbr", 0x1d9, 1),
        ("debugctl-reserved", 0x1d9, 1 << 20),
        ("xss-1", 0xda0, 1),
        ("x2apic-tpr-in-xapic", 0x808, 0),
        ("bsp-only-unknown", 0x1234_5678, 0),
    ] {
        let result = wrmsr_safe(msr, value).map(|()| 0u8);
        fact!(
            ("write-{name}"),
            "{}",
            if result.is_ok() { "accepted" } else { "fault" }
        );
    }
    fact!("efer-after", "{}", show(rdmsr_safe(0xc000_0080)));
    fact!("pat-after", "{}", show(rdmsr_safe(0x277)));
    fact!("star-after", "{}", show(rdmsr_safe(0xc000_0081)));
    fact!("lstar-after", "{}", show(rdmsr_safe(0xc000_0082)));
    fact!("apic-base-after", "{}", show(rdmsr_safe(0x1b)));
}

fn registers() {
    let cr4 = cpu::cr4();
    for (name, bit) in [
        ("vme", 0u64),
        ("pvi", 1),
        ("tsd", 2),
        ("de", 3),
        ("pse", 4),
        ("mce", 6),
        ("pge", 7),
        ("pce", 8),
        ("osfxsr", 9),
        ("osxmmexcpt", 10),
        ("umip", 11),
        ("la57", 12),
        ("vmxe", 13),
        ("smxe", 14),
        ("bit-15", 15),
        ("fsgsbase", 16),
        ("pcide", 17),
        ("osxsave", 18),
        ("bit-19", 19),
        ("smep", 20),
        ("pke", 22),
        ("cet", 23),
        ("bit-24", 24),
        ("bit-40", 40),
    ] {
        // SMAP (21) would stop this program, whose pages are all open to user mode; SMEP too, but it is off again
        // before the next instruction fetch only if it is refused, so it is left to the kernel tests.
        if name == "smep" {
            continue;
        }
        let result = set_cr4_safe(cr4 | 1 << bit);
        if result.is_ok() {
            let _ = set_cr4_safe(cr4);
        }
        fact!(
            ("cr4-{name}"),
            "{}",
            if result.is_ok() { "accepted" } else { "fault" }
        );
    }
    if cpuid(1, 0)[2] & 1 << 26 == 0 {
        return;
    }
    check!(set_cr4_safe(cr4 | 1 << 18).is_ok(), "OSXSAVE refused");
    check!(cpuid(1, 0)[2] & 1 << 27 != 0, "CPUID does not show OSXSAVE");
    for value in [1u64, 3, 7, 0, 2, 5, 9, 0x1b, 1 << 62 | 1, 1 << 63 | 1] {
        let result = xsetbv_safe(value);
        fact!(
            ("xcr0-{value:#x}"),
            "{}",
            if result.is_ok() { "accepted" } else { "fault" }
        );
    }
    let _ = xsetbv_safe(1);
    fact!("leaf-d-size-with-xcr0-1", "{:#x}", cpuid(0xd, 0)[1]);
    let _ = xsetbv_safe(7);
    fact!("leaf-d-size-with-xcr0-7", "{:#x}", cpuid(0xd, 0)[1]);
}
