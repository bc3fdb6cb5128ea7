//! A unit's registers.

use x86_model::Hpa;

use super::super::{asm, paging, time};

/// Mapped registers of one unit.
pub struct Registers {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: a device page, mapped on all CPUs for ever; used only under the driver's lock.
unsafe impl Send for Registers {}

impl Registers {
    /// Maps them, uncached. `None` if they lie in RAM or cannot be mapped.
    pub fn map(at: Hpa, bytes: usize) -> Option<Self> {
        let base = paging::map_mmio(at, bytes as u64)?;
        Some(Self { base, bytes })
    }

    /// Bytes that are mapped.
    pub fn len(&self) -> usize {
        self.bytes
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset.is_multiple_of(size_of::<T>()) && offset + size_of::<T>() <= self.bytes);
        self.base.wrapping_add(offset).cast()
    }

    /// Reads 32 bits.
    pub fn read32(&self, offset: usize) -> u32 {
        // SAFETY: aligned and inside the mapping (checked in `at`); reading a unit's registers has no side effects.
        unsafe { self.at::<u32>(offset).read_volatile() }
    }

    /// Writes 32 bits.
    pub fn write32(&mut self, offset: usize, value: u32) {
        // SAFETY: as for `read32`; memory that the unit is told to write belongs to the driver.
        unsafe { self.at::<u32>(offset).write_volatile(value) }
    }

    /// Reads 64 bits.
    pub fn read64(&self, offset: usize) -> u64 {
        // SAFETY: as for `read32`.
        unsafe { self.at::<u64>(offset).read_volatile() }
    }

    /// Writes 64 bits.
    pub fn write64(&mut self, offset: usize, value: u64) {
        // SAFETY: as for `write32`.
        unsafe { self.at::<u64>(offset).write_volatile(value) }
    }
}

/// Waits until `done`, at most about this long; whether it was done.
pub fn wait(us: u64, mut done: impl FnMut() -> bool) -> bool {
    let khz = match time::tsc_khz() {
        // Before the clock is measured: as for a 4 GHz TSC, so that the wait is rather too long.
        0 => 4_000_000,
        khz => u64::from(khz),
    };
    let ticks = us * khz / 1000;
    let start = asm::rdtsc();
    loop {
        if done() {
            return true;
        }
        if asm::rdtsc().wrapping_sub(start) > ticks {
            // The CPU may have been away (an emulator's host is busy): one last look.
            return done();
        }
        asm::pause();
    }
}
