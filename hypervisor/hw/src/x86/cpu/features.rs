//! What CPUID says about this machine, read once on the boot CPU.

use super::super::asm;

/// The features that the machine layer itself asks for. All CPUs must have what the boot CPU has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// "AuthenticAMD", "GenuineIntel", ...
    pub vendor: [u8; 12],
    /// Family, with the extended part added.
    pub family: u32,
    /// Model, with the extended part added.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Physical address bits.
    pub phys_bits: u8,
    /// x2APIC mode.
    pub x2apic: bool,
    /// TSC-deadline mode of the local APIC timer.
    pub tsc_deadline: bool,
    /// The local APIC timer runs in all C-states.
    pub arat: bool,
    /// The TSC runs at a constant rate in all states.
    pub invariant_tsc: bool,
    /// CPUID says that a hypervisor is below.
    pub hypervisor: bool,
    /// Page attribute table.
    pub pat: bool,
    /// Memory type range registers.
    pub mtrr: bool,
    /// Machine-check exception.
    pub mce: bool,
    /// Global pages.
    pub pge: bool,
    /// XSAVE and XCR0.
    pub xsave: bool,
    /// Supervisor-mode execution prevention.
    pub smep: bool,
    /// Supervisor-mode access prevention.
    pub smap: bool,
    /// User-mode instruction prevention.
    pub umip: bool,
    /// RDTSCP and its MSR.
    pub rdtscp: bool,
    /// CMPXCHG16B.
    pub cx16: bool,
    /// AMD-V.
    pub svm: bool,
    /// VT-x.
    pub vmx: bool,
}

static FEATURES: spin::Once<Features> = spin::Once::new();

/// The boot CPU's features.
pub fn get() -> &'static Features {
    FEATURES.call_once(detect)
}

fn detect() -> Features {
    let [_, b, c, d] = asm::cpuid(0, 0);
    let mut vendor = [0; 12];
    for (to, from) in vendor.chunks_exact_mut(4).zip([b, d, c]) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    let [sig, _, c1, d1] = asm::cpuid(1, 0);
    let leaf7 = if asm::has_leaf(7) {
        asm::cpuid(7, 0)
    } else {
        [0; 4]
    };
    let leaf6 = if asm::has_leaf(6) {
        asm::cpuid(6, 0)
    } else {
        [0; 4]
    };
    let ext = |leaf: u32| {
        if asm::has_leaf(leaf) {
            asm::cpuid(leaf, 0)
        } else {
            [0; 4]
        }
    };
    let ext1 = ext(0x8000_0001);
    let base = sig >> 8 & 15;
    let family = if base == 15 {
        base + (sig >> 20 & 0xff)
    } else {
        base
    };
    let model = sig >> 4 & 15
        | if base == 15 || base == 6 {
            sig >> 12 & 0xf0
        } else {
            0
        };
    let bit = |word: u32, n: u32| word >> n & 1 != 0;
    Features {
        vendor,
        family,
        model,
        stepping: sig & 15,
        phys_bits: match ext(0x8000_0008)[0] as u8 {
            0 => 36,
            bits => bits,
        },
        x2apic: bit(c1, 21),
        tsc_deadline: bit(c1, 24),
        arat: bit(leaf6[0], 2),
        invariant_tsc: bit(ext(0x8000_0007)[3], 8),
        hypervisor: bit(c1, 31),
        pat: bit(d1, 16),
        mtrr: bit(d1, 12),
        mce: bit(d1, 7) && bit(d1, 14),
        pge: bit(d1, 13),
        xsave: bit(c1, 26),
        smep: bit(leaf7[1], 7),
        smap: bit(leaf7[1], 20),
        umip: bit(leaf7[2], 2),
        rdtscp: bit(ext1[3], 27),
        cx16: bit(c1, 13),
        svm: bit(ext1[2], 2),
        vmx: bit(c1, 5),
    }
}

/// The name of a feature that the boot CPU has and the calling one lacks.
pub fn missing_here() -> Option<&'static str> {
    let (boot, here) = (get(), detect());
    [
        ("x2APIC", boot.x2apic, here.x2apic),
        ("a TSC-deadline timer", boot.tsc_deadline, here.tsc_deadline),
        ("PAT", boot.pat, here.pat),
        ("MTRRs", boot.mtrr, here.mtrr),
        ("machine checks", boot.mce, here.mce),
        ("global pages", boot.pge, here.pge),
        ("XSAVE", boot.xsave, here.xsave),
        ("SMEP", boot.smep, here.smep),
        ("SMAP", boot.smap, here.smap),
        ("UMIP", boot.umip, here.umip),
        ("RDTSCP", boot.rdtscp, here.rdtscp),
        ("AMD-V", boot.svm, here.svm),
        ("VT-x", boot.vmx, here.vmx),
        (
            "as many address bits",
            true,
            here.phys_bits >= boot.phys_bits,
        ),
    ]
    .into_iter()
    .find_map(|(name, boot, here)| (boot && !here).then_some(name))
}

/// Bits of the APIC ID that number the threads of a core.
pub fn thread_bits() -> u32 {
    let leaf = |n: u32| asm::has_leaf(n).then(|| asm::cpuid(n, 0));
    x86_model::siblings::thread_bits(leaf(0xb), leaf(0x8000_001e))
}

/// The APIC ID that this CPU had after reset, from CPUID: 32 bits where the topology leaf exists.
pub fn initial_apic_id() -> u32 {
    if asm::has_leaf(0xb) {
        let [_, b, _, d] = asm::cpuid(0xb, 0);
        if b != 0 {
            return d;
        }
    }
    asm::cpuid(1, 0)[1] >> 24
}
