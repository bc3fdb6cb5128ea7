//! What processor a domain sees: one policy from which CPUID, MSRs and state sizes of all its vCPUs follow.

use hv_hw::{Hw, Machine};
use x86_model::policy::features::Vendor;
use xen_abi::DomId;

use crate::hvm::cpuid::{CpuidConfig, CpuidTable};
use crate::hvm::msr::{MsrFeatures, MsrPolicy};
use crate::vcpu::info::ClockSnapshot;

/// XCR0 components that guests may use: x87, SSE, AVX, AVX-512, PKRU.
const XCR0_OFFERED: u64 = 0x2e7;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct CpuPolicy {
    config: CpuidConfig,
    /// XCR0 bits that guests may set.
    pub xcr0_allowed: u64,
    /// Bytes of the XSAVE area for them.
    pub xsave_size: u32,
    privileged: bool,
}

impl CpuPolicy {
    /// The policy of a domain with `vcpus` vCPUs on this machine.
    pub fn new(hw: &Hw, id: DomId, vcpus: u32, version: (u16, u16), privileged: bool) -> Self {
        let xsave = hw.cpuid(1, 0)[2] & 1 << 26 != 0;
        let (xcr0_allowed, xsave_size) = if xsave {
            let offered = hw.cpuid(0xd, 0);
            let machine = u64::from(offered[3]) << 32 | u64::from(offered[0]);
            (machine & XCR0_OFFERED, offered[2])
        } else {
            (3, 512)
        };
        let (mul, shift) = ClockSnapshot::scale(hw.tsc_khz());
        let native_bits = match hw.cpuid(0x8000_0008, 0)[0] as u8 {
            0 => 36,
            n => n,
        };
        let config = CpuidConfig {
            vcpu: 0,
            vcpus,
            domid: id.0,
            version,
            phys_bits: native_bits.min(hw.phys_bits()),
            xcr0_allowed,
            tsc_reliable: hw.tsc_reliable(),
            tsc_mode: 0,
            tsc_khz: hw.tsc_khz(),
            tsc_scale: (0, mul, shift),
            upcall_vector: true,
            xapic_assist: false,
            x2apic_assist: false,
            tsc_deadline: false,
        };
        CpuPolicy {
            config,
            xcr0_allowed,
            xsave_size,
            privileged,
        }
    }

    /// The same, and it says that the guest's APIC needs few exits in xAPIC mode, in x2APIC mode.
    pub fn assisted(mut self, xapic: bool, x2apic: bool) -> Self {
        (self.config.xapic_assist, self.config.x2apic_assist) = (xapic, x2apic);
        self
    }

    /// CPUID of one vCPU.
    pub fn table(&self, hw: &Hw, vcpu: u32) -> CpuidTable {
        CpuidTable::build(
            |leaf, sub| hw.cpuid(leaf, sub),
            &CpuidConfig {
                vcpu,
                ..self.config
            },
        )
    }

    /// MSRs of the domain.
    pub fn msrs(&self, hw: &Hw) -> MsrPolicy {
        let table = self.table(hw, 0);
        let features = MsrFeatures {
            vendor: table.vendor(),
            ffxsr: table.has(0x8000_0001, 3, 25),
            tsc_aux: table.has(0x8000_0001, 3, 27) || table.has(7, 2, 22),
            xsaves: false,
            invariant_tsc: table.has(0x8000_0007, 3, 8),
            hardware_view: self.privileged,
        };
        MsrPolicy::build(features, |index| hw.rdmsr(index))
    }

    /// Whether the guest's processor makes hypercalls by VMMCALL (AMD, Hygon) instead of VMCALL.
    pub fn uses_vmmcall(&self, hw: &Hw) -> bool {
        self.table(hw, 0).vendor() == Vendor::Amd
    }
}
