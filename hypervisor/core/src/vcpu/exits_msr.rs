//! RDMSR and WRMSR: by the domain's policy to the hardware context, the local APIC, or stored state.

use hv_hw::{GuestContext, Machine};
use x86_model::{Gfn, Gpr};

use super::run::Turn;
use crate::hvm::cpuid::Live as CpuidLive;
use crate::hvm::hypercall_page;
use crate::hvm::msr::{Live, MsrRead, MsrWrite};
use crate::hvm::vlapic::Clocks;

const APIC_BASE: u32 = 0x1b;
const TSC_DEADLINE: u32 = 0x6e0;
const TSC: u32 = 0x10;

/// Handles the exit; false means #GP.
pub fn handle(turn: &mut Turn<'_>, write: bool) -> bool {
    let g = turn.local.ctx.gprs();
    let index = g.get32(Gpr::Rcx);
    if write {
        let value = u64::from(g.get32(Gpr::Rdx)) << 32 | u64::from(g.get32(Gpr::Rax));
        return turn.wrmsr(index, value);
    }
    let Some(value) = turn.rdmsr(index) else {
        return false;
    };
    let g = turn.local.ctx.gprs_mut();
    g.set32(Gpr::Rax, value as u32);
    g.set32(Gpr::Rdx, (value >> 32) as u32);
    true
}

impl Turn<'_> {
    /// The clocks now, as the local APIC wants them.
    pub fn clocks(&self) -> Clocks {
        let tsc = self.hv.hw.tsc();
        Clocks {
            now_ns: self.hv.hw.tsc_to_ns(tsc),
            guest_tsc: tsc.wrapping_add(self.local.tsc_offset),
        }
    }

    /// A CPUID leaf as the vCPU sees it now.
    #[inline]
    pub fn cpuid_leaf(&self, leaf: u32, sub: u32) -> [u32; 4] {
        let live = CpuidLive {
            cr4: self.local.ctx.paging().cr4,
            xcr0: self.local.ctx.xcr0(),
            apic_on: self.local.lapic.base() & 1 << 11 != 0,
        };
        self.local.cpuid.lookup(leaf, sub, &live)
    }

    fn rdmsr(&mut self, index: u32) -> Option<u64> {
        match self.domain.msr_policy.read(index, &self.local.msrs) {
            MsrRead::Value(v) => Some(v),
            MsrRead::Gp => None,
            MsrRead::Context => self.local.ctx.context_msr(index),
            MsrRead::Tsc => Some(self.clocks().guest_tsc),
            MsrRead::Apic => {
                self.local.take_tpr();
                match index {
                    APIC_BASE => Some(self.local.lapic.base()),
                    TSC_DEADLINE => self.local.lapic.tsc_deadline().ok(),
                    _ => self.local.lapic.x2apic_read(index, self.clocks()).ok(),
                }
            }
        }
    }

    fn wrmsr(&mut self, index: u32, value: u64) -> bool {
        let p = self.local.ctx.paging();
        let live = Live {
            cr0: p.cr0,
            cr4: p.cr4,
            efer: p.efer,
        };
        match self
            .domain
            .msr_policy
            .write(index, value, &mut self.local.msrs, &live)
        {
            MsrWrite::Done => true,
            MsrWrite::Gp => false,
            MsrWrite::Context(v) => self.local.ctx.set_context_msr(index, v),
            MsrWrite::Tsc => {
                debug_assert_eq!(index, TSC);
                self.local.tsc_offset = value.wrapping_sub(self.hv.hw.tsc());
                self.local.ctx.set_tsc_offset(self.local.tsc_offset);
                // The guest turns its TSC into time by the clock: that must not jump.
                self.vcpu.areas.set_tsc_offset(self.local.tsc_offset);
                self.vcpu.areas.update_clock(&self.hv.clock());
                true
            }
            MsrWrite::HypercallPage(at) => self.fill_hypercall_page(at),
            MsrWrite::Apic => {
                let clocks = self.clocks();
                self.local.take_tpr();
                let effect = match index {
                    APIC_BASE => self.local.lapic.set_base(value),
                    TSC_DEADLINE => self.local.lapic.set_tsc_deadline(value),
                    _ => self.local.lapic.x2apic_write(index, value, clocks),
                };
                match effect {
                    Ok(e) => {
                        self.local.show_tpr();
                        self.lapic_effect(e);
                        true
                    }
                    Err(_) => false,
                }
            }
        }
    }

    /// Writes a hypercall page. False if the frame is not the guest's writable RAM.
    fn fill_hypercall_page(&mut self, value: u64) -> bool {
        let Some((frame, true)) = self.domain.p2m.frame(Gfn(value >> 12)) else {
            return false;
        };
        frame.write(0, &hypercall_page::contents(self.domain.uses_vmmcall));
        // The kernel's width is known now.
        let narrow = !self.local.ctx.paging().long;
        self.domain.latch_layout(narrow, self.hv.wallclock());
        true
    }
}
