//! Register access to the local APIC: the xAPIC page and the x2APIC MSRs, over one register file.

use x86_model::Width;
use x86_model::apic::{
    ApicMode, ESR_ILLEGAL_REGISTER, ESR_SEND_ILLEGAL, Icr, MSR_APIC_BASE, MSR_TSC_DEADLINE,
    MSR_X2APIC_FIRST, MSR_X2APIC_LAST, reg, x2apic_ldr,
};

use super::{Clocks, Effect, Gp, LVT_TIMER, Vlapic};

/// Version 0x14 with LVT entries 0 to 5.
const VERSION: u32 = 0x0005_0014;

/// Registers that only change by being written. The interrupt command's other half is apart.
const WRITTEN: [u32; 15] = [
    reg::ID,
    reg::VERSION,
    reg::LDR,
    reg::DFR,
    reg::SVR,
    reg::ESR,
    reg::ICR_LOW,
    reg::LVT_TIMER,
    reg::LVT_THERMAL,
    reg::LVT_PERF,
    reg::LVT_LINT0,
    reg::LVT_LINT1,
    reg::LVT_ERROR,
    reg::TIMER_INITIAL,
    reg::TIMER_DIVIDE,
];

impl Vlapic {
    /// The registers that only change by being written, by their offset in the page, for a processor that lets the guest read
    /// them: the form of the present mode. In x2APIC mode the 64 bits of the interrupt command lie together.
    pub fn registers(&self) -> [(u32, u32); 16] {
        let high = if self.mode() == ApicMode::X2Apic {
            reg::ICR_LOW + 4
        } else {
            reg::ICR_HIGH
        };
        core::array::from_fn(|n| match WRITTEN.get(n) {
            Some(&register) => {
                let value = self.read(register, Clocks::default());
                (register, value.unwrap_or(0))
            }
            None => (high, (self.icr >> 32) as u32),
        })
    }

