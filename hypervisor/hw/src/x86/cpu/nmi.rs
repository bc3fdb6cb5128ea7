//! NMI: the way to stop CPUs that do not listen. The handler touches only its own CPU block.

use core::sync::atomic::Ordering;

use super::super::asm;
use super::percpu;

/// Called on the NMI stack, at any instant: no lock may be taken here.
pub(super) fn taken() {
    let cpu = percpu::this();
    cpu.nmis.fetch_add(1, Ordering::Relaxed);
    if cpu.stop.load(Ordering::Acquire) {
        stop_here()
    }
}

/// Obeys a stop request: marks this CPU as stopped and never returns.
pub(in crate::x86) fn stop_here() -> ! {
    percpu::this().stopped.store(true, Ordering::Release);
    asm::stop()
}
