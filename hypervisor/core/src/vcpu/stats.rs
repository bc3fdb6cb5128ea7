//! What a vCPU's exits and injections amount to: counts and, where the build has `CONFIG_EXIT_TIMES`, the time stamp
//! cycles that the hypervisor spent on each kind, summed and in power-of-two buckets.
//!
//! Only the run loop that owns the vCPU writes, by plain loads and stores; anybody may read. Everything is allocated with
//! the vCPU and never grows.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hv_hw::machine::Exit;
use xen_abi::Errno;

/// Kinds of exits, as they are told to the control domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of `NAMES`")]
pub enum Reason {
    Schedule,
    Interrupt,
    Nmi,
    InterruptWindow,
    InterruptEnd,
    ApicWrite,
    Cpuid,
    Hypercall,
    MsrRead,
    MsrWrite,
    PortIn,
    PortOut,
    Halt,
    MemoryRead,
    MemoryWrite,
    MemoryFetch,
    Xsetbv,
    ControlRegister,
    CacheFlush,
    Undefined,
    Shutdown,
    Unsupported,
}

/// Their names, by number. "schedule" is no exit: it is what comes before the first entry of a turn on a CPU.
pub const NAMES: [&str; REASONS] = [
    "schedule",
    "interrupt",
    "nmi",
    "interrupt-window",
    "interrupt-end",
    "apic-write",
    "cpuid",
    "hypercall",
    "msr-read",
    "msr-write",
    "port-in",
    "port-out",
    "halt",
    "memory-read",
    "memory-write",
    "memory-fetch",
    "xsetbv",
    "control-register",
    "cache-flush",
    "undefined",
    "shutdown",
    "unsupported",
];
const REASONS: usize = Reason::Unsupported as usize + 1;

/// Buckets of a histogram: bucket `n` counts times from 2^n to 2^(n+1) - 1 cycles, the first also 0, the last also all above.
pub const BUCKETS: usize = 32;

const TIMES: bool = cfg!(CONFIG_EXIT_TIMES);
const CYCLES: usize = REASONS;
const HISTOGRAMS: usize = 2 * REASONS;
const VECTORS: usize = if TIMES {
    HISTOGRAMS + REASONS * BUCKETS
} else {
    REASONS
};
const CELLS: usize = VECTORS + 256;

impl Reason {
    /// The kind of an exit.
    #[inline]
    pub fn of(exit: &Exit) -> Self {
        match exit {
            Exit::Interrupt => Self::Interrupt,
            Exit::Nmi => Self::Nmi,
            Exit::InterruptWindow => Self::InterruptWindow,
            Exit::Ended(_) => Self::InterruptEnd,
            Exit::ApicWrite { .. } => Self::ApicWrite,
            Exit::Cpuid { .. } => Self::Cpuid,
            Exit::Hypercall { .. } => Self::Hypercall,
            Exit::Msr { write: false, .. } => Self::MsrRead,
            Exit::Msr { write: true, .. } => Self::MsrWrite,
            Exit::Io(io) if io.input => Self::PortIn,
            Exit::Io(_) => Self::PortOut,
            Exit::Hlt { .. } => Self::Halt,
            Exit::Stage2(fault) if fault.fetch => Self::MemoryFetch,
            Exit::Stage2(fault) if fault.write => Self::MemoryWrite,
            Exit::Stage2(_) => Self::MemoryRead,
            Exit::Xsetbv { .. } => Self::Xsetbv,
            Exit::Cr { .. } => Self::ControlRegister,
            Exit::CacheFlush { .. } => Self::CacheFlush,
            Exit::Undefined => Self::Undefined,
            Exit::Shutdown => Self::Shutdown,
            Exit::Unsupported { .. } => Self::Unsupported,
        }
    }
}

/// The counters of one vCPU.
pub struct Stats(Box<[AtomicU64; CELLS]>);

/// One kind's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// Cycles in all; 0 in a build without times.
    pub cycles: u64,
    /// Histogram; zeroes in a build without times.
    pub buckets: [u64; BUCKETS],
}

/// The bucket of a number of cycles.
const fn bucket(cycles: u64) -> usize {
    let n = (cycles | 1).ilog2() as usize;
    if n < BUCKETS { n } else { BUCKETS - 1 }
}

