//! Time: pvclock of shared_info, and delays that work before it is mapped.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{Page, cpu};

/// TSC ticks per millisecond; a guess of 2 GHz until [`calibrate`] is called.
static TICKS_PER_MS: AtomicU64 = AtomicU64::new(2_000_000);

/// One consistent reading of a `vcpu_time_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Update counter, even.
    pub version: u32,
    /// TSC at `system_time`.
    pub tsc: u64,
    /// Nanoseconds since the clock began.
    pub system_time: u64,
    /// 32.32 multiplier.
    pub mul: u32,
    /// Shift before multiplying.
    pub shift: i8,
    /// Flags: bit 0 TSC stable.
    pub flags: u8,
}

/// Reads the `vcpu_time_info` at `offset` of `page`.
pub fn snapshot(page: &Page, offset: usize) -> Snapshot {
    loop {
        let version = page.u32(offset).load(Ordering::Acquire);
        let snapshot = Snapshot {
            version,
            tsc: page.u64(offset + 8).load(Ordering::Relaxed),
            system_time: page.u64(offset + 16).load(Ordering::Relaxed),
            mul: page.u32(offset + 24).load(Ordering::Relaxed),
            shift: page.u8(offset + 28).load(Ordering::Relaxed) as i8,
            flags: page.u8(offset + 29).load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        if version & 1 == 0 && version == page.u32(offset).load(Ordering::Relaxed) {
            return snapshot;
        }
    }
}

impl Snapshot {
    /// Nanoseconds at TSC `tsc`.
    pub fn ns_at(&self, tsc: u64) -> u64 {
        let delta = tsc.wrapping_sub(self.tsc);
        let delta = if self.shift < 0 {
            delta >> -self.shift
        } else {
            delta << self.shift
        };
        self.system_time
            .wrapping_add(((u128::from(delta) * u128::from(self.mul)) >> 32) as u64)
    }

    /// TSC frequency in kHz.
    pub fn tsc_khz(&self) -> u64 {
        let khz = (1_000_000u64 << 32) / u64::from(self.mul.max(1));
        if self.shift < 0 {
            khz << -self.shift
        } else {
            khz >> self.shift
        }
    }
}

/// Nanoseconds by the pvclock at `offset` of `page` (a `vcpu_time_info`), read on the vCPU it belongs to.
pub fn pvclock(page: &Page, offset: usize) -> u64 {
    loop {
        let before = snapshot(page, offset);
        let now = before.ns_at(cpu::rdtsc());
        if page.u32(offset).load(Ordering::Acquire) == before.version {
            return now;
        }
    }
}

/// Nanoseconds by the pvclock of the running vCPU; shared_info must be mapped.
pub fn now() -> u64 {
    let vcpu = crate::shared::vcpu_id();
    pvclock(&crate::shared::SHARED, crate::shared::vcpu_info(vcpu) + 32)
}

/// Takes the TSC rate from shared_info, which must be mapped.
pub fn calibrate() {
    let khz = snapshot(&crate::shared::SHARED, 32).tsc_khz();
    if khz != 0 {
        TICKS_PER_MS.store(khz, Ordering::Relaxed);
    }
}

/// Spins for about `ms` milliseconds.
pub fn spin_ms(ms: u64) {
    wait_ms(ms, || false);
}

/// Spins until `ready()` or until `ms` milliseconds have passed; returns the last answer.
pub fn wait_ms(ms: u64, ready: impl Fn() -> bool) -> bool {
    let start = cpu::rdtsc();
    let ticks = ms * TICKS_PER_MS.load(Ordering::Relaxed);
    loop {
        if ready() {
            return true;
        }
        if cpu::rdtsc().wrapping_sub(start) >= ticks {
            return ready();
        }
        cpu::pause();
    }
}
