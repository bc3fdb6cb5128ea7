//! Changes to what CPUID says to a guest (`cpuid=` of Xen's `xl.cfg(5)`): by names of features, or bit by bit.

use xen_abi::domctl::{CpuidLeaf, policy::NO_SUBLEAF};

/// A change of one register of one leaf. Bits that are in none of the masks stay as guests have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Value of EAX for the question.
    pub leaf: u32,
    /// Value of ECX, where it matters.
    pub subleaf: Option<u32>,
    /// EAX, EBX, ECX, EDX.
    pub register: usize,
    /// Bits to set.
    pub set: u32,
    /// Bits to clear.
    pub clear: u32,
    /// Bits to take from the machine.
    pub host: u32,
}

impl Edit {
    /// The register's name, and its bits from 31 down as `cpuid=` and libxl write them.
    pub fn bits(&self) -> (&'static str, String) {
        let kind = |n: u32| match 1 << n {
            bit if self.set & bit != 0 => '1',
            bit if self.clear & bit != 0 => '0',
            bit if self.host & bit != 0 => 'k',
            _ => 'x',
        };
        let name = REGISTERS[self.register.min(D)];
        (name, (0..32).rev().map(kind).collect())
    }
}

const REGISTERS: [&str; 4] = ["eax", "ebx", "ecx", "edx"];
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
const NONE: u32 = NO_SUBLEAF;

/// Names of features in the order of their bits; an empty name is a bit without one.
type Names = &'static [(u32, &'static str)];

/// Leaf, sub-leaf, register, and which bit has which name.
#[rustfmt::skip]
const FEATURES: &[(u32, u32, usize, Names)] = &[
    (1, NONE, C, &[
        (0, "sse3"), (1, "pclmulqdq"), (2, "dtes64"), (3, "monitor"), (4, "dscpl"), (5, "vmx"), (6, "smx"), (7, "est"), (8, "tm2"),
        (9, "ssse3"), (10, "cntxid"), (12, "fma"), (13, "cmpxchg16"), (14, "xtpr"), (15, "pdcm"), (17, "pcid"), (18, "dca"),
        (19, "sse4_1"), (19, "sse4.1"), (20, "sse4_2"), (20, "sse4.2"), (21, "x2apic"), (22, "movbe"), (23, "popcnt"),
        (24, "tsc-deadline"), (25, "aes"), (26, "xsave"), (27, "osxsave"), (28, "avx"), (29, "f16c"), (30, "rdrand"),
        (31, "hypervisor"),
    ]),
    (1, NONE, D, &[
        (0, "fpu"), (1, "vme"), (2, "de"), (3, "pse"), (4, "tsc"), (5, "msr"), (6, "pae"), (7, "mce"), (8, "cmpxchg8"), (9, "apic"),
        (11, "sysenter"), (12, "mtrr"), (13, "pge"), (14, "mca"), (15, "cmov"), (16, "pat"), (17, "pse36"), (18, "psn"),
        (19, "clfsh"), (21, "ds"), (22, "acpi"), (23, "mmx"), (24, "fxsr"), (25, "sse"), (26, "sse2"), (27, "ss"), (28, "htt"),
        (29, "tm"), (30, "ia64"), (31, "pbe"),
    ]),
    (6, NONE, A, &[(2, "arat")]),
    (7, 0, B, &[
        (0, "fsgsbase"), (1, "tsc_adjust"), (3, "bmi1"), (4, "hle"), (5, "avx2"), (7, "smep"), (8, "bmi2"), (9, "erms"),
        (10, "invpcid"), (11, "rtm"), (12, "cmt"), (14, "mpx"), (16, "avx512f"), (17, "avx512dq"), (18, "rdseed"), (19, "adx"),
        (20, "smap"), (21, "avx512-ifma"), (23, "clflushopt"), (24, "clwb"), (26, "avx512pf"), (27, "avx512er"), (28, "avx512cd"),
        (29, "sha"), (30, "avx512bw"), (31, "avx512vl"),
    ]),
    (7, 0, C, &[
        (0, "prefetchwt1"), (1, "avx512-vbmi"), (2, "umip"), (3, "pku"), (4, "ospke"), (6, "avx512-vbmi2"), (7, "cet-ss"),
        (8, "gfni"), (9, "vaes"), (10, "vpclmulqdq"), (11, "avx512-vnni"), (12, "avx512-bitalg"), (14, "avx512-vpopcntdq"),
        (22, "rdpid"), (25, "cldemote"), (31, "pks"),
    ]),
    (7, 0, D, &[
        (2, "avx512-4vnniw"), (3, "avx512-4fmaps"), (4, "fsrm"), (8, "avx512-vp2intersect"), (9, "srbds-ctrl"), (10, "md-clear"),
        (14, "serialize"), (16, "tsxldtrk"), (20, "cet-ibt"), (23, "avx512-fp16"), (26, "ibrsb"), (27, "stibp"), (28, "l1d-flush"),
        (29, "arch-caps"), (30, "core-caps"), (31, "ssbd"),
    ]),
    (7, 1, A, &[(4, "avx-vnni"), (5, "avx512-bf16")]),
    (0x8000_0001, NONE, C, &[
        (0, "lahfsahf"), (1, "cmplegacy"), (2, "svm"), (3, "extapic"), (4, "altmovcr8"), (5, "abm"), (6, "sse4a"),
        (7, "misalignsse"), (8, "3dnowprefetch"), (9, "osvw"), (10, "ibs"), (11, "xop"), (12, "skinit"), (13, "wdt"), (15, "lwp"),
        (16, "fma4"), (19, "nodeid"), (21, "tbm"), (22, "topoext"), (23, "perfctr_core"), (24, "perfctr_nb"),
    ]),
    (0x8000_0001, NONE, D, &[
        (11, "syscall"), (20, "nx"), (22, "mmxext"), (25, "ffxsr"), (26, "page1gb"), (27, "rdtscp"), (29, "lm"), (30, "3dnowext"),
        (31, "3dnow"),
    ]),
    (0x8000_0007, NONE, D, &[(8, "invtsc")]),
    (0x8000_0008, NONE, B, &[(0, "clzero"), (2, "rstr-fp-err-ptrs"), (9, "wbnoinvd"), (12, "ibpb"), (23, "ppin")]),
];

