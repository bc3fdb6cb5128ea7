//! The one topology of a domain: a single package, a core per vCPU, one thread per core, APIC id twice the vCPU number.
//! Every CPUID leaf that speaks of topology is computed here, and the MADT uses [`apic_id`] too, so they cannot disagree.

use super::features::Regs;

/// APIC id of a vCPU.
pub const fn apic_id(vcpu: u32) -> u32 {
    vcpu * 2
}

/// Topology of a domain with this many vCPUs (at least one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    vcpus: u32,
}

impl Topology {
    /// For `vcpus` vCPUs; zero counts as one.
    pub const fn new(vcpus: u32) -> Self {
        Self {
            vcpus: if vcpus == 0 { 1 } else { vcpus },
        }
    }

    /// Bits of the APIC id below the package: the thread bit and the core number.
    pub const fn package_shift(self) -> u32 {
        1 + self.core_bits()
    }

    const fn core_bits(self) -> u32 {
        32 - (self.vcpus - 1).leading_zeros()
    }

    /// Whether leaf 1 announces several logical processors.
    pub const fn multi(self) -> bool {
        self.vcpus > 1
    }

    /// Leaf 1 EBX: initial APIC id and ids per package (both cut to 8 bits); cache-line size from the native value.
    pub const fn leaf1_ebx(self, native: u32, vcpu: u32) -> u32 {
        let ids = if !self.multi() {
            1
        } else if self.package_shift() > 7 {
            255
        } else {
            1 << self.package_shift()
        };
        apic_id(vcpu) << 24 | ids << 16 | native & 0xff00
    }

    /// Leaf 4 (and 0x8000001d with `amd`) EAX of one cache, from the native value: a last-level cache (level 3) is shared
    /// by the package, the others are the core's.
    pub const fn cache_eax(self, native: u32, amd: bool) -> u32 {
        if native & 0x1f == 0 {
            return 0;
        }
        let level = native >> 5 & 7;
        let sharing = match (level >= 3, amd) {
            (true, true) => self.vcpus - 1,
            (false, true) => 0,
            (true, false) => (1 << self.package_shift()) - 1,
            (false, false) => 1,
        };
        let sharing = if sharing > 0xfff { 0xfff } else { sharing };
        let cores = (1 << self.core_bits()) - 1;
        let cores = match (amd, cores > 63) {
            (true, _) => 0,
            (false, true) => 63,
            (false, false) => cores,
        };
        native & 0x3fff | sharing << 14 | cores << 26
    }

    /// Leaf 0xb, any subleaf: threads, cores, then the invalid level.
    pub const fn leaf_b(self, subleaf: u32, vcpu: u32) -> Regs {
        let (shift, count, kind) = match subleaf {
            0 => (1, 1, 1),
            1 => (self.package_shift(), self.vcpus & 0xffff, 2),
            _ => (0, 0, 0),
        };
        [shift, count, subleaf & 0xff | kind << 8, apic_id(vcpu)]
    }

    /// Leaf 0x80000008 ECX on AMD: threads minus one and the width of the core field.
    pub const fn ext8_ecx(self) -> u32 {
        let threads = if self.vcpus > 256 {
            255
        } else {
            self.vcpus - 1
        };
        self.package_shift() << 12 | threads
    }

    /// Leaf 0x8000001e on AMD: extended APIC id, core id, one thread a core, one node.
    pub const fn leaf_1e(self, vcpu: u32) -> Regs {
        [apic_id(vcpu), vcpu & 0xff, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn leaves_agree_for_every_size() {
        for n in [1, 2, 3, 4, 16, 17, 130, 300] {
            let t = Topology::new(n);
            for v in 0..n {
                let id = apic_id(v);
                assert_eq!(t.leaf1_ebx(0x800, v) >> 24, id & 0xff);
                assert_eq!(t.leaf_b(0, v)[3], id);
                assert_eq!(t.leaf_b(1, v)[3], id);
                assert_eq!(t.leaf_b(7, v), [0, 0, 7, id]);
                assert_eq!(t.leaf_1e(v)[0], id);
                // All ids fit the package, whichever leaf announces its width.
                assert!(id >> t.leaf_b(1, v)[0] == 0, "{n} vCPUs, id {id}");
                assert!(id >> (t.ext8_ecx() >> 12) == 0);
                // The core number is the vCPU number in both views.
                assert_eq!(id >> t.leaf_b(0, v)[0], v);
                assert_eq!(t.leaf_1e(v)[1], v & 0xff);
            }
            assert_eq!(t.leaf_b(1, 0)[1], n);
            assert_eq!(t.ext8_ecx() & 0xff, (n - 1).min(255));
            assert_eq!(t.multi(), n > 1);
            let per_package = t.leaf1_ebx(0, 0) >> 16 & 0xff;
            assert!(per_package >= n.min(255));
        }
    }

    #[test]
    fn caches() {
        let t = Topology::new(4);
        assert_eq!(t.cache_eax(0, false), 0);
        // Level 1 data cache: two ids a core; four cores.
        assert_eq!(t.cache_eax(0xffff_c121, false), 3 << 26 | 1 << 14 | 0x121);
        assert_eq!(t.cache_eax(0x163, false), 3 << 26 | 7 << 14 | 0x163);
        assert_eq!(t.cache_eax(0x163, true), 3 << 14 | 0x163);
        assert_eq!(Topology::new(300).cache_eax(0x163, false) >> 26, 63);
    }
}
