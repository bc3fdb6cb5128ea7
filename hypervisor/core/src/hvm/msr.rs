//! What RDMSR and WRMSR do in a guest, as decisions: [`MsrPolicy`] holds the values that are fixed per domain,
//! [`MsrState`] the few registers that only have to remember what was written. Everything unknown is #GP.
//!
//! ```text
//! match policy.read(index, &state) {
//!     MsrRead::Value(v) => v,
//!     MsrRead::Context => ctx.context_msr(index)?,         // EFER, FS/GS bases, STAR.., PAT, ...
//!     MsrRead::Apic => lapic.rdmsr(index, clocks)?,        // 0x1b, 0x6e0, 0x800..0x8ff
//!     MsrRead::Tsc => guest_tsc,
//!     MsrRead::Gp => inject #GP(0),
//! }
//! match policy.write(index, value, &mut state, &live) {
//!     MsrWrite::Done => {}
//!     MsrWrite::Context(v) => { ctx.set_context_msr(index, v); }
//!     MsrWrite::Apic => effect = lapic.wrmsr(index, value, clocks)?,
//!     MsrWrite::Tsc => ctx.set_tsc_offset(value.wrapping_sub(host_tsc)),
//!     MsrWrite::HypercallPage(address) => ...,
//!     MsrWrite::Gp => inject #GP(0),
//! }
//! ```

use x86_model::policy::features::Vendor;

/// The MSR by which old kernels ask for a hypercall page.
pub const HYPERCALL_PAGE: u32 = 0x4000_0000;

const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER: u32 = 0xc000_0080;
const EFER_SCE: u64 = 1;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
const EFER_NXE: u64 = 1 << 11;
const EFER_FFXSR: u64 = 1 << 14;

/// Outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsrRead {
    /// This value.
    Value(u64),
    /// #GP.
    Gp,
    /// From the vCPU context; #GP if it is not there.
    Context,
    /// From the local APIC.
    Apic,
    /// The guest's TSC.
    Tsc,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsrWrite {
    /// Nothing left to do.
    Done,
    /// #GP.
    Gp,
    /// Store this (validated, perhaps adjusted) value in the vCPU context.
    Context(u64),
    /// To the local APIC.
    Apic,
    /// Set the guest's TSC.
    Tsc,
    /// Fill the hypercall page at this guest-physical address, which is page aligned.
    HypercallPage(u64),
}

/// Register values that EFER writes are checked against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// CR0.
    pub cr0: u64,
    /// CR4.
    pub cr4: u64,
    /// EFER now.
    pub efer: u64,
}

/// Features that decide about MSRs, from the domain's CPUID.
#[derive(Clone, Copy, Debug)]
pub struct MsrFeatures {
    /// Vendor.
    pub vendor: Vendor,
    /// FXSR optimisation (EFER bit 14).
    pub ffxsr: bool,
    /// RDTSCP or RDPID (TSC_AUX).
    pub tsc_aux: bool,
    /// XSAVES (XSS).
    pub xsaves: bool,
    /// The TSC is shown as invariant.
    pub invariant_tsc: bool,
    /// Values of the machine that only the control domain may see.
    pub hardware_view: bool,
}

/// Fixed values of a domain.
#[derive(Clone, Debug)]
pub struct MsrPolicy {
    f: MsrFeatures,
    microcode: u64,
    platform_id: u64,
    misc_enable: u64,
    syscfg: u64,
    top_mem: u64,
    top_mem2: u64,
    mmio_conf: u64,
}

/// Registers that remember. One per vCPU.
#[derive(Clone, Debug)]
pub struct MsrState {
    mtrr_default: u64,
    mtrr_fixed: [u64; 11],
    mtrr_variable: [u64; 2 * VARIABLE_MTRRS as usize],
    misc_features: u64,
    /// TSC_ADJUST, which only saved records know: guests have no such register.
    pub tsc_adjust: u64,
}