/// Fields that are numbers: the hypervisor makes them up from the domain's topology and the machine.
const NUMBERS: &[&str] = &[
    "maxleaf",
    "family",
    "model",
    "stepping",
    "localapicid",
    "proccount",
    "clflush",
    "brandid",
    "procpkg",
    "nc",
    "apicidsize",
    "maxhvleaf",
];

/// Reads `host,NAME=VALUE,...`.
///
/// # Errors
/// What is wrong.
pub fn parse_names(text: &str) -> Result<Vec<Edit>, String> {
    let mut words = text.split(',').map(str::trim);
    if words.next() != Some("host") {
        return Err(format!(
            "cpuid=\"{text}\": write \"host,NAME=0,...\", or a list of strings like '1:ecx=xxxx...'"
        ));
    }
    words.filter(|w| !w.is_empty()).map(feature).collect()
}

fn feature(word: &str) -> Result<Edit, String> {
    let (name, value) = word
        .split_once('=')
        .ok_or_else(|| format!("cpuid: '{word}' is no NAME=VALUE"))?;
    if NUMBERS.contains(&name) {
        return Err(format!(
            "cpuid: '{name}' is a number, which cannot be changed here"
        ));
    }
    let found = FEATURES
        .iter()
        .find_map(|(leaf, subleaf, register, names)| {
            let (bit, _) = names.iter().find(|(_, n)| *n == name)?;
            Some((*leaf, *subleaf, *register, 1u32 << bit))
        });
    let (leaf, subleaf, register, bit) =
        found.ok_or_else(|| format!("cpuid: '{name}' is no feature that is known here"))?;
    let mut edit = Edit {
        leaf,
        subleaf: (subleaf != NONE).then_some(subleaf),
        register,
        ..Edit::default()
    };
    let kind = match value {
        "0" | "0x0" => '0',
        "1" | "0x1" => '1',
        "x" => 'x',
        "k" => 'k',
        "s" => 's',
        _ => return Err(format!("cpuid: {name}={value}: 0, 1, x, k or s")),
    };
    put(&mut edit, bit, kind);
    Ok(edit)
}

/// Reads `LEAF[,SUBLEAF]:REG=BITS[,REG=BITS...]`; bits are those from 31 down.
///
/// # Errors
/// What is wrong.
pub fn parse_bits(text: &str) -> Result<Vec<Edit>, String> {
    let bad = |why: &str| {
        format!("cpuid: '{text}': {why}; write LEAF[,SUBLEAF]:eax=32 times 0, 1, x, k or s")
    };
    let (place, registers) = text.split_once(':').ok_or_else(|| bad("there is no ':'"))?;
    let number = |word: &str| {
        super::reader::number(word)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| bad("the leaf is no number"))
    };
    let (leaf, subleaf) = match place.split_once(',') {
        Some((leaf, subleaf)) => (number(leaf)?, Some(number(subleaf)?)),
        None => (number(place)?, None),
    };
    let mut edits = Vec::new();
    for part in registers.split(',').map(str::trim) {
        let (name, bits) = part.split_once('=').ok_or_else(|| bad("there is no '='"))?;
        let register = REGISTERS.iter().position(|r| *r == name);
        let register = register.ok_or_else(|| bad("no such register"))?;
        if bits.len() != 32 || !bits.bytes().all(|b| b"01xks".contains(&b)) {
            return Err(bad("the bits are wrong"));
        }
        let mut edit = Edit {
            leaf,
            subleaf,
            register,
            ..Edit::default()
        };
        for (n, kind) in bits.chars().enumerate() {
            put(&mut edit, 1 << (31 - n), kind);
        }
        edits.push(edit);
    }
    Ok(edits)
}

