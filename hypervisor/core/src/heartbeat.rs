//! The watchdog over pCPUs (`watchdog=`): each says now and then that it is alive and looks at its neighbour. A pCPU that runs a
//! guest or idles beats by its timer; one that is silent hangs in the hypervisor itself.
//!
//! Xen counts NMIs of the performance counters instead, which needs counters that work; this needs none.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use hv_hw::machine::CpuId;

/// A pCPU that has not begun to beat.
const NOT_YET: u64 = u64::MAX;
/// Beats within the time that may pass without one.
const BEATS: u64 = 5;

/// The beats of all pCPUs.
pub struct Heartbeat {
    timeout_ns: u64,
    /// Time of the last beat, by pCPU.
    beats: Box<[AtomicU64]>,
}

impl Heartbeat {
    /// For `cpus` pCPUs. `timeout_s` is the time without a beat that counts as a hang, in seconds; 0 for no watchdog.
    pub fn new(cpus: u32, timeout_s: u32) -> Self {
        Heartbeat {
            timeout_ns: u64::from(timeout_s) * 1_000_000_000,
            beats: (0..cpus).map(|_| AtomicU64::new(NOT_YET)).collect(),
        }
    }

    /// Records that `cpu` is alive. Returns when it must beat again ([`super::vcpu::NEVER`] without a watchdog), and its
    /// neighbour if that has been silent for too long.
    pub fn beat(&self, cpu: CpuId, now_ns: u64) -> (u64, Option<CpuId>) {
        let own = cpu.0 as usize;
        if self.timeout_ns == 0 || own >= self.beats.len() {
            return (crate::vcpu::NEVER, None);
        }
        self.beats[own].store(now_ns, Ordering::Relaxed);
        let others = (1..self.beats.len()).map(|n| (own + n) % self.beats.len());
        let neighbour = others
            .map(|n| (n, self.beats[n].load(Ordering::Relaxed)))
            .find(|&(_, beat)| beat != NOT_YET);
        let silent = neighbour
            .filter(|&(_, beat)| now_ns.saturating_sub(beat) > self.timeout_ns)
            .map(|(n, _)| CpuId(n as u32));
        (now_ns + self.timeout_ns / BEATS, silent)
    }

    /// A pCPU has stopped: nobody misses it until it beats again.
    pub fn forget(&self, cpu: CpuId) {
        if let Some(beat) = self.beats.get(cpu.0 as usize) {
            beat.store(NOT_YET, Ordering::Relaxed);
        }
    }

    /// The time without a beat that counts as a hang, in seconds.
    pub fn timeout_s(&self) -> u64 {
        self.timeout_ns / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_silent_neighbour_is_named() {
        let h = Heartbeat::new(3, 5);
        // The others have not started: nobody to miss.
        assert_eq!(h.beat(CpuId(0), 100 * S), (101 * S, None));
        assert_eq!(h.beat(CpuId(2), 101 * S), (102 * S, None));
        assert_eq!(h.beat(CpuId(0), 106 * S).1, None);
        assert_eq!(h.beat(CpuId(0), 106 * S + 1).1, Some(CpuId(2)));
        // CPU 1 comes late and is the new neighbour.
        assert_eq!(h.beat(CpuId(1), 107 * S).1, Some(CpuId(2)));
        assert_eq!(h.beat(CpuId(0), 108 * S).1, None);
        // CPU 2 was silent because it is gone.
        h.forget(CpuId(2));
        assert_eq!(h.beat(CpuId(1), 109 * S).1, None);
    }

    #[test]
    fn without_a_watchdog_nobody_beats() {
        let h = Heartbeat::new(2, 0);
        assert_eq!(h.beat(CpuId(0), S), (crate::vcpu::NEVER, None));
        assert_eq!(h.beat(CpuId(1), 900 * S), (crate::vcpu::NEVER, None));
    }

    #[test]
    fn alone_it_watches_nobody() {
        let h = Heartbeat::new(1, 1);
        assert_eq!(h.beat(CpuId(0), 0).1, None);
        assert_eq!(h.beat(CpuId(0), 60 * S).1, None);
    }
}