const VARIABLE_MTRRS: u32 = 8;
/// Write-combining, fixed ranges, eight variable ranges.
const MTRR_CAP: u64 = 1 << 10 | 1 << 8 | VARIABLE_MTRRS as u64;
const FIXED_MTRRS: [u32; 11] = [
    0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f,
];

impl Default for MsrState {
    fn default() -> Self {
        Self {
            // Enabled, everything write-back: with nested paging the machine's own MTRRs rule device memory.
            mtrr_default: 0x806,
            mtrr_fixed: [0x0606_0606_0606_0606; 11],
            mtrr_variable: [0; 2 * VARIABLE_MTRRS as usize],
            misc_features: 0,
            tsc_adjust: 0,
        }
    }
}

fn canonical(v: u64) -> bool {
    (v.cast_signed() << 16 >> 16).cast_unsigned() == v
}

/// A memory type that MTRRs know.
fn mtrr_type(t: u64) -> bool {
    matches!(t & 0xff, 0 | 1 | 4 | 5 | 6)
}

/// PAT has types 0, 1, 4 to 7 in each byte.
fn pat_valid(v: u64) -> bool {
    v.to_le_bytes().iter().all(|t| matches!(t, 0 | 1 | 4..=7))
}

impl MsrPolicy {
    /// Reads the machine's values once. `rdmsr` gives `None` where the machine faults.
    pub fn build(f: MsrFeatures, rdmsr: impl Fn(u32) -> Option<u64>) -> Self {
        let host = |index| {
            if f.hardware_view {
                rdmsr(index).unwrap_or(0)
            } else {
                0
            }
        };
        Self {
            f,
            microcode: rdmsr(0x8b).unwrap_or(0),
            platform_id: rdmsr(0x17).unwrap_or(0),
            // BTS and PEBS unavailable; no XD-disable, no MONITOR.
            misc_enable: (rdmsr(0x1a0).unwrap_or(1) | 3 << 11) & !(1 << 34 | 1 << 18),
            // MTRR and TOM2 bits only.
            syscfg: host(0xc001_0010) & 0x007c_0000,
            top_mem: host(0xc001_001a),
            top_mem2: host(0xc001_001d),
            mmio_conf: host(0xc001_0058),
        }
    }

    /// RDMSR.
    pub fn read(&self, index: u32, s: &MsrState) -> MsrRead {
        use MsrRead::{Apic, Context, Gp, Tsc, Value};
        let amd = self.f.vendor == Vendor::Amd;
        match index {
            EFER
            | 0xc000_0081..=0xc000_0084
            | 0xc000_0100..=0xc000_0102
            | 0x174..=0x176
            | 0x277
            | 0x1d9 => Context,
            0x1b | 0x6e0 | 0x800..=0x8ff => Apic,
            0x10 => Tsc,
            0xc000_0103 if self.f.tsc_aux => Context,
            0xda0 if self.f.xsaves => Context,
            0x8b => Value(self.microcode),
            0xfe => Value(MTRR_CAP),
            0x2ff => Value(s.mtrr_default),
            0x200..0x210 => Value(s.mtrr_variable[(index - 0x200) as usize]),
            0x250..=0x26f => fixed(index).map_or(Gp, |i| Value(s.mtrr_fixed[i])),
            // No machine-check banks, and nothing recorded.
            0x179 | 0x17a => Value(0),
            // The processor's own P5 machine-check registers.
            0 | 1 => Value(0),
            HYPERCALL_PAGE => Value(0),
            _ if amd => self.read_amd(index),
            0x17 => Value(self.platform_id),
            // Locked, with virtualization off.
            0x3a => Value(1),
            0xce => Value(0),
            0x140 => Value(s.misc_features),
            0x1a0 => Value(self.misc_enable),
            _ => Gp,
        }
    }

    fn read_amd(&self, index: u32) -> MsrRead {
        use MsrRead::{Gp, Value};
        match index {
            0xc001_0010 => Value(self.syscfg),
            // The TSC counts at the rate of the highest performance state; without this bit kernels warn.
            0xc001_0015 => Value(u64::from(self.f.invariant_tsc) << 24),
            0xc001_001a => Value(self.top_mem),
            0xc001_001d => Value(self.top_mem2),
            0xc001_001f => Value(0),
            0xc001_0055 => Value(0),
            0xc001_0058 => Value(self.mmio_conf),
            // LFENCE serialises.
            0xc001_1029 => Value(2),
            _ => Gp,
        }
    }

