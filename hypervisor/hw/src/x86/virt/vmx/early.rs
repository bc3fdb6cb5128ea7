//! On Bochs: virtual interrupts that came while the guest had interrupts off are taken back ([`x86_model::virt::vmx::early`]).
//!
//! That works only where the physical interrupt that brought one forward exits. A notification does not: the processor takes it
//! in guest mode. So none is sent to a CPU whose guest has a request that waits; a kick is sent in its place.

use core::sync::atomic::{AtomicU32, Ordering};

use x86_model::virt::vmx::delivery;
use x86_model::virt::vmx::early::{self, Registers};
use x86_model::virt::vmx::exit as reason;
use x86_model::virt::vmx::field::*;
use x86_model::walk::{Access, PagingInputs, walk};
use x86_model::{Gfn, Gpa, Gpr, Gva, Width};

use super::instr::{read, write};
use super::state;
use super::vcpu::VmxVcpu;
use crate::machine::GuestContext;
use crate::mem::{FrameRef, Stage2};
use crate::x86::apic::vectors;
use crate::x86::cpu::percpu::{self, PerCpu};
use crate::x86::quirks;

/// Eight aligned bytes of guest-physical memory that is RAM.
fn read_word(stage2: &Stage2, at: Gpa) -> Option<u64> {
    let leaf = stage2.lookup(Gfn(at.0 >> 12))?;
    let mut bytes = [0; 8];
    FrameRef::get(leaf.mfn)?.read((at.0 & 0xff8) as usize, &mut bytes);
    Some(u64::from_le_bytes(bytes))
}

impl VmxVcpu {
    /// After an exit, with the vectors taken back: undoes what came too early before it.
    pub(super) fn undo_early(&mut self, why: u32, stage2: &Stage2) {
        let interrupted = matches!(why, reason::INTERRUPT | reason::PREEMPTION_TIMER);
        if !interrupted || self.delivery.vectors.isr == [0; 4] {
            return;
        }
        let efer = read(GUEST_EFER);
        if !state::code_is_long(efer) {
            return;
        }
        let paging = PagingInputs {
            cr0: state::guest_cr0(),
            cr3: read(GUEST_CR3),
            cr4: state::guest_cr4(),
            efer,
            ac: true,
            phys_bits: 52,
        };
        let entry = |at: Gpa, width| match width {
            Width::B8 => read_word(stage2, at),
            _ => None,
        };
        let word = |at: u64| {
            let there = walk(&paging, Gva(at & !7), Access::READ, entry).ok()?;
            (at & 7 == 0).then(|| read_word(stage2, there.gpa))?
        };
        let mut registers = Registers {
            rip: read(GUEST_RIP),
            cs: read(nth16(GUEST_ES_SELECTOR, 1)),
            rflags: read(GUEST_RFLAGS),
            rsp: read(GUEST_RSP),
        };
        let vectors = &mut self.delivery.vectors;
        let idt = read(GUEST_IDTR_BASE);
        let undone = early::undo(
            &mut registers,
            &mut vectors.irr,
            &mut vectors.isr,
            idt,
            word,
        );
        if undone == 0 {
            return;
        }
        self.gprs_mut().set(Gpr::Rsp, registers.rsp);
        // SAFETY: guest state, as it was a moment ago. The rest of it the delivery has not changed.
        unsafe {
            write(GUEST_RIP, registers.rip);
            write(GUEST_RFLAGS, registers.rflags);
        }
        quirks::delivery_undone(undone);
    }

    /// From here on the requests of this vCPU are those of the calling CPU's guest, until [`forget_requests`].
    pub(super) fn show_requests(&self) {
        if self.on_bochs() && self.target.is_some() {
            let first: *const AtomicU32 = self.vmcs().apic_register(delivery::IRR);
            let here = &percpu::this().requests;
            here.store(first.cast_mut(), Ordering::Relaxed);
        }
    }
}

/// The calling CPU has no guest whose requests could wait.
pub fn forget_requests() {
    let here = &percpu::this().requests;
    here.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// The vector by which another CPU is told of what was posted to its guest.
pub fn notification(target: &PerCpu) -> u8 {
    let first = target.requests.load(Ordering::Relaxed);
    if first.is_null() {
        return vectors::POSTED;
    }
    let waits = (0..8).any(|n| {
        // SAFETY: an aligned word in the page of a vCPU, which stays in the direct map even if the vCPU went away meanwhile;
        // what is read then decides only between two vectors that are both right.
        let register = unsafe { &*first.byte_add(n * delivery::STRIDE) };
        let known = if n == 0 { delivery::NEVER_DELIVERED } else { 0 };
        register.load(Ordering::Relaxed) & !known != 0
    });
    if waits {
        vectors::KICK
    } else {
        vectors::POSTED
    }
}
