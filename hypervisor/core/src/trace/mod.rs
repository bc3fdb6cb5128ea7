//! The trace buffer, in the form that `xentrace` reads: a ring of pages for each CPU, and pages that tell where they are. dom0
//! switches it on and off by `XEN_SYSCTL_tbuf_op` and maps the pages as memory of `DOMID_XEN`.
//!
//! What it costs while it is off is in [`crate::vcpu::run`]: a look before each entry and after each exit at a value that
//! stays the same while a vCPU has the CPU. A CPU notices a change when it chooses a vCPU, which each change makes it do.

mod control;
mod ring;
#[cfg(test)]
mod tests;

pub use ring::{Record, Ring};

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use hv_hw::sync::{SpinLock, rank};
use x86_model::Mfn;
use xen_abi::DomId;
use xen_abi::trace::{class, sched, subclass};

use crate::hypervisor::Hypervisor;
use crate::vcpu::VcpuKey;
use crate::vcpu::runstate::State;
use control::Control;

/// The trace buffers of all CPUs.
pub struct Trace {
    /// Which events are recorded; 0 while nothing is.
    mask: AtomicU32,
    /// Counts changes.
    epoch: AtomicU32,
    control: SpinLock<Control, { rank::DEVICE }>,
}

/// What a CPU keeps for it.
#[derive(Default)]
pub struct Tracer {
    ring: Option<Arc<Ring>>,
    epoch: u32,
    /// Who ran last.
    last: Option<VcpuKey>,
    /// What was asked for in the exit whose answer comes with the next entry.
    pub asked: Option<Asked>,
    /// Interrupts that the vCPU had been given before this entry.
    pub injected: u64,
}

/// A question of a guest.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// CPUID leaf and subleaf.
    Cpuid(u32, u32),
    /// The MSR.
    Msr(u32),
    /// The port.
    Port(u32),
}

/// Whether a mask has an event: class and subclass must both match, and any bit.
fn wants(mask: u32, event: u32) -> bool {
    let subclasses = |word: u32| word >> subclass::SHIFT & 0xf;
    mask & event != 0
        && (mask >> class::SHIFT) & (event >> class::SHIFT) != 0
        && subclasses(mask) & subclasses(event) != 0
}

impl Default for Trace {
    fn default() -> Self {
        Trace {
            mask: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            control: SpinLock::new(Control::default()),
        }
    }
}

impl Trace {
    /// The page of this number, if it is one that dom0 may map, and whether dom0 may write it.
    pub fn page(&self, mfn: Mfn) -> Option<(hv_hw::mem::FrameRef, bool)> {
        self.control.lock().page(mfn)
    }
}

impl Tracer {
    /// Takes notice of changes; called where the CPU chooses. Whether this CPU records.
    #[inline]
    pub fn look(&mut self, trace: &Trace, cpu: CpuId) -> bool {
        let epoch = trace.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.epoch = epoch;
            self.ring = trace.control.lock().ring(cpu);
            self.asked = None;
        }
        self.ring.is_some()
    }

    /// Records an event, if this one is wanted.
    #[cold]
    pub fn record(&self, hv: &Hypervisor, event: u32, timed: bool, extra: &[u32]) {
        let Some(ring) = &self.ring else { return };
        if !wants(hv.trace.mask.load(Ordering::Relaxed), event) {
            return;
        }
        let record = Record {
            event,
            timed,
            tsc: hv.hw.tsc(),
            extra,
            who: self.last.map_or((DomId::IDLE, 0), |k| (k.domain, k.vcpu)),
        };
        if ring.record(&record) {
            hv.raise_global_virq(xen_abi::virq::nr::TBUF);
        }
    }

    /// This CPU turns to another vCPU, or to none.
    #[cold]
    pub fn turn_to(&mut self, hv: &Hypervisor, cpu: CpuId, next: Option<VcpuKey>) {
        let words = |k: Option<VcpuKey>| {
            k.map_or((DomId::IDLE.0.into(), cpu.0), |k| {
                (u32::from(k.domain.0), k.vcpu)
            })
        };
        let (old, new) = (words(self.last), words(next));
        self.last = next;
        if old != new {
            self.record(hv, sched::SWITCH, false, &[old.0, old.1, new.0, new.1]);
        }
        self.state(hv, cpu, State::Runnable, State::Running);
    }

    /// The one that runs here goes from one run state to another.
    #[cold]
    pub fn state(&self, hv: &Hypervisor, cpu: CpuId, from: State, to: State) {
        let (domain, vcpu) = self
            .last
            .map_or((DomId::IDLE, cpu.0), |k| (k.domain, k.vcpu));
        let event = sched::RUNSTATE | (from as u32 & 3) << 8 | (to as u32 & 3) << 4;
        self.record(
            hv,
            event,
            true,
            &[u32::from(domain.0) << 16 | vcpu & 0xffff],
        );
    }
}