    /// WRMSR.
    pub fn write(&self, index: u32, value: u64, s: &mut MsrState, live: &Live) -> MsrWrite {
        use MsrWrite::{Apic, Context, Done, Gp, HypercallPage, Tsc};
        let amd = self.f.vendor == Vendor::Amd;
        let check = |ok: bool| if ok { Context(value) } else { Gp };
        match index {
            EFER => self.efer(value, live).map_or(Gp, Context),
            0xc000_0081 => Context(value),
            0xc000_0084 => Context(value & 0xffff_ffff),
            0xc000_0082 | 0xc000_0083 | 0xc000_0100..=0xc000_0102 | 0x175 | 0x176 => {
                check(canonical(value))
            }
            0x174 => Context(value & 0xffff_ffff),
            0x277 => check(pat_valid(value)),
            // Last-branch records do not exist; single-stepping on branches does.
            0x1d9 => check(value & !2 == 0),
            0x1b | 0x6e0 | 0x800..=0x8ff => Apic,
            0x10 => Tsc,
            0xc000_0103 if self.f.tsc_aux => check(value >> 32 == 0),
            0xda0 if self.f.xsaves => check(value == 0),
            // Microcode revision is written before it is read.
            0x8b => Done,
            0x200..0x210 => store(
                &mut s.mtrr_variable[(index - 0x200) as usize],
                value,
                variable_valid(index, value),
            ),
            0x250..=0x26f => match fixed(index) {
                Some(i) => store(
                    &mut s.mtrr_fixed[i],
                    value,
                    value.to_le_bytes().iter().all(|t| mtrr_type((*t).into())),
                ),
                None => Gp,
            },
            0x2ff => store(
                &mut s.mtrr_default,
                value,
                value & !0xcff == 0 && mtrr_type(value),
            ),
            0x17a => Done,
            0 | 1 => Done,
            // Only page 0 exists.
            HYPERCALL_PAGE if value & 0xfff != 0 => Gp,
            HYPERCALL_PAGE => HypercallPage(value),
            // Kernels clear or set single bits of these after reading them; there is nothing behind.
            0xc001_0010 | 0xc001_0015 | 0xc001_001f | 0xc001_0055 | 0xc001_1029 if amd => Done,
            0x140 if !amd => store(&mut s.misc_features, value, value == 0),
            0x1a0 if !amd => Done,
            _ => Gp,
        }
    }

    /// The EFER value to store, or `None` for #GP.
    fn efer(&self, value: u64, live: &Live) -> Option<u64> {
        let mut known = EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE;
        if self.f.ffxsr {
            known |= EFER_FFXSR;
        }
        let paging = live.cr0 & CR0_PG != 0;
        if value & !known != 0 || paging && (value ^ live.efer) & EFER_LME != 0 {
            return None;
        }
        // LMA is the processor's: it follows LME and paging.
        let lma = if paging && value & EFER_LME != 0 && live.cr4 & CR4_PAE != 0 {
            EFER_LMA
        } else {
            0
        };
        Some(value & !EFER_LMA | lma)
    }
}

fn fixed(index: u32) -> Option<usize> {
    FIXED_MTRRS.iter().position(|&m| m == index)
}

fn variable_valid(index: u32, value: u64) -> bool {
    let reserved_low = if index.is_multiple_of(2) {
        0xf00
    } else {
        0x7ff
    };
    value >> 52 == 0 && value & reserved_low == 0 && (!index.is_multiple_of(2) || mtrr_type(value))
}

fn store(slot: &mut u64, value: u64, ok: bool) -> MsrWrite {
    if !ok {
        return MsrWrite::Gp;
    }
    *slot = value;
    MsrWrite::Done
}

#[cfg(test)]
#[path = "msr_tests.rs"]
mod tests;
