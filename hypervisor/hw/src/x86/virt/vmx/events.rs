//! Events on their way into the guest: those whose delivery was interrupted, exceptions that are put back, windows; and what an
//! instruction leaves that was executed here.

use x86_model::regs::cr;
use x86_model::virt::vmx::event::{self, Redelivery};
use x86_model::virt::vmx::field::*;

use super::instr::{read, write};
use super::vcpu::VmxVcpu;
use crate::machine::Exit;

impl VmxVcpu {
    /// Takes in what became of an interrupted delivery.
    #[inline]
    pub(super) fn settle_events(&mut self) {
        let vectoring = read(VECTORING_EVENT);
        self.event = 0;
        if vectoring & event::VALID != 0 {
            self.deliver_again(vectoring);
        }
    }

    #[cold]
    fn deliver_again(&mut self, vectoring: u32) {
        match event::redeliver(vectoring) {
            Redelivery::Nothing => {}
            Redelivery::Inject(event) => {
                self.event = event;
                self.error_code = read(VECTORING_ERROR_CODE);
            }
            Redelivery::Nmi => {
                self.event = event::nmi();
                self.set_nmi_mask(false);
            }
        }
    }

    /// Sets or ends the guest's NMI mask.
    pub(super) fn set_nmi_mask(&mut self, on: bool) {
        let now = read(GUEST_INTERRUPTIBILITY) & !event::BLOCKED_BY_NMI;
        let mask = if on { event::BLOCKED_BY_NMI } else { 0 };
        // SAFETY: guest state.
        unsafe { write(GUEST_INTERRUPTIBILITY, now | mask) };
    }

    /// Makes an exception the next event. It takes the place of an event whose delivery raised it, as on hardware, and ends
    /// a shadow.
    pub(super) fn put_back(&mut self, event: u32, error_code: u32) {
        self.event = event;
        self.error_code = error_code;
        self.end_shadow();
    }

    fn end_shadow(&mut self) {
        let now = read(GUEST_INTERRUPTIBILITY);
        if now & event::SHADOW != 0 {
            // SAFETY: guest state.
            unsafe { write(GUEST_INTERRUPTIBILITY, now & !event::SHADOW) };
        }
    }

    /// The interrupt window opened. `None` if it was only for an interrupt that waits here.
    pub(super) fn window_opened(&mut self) -> Option<Exit> {
        if self.pending.is_some() || self.delivery_waits() && !self.window {
            return None;
        }
        self.window = false;
        Some(Exit::InterruptWindow)
    }

    /// The NMI window opened.
    pub(super) fn nmi_window_opened(&mut self) -> Exit {
        self.nmi_waits = false;
        Exit::InterruptWindow
    }

    /// Moves past an instruction that was executed here.
    pub(super) fn skip(&mut self) {
        let rip = read(GUEST_RIP).wrapping_add(read(EXIT_LENGTH).into());
        self.move_to(rip);
    }

    /// Also ends RFLAGS.RF and, for a guest that single-steps, raises the trap that the skipped instruction owes.
    pub(super) fn move_to(&mut self, rip: u64) {
        let rflags = read(GUEST_RFLAGS);
        // SAFETY: guest state.
        unsafe {
            write(GUEST_RIP, rip);
            if rflags & (cr::RFLAGS_RF | cr::RFLAGS_TF) != 0 {
                write(GUEST_RFLAGS, rflags & !cr::RFLAGS_RF);
                if rflags & cr::RFLAGS_TF != 0 {
                    let waiting = read(GUEST_PENDING_DEBUG);
                    write(GUEST_PENDING_DEBUG, waiting | event::PENDING_STEP);
                }
            }
        }
        self.end_shadow();
    }
}
