//! Extended registers of a vCPU (x87, SSE, AVX, ...), debug address registers and TSC_AUX: all the state that stays in the
//! CPU over exits, because the hypervisor itself uses none of it, and that moves when another vCPU gets the CPU.
//!
//! The move is eager and complete in both directions: state that is left behind in registers has leaked between guests
//! before.

use core::arch::asm;

use x86_model::xsave;

use super::pages::Pages;
use crate::x86::asm::{
    cpuid, has_leaf, rdmsr, read_cr0, read_cr4, write_cr0, write_cr4, wrmsr, xsetbv,
};

const MSR_TSC_AUX: u32 = 0xc000_0103;
const CR0_MP: u64 = 1 << 1;
const CR0_EM: u64 = 1 << 2;
const CR0_TS: u64 = 1 << 3;
const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;
const CR4_OSXSAVE: u64 = 1 << 18;
/// x87 and SSE: the legacy part of the area and its header.
const LEGACY_SIZE: u32 = 512 + 64;

fn has_xsave() -> bool {
    cpuid(1, 0)[2] & 1 << 26 != 0
}

fn has_tsc_aux() -> bool {
    let rdtscp = has_leaf(0x8000_0001) && cpuid(0x8000_0001, 0)[3] & 1 << 27 != 0;
    let rdpid = has_leaf(7) && cpuid(7, 0)[2] & 1 << 22 != 0;
    rdtscp || rdpid
}

/// Lets this CPU save and restore extended state without faults.
pub fn enable_this_cpu() {
    let xsave = if has_xsave() { CR4_OSXSAVE } else { 0 };
    // SAFETY: these bits only enable instructions; mappings and entry points are untouched.
    unsafe {
        write_cr0(read_cr0() & !(CR0_EM | CR0_TS) | CR0_MP);
        write_cr4(read_cr4() | CR4_OSFXSR | CR4_OSXMMEXCPT | xsave);
    }
}

/// Bits of MXCSR that this CPU has; loading others faults.
fn mxcsr_mask() -> u32 {
    #[repr(C, align(16))]
    struct Image([u8; xsave::LEGACY]);
    let mut image = Image([0; xsave::LEGACY]);
    // SAFETY: writes 512 bytes to the image, which is aligned to 16; x87 and SSE are enabled on every CPU.
    unsafe { asm!("fxsave64 [{}]", in(reg) &raw mut image.0, options(nostack, preserves_flags)) };
    let [a, b, c, d] = [28, 29, 30, 31].map(|n| image.0[n]);
    match u32::from_le_bytes([a, b, c, d]) {
        0 => xsave::MXCSR_DEFAULT_MASK,
        mask => mask,
    }
}

/// The switched state of one vCPU.
pub struct Switched {
    area: Pages,
    /// Components that the guest may enable; 0 where the CPU has no XSAVE.
    allowed: u64,
    xcr0: u64,
    dr: [u64; 4],
    tsc_aux: u64,
    has_tsc_aux: bool,
    loaded: bool,
}

impl Switched {
    /// State after reset. `xcr0_allowed` is cut to what the CPU has. `None` without memory.
    pub fn new(xcr0_allowed: u64, xsave_size: u32) -> Option<Self> {
        let allowed = if has_xsave() {
            let [low, _, _, high] = cpuid(0xd, 0);
            (xcr0_allowed | 3) & (u64::from(high) << 32 | u64::from(low))
        } else {
            0
        };
        // The size is recomputed: the CPU will write that much whatever the caller believes.
        let size = (2..63)
            .filter(|i| allowed >> i & 1 != 0)
            .map(|i| {
                let [size, offset, ..] = cpuid(0xd, i);
                offset.saturating_add(size)
            })
            .fold(xsave_size.max(LEGACY_SIZE), u32::max);
        let mut area = Pages::new((size as usize).div_ceil(4096), 0)?;
        xsave::reset(area.bytes_mut());
        Some(Switched {
            area,
            allowed,
            xcr0: 1,
            dr: [0; 4],
            tsc_aux: 0,
            has_tsc_aux: has_tsc_aux(),
            loaded: false,
        })
    }

