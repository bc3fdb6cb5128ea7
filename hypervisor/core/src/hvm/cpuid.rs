//! What CPUID shows to a guest: a sorted table per vCPU, built once, plus the few bits that follow registers.
//!
//! The values are the machine's own, filtered by the allow-lists of `x86_model::policy`, with the domain's topology and
//! the Xen leaves. Lookup is a binary search over about fifty entries and allocates nothing.
//!
//! ```text
//! let table = CpuidTable::build(|l, s| hw.cpuid(l, s), &config);            // per vCPU
//! let regs = table.lookup(eax, ecx, &Live { cr4, xcr0, apic_on });          // [EAX, EBX, ECX, EDX]
//! ```

use alloc::vec::Vec;

use x86_model::policy::features::{self as f, Regs, Vendor};
use x86_model::policy::topology::Topology;
use x86_model::policy::xstate::{self, XStates};

const CR4_PKE: u64 = 1 << 22;
const CR4_OSXSAVE: u64 = 1 << 18;

/// First Xen leaf.
pub const XEN_BASE: u32 = 0x4000_0000;

/// What the table of one vCPU depends on besides the machine.
#[derive(Clone, Copy, Debug)]
pub struct CpuidConfig {
    /// This vCPU.
    pub vcpu: u32,
    /// vCPUs that the domain can have.
    pub vcpus: u32,
    /// Domain id.
    pub domid: u16,
    /// Xen version that the domain is told: major, minor.
    pub version: (u16, u16),
    /// Physical-address width shown, at most the machine's.
    pub phys_bits: u8,
    /// XCR0 bits that the guest may set.
    pub xcr0_allowed: u64,
    /// The TSC is invariant and synchronous.
    pub tsc_reliable: bool,
    /// TSC mode (0 to 3) for leaf +3; 2 tells new kernels that the TSC beats Xen's clock.
    pub tsc_mode: u32,
    /// Guest TSC rate.
    pub tsc_khz: u32,
    /// Guest TSC offset, multiplier and shift as in the pv clock, for leaf +3.
    pub tsc_scale: (u64, u32, i8),
    /// Upcalls by a vector of the local APIC (HVMOP 23) are implemented.
    pub upcall_vector: bool,
    /// A guest in xAPIC mode reads registers without exits.
    pub xapic_assist: bool,
    /// A guest in x2APIC mode reads registers and handles its interrupts without exits.
    pub x2apic_assist: bool,
    /// The local APIC timer has the TSC-deadline mode.
    pub tsc_deadline: bool,
}

/// Register values that some leaves follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// CR4.
    pub cr4: u64,
    /// XCR0.
    pub xcr0: u64,
    /// IA32_APIC_BASE has the APIC enabled.
    pub apic_on: bool,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// Leaf in the high half, subleaf in the low one (0 where the subleaf does not count).
    key: u64,
    regs: Regs,
}

/// CPUID of one vCPU.
#[derive(Clone, Debug)]
pub struct CpuidTable {
    leaves: Vec<Leaf>,
    xstates: XStates,
    vcpu: u32,
    topology: Topology,
    vendor: Vendor,
}

const fn key(leaf: u32, subleaf: u32) -> u64 {
    (leaf as u64) << 32 | subleaf as u64
}

/// Whether ECX selects a subleaf.
const fn indexed(leaf: u32) -> bool {
    matches!(
        leaf,
        4 | 7 | 0xb | 0xd | 0x8000_001d | 0x4000_0003..=0x4000_0005
    )
}

impl CpuidTable {
    /// Builds the table from the machine's values.
    pub fn build(native: impl Fn(u32, u32) -> Regs, c: &CpuidConfig) -> Self {
        let vendor = Vendor::of(native(0, 0));
        let topology = Topology::new(c.vcpus);
        let amd = vendor == Vendor::Amd;
        let native_max = native(0, 0)[0];
        let allowed = if native_max >= 0xd && native(1, 0)[2] & f::XSAVE != 0 {
            c.xcr0_allowed & xstate::KNOWN
        } else {
            0
        };
        let mut b = Builder {
            leaves: Vec::with_capacity(64),
            native: &native,
            c,
            amd,
            allowed,
            topology,
        };
        b.basic(native_max);
        b.xen();
        b.extended();
        let mut leaves = b.leaves;
        leaves.sort_unstable_by_key(|l| l.key);
        let xstates = XStates::read(allowed, |n| native(0xd, n));
        Self {
            leaves,
            xstates,
            vcpu: c.vcpu,
            topology,
            vendor,
        }
    }

