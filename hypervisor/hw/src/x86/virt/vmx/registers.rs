//! System registers that the control structure does not hold and the hypervisor does not use: CR2, DR6 and the MSRs of
//! SYSCALL and SWAPGS. They stay in the CPU over exits and move when another vCPU gets the CPU.

use core::arch::asm;

use x86_model::regs::msr;
use x86_model::virt::vmx::canonical;

use crate::x86::asm::{rdmsr, read_cr2, wrmsr};

/// Numbers of the MSRs, in the order of [`Resident::msrs`].
const MSRS: [u32; 5] = [
    msr::STAR,
    msr::LSTAR,
    msr::CSTAR,
    msr::SFMASK,
    msr::KERNEL_GS_BASE,
];
const DR6_RESET: u64 = 0xffff_0ff0;
const LOW_HALF: u64 = 0xffff_ffff;

/// These registers of one vCPU.
pub struct Resident {
    msrs: [u64; MSRS.len()],
    cr2: u64,
    dr6: u64,
    loaded: bool,
}

/// A value that the CPU accepts for the MSR at place `n`: addresses canonical, the flag mask without its reserved half.
fn acceptable(n: usize, value: u64) -> u64 {
    match MSRS[n] {
        msr::STAR => value,
        msr::SFMASK => value & LOW_HALF,
        _ => canonical(value),
    }
}

fn write_cr2(value: u64) {
    // SAFETY: CR2 only records the address of the last page fault.
    unsafe { asm!("mov cr2, {}", in(reg) value, options(nomem, nostack, preserves_flags)) }
}

fn read_dr6() -> u64 {
    let value;
    // SAFETY: only reads.
    unsafe { asm!("mov {}, dr6", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

fn write_dr6(value: u64) {
    // SAFETY: DR6 only records debug conditions; its upper half, which must be 0, is cut off.
    unsafe {
        asm!("mov dr6, {}", in(reg) value & LOW_HALF, options(nomem, nostack, preserves_flags));
    }
}

impl Resident {
    /// State after reset.
    pub fn new() -> Self {
        Resident {
            msrs: [0; MSRS.len()],
            cr2: 0,
            dr6: DR6_RESET,
            loaded: false,
        }
    }

    /// Loads everything into this CPU.
    pub fn load(&mut self) {
        self.loaded = true;
        for (&index, &value) in MSRS.iter().zip(&self.msrs) {
            // SAFETY: the hypervisor executes neither SYSCALL nor SWAPGS; the values are `acceptable`.
            unsafe { wrmsr(index, value) };
        }
        write_cr2(self.cr2);
        write_dr6(self.dr6);
    }

    /// Takes everything out of this CPU.
    pub fn save(&mut self) {
        if self.loaded {
            self.msrs = MSRS.map(rdmsr);
            self.cr2 = read_cr2();
            self.dr6 = read_dr6();
            self.loaded = false;
        }
    }

    /// The guest's CR2.
    pub fn cr2(&self) -> u64 {
        if self.loaded { read_cr2() } else { self.cr2 }
    }

    /// Sets CR2.
    pub fn set_cr2(&mut self, value: u64) {
        self.cr2 = value;
        if self.loaded {
            write_cr2(value);
        }
    }

    /// The guest's DR6.
    pub fn dr6(&self) -> u64 {
        if self.loaded { read_dr6() } else { self.dr6 }
    }

    /// Sets DR6.
    pub fn set_dr6(&mut self, value: u64) {
        self.dr6 = value;
        if self.loaded {
            write_dr6(value);
        }
    }

    /// One of the MSRs.
    pub fn msr(&self, index: u32) -> Option<u64> {
        let n = MSRS.iter().position(|&m| m == index)?;
        Some(if self.loaded {
            rdmsr(index)
        } else {
            self.msrs[n]
        })
    }

    /// Sets one of the MSRs; false if it is none of them.
    pub fn set_msr(&mut self, index: u32, value: u64) -> bool {
        let Some(n) = MSRS.iter().position(|&m| m == index) else {
            return false;
        };
        self.msrs[n] = acceptable(n, value);
        if self.loaded {
            // SAFETY: as in `load`.
            unsafe { wrmsr(index, self.msrs[n]) };
        }
        true
    }
}
