//! A vCPU's timers: the one-shot and the periodic Xen timer (both raise VIRQ_TIMER) and the local APIC's.
//!
//! While a vCPU runs, its pCPU's timer covers the earliest deadline. While it does not, the pCPU where it last ran watches
//! [`Vcpu::wake_at`] and wakes it; the timers themselves fire when the vCPU is entered, on its own pCPU.

use core::sync::atomic::Ordering;

use hv_hw::Machine;

use super::{NEVER, Sleep, Vcpu, VcpuLocal};
use crate::domain::Domain;
use crate::hvm::vlapic::{Clocks, Deadline};
use crate::hypervisor::Hypervisor;

/// Shortest period that a guest may ask for (as Xen: 1 ms).
pub const MIN_PERIOD_NS: u64 = 1_000_000;

impl Vcpu {
    /// The earliest deadline of the Xen timers and of `lapic_deadline`.
    pub fn next_deadline(&self, lapic_deadline: Option<u64>) -> u64 {
        let periodic = if self.period.load(Ordering::Acquire) != 0 {
            self.next_tick.load(Ordering::Acquire)
        } else {
            NEVER
        };
        self.singleshot
            .load(Ordering::Acquire)
            .min(periodic)
            .min(lapic_deadline.unwrap_or(NEVER))
    }

    /// Stops all timers (vCPU reset).
    pub fn stop_timers(&self) {
        self.singleshot.store(NEVER, Ordering::Release);
        self.period.store(0, Ordering::Release);
    }
}

impl VcpuLocal {
    /// The local APIC timer's deadline. The TSC-deadline mode is not offered, so it is always in ns.
    pub fn lapic_deadline(&self) -> Option<u64> {
        match self.lapic.timer_deadline()? {
            Deadline::Ns(ns) => Some(ns),
            Deadline::GuestTsc(_) => None,
        }
    }
}

impl Hypervisor {
    /// Fires the timers of the vCPU that are due. Called on the pCPU that runs it.
    pub fn fire_timers(&self, domain: &Domain, vcpu: &Vcpu, local: &mut VcpuLocal) {
        let now = self.hw.now_ns();
        let mut due = false;
        if vcpu.singleshot.load(Ordering::Acquire) <= now {
            vcpu.singleshot.store(NEVER, Ordering::Release);
            due = true;
        }
        let period = vcpu.period.load(Ordering::Acquire);
        let tick = vcpu.next_tick.load(Ordering::Acquire);
        if period != 0 && tick <= now {
            // Missed ticks are not made up for, one by one: the guest reads the clock.
            let missed = (now - tick) / period;
            vcpu.next_tick
                .store(tick + (missed + 1) * period, Ordering::Release);
            due = true;
        }
        if due {
            self.raise_vcpu_virq(domain, vcpu, xen_abi::virq::nr::TIMER);
        }
        local.lapic.timer_due(Clocks {
            now_ns: now,
            guest_tsc: self.hw.tsc(),
        });
    }

    /// Whether a sleeping vCPU's deadline has passed; if so it is woken.
    ///
    /// The vCPU may have moved to another pCPU meanwhile and be about to sleep there with a new deadline: only the deadline
    /// that was seen is taken away, and [`VcpuLocal::try_sleep`] looks whether its own still stands once it is asleep.
    pub fn expire_sleeper(&self, vcpu: &Vcpu, now_ns: u64) {
        let seen = vcpu.wake_at.load(Ordering::SeqCst);
        let taken = || {
            vcpu.wake_at
                .compare_exchange(seen, NEVER, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        };
        let asleep = || vcpu.sleep.swap(Sleep::Awake as u8, Ordering::SeqCst) != Sleep::Awake as u8;
        if seen <= now_ns && taken() && asleep() {
            self.make_runnable(vcpu);
        }
    }
}