    /// Whether [`Vlapic::registers`] may give others than when this was asked last.
    #[inline]
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.changed)
    }

    /// Somebody else may have changed them.
    pub fn touch(&mut self) {
        self.changed = true;
    }

    /// The guest wrote a register of the page that a processor keeps for it, with the effect that the write would have had
    /// here; `destination` is the other half of the interrupt command, where the guest writes that in the page as well.
    pub fn page_written(
        &mut self,
        register: u32,
        value: u32,
        destination: Option<u32>,
        clocks: Clocks,
    ) -> Effect {
        self.changed = true;
        match self.mode() {
            ApicMode::XApic => {
                if register == reg::ICR_LOW
                    && let Some(destination) = destination
                {
                    self.mmio_write(reg::ICR_HIGH, Width::B4, destination.into(), clocks);
                }
                self.mmio_write(register, Width::B4, value.into(), clocks)
            }
            // Only registers without reserved bits are written in this way.
            ApicMode::X2Apic => {
                let msr = MSR_X2APIC_FIRST + (register >> 4);
                let effect = self.x2apic_write(msr, value.into(), clocks);
                effect.unwrap_or(Effect::None)
            }
            ApicMode::Disabled => Effect::None,
        }
    }

    /// A read in the register page at `offset` (below 4096). All ones if the page is not decoded in this mode.
    /// Narrow reads see their part of the register; the twelve bytes above a register read as zero.
    pub fn mmio_read(&mut self, offset: u32, width: Width, clocks: Clocks) -> u64 {
        if self.mode() != ApicMode::XApic {
            return width.mask();
        }
        let register = offset & 0xff0;
        let lane = offset & 0xf;
        let value = match self.read(register, clocks) {
            Some(v) => u64::from(v),
            None => {
                self.error(ESR_ILLEGAL_REGISTER);
                0
            }
        };
        if lane < 4 {
            value >> (lane * 8) & width.mask()
        } else {
            0
        }
    }

    /// A write in the register page. Ignored if the page is not decoded in this mode. A write narrower than the
    /// register replaces its part of it; writes beside a register do nothing.
    pub fn mmio_write(&mut self, offset: u32, width: Width, value: u64, clocks: Clocks) -> Effect {
        if self.mode() != ApicMode::XApic || offset & 0xf > 3 {
            return Effect::None;
        }
        self.changed = true;
        let register = offset & 0xff0;
        let shift = (offset & 3) * 8;
        let mask = (width.mask() << shift) as u32;
        let mut new = ((value & width.mask()) << shift) as u32;
        if mask != u32::MAX {
            new |= self.read(register, clocks).unwrap_or(0) & !mask;
        }
        match register {
            reg::ICR_LOW => {
                self.icr = self.icr & !0xffff_ffff | u64::from(new & Icr::LOW_MASK);
                self.send(false)
            }
            reg::ICR_HIGH => {
                self.icr = self.icr & 0xffff_ffff | u64::from(new & 0xff00_0000) << 32;
                Effect::None
            }
            reg::LDR => {
                self.ldr = new & 0xff00_0000;
                self.unpublished = true;
                Effect::None
            }
            reg::DFR => {
                self.dfr = new | 0x0fff_ffff;
                self.unpublished = true;
                Effect::None
            }
            // Read-only.
            reg::ID | reg::VERSION | reg::APR | reg::PPR | reg::RRD | reg::TIMER_CURRENT => {
                Effect::None
            }
            reg::ISR..reg::ESR => Effect::None,
            reg::SELF_IPI => {
                self.error(ESR_ILLEGAL_REGISTER);
                Effect::None
            }
            _ => self.write(register, new, clocks).unwrap_or_else(|| {
                self.error(ESR_ILLEGAL_REGISTER);
                Effect::None
            }),
        }
    }

    /// RDMSR of any APIC register: the base, the TSC deadline, or the x2APIC range.
    pub fn rdmsr(&self, msr: u32, clocks: Clocks) -> Result<u64, Gp> {
        match msr {
            MSR_APIC_BASE => Ok(self.base()),
            MSR_TSC_DEADLINE => self.tsc_deadline(),
            _ => self.x2apic_read(msr, clocks),
        }
    }

    /// WRMSR of any APIC register, as [`Vlapic::rdmsr`].
    pub fn wrmsr(&mut self, msr: u32, value: u64, clocks: Clocks) -> Result<Effect, Gp> {
        match msr {
            MSR_APIC_BASE => self.set_base(value),
            MSR_TSC_DEADLINE => self.set_tsc_deadline(value),
            _ => self.x2apic_write(msr, value, clocks),
        }
    }

    /// RDMSR in 0x800..=0x8ff.
    pub fn x2apic_read(&self, msr: u32, clocks: Clocks) -> Result<u64, Gp> {
        let register = self.x2apic_register(msr)?;
        match register {
            reg::APR | reg::EOI | reg::RRD | reg::DFR | reg::ICR_HIGH | reg::SELF_IPI => Err(Gp),
            reg::ICR_LOW => Ok(self.icr),
            _ => self.read(register, clocks).map(u64::from).ok_or(Gp),
        }
    }

    /// WRMSR in 0x800..=0x8ff. Reserved bits and read-only or missing registers are #GP.
    pub fn x2apic_write(&mut self, msr: u32, value: u64, clocks: Clocks) -> Result<Effect, Gp> {
        let register = self.x2apic_register(msr)?;
        self.changed = true;
        if register == reg::ICR_LOW {
            if value as u32 & !Icr::LOW_MASK != 0 {
                return Err(Gp);
            }
            self.icr = value;
            return Ok(self.send(true));
        }
        let low = u32::try_from(value).map_err(|_| Gp)?;
        let writable = match register {
            reg::TPR => 0xff,
            reg::EOI | reg::ESR => 0,
            reg::SVR => 0x3ff,
            reg::LVT_TIMER if self.tsc_deadline => 0x0007_10ff,
            reg::LVT_TIMER => 0x0003_10ff,
            reg::LVT_THERMAL | reg::LVT_PERF => 0x0001_17ff,
            reg::LVT_LINT0 | reg::LVT_LINT1 => 0x0001_f7ff,
            reg::LVT_ERROR => 0x0001_10ff,
            reg::TIMER_INITIAL => u32::MAX,
            reg::TIMER_DIVIDE => 0xb,
            reg::SELF_IPI => {
                if low > 0xff {
                    return Err(Gp);
                }
                if low < 16 {
                    self.error(ESR_SEND_ILLEGAL);
                } else {
                    self.raise(low as u8);
                }
                return Ok(Effect::None);
            }
            _ => return Err(Gp),
        };
        if low & !writable != 0 {
            return Err(Gp);
        }
        self.write(register, low, clocks).ok_or(Gp)
    }

    /// Reads IA32_TSC_DEADLINE.
    pub fn tsc_deadline(&self) -> Result<u64, Gp> {
        if self.tsc_deadline {
            Ok(self.timer.tsc_deadline(self.lvt[LVT_TIMER]))
        } else {
            Err(Gp)
        }
    }

    /// Writes IA32_TSC_DEADLINE (MSR 0x6e0).
    pub fn set_tsc_deadline(&mut self, value: u64) -> Result<Effect, Gp> {
        if !self.tsc_deadline {
            return Err(Gp);
        }
        self.timer.set_tsc_deadline(self.lvt[LVT_TIMER], value);
        Ok(Effect::Timer)
    }

    fn x2apic_register(&self, msr: u32) -> Result<u32, Gp> {
        if self.mode() != ApicMode::X2Apic || !(MSR_X2APIC_FIRST..=MSR_X2APIC_LAST).contains(&msr) {
            return Err(Gp);
        }
        Ok((msr - MSR_X2APIC_FIRST) << 4)
    }

    /// Reads a register that both forms have; `None` if it is reserved.
    pub(super) fn read(&self, register: u32, clocks: Clocks) -> Option<u32> {
        let x2 = self.mode() == ApicMode::X2Apic;
        Some(match register {
            reg::ID if x2 => self.id,
            // Ids above 255 need x2APIC; the page shows the low eight bits.
            reg::ID => self.id << 24,
            reg::VERSION => VERSION,
            reg::TPR => u32::from(self.tpr),
            reg::APR | reg::RRD | reg::EOI => 0,
            reg::PPR => u32::from(self.ppr()),
            reg::LDR if x2 => x2apic_ldr(self.id),
            reg::LDR => self.ldr,
            reg::DFR => self.dfr,
            reg::SVR => self.svr,
            reg::ISR..reg::TMR => self.isr.word((register - reg::ISR) >> 4),
            reg::TMR..reg::IRR => self.tmr.word((register - reg::TMR) >> 4),
            reg::IRR..reg::ESR => self.irr.word((register - reg::IRR) >> 4),
            reg::ESR => self.esr,
            reg::ICR_LOW => self.icr as u32,
            reg::ICR_HIGH => (self.icr >> 32) as u32,
            reg::TIMER_INITIAL => self.timer.initial(),
            reg::TIMER_CURRENT => self.timer.current(self.lvt[LVT_TIMER], clocks.now_ns),
            reg::TIMER_DIVIDE => self.timer.divide(),
            _ => self.lvt[Self::lvt_index(register)?].0,
        })
    }

    /// Writes a register that both forms have alike; `None` if it is reserved.
    pub(super) fn write(&mut self, register: u32, value: u32, clocks: Clocks) -> Option<Effect> {
        Some(match register {
            reg::TPR => {
                self.tpr = value as u8;
                Effect::None
            }
            reg::EOI => self.eoi().map_or(Effect::None, Effect::Eoi),
            reg::SVR => self.set_svr(value),
            reg::ESR => {
                self.esr = core::mem::take(&mut self.esr_next);
                Effect::None
            }
            reg::TIMER_INITIAL => {
                self.timer
                    .set_initial(self.lvt[LVT_TIMER], value, clocks.now_ns);
                Effect::Timer
            }
            reg::TIMER_DIVIDE => {
                self.timer
                    .set_divide(self.lvt[LVT_TIMER], value, clocks.now_ns);
                Effect::Timer
            }
            _ => self.set_lvt(Self::lvt_index(register)?, value),
        })
    }
}