fn put(edit: &mut Edit, bit: u32, kind: char) {
    match kind {
        '0' => edit.clear |= bit,
        '1' => edit.set |= bit,
        'k' | 's' => edit.host |= bit,
        // As guests have it.
        _ => {}
    }
}

/// Makes the changes in what guests have; `host` is what the machine has.
///
/// # Errors
/// Which leaf guests do not have.
pub fn apply(edits: &[Edit], guests: &mut [CpuidLeaf], host: &[CpuidLeaf]) -> Result<(), String> {
    let is = |l: &CpuidLeaf, e: &Edit| {
        l.leaf == e.leaf
            && (l.subleaf == e.subleaf.unwrap_or(NONE)
                || (e.subleaf.unwrap_or(0) == 0 && matches!(l.subleaf, 0 | NONE)))
    };
    for edit in edits {
        let of_host = host
            .iter()
            .find(|l| is(l, edit))
            .map_or(0, |l| registers(l)[edit.register]);
        let Some(leaf) = guests.iter_mut().find(|l| is(l, edit)) else {
            // Nothing there to be cleared.
            if edit.set | (edit.host & of_host) == 0 {
                continue;
            }
            return Err(format!("cpuid: guests have no leaf {:#x} here", edit.leaf));
        };
        let register = match edit.register {
            A => &mut leaf.a,
            B => &mut leaf.b,
            C => &mut leaf.c,
            _ => &mut leaf.d,
        };
        *register = *register & !(edit.clear | edit.host) | edit.set | (of_host & edit.host);
    }
    Ok(())
}

fn registers(leaf: &CpuidLeaf) -> [u32; 4] {
    [leaf.a, leaf.b, leaf.c, leaf.d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn leaf(leaf: u32, subleaf: u32, all: u32) -> CpuidLeaf {
        CpuidLeaf {
            leaf,
            subleaf,
            a: all,
            b: all,
            c: all,
            d: all,
        }
    }

    #[test]
    fn names_are_unique() {
        let names = FEATURES.iter().flat_map(|f| f.3.iter().map(|(_, n)| *n));
        let names: Vec<&str> = names.collect();
        let set: BTreeSet<&&str> = names.iter().collect();
        assert_eq!(set.len(), names.len());
        assert!(NUMBERS.iter().all(|n| !names.contains(n)));
    }

    #[test]
    fn features_by_name() {
        let edits = parse_names("host,avx2=0,rdrand=k,sse3=x,,nx=1").expect("right");
        let mut guests = [
            leaf(1, NONE, 0),
            leaf(7, 0, u32::MAX),
            leaf(0x8000_0001, NONE, 0),
        ];
        let host = [leaf(1, NONE, u32::MAX)];
        apply(&edits, &mut guests, &host).expect("all there");
        assert_eq!((guests[0].c, guests[0].d), (1 << 30, 0));
        assert_eq!((guests[1].b, guests[1].c), (!(1 << 5), u32::MAX));
        assert_eq!(guests[2].d, 1 << 20);
    }

    #[test]
    fn bit_by_bit() {
        let x = "x".repeat(30);
        let edits = parse_bits(&format!("0x7,0:ebx=01{x},edx={x}k0")).expect("right");
        let mut guests = [leaf(7, 0, 0x8000_0003), leaf(7, 1, 5)];
        apply(&edits, &mut guests, &[leaf(7, 0, 0)]).expect("there");
        assert_eq!((guests[0].b, guests[0].d), (0x4000_0003, 0x8000_0000));
        assert_eq!((guests[0].a, guests[1]), (0x8000_0003, leaf(7, 1, 5)));
        assert_eq!(edits[1].bits(), ("edx", format!("{x}k0")));
    }

    #[test]
    fn a_leaf_that_guests_do_not_have() {
        let clear = parse_names("host,avx-vnni=0").expect("right");
        assert_eq!(apply(&clear, &mut [], &[]), Ok(()));
        let set = parse_names("host,avx-vnni=1").expect("right");
        assert!(apply(&set, &mut [], &[]).is_err_and(|e| e.contains("leaf 0x7")));
    }

    #[test]
    fn errors() {
        for text in [
            "",
            "avx=0",
            "host,avx",
            "host,avx=2",
            "host,family=6",
            "host,none=0",
        ] {
            assert!(parse_names(text).is_err(), "{text}");
        }
        for text in [
            "",
            "1",
            "x:eax=1",
            "1:exx=0",
            "1:eax=0",
            "1:eax",
            "1,y:eax=0",
            "1:",
        ] {
            assert!(parse_bits(text).is_err(), "{text}");
        }
        assert_eq!(parse_names("host"), Ok(vec![]));
    }
}
