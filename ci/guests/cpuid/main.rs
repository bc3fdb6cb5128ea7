//! Which CPUID leaves does the guest see? Hypervisor leaves and the leaves whose content is the hypervisor's choice.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::cpu::cpuid;
use guest_rt::{check, fact};

guest_rt::entry!("cpuid", run);

fn run() {
    let base = (0x4000_0000u32..0x4001_0000).step_by(0x100).find(|&leaf| {
        let [_, b, c, d] = cpuid(leaf, 0);
        [b, c, d] == [0x566e_6558, 0x6558_4d4d, 0x4d4d_566e]
    });
    let Some(base) = base else {
        check!(false, "no Xen leaves");
        return;
    };
    fact!("xen-base", "{base:#x}");
    let max = cpuid(base, 0)[0] - base;
    fact!("xen-max", "+{max}");
    check!(max >= 2, "fewer than three Xen leaves");
    fact!("xen-version", "{:#x}", cpuid(base + 1, 0)[0]);
    let [pages, msr, features, d] = cpuid(base + 2, 0);
    fact!(
        "xen-hypercall",
        "pages={pages} msr={msr:#x} features={features:#x} edx={d:#x}"
    );
    let [flags, mode, khz, incarnation] = cpuid(base + 3, 0);
    fact!(
        "xen-tsc",
        "flags={flags:#x} mode={mode} incarnation={incarnation}"
    );
    check!(khz != 0, "guest TSC frequency is 0");
    let [_, _, mul, shift] = cpuid(base + 3, 1);
    check!(mul != 0, "TSC multiplier is 0 (shift {})", shift as i32);
    let [flags, vcpu, domid, d] = cpuid(base + 4, 0);
    fact!(
        "xen-hvm",
        "flags={flags:#x} vcpu={vcpu} domid={domid} edx={d:#x}"
    );
    fact!("xen-pv", "{:x?}", cpuid(base + 5, 0));
    fact!("xen-beyond", "{:x?}", cpuid(base + max + 1, 0));
    fact!("xen-next-base", "{:x?}", cpuid(base + 0x100, 0));

    let [max, b, c, d] = cpuid(0, 0);
    fact!("max-basic", "{max:#x}");
    fact!("vendor", "{}", text(&[b, d, c]).as_str());
    let [a, b, c, d] = cpuid(1, 0);
    fact!("leaf-1", "eax={a:#x} ebx={b:#x} ecx={c:#x} edx={d:#x}");
    check!(c & 1 << 31 != 0, "hypervisor bit clear");
    check!(
        b >> 24 == 2 * vcpu,
        "initial APIC ID {} is not twice vCPU {vcpu}",
        b >> 24
    );
    for leaf in [
        2u32,
        5,
        6,
        0xa,
        0x10,
        0x14,
        0x80000000,
        0x80000001,
        0x80000007,
        0x80000008,
        0x8000_000a,
    ] {
        fact!(("leaf-{leaf:x}"), "{:x?}", cpuid(leaf, 0));
    }
    for (leaf, sub) in [
        (7, 0),
        (7, 1),
        (0xb, 0),
        (0xb, 1),
        (0xd, 0),
        (0xd, 1),
        (0xd, 2),
        (4, 0),
        (0x8000_001d, 0),
    ] {
        fact!(("leaf-{leaf:x}.{sub}"), "{:x?}", cpuid(leaf, sub));
    }
    for leaf in [
        0x8000_0019u32,
        0x8000_001a,
        0x8000_001b,
        0x8000_001c,
        0x8000_001e,
        0x8000_001f,
        0x8000_0021,
    ] {
        fact!(("leaf-{leaf:x}"), "{:x?}", cpuid(leaf, 0));
    }
    fact!("leaf-beyond-basic", "{:x?}", cpuid(max + 1, 0));
    fact!("leaf-c0000000", "{:x?}", cpuid(0xc000_0000, 0));
}

struct Text([u8; 12]);

impl Text {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or("?")
    }
}

fn text(words: &[u32; 3]) -> Text {
    let mut bytes = [0; 12];
    for (chunk, word) in bytes.chunks_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Text(bytes)
}
