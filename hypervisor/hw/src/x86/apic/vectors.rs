//! The map of interrupt vectors, and who uses which device vector on which CPU.
//!
//! Device vectors are given out per CPU: a bit map in the CPU's block, changed by atomic operations from anywhere.

use core::sync::atomic::Ordering;

use super::super::cpu::percpu::PerCpu;

/// First vector of the two legacy interrupt controllers; masked, but their spurious interrupts land here.
pub const LEGACY: u8 = 0x20;
/// First device vector.
pub const FIRST_DEVICE: u8 = 0x30;
/// Last device vector.
pub const LAST_DEVICE: u8 = 0xdf;
/// The hypervisor's own console.
pub const CONSOLE: u8 = 0xe0;
/// Faults that an IOMMU recorded.
pub const IOMMU: u8 = 0xe1;
/// Kick: leave guest mode or idle.
pub const KICK: u8 = 0xf0;
/// TLB flush, for `ipi-bench=`.
pub const FLUSH: u8 = 0xef;
/// Local APIC timer.
pub const TIMER: u8 = 0xf1;
/// Local APIC error.
pub const ERROR: u8 = 0xfe;
/// Spurious: needs no EOI.
pub const SPURIOUS: u8 = 0xff;

/// Reserves a device vector of `cpu`. The search starts at a different priority class each time, so that no class of
/// sixteen fills up first.
pub fn alloc(cpu: &PerCpu) -> Option<u8> {
    const COUNT: u32 = (LAST_DEVICE - FIRST_DEVICE) as u32 + 1;
    let used: u32 = cpu
        .vectors
        .iter()
        .map(|w| w.load(Ordering::Relaxed).count_ones())
        .sum();
    (0..COUNT)
        .map(|i| FIRST_DEVICE + ((used * 16 + used / (COUNT / 16) + i) % COUNT) as u8)
        .find(|&vector| {
            let (word, bit) = place(vector);
            cpu.vectors[word].fetch_or(bit, Ordering::AcqRel) & bit == 0
        })
}

/// Gives a vector back. One that is not reserved, or no device vector, is ignored.
pub fn free(cpu: &PerCpu, vector: u8) {
    if (FIRST_DEVICE..=LAST_DEVICE).contains(&vector) {
        let (word, bit) = place(vector);
        cpu.vectors[word].fetch_and(!bit, Ordering::AcqRel);
    }
}

fn place(vector: u8) -> (usize, u64) {
    (usize::from(vector / 64), 1 << (vector % 64))
}
