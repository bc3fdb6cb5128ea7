//! Interrupts that the CPU delivers itself. The virtual APIC above stays the master: before each entry it gives its vectors,
//! after each exit it takes them back; in between they are the CPU's, in the virtual APIC page.

use core::sync::atomic::Ordering;

use x86_model::apic::ApicMode;
use x86_model::virt::vmx::control::secondary;
use x86_model::virt::vmx::delivery::{self, Set, Shown};
use x86_model::virt::vmx::field::*;

use super::CONTROLS;
use super::instr::write;
use super::vcpu::VmxVcpu;
use super::vmcs::OwnedVmcs;
use crate::machine::{ApicVectors, Exit};

/// What is known about a vCPU's interrupts.
#[derive(Default)]
pub struct Delivery {
    /// The CPU delivers them.
    pub on: bool,
    /// The APIC's, as of the last `put_vectors` or exit.
    pub vectors: ApicVectors,
    /// What the CPU was shown of them at the last entry.
    shown: Shown,
    /// Vectors whose end exits, as the control structure has them.
    eoi_exits: Option<Set>,
}

impl VmxVcpu {
    /// Turns delivery by the CPU on or off; the structure is current.
    pub(super) fn switch_delivery(&mut self, on: bool) {
        let Some((controls, bitmap)) = CONTROLS.get().zip(OwnedVmcs::msr_bitmap(on)) else {
            return;
        };
        let mode = if on {
            ApicMode::X2Apic
        } else {
            ApicMode::Disabled
        };
        const ALL: u32 =
            secondary::X2APIC | secondary::APIC_REGISTERS | secondary::INTERRUPT_DELIVERY;
        let bits = delivery::controls(controls.apic, mode);
        // SAFETY: what the guest reads and writes without an exit is in its own virtual APIC page; its second-stage
        // translation and the exits of physical interrupts stay.
        unsafe {
            write(SECONDARY_CONTROLS, controls.secondary & !ALL | bits);
            write(MSR_BITMAP, bitmap.0);
        }
        self.delivery = Delivery {
            on: bits != 0,
            ..Delivery::default()
        };
    }

    /// Shows the CPU what it shall deliver from the coming entry on.
    pub(super) fn arm_delivery(&mut self) {
        let ApicVectors { irr, isr, tmr, tpr } = self.delivery.vectors;
        let shown = if self.on_bochs() {
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
        for (offset, set) in sets {
            for n in 0..8 {
                let register = delivery::register(set, n);
                let place = self.vmcs().apic_register(offset, n);
                place.store(register, Ordering::Relaxed);
            }
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
            delivery::collect(|n| self.vmcs().apic_register(offset, n).load(Ordering::Relaxed))
        };
        let (requested, isr) = (read(delivery::IRR), read(delivery::ISR));
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