    /// Sizes of the extended registers.
    pub fn xstates(&self) -> &XStates {
        &self.xstates
    }

    /// The processor's vendor.
    pub fn vendor(&self) -> Vendor {
        self.vendor
    }

    /// The registers that CPUID returns. Leaves and subleaves that the guest does not have are all zero.
    #[inline]
    pub fn lookup(&self, leaf: u32, subleaf: u32, live: &Live) -> Regs {
        let sub = if indexed(leaf) { subleaf } else { 0 };
        let mut regs = match self.leaves.binary_search_by_key(&key(leaf, sub), |l| l.key) {
            Ok(i) => self.leaves[i].regs,
            Err(_) => return self.unlisted(leaf, subleaf),
        };
        match leaf {
            1 => {
                if live.cr4 & CR4_OSXSAVE != 0 {
                    regs[2] |= f::OSXSAVE;
                }
                if !live.apic_on {
                    regs[3] &= !f::APIC;
                }
            }
            7 if sub == 0 && live.cr4 & CR4_PKE != 0 => regs[2] |= f::OSPKE,
            0xd if sub == 0 => regs[1] = self.xstates.size(live.xcr0),
            0xd if sub == 1 && regs[0] & 0b1010 != 0 => {
                regs[1] = self.xstates.compact_size(live.xcr0)
            }
            0x8000_0001 if !live.apic_on && self.vendor == Vendor::Amd => regs[3] &= !f::APIC,
            _ => {}
        }
        regs
    }

    /// The leaves that do not depend on registers: leaf, subleaf (0 where it does not count), values. Ascending.
    pub fn entries(&self) -> impl Iterator<Item = (u32, u32, Regs)> + '_ {
        self.leaves
            .iter()
            .map(|l| ((l.key >> 32) as u32, l.key as u32, l.regs))
    }

    /// Whether ECX selects a subleaf of `leaf`.
    pub const fn has_subleaves(leaf: u32) -> bool {
        indexed(leaf)
    }

    /// Hides what the toolstack does not allow: of feature words only the bits in `regs` stay, the highest leaves become no
    /// higher, and signature and brand become those given. Everything else follows from the domain and stays.
    pub fn restrict(&mut self, leaf: u32, subleaf: u32, regs: Regs) {
        let sub = if indexed(leaf) { subleaf } else { 0 };
        let Ok(at) = self.leaves.binary_search_by_key(&key(leaf, sub), |l| l.key) else {
            return;
        };
        let ours = &mut self.leaves[at].regs;
        let mut keep = |which: &[usize]| {
            for &i in which {
                ours[i] &= regs[i];
            }
        };
        match (leaf, sub) {
            (0 | 0x8000_0000, _) => ours[0] = ours[0].min(regs[0]),
            (1, _) => {
                // The APIC, x2APIC and hypervisor bits are what the domain runs on.
                let fixed = [0, 0, f::X2APIC | f::HYPERVISOR, f::APIC | f::HTT];
                ours[0] = regs[0];
                for i in [2, 3] {
                    ours[i] &= regs[i] | fixed[i];
                }
            }
            (7, 0) => keep(&[1, 2, 3]),
            (7, _) | (0xd, 1) | (0x8000_0021, _) => keep(&[0]),
            (0x8000_0001, _) => {
                let cmp_legacy = ours[2] & f::CMP_LEGACY;
                ours[2] = ours[2] & regs[2] | cmp_legacy;
                ours[3] &= regs[3];
            }
            (0x8000_0002..=0x8000_0004, _) => *ours = regs,
            (0x8000_0007, _) => keep(&[3]),
            (0x8000_0008, _) => keep(&[1]),
            _ => {}
        }
        let (basic, extended) = (self.top(0), self.top(0x8000_0000));
        self.leaves.retain(|l| match (l.key >> 32) as u32 {
            l @ 0..0x4000_0000 => l <= basic,
            l if l >= 0x8000_0000 => l <= extended,
            _ => true,
        });
    }

    fn top(&self, leaf: u32) -> u32 {
        match self.leaves.binary_search_by_key(&key(leaf, 0), |l| l.key) {
            Ok(i) => self.leaves[i].regs[0],
            Err(_) => u32::MAX,
        }
    }

    #[cold]
    fn unlisted(&self, leaf: u32, subleaf: u32) -> Regs {
        match leaf {
            0xb => self.topology.leaf_b(subleaf, self.vcpu),
            0xd => self.xstates.subleaf(subleaf),
            _ => [0; 4],
        }
    }

    /// Whether a feature is shown, for policies that depend on it: bit of register `reg` (0 = EAX) of a static leaf.
    pub fn has(&self, leaf: u32, reg: usize, bit: u32) -> bool {
        self.lookup(leaf, 0, &Live::default())
            .get(reg)
            .is_some_and(|r| r >> (bit & 31) & 1 != 0)
    }
}

