//! The map of interrupt vectors, and who uses which device vector on which CPU.
//!
//! Device vectors are given out per CPU, or per cluster, from maps in the CPUs' blocks.

use core::sync::atomic::AtomicU32;

use x86_model::interrupt::vectors::{self, VectorMap};

use super::super::cpu::percpu::{self, PerCpu};

/// First vector of the two legacy interrupt controllers; masked, but their spurious interrupts land here.
pub const LEGACY: u8 = 0x20;
/// First device vector.
pub const FIRST_DEVICE: u8 = vectors::FIRST;
/// Last device vector.
pub const LAST_DEVICE: u8 = vectors::LAST;
/// The hypervisor's own console.
pub const CONSOLE: u8 = 0xe0;
/// Faults that an IOMMU recorded.
pub const IOMMU: u8 = 0xe1;
/// Devices' messages were posted to this CPU.
pub const POSTED_MSI: u8 = 0xe2;
/// Kick: leave guest mode or idle.
pub const KICK: u8 = 0xf0;
/// TLB flush, for `ipi-bench=`.
pub const FLUSH: u8 = 0xef;
/// Local APIC timer.
pub const TIMER: u8 = 0xf1;
/// Something was posted to the vCPU in guest mode; outside of guest mode the same as [`KICK`].
pub const POSTED: u8 = 0xf2;
/// Something was posted to a sleeping vCPU.
pub const WAKE: u8 = 0xf3;
/// Local APIC error.
pub const ERROR: u8 = 0xfe;
/// Spurious: needs no EOI.
pub const SPURIOUS: u8 = 0xff;

/// Reserves a device vector of `cpu`, in cluster mode on its whole cluster. `None` when none is left.
pub fn alloc(cpu: &PerCpu) -> Option<u8> {
    vectors::take(scope(cpu))
}

/// Reserves this vector, as [`alloc`] does. False if it is not free.
pub fn take(cpu: &PerCpu, vector: u8) -> bool {
    vectors::take_on_all(scope(cpu), vector)
}

/// Whether the vectors of one CPU are the other's as well.
pub fn shared(one: &PerCpu, other: &PerCpu) -> bool {
    let target = super::send::as_target;
    super::driver()
        .external
        .shares_vectors(target(one), target(other))
}

/// A CPU comes up: the vectors in use of those that it shares vectors with are in use on it as well.
pub fn inherit(cpu: &PerCpu) {
    for other in percpu::all().filter(|c| c.id() != cpu.id() && shared(c, cpu)) {
        cpu.vectors.inherit(&other.vectors);
    }
}

/// Gives a vector back. One that is no device vector is ignored.
pub fn free(cpu: &PerCpu, vector: u8) {
    vectors::give(scope(cpu), vector);
}

/// The CPUs on which a vector for `cpu` must be free.
fn scope(cpu: &PerCpu) -> impl Iterator<Item = &'static VectorMap<AtomicU32>> + Clone {
    let (how, target) = (super::driver().external, super::send::as_target(cpu));
    // Also on one that is going away and still has interrupts, or is coming.
    percpu::numbered()
        .filter(move |c| how.shares_vectors(target, super::send::as_target(c)))
        .map(|c| &c.vectors)
}