    /// Loads everything into this CPU. Nothing happens if it is there already.
    pub fn load(&mut self) {
        if self.loaded {
            return;
        }
        self.loaded = true;
        let area = self.area.pointer().as_ptr();
        // SAFETY: the area is 64-byte aligned, large enough for all `allowed` components (`new`), and holds the initial
        // image, what the CPU saved, or what it takes (`set_extended`). `allowed` and `xcr0` are valid XCR0 values (`new`, `set_xcr0`). No register
        // loaded here is used by compiled hypervisor code (soft-float target); breakpoints in DR0 to DR3 are off until
        // the guest's DR7 is loaded by the entry. TSC_AUX is not used by the hypervisor.
        unsafe {
            if self.allowed != 0 {
                xsetbv(self.allowed);
                asm!("xrstor64 [{}]", in(reg) area, in("eax") self.allowed as u32, in("edx") (self.allowed >> 32) as u32,
                    options(nostack, preserves_flags));
                xsetbv(self.xcr0);
            } else {
                asm!("fxrstor64 [{}]", in(reg) area, options(nostack, preserves_flags));
            }
            let [a, b, c, d] = self.dr;
            asm!("mov dr0, {}", "mov dr1, {}", "mov dr2, {}", "mov dr3, {}", in(reg) a, in(reg) b, in(reg) c, in(reg) d,
                options(nostack, preserves_flags));
            if self.has_tsc_aux {
                wrmsr(MSR_TSC_AUX, self.tsc_aux);
            }
        }
    }

    /// Takes everything out of this CPU. Nothing happens if it is not there.
    pub fn save(&mut self) {
        if !self.loaded {
            return;
        }
        self.loaded = false;
        let area = self.area.pointer().as_ptr();
        // SAFETY: as in `load`. Components that the guest has disabled in XCR0 for the moment still have a state, hence
        // all allowed ones are enabled first.
        unsafe {
            if self.allowed != 0 {
                xsetbv(self.allowed);
                asm!("xsave64 [{}]", in(reg) area, in("eax") self.allowed as u32, in("edx") (self.allowed >> 32) as u32,
                    options(nostack, preserves_flags));
            } else {
                asm!("fxsave64 [{}]", in(reg) area, options(nostack, preserves_flags));
            }
            let (a, b, c, d);
            asm!("mov {}, dr0", "mov {}, dr1", "mov {}, dr2", "mov {}, dr3", out(reg) a, out(reg) b, out(reg) c, out(reg) d,
                options(nostack, preserves_flags));
            self.dr = [a, b, c, d];
        }
        if self.has_tsc_aux {
            self.tsc_aux = rdmsr(MSR_TSC_AUX);
        }
    }

    /// The guest's XCR0.
    pub fn xcr0(&self) -> u64 {
        self.xcr0
    }

    /// Sets XCR0. The caller has checked the rules between bits; bits that were not allowed are dropped.
    pub fn set_xcr0(&mut self, value: u64) {
        if self.allowed == 0 {
            return;
        }
        self.xcr0 = value & self.allowed | 1;
        if self.loaded {
            // SAFETY: a subset of supported bits, consistent by the caller's check; CR4.OSXSAVE is set on every CPU.
            unsafe { xsetbv(self.xcr0) };
        }
    }

    /// The saved state in the standard form of XSAVE; that of a CPU without XSAVE has a header that names x87 and SSE. Not
    /// what a CPU has at the moment.
    pub fn extended(&self) -> &[u8] {
        debug_assert!(!self.loaded);
        self.area.bytes()
    }

    /// Replaces the saved state as far as the CPU takes it.
    pub fn set_extended(&mut self, image: &[u8]) {
        debug_assert!(!self.loaded);
        let allowed = if self.allowed == 0 { 3 } else { self.allowed };
        xsave::replace(self.area.bytes_mut(), image, allowed, mxcsr_mask());
    }

    /// DR0 to DR3 as saved.
    pub fn breakpoints(&self) -> [u64; 4] {
        debug_assert!(!self.loaded);
        self.dr
    }

    /// Replaces the saved DR0 to DR3.
    pub fn set_breakpoints(&mut self, at: [u64; 4]) {
        debug_assert!(!self.loaded);
        self.dr = at;
    }

    /// The guest's TSC_AUX.
    pub fn tsc_aux(&self) -> u64 {
        if self.loaded && self.has_tsc_aux {
            rdmsr(MSR_TSC_AUX)
        } else {
            self.tsc_aux
        }
    }

    /// Sets TSC_AUX; its upper half is reserved.
    pub fn set_tsc_aux(&mut self, value: u64) {
        self.tsc_aux = value & 0xffff_ffff;
        if self.loaded && self.has_tsc_aux {
            // SAFETY: the hypervisor does not use TSC_AUX.
            unsafe { wrmsr(MSR_TSC_AUX, self.tsc_aux) };
        }
    }
}
