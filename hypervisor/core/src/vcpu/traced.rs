//! What the run loop records of entries, exits and injections while tracing is on. Nothing here runs while it is off.
//!
//! Records have the events, data and order of Xen's; a fault of the second stage tells no frame.

use hv_hw::GuestContext;
use hv_hw::machine::Exit;
use x86_model::Gpr;
use xen_abi::trace::hvm;

use super::run::Turn;
use super::runstate::State;
use super::stats::Reason;
use crate::trace::Asked;

/// What an exit is about, besides the registers: a port, or an address of guest memory.
#[inline(always)]
pub fn detail(exit: &Exit) -> u64 {
    match exit {
        Exit::Io(io) => io.port.into(),
        Exit::Stage2(fault) => fault.gpa.0,
        _ => 0,
    }
}

/// The highest vector of a set.
fn highest(words: [u64; 4]) -> Option<u8> {
    let at = words.iter().rposition(|w| *w != 0)?;
    Some(64 * at as u8 + words[at].ilog2() as u8)
}

impl Turn<'_> {
    fn trace(&self, event: u32, timed: bool, extra: &[u32]) {
        self.pcpu.tracer.record(self.hv, event, timed, extra);
    }

    fn register(&self, which: Gpr) -> u32 {
        self.local.ctx.gprs().get32(which)
    }

    /// An exit was taken. `detail` is what [`detail`] gave.
    #[cold]
    pub fn trace_exit(&mut self, reason: Reason, detail: u64) {
        let rip = self.local.ctx.rip();
        let at = [self.local.ctx.exit_number(), rip as u32, (rip >> 32) as u32];
        self.trace(hvm::EXIT, true, &at);
        let [a, c, d] = [Gpr::Rax, Gpr::Rcx, Gpr::Rdx].map(|r| self.register(r));
        let asked = match reason {
            Reason::Interrupt => {
                self.trace(hvm::INTR, false, &[]);
                None
            }
            Reason::Nmi => {
                self.trace(hvm::NMI, false, &[]);
                None
            }
            Reason::Hypercall => {
                self.trace(hvm::VMMCALL, false, &[a]);
                None
            }
            Reason::Halt => {
                self.trace(hvm::HLT, false, &[0]);
                None
            }
            Reason::MsrWrite => {
                self.trace(hvm::MSR_WRITE, false, &[c, a, d]);
                None
            }
            Reason::PortOut => {
                self.trace(hvm::PORT_WRITE, false, &[detail as u32, a]);
                None
            }
            Reason::Xsetbv => {
                self.trace(hvm::XCR_WRITE, false, &[c, 0, a, d]);
                None
            }
            Reason::MemoryRead | Reason::MemoryWrite | Reason::MemoryFetch => {
                let access = 1 << (reason as u32 - Reason::MemoryRead as u32);
                let gpa = [detail as u32, (detail >> 32) as u32];
                // No frame, and the type of memory that is emulated.
                let words = [gpa[0], gpa[1], u32::MAX, u32::MAX, access, 4];
                self.trace(hvm::NPF, false, &words);
                None
            }
            Reason::Cpuid => Some(Asked::Cpuid(a, c)),
            Reason::MsrRead => Some(Asked::Msr(c)),
            Reason::PortIn => Some(Asked::Port(detail as u32)),
            _ => None,
        };
        self.pcpu.tracer.asked = asked;
    }

    /// What the guest was answered; and how many interrupts it has been given before this entry.
    #[cold]
    pub fn trace_answer(&mut self) {
        let [a, b, c, d] = [Gpr::Rax, Gpr::Rbx, Gpr::Rcx, Gpr::Rdx].map(|r| self.register(r));
        match self.pcpu.tracer.asked.take() {
            None => {}
            Some(Asked::Cpuid(leaf, sub)) => {
                self.trace(hvm::CPUID, false, &[leaf, sub, a, b, c, d]);
            }
            Some(Asked::Msr(index)) => self.trace(hvm::MSR_READ, false, &[index, a, d]),
            Some(Asked::Port(port)) => self.trace(hvm::PORT_READ, false, &[port, a]),
        }
        self.pcpu.tracer.injected = self.injected();
    }

    /// Interrupts that the vCPU was given, NMIs aside.
    fn injected(&self) -> u64 {
        let vectors = self.vcpu.stats.vectors().filter(|(v, _)| *v != 2);
        vectors.map(|(_, n)| n).fold(0, u64::wrapping_add)
    }

    /// The guest is entered now. What was injected is seen by its traces: the run loop has no time to tell.
    #[cold]
    pub fn trace_entry(&mut self) {
        /// Where an interrupt comes from: the local APIC, or the vector of event channels.
        const SOURCE: u32 = 3;
        let callback = self.local.callback_vector(self.domain, self.vcpu);
        let waits = || callback.or_else(|| self.local.lapic.pending_vector());
        if self.injected() != self.pcpu.tracer.injected {
            let vector = callback.or_else(|| highest(self.local.lapic.vectors().isr));
            self.trace(hvm::INJ_VIRQ, false, &[vector.unwrap_or(0).into(), 0]);
        } else if !self.local.assist.delivery
            && let Some(vector) = waits()
        {
            self.trace(hvm::INTR_WINDOW, false, &[vector.into(), SOURCE, u32::MAX]);
        }
        self.trace(hvm::ENTRY, true, &[]);
    }

    /// The vCPU leaves this CPU.
    #[cold]
    pub fn trace_end(&mut self, to: State) {
        self.trace_answer();
        let (hv, cpu) = (self.hv, self.pcpu.cpu);
        self.pcpu.tracer.state(hv, cpu, State::Running, to);
    }
}
