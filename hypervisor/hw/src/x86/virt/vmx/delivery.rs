//! What the CPU does for the virtual APIC: registers that the guest reads and writes without an exit, interrupts that the CPU
//! delivers. The virtual APIC above stays the master: before each entry it gives its vectors, after each exit it takes them
//! back; in between they are the CPU's, in the virtual APIC page.

use core::sync::atomic::Ordering;

use x86_model::apic::{ApicMode, reg};
use x86_model::virt::vmx::capability::ApicFeatures;
use x86_model::virt::vmx::control::{pin, secondary};
use x86_model::virt::vmx::delivery::{self, Set, Shown};
use x86_model::virt::vmx::field::*;

use super::CONTROLS;
use super::instr::write;
use super::vcpu::VmxVcpu;
use super::vmcs::OwnedVmcs;
use crate::machine::{ApicAssist, ApicVectors, Exit};

/// What is known about a vCPU's interrupts.
#[derive(Default)]
pub struct Delivery {
    /// The CPU delivers them.
    pub on: bool,
    /// The guest reads the virtual APIC page.
    pub readable: bool,
    /// The APIC's, as of the last `put_vectors` or exit.
    pub vectors: ApicVectors,
    /// What the CPU was shown of them at the last entry.
    shown: Shown,
    /// Vectors whose end exits, as the control structure has them.
    eoi_exits: Option<Set>,
}

impl VmxVcpu {
    /// Sets the controls for an APIC in this mode; the structure is current.
    pub(super) fn switch_apic(&mut self, mode: ApicMode, enabled: bool) -> ApicAssist {
        let features = ApicFeatures {
            delivery: self.apic.delivery && enabled,
            ..self.apic
        };
        let bits = delivery::controls(features, mode);
        let Some((controls, bitmap)) = CONTROLS.get().zip(OwnedVmcs::msr_bitmap(bits)) else {
            return ApicAssist::default();
        };
        let posting = if self.target.is_some() {
            delivery::posting(features, mode)
        } else {
            0
        };
        self.pin = self.pin.map(|p| p & !pin::POSTED_INTERRUPTS | posting);
        self.pin_written = self.pin[0];
        // SAFETY: what the guest reads and writes without an exit is in its own virtual APIC page; its second-stage
        // translation and the exits of physical interrupts stay, all but the notification's of its own descriptor, which
        // `target` keeps. The APIC-access page is set if its control is.
        unsafe {
            write(PIN_CONTROLS, self.pin_written);
            write(
                SECONDARY_CONTROLS,
                controls.secondary & !delivery::CONTROLS | bits,
            );
            write(MSR_BITMAP, bitmap.0);
        }
        // The CPU may have kept with a translation whether it leads to the APIC-access page.
        self.drop_translations();
        let has = |bit| bits & bit != 0;
        let assist = ApicAssist {
            registers: has(secondary::APIC_REGISTERS),
            delivery: has(secondary::INTERRUPT_DELIVERY),
        };
        self.delivery = Delivery {
            on: assist.delivery,
            readable: assist.registers || assist.delivery,
            ..Delivery::default()
        };
        assist
    }

    /// Puts registers into the virtual APIC page.
    pub(super) fn fill_page(&mut self, registers: &[(u32, u32)]) {
        for &(offset, value) in registers {
            let place = self.vmcs().apic_register(offset as usize);
            place.store(value, Ordering::Relaxed);
        }
    }

    /// The guest wrote the register at `offset`; the page has its value.
    pub(super) fn written(&self, offset: u64) -> Exit {
        let register = (offset & 0xff0) as u16;
        let read = |at| self.vmcs().apic_register(at).load(Ordering::Relaxed);
        Exit::ApicWrite {
            register,
            value: read(register.into()),
            destination: read(reg::ICR_HIGH as usize),
        }
    }

    /// Shows the CPU what it shall deliver from the coming entry on, and the guest what it may read.
    pub(super) fn arm_delivery(&mut self) {
        let ApicVectors { irr, isr, tmr, tpr } = self.delivery.vectors;
        let shown = if !self.delivery.on {
            delivery::show(irr, [0; 4])
        } else if self.on_bochs() {
            let ready = !self.occupied() && self.open();
            delivery::show_one(irr, &isr, tmr, tpr, ready)
        } else {
            delivery::show(irr, tmr)
        };
        let sets = [
            (delivery::IRR, &shown.irr),
            (delivery::ISR, &isr),
            (delivery::TMR, &tmr),
        ];
        let filled = self.delivery.on && self.on_bochs() && self.target.is_some();
        for (offset, set) in sets {
            for n in 0..8 {
                let mut register = delivery::register(set, n);
                if filled && (offset, n) == (delivery::IRR, 0) {
                    register |= delivery::NEVER_DELIVERED;
                }
                let place = self.vmcs().apic_register(offset + n * delivery::STRIDE);
                place.store(register, Ordering::Relaxed);
            }
        }
        if !self.delivery.on {
            return;
        }
        self.vmcs().set_tpr(tpr);
        // SAFETY: vectors of the guest's own interrupts.
        unsafe {
            let status = delivery::status(&shown.irr, &isr);
            write(GUEST_INTERRUPT_STATUS, status);
            if self.delivery.eoi_exits != Some(shown.eoi_exits) {
                for (n, &word) in (0..).zip(&shown.eoi_exits) {
                    write(nth64(EOI_EXIT_0, n), word);
                }
            }
        }
        self.delivery.eoi_exits = Some(shown.eoi_exits);
        self.delivery.shown = shown;
    }

    /// An exit is wanted as soon as the guest can take an interrupt.
    pub(super) fn delivery_waits(&self) -> bool {
        self.delivery.on && self.delivery.shown.window
    }

    /// Takes back what the CPU has not delivered, and what it has.
    pub(super) fn settle_delivery(&mut self) {
        let read = |offset| {
            delivery::collect(|n| {
                let at = offset + n * delivery::STRIDE;
                self.vmcs().apic_register(at).load(Ordering::Relaxed)
            })
        };
        let (mut requested, isr) = (read(delivery::IRR), read(delivery::ISR));
        // None that a guest could have asked for.
        requested[0] &= !u64::from(delivery::NEVER_DELIVERED);
        let held = self.delivery.shown.held;
        let tpr = self.vmcs().tpr();
        let v = &mut self.delivery.vectors;
        v.irr = core::array::from_fn(|i| requested[i] | held[i]);
        v.isr = isr;
        v.tpr = tpr;
    }

    /// The guest ended `vector`: told if it is level-triggered, else the exit was only to show the next one.
    pub(super) fn ended(&self, vector: u8) -> Option<Exit> {
        delivery::contains(&self.delivery.vectors.tmr, vector).then_some(Exit::Ended(vector))
    }
}