struct Builder<'a, N> {
    leaves: Vec<Leaf>,
    native: &'a N,
    c: &'a CpuidConfig,
    amd: bool,
    allowed: u64,
    topology: Topology,
}

impl<N: Fn(u32, u32) -> Regs> Builder<'_, N> {
    fn put(&mut self, leaf: u32, subleaf: u32, regs: Regs) {
        self.leaves.push(Leaf {
            key: key(leaf, subleaf),
            regs,
        });
    }

    fn native(&self, leaf: u32, subleaf: u32) -> Regs {
        (self.native)(leaf, subleaf)
    }

    /// The feature bits among `bits` whose state the guest may enable.
    fn with_state(&self, value: u32, avx: u32, avx512: u32) -> u32 {
        let mut hide = 0;
        if self.allowed & xstate::AVX_STATE == 0 {
            hide |= avx;
        }
        if self.allowed & xstate::AVX512 != xstate::AVX512 {
            hide |= avx512;
        }
        value & !hide
    }

    fn basic(&mut self, native_max: u32) {
        let [_, b, c, d] = self.native(0, 0);
        // Leaf 0xb comes with the x2APIC even where the machine stops short of it.
        self.put(0, 0, [native_max.clamp(0xb, 0xd), b, c, d]);
        let [a, b, mut c, mut d] = self.native(1, 0);
        c = self.with_state(c & f::LEAF1_ECX, f::LEAF1_ECX_AVX, 0) | f::X2APIC | f::HYPERVISOR;
        if self.allowed == 0 {
            c &= !f::XSAVE;
        }
        if self.c.tsc_deadline {
            c |= f::TSC_DEADLINE;
        }
        d = d & f::LEAF1_EDX | f::APIC;
        if self.topology.multi() {
            d |= f::HTT;
        }
        self.put(1, 0, [a, self.topology.leaf1_ebx(b, self.c.vcpu), c, d]);
        if native_max >= 2 {
            let regs = self.native(2, 0);
            self.put(2, 0, regs);
        }
        if native_max >= 4 {
            self.caches(4, false);
        }
        if native_max >= 7 {
            self.leaf7();
        }
        if self.allowed != 0 {
            let max = XStates::read(self.allowed, |n| self.native(0xd, n)).size(self.allowed);
            self.put(
                0xd,
                0,
                [self.allowed as u32, 0, max, (self.allowed >> 32) as u32],
            );
            let [a, ..] = self.native(0xd, 1);
            self.put(0xd, 1, [a & f::LEAFD_1_EAX, 0, 0, 0]);
        }
    }

    fn leaf7(&mut self) {
        let [max, b, mut c, d] = self.native(7, 0);
        let pku = if self.allowed & xstate::PKRU != 0 {
            c & f::PKU
        } else {
            0
        };
        c = self.with_state(c & f::LEAF7_ECX, f::LEAF7_AVX.1, f::LEAF7_ECX_AVX512) | pku;
        let b = self.with_state(b & f::LEAF7_EBX, f::LEAF7_AVX.0, f::LEAF7_EBX_AVX512);
        let d = self.with_state(d & f::LEAF7_EDX, 0, f::LEAF7_EDX_AVX512);
        self.put(7, 0, [max.min(1), b, c, d]);
        if max >= 1 {
            let [a, ..] = self.native(7, 1);
            // AVX-VNNI, and AVX512-BF16.
            let a = self.with_state(a & f::LEAF7_1_EAX, 1 << 4, 1 << 5);
            self.put(7, 1, [a, 0, 0, 0]);
        }
    }

    fn caches(&mut self, leaf: u32, amd: bool) {
        // Machines list four or five caches; the bound guards against one that never ends its list.
        for sub in 0..8 {
            let [a, b, c, d] = self.native(leaf, sub);
            if a & 0x1f == 0 {
                break;
            }
            self.put(leaf, sub, [self.topology.cache_eax(a, amd), b, c, d]);
        }
    }

    fn xen(&mut self) {
        let c = *self.c;
        // "XenVMMXenVMM"
        self.put(
            XEN_BASE,
            0,
            [XEN_BASE + 5, 0x566e_6558, 0x6558_4d4d, 0x4d4d_566e],
        );
        let version = u32::from(c.version.0) << 16 | u32::from(c.version.1);
        self.put(XEN_BASE + 1, 0, [version, 0, 0, 0]);
        // One hypercall page, by this MSR.
        self.put(XEN_BASE + 2, 0, [1, super::msr::HYPERCALL_PAGE, 0, 0]);
        let rdtscp = self.native(0x8000_0001, 0)[3] & 1 << 27 != 0;
        let flags = u32::from(c.tsc_reliable) << 1 | u32::from(rdtscp) << 2;
        self.put(XEN_BASE + 3, 0, [flags, c.tsc_mode, c.tsc_khz, 0]);
        let (offset, mul, shift) = c.tsc_scale;
        let shift = i32::from(shift).cast_unsigned();
        self.put(
            XEN_BASE + 3,
            1,
            [offset as u32, (offset >> 32) as u32, mul, shift],
        );
        self.put(XEN_BASE + 3, 2, [c.tsc_khz, 0, 0, 0]);
        // IOMMU mappings for grants, vCPU id present, domain id present.
        // And what the processor does for the local APIC. As on Xen the first says nothing about ends of interrupts, while the
        // second has those as well.
        let flags = 0b1_1100
            | u32::from(c.xapic_assist)
            | u32::from(c.x2apic_assist) << 1
            | u32::from(c.upcall_vector) << 6;
        self.put(XEN_BASE + 4, 0, [flags, c.vcpu, u32::from(c.domid), 0]);
        self.put(XEN_BASE + 5, 0, [0, u32::from(c.phys_bits), 0, 0]);
    }

    fn extended(&mut self) {
        let [native_max, b, c, d] = self.native(0x8000_0000, 0);
        if native_max < 0x8000_0000 {
            return;
        }
        let top = if self.amd { 0x8000_0021 } else { 0x8000_0008 };
        let max = native_max.min(top);
        self.put(0x8000_0000, 0, [max, b, c, d]);
        let [a, b, mut c, d] = self.native(0x8000_0001, 0);
        c = self.with_state(c & f::EXT1_ECX, 1 << 11 | 1 << 16, 0);
        if self.amd && self.topology.multi() {
            c |= f::CMP_LEGACY;
        }
        let d = d & if self.amd {
            f::EXT1_EDX_AMD
        } else {
            f::EXT1_EDX_INTEL
        };
        self.put(0x8000_0001, 0, [a, b, c, d]);
        for leaf in 0x8000_0002..=max.min(0x8000_0006) {
            let regs = self.native(leaf, 0);
            self.put(leaf, 0, regs);
        }
        if max >= 0x8000_0007 && self.c.tsc_reliable {
            let [.., d] = self.native(0x8000_0007, 0);
            self.put(0x8000_0007, 0, [0, 0, 0, d & f::INVARIANT_TSC]);
        }
        if max >= 0x8000_0008 {
            let [a, b, ..] = self.native(0x8000_0008, 0);
            let phys = (a & 0xff).min(u32::from(self.c.phys_bits));
            // No 5-level paging: 48 bits of linear address.
            let (b, c) = if self.amd {
                (b & f::EXT8_EBX, self.topology.ext8_ecx())
            } else {
                (b & 1 << 9, 0)
            };
            self.put(0x8000_0008, 0, [phys | 48 << 8, b, c, 0]);
        }
        if !self.amd {
            return;
        }
        for leaf in [0x8000_0019, 0x8000_001a] {
            if leaf <= max {
                let regs = self.native(leaf, 0);
                self.put(leaf, 0, regs);
            }
        }
        let topoext = c & 1 << 22 != 0;
        if topoext && max >= 0x8000_001d {
            self.caches(0x8000_001d, true);
        }
        if topoext && max >= 0x8000_001e {
            self.put(0x8000_001e, 0, self.topology.leaf_1e(self.c.vcpu));
        }
        if max >= 0x8000_0021 {
            let [a, ..] = self.native(0x8000_0021, 0);
            self.put(0x8000_0021, 0, [a & f::EXT21_EAX, 0, 0, 0]);
        }
    }
}

#[cfg(test)]
#[path = "cpuid_tests.rs"]
mod tests;