impl Stats {
    /// All zero. ENOMEM.
    pub fn new() -> Result<Self, Errno> {
        let mut cells = Vec::new();
        cells.try_reserve_exact(CELLS).map_err(|_| Errno::ENOMEM)?;
        cells.resize_with(CELLS, || AtomicU64::new(0));
        let cells = cells.into_boxed_slice().try_into();
        cells.map(Self).map_err(|_| Errno::ENOMEM)
    }

    /// By the owner alone: a store may overtake nobody else's.
    #[inline(always)]
    fn add(&self, cell: usize, n: u64) {
        let cell = &self.0[cell];
        cell.store(
            cell.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }
    fn get(&self, cell: usize) -> u64 {
        self.0[cell].load(Ordering::Relaxed)
    }

    /// An exit was taken.
    #[inline]
    pub fn count(&self, reason: Reason) {
        self.add(reason as usize, 1);
    }

    /// The hypervisor was done with it after so many cycles.
    #[inline]
    pub fn time(&self, reason: Reason, cycles: u64) {
        if TIMES {
            self.add(CYCLES + reason as usize, cycles);
            self.add(HISTOGRAMS + reason as usize * BUCKETS + bucket(cycles), 1);
        }
    }

    /// A vector was injected (2 for NMI).
    #[inline]
    pub fn injected(&self, vector: u8) {
        self.add(VECTORS + usize::from(vector), 1);
    }

    /// Exits taken.
    pub fn exits(&self) -> u64 {
        (Reason::Interrupt as usize..REASONS)
            .map(|n| self.get(n))
            .fold(0, u64::wrapping_add)
    }

    /// Hypercalls begun; restarts count again.
    pub fn hypercalls(&self) -> u64 {
        self.get(Reason::Hypercall as usize)
    }

    /// Interrupts injected.
    pub fn injections(&self) -> u64 {
        self.vectors().map(|(_, n)| n).fold(0, u64::wrapping_add)
    }

    /// Figures by kind, those that never were left out.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        (0..REASONS).filter_map(|n| {
            let mut line = Line {
                name: NAMES[n],
                count: self.get(n),
                cycles: 0,
                buckets: [0; BUCKETS],
            };
            if TIMES {
                line.cycles = self.get(CYCLES + n);
                for (b, to) in line.buckets.iter_mut().enumerate() {
                    *to = self.get(HISTOGRAMS + n * BUCKETS + b);
                }
            }
            (line.count != 0).then_some(line)
        })
    }

    /// Vectors that were injected, and how often.
    pub fn vectors(&self) -> impl Iterator<Item = (u8, u64)> {
        (0..=255u8).filter_map(|v| {
            let n = self.get(VECTORS + usize::from(v));
            (n != 0).then_some((v, n))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let of: Vec<usize> = [0, 1, 2, 3, 4, 1023, 1024, u64::MAX].map(bucket).into();
        assert_eq!(of, [0, 0, 1, 1, 2, 9, 10, 31]);
    }

    #[test]
    fn what_is_counted_is_told() {
        let s = Stats::new().unwrap();
        assert_eq!(
            (s.exits(), s.lines().count(), s.vectors().count()),
            (0, 0, 0)
        );
        for cycles in [5, 300] {
            s.count(Reason::Cpuid);
            s.time(Reason::Cpuid, cycles);
        }
        s.count(Reason::Schedule);
        s.injected(0xf3);
        s.injected(0xf3);
        s.count(Reason::Hypercall);
        let line = s.lines().find(|l| l.name == "cpuid").unwrap();
        assert_eq!((line.count, s.exits()), (2, 3));
        if TIMES {
            assert_eq!((line.cycles, line.buckets[2], line.buckets[8]), (305, 1, 1));
        }
        assert_eq!(s.vectors().collect::<Vec<_>>(), [(0xf3, 2)]);
        assert_eq!((s.hypercalls(), s.injections()), (1, 2));
    }

    #[test]
    fn every_cell_is_somebody_elses() {
        let s = Stats::new().unwrap();
        for n in 0..CELLS {
            s.add(n, 1);
        }
        assert!(s.lines().all(|l| l.count == 1));
        assert_eq!(
            (s.lines().count(), s.injections(), s.hypercalls()),
            (REASONS, 256, 1)
        );
        assert_eq!(s.exits(), REASONS as u64 - 1);
    }
}
