//! The APIC's saved state, in Xen's form: the register page, and what it does not show.

use x86_model::apic::{ApicBase, DEFAULT_BASE, Icr, SVR_ENABLE, reg, timer_divisor};
use xen_abi::hvm::save::{HwLapic, HwLapicRegs};

use super::{Clocks, Gp, LVTS, Vectors, Vlapic};

/// [`HwLapic::disabled`]: by the base MSR, by the spurious-vector register.
const HARDWARE_OFF: u32 = 1;
const SOFTWARE_OFF: u32 = 2;
/// Registers stand in every 16 bytes.
const STEP: u32 = 16;

fn put(page: &mut [u8; 1024], register: u32, value: u32) {
    let at = register as usize;
    if let Some(slot) = page.get_mut(at..at + 4) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
}

fn take(page: &[u8; 1024], register: u32) -> u32 {
    let at = register as usize;
    page.get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn vectors(page: &[u8; 1024], first: u32) -> Vectors {
    let mut v = Vectors::default();
    for (i, word) in v.0.iter_mut().enumerate() {
        let at = first + 2 * STEP * i as u32;
        *word = u64::from(take(page, at)) | u64::from(take(page, at + STEP)) << 32;
    }
    // Vectors below 16 do not exist.
    v.0[0] &= !0xffff;
    v
}

impl Vlapic {
    /// What the register page does not show.
    pub fn save_hidden(&self) -> HwLapic {
        let off = |bit, off: bool| if off { bit } else { 0 };
        HwLapic {
            apic_base_msr: self.base.0,
            disabled: off(HARDWARE_OFF, self.base.0 & ApicBase::EN == 0)
                | off(SOFTWARE_OFF, self.svr & SVR_ENABLE == 0),
            timer_divisor: timer_divisor(self.timer.divide()),
            tdt_msr: self.tsc_deadline().unwrap_or(0),
        }
    }

    /// The register page.
    pub fn save_regs(&self, clocks: Clocks) -> HwLapicRegs {
        let mut data = [0; 1024];
        for register in (0..1024).step_by(STEP as usize) {
            if let Some(value) = self.read(register, clocks) {
                put(&mut data, register, value);
            }
        }
        HwLapicRegs { data }
    }

    /// Takes the mode over. The base cannot be moved and the boot processor stays the one it is; a mode that does not exist
    /// is refused.
    pub fn load_hidden(&mut self, r: &HwLapic) -> Result<(), Gp> {
        let kept = ApicBase::EN | ApicBase::EXTD;
        let new = ApicBase(r.apic_base_msr & !ApicBase::BSP | self.base.0 & ApicBase::BSP);
        if new.address() != DEFAULT_BASE || new.mode().is_none() {
            return Err(Gp);
        }
        self.base = ApicBase(DEFAULT_BASE | new.0 & (kept | ApicBase::BSP));
        if self.tsc_deadline {
            let _ = self.set_tsc_deadline(r.tdt_msr);
        }
        self.unpublished = true;
        self.touch();
        Ok(())
    }

    /// Takes the register page over, as far as registers have the bits; the id and what is computed stay. The timer starts
    /// its count anew.
    pub fn load_regs(&mut self, r: &HwLapicRegs, clocks: Clocks) {
        let page = &r.data;
        self.svr = take(page, reg::SVR) & 0x1ff;
        self.tpr = take(page, reg::TPR) as u8;
        self.ldr = take(page, reg::LDR) & 0xff00_0000;
        self.dfr = take(page, reg::DFR) | 0x0fff_ffff;
        self.esr = take(page, reg::ESR) & 0xff;
        self.esr_next = 0;
        let low = take(page, reg::ICR_LOW) & Icr::LOW_MASK;
        self.icr = u64::from(take(page, reg::ICR_HIGH)) << 32 | u64::from(low);
        self.isr = vectors(page, reg::ISR);
        self.tmr = vectors(page, reg::TMR);
        self.irr = vectors(page, reg::IRR);
        for index in 0..LVTS {
            // The mode of the timer comes before its count.
            self.set_lvt(index, take(page, reg::LVT_TIMER + STEP * index as u32));
        }
        for register in [reg::TIMER_DIVIDE, reg::TIMER_INITIAL] {
            self.write(register, take(page, register), clocks);
        }
        self.unpublished = true;
        self.remerge = true;
        self.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use x86_model::Width;
    use x86_model::apic::ApicMode;

    const NOW: Clocks = Clocks {
        now_ns: 1_000,
        guest_tsc: 0,
    };

    fn used(x2apic: bool) -> Vlapic {
        let mut a = Vlapic::new(3, false);
        for (register, value) in [
            (reg::SVR, 0x1ff),
            (reg::TPR, 0x20),
            (reg::LDR, 0x0800_0000),
            (reg::LVT_ERROR, 0xfe),
            (reg::LVT_TIMER, 0x2_0030),
            (reg::TIMER_DIVIDE, 3),
            (reg::TIMER_INITIAL, 5_000),
        ] {
            a.mmio_write(register, Width::B4, value, NOW);
        }
        if x2apic {
            a.set_base(a.base() | ApicBase::EXTD).unwrap();
        }
        a.raise(0x41);
        a.raise(0x82);
        a.ack(0x82);
        a
    }

    #[test]
    fn a_saved_apic_comes_back() {
        for x2apic in [false, true] {
            let a = used(x2apic);
            let (hidden, page) = (a.save_hidden(), a.save_regs(NOW));
            assert_eq!((hidden.disabled, hidden.timer_divisor), (0, 16));
            let id = take(&page.data, reg::ID);
            assert_eq!(id, if x2apic { 6 } else { 6 << 24 });
            assert_eq!(take(&page.data, reg::VERSION), 0x5_0014);
            assert_eq!(take(&page.data, reg::TIMER_CURRENT), 5_000);
            let mut b = Vlapic::new(3, false);
            b.load_hidden(&hidden).unwrap();
            b.load_regs(&page, NOW);
            assert_eq!((b.save_hidden(), b.save_regs(NOW)), (hidden, page));
            assert_eq!(b.pending_vector(), None);
            assert_eq!(
                (b.facts(), b.timer_deadline()),
                (a.facts(), a.timer_deadline())
            );
            b.eoi();
            assert_eq!(b.pending_vector(), Some(0x41));
        }
    }

    #[test]
    fn modes_that_do_not_exist_are_refused() {
        let mut a = Vlapic::new(1, false);
        let fresh = a.save_hidden();
        assert_eq!(fresh.disabled, SOFTWARE_OFF);
        for base in [0xfee0_0400, 0xfee1_0800, 0x1_fee0_0800, 0] {
            let r = HwLapic {
                apic_base_msr: base,
                ..fresh
            };
            assert_eq!(a.load_hidden(&r), Err(Gp), "{base:#x}");
        }
        let off = HwLapic {
            apic_base_msr: 0xfee0_0000,
            ..fresh
        };
        assert_eq!(a.load_hidden(&off), Ok(()));
        assert_eq!(a.mode(), ApicMode::Disabled);
    }

    proptest! {
        #[test]
        fn any_page_leaves_a_sound_apic(
            base in any::<u64>(),
            data in prop::collection::vec(any::<u8>(), 1024),
        ) {
            let mut a = Vlapic::new(2, false);
            let _ = a.load_hidden(&HwLapic { apic_base_msr: base, ..Default::default() });
            a.load_regs(&HwLapicRegs { data: data.try_into().unwrap() }, NOW);
            prop_assert!(a.mode() != ApicMode::Disabled || a.base() & ApicBase::EN == 0);
            prop_assert_eq!((a.irr.0[0] | a.isr.0[0] | a.tmr.0[0]) & 0xffff, 0);
            prop_assert_eq!((a.id(), a.svr & !0x1ff), (4, 0));
            // What was taken is taken again as it is, and the clock does not upset it.
            let page = a.save_regs(NOW);
            a.load_regs(&page, NOW);
            prop_assert_eq!(a.save_regs(NOW), page);
            let late = Clocks { now_ns: u64::MAX >> 2, guest_tsc: u64::MAX };
            a.timer_due(late);
            let _ = (a.timer_deadline(), a.pending_vector(), a.save_regs(late));
        }
    }
}
