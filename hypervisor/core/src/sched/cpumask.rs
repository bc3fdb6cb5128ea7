//! A set of pCPUs.

use hv_hw::machine::CpuId;

/// Most pCPUs that a mask can hold: those that this build can use.
pub const MAX_CPUS: u32 = hv_hw::config::NR_CPUS;

/// Words of a mask.
const WORDS: usize = MAX_CPUS.div_ceil(64) as usize;

/// A set of pCPUs below [`MAX_CPUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMask([u64; WORDS]);

impl Default for CpuMask {
    fn default() -> Self {
        Self::NONE
    }
}

impl CpuMask {
    /// No CPU.
    pub const NONE: CpuMask = CpuMask([0; WORDS]);
    /// Every CPU.
    pub const ALL: CpuMask = CpuMask([u64::MAX; WORDS]);

    /// One CPU.
    pub fn single(cpu: CpuId) -> Self {
        let mut m = Self::NONE;
        m.set(cpu);
        m
    }
    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        cpu.0 < MAX_CPUS && self.0[(cpu.0 / 64) as usize] >> (cpu.0 % 64) & 1 != 0
    }
    /// Adds a CPU; beyond [`MAX_CPUS`] nothing happens.
    pub fn set(&mut self, cpu: CpuId) {
        if cpu.0 < MAX_CPUS {
            self.0[(cpu.0 / 64) as usize] |= 1 << (cpu.0 % 64);
        }
    }
    /// Removes a CPU.
    pub fn clear(&mut self, cpu: CpuId) {
        if cpu.0 < MAX_CPUS {
            self.0[(cpu.0 / 64) as usize] &= !(1 << (cpu.0 % 64));
        }
    }
    /// The members of both.
    pub fn and(&self, other: &CpuMask) -> CpuMask {
        let mut both = *self;
        for (a, b) in both.0.iter_mut().zip(other.0) {
            *a &= b;
        }
        both
    }
    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }
    /// The members below `limit`, ascending.
    pub fn iter(&self, limit: u32) -> impl Iterator<Item = CpuId> + '_ {
        (0..limit.min(MAX_CPUS))
            .map(CpuId)
            .filter(|&c| self.contains(c))
    }
}
