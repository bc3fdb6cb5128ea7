//! NMI: the way to stop CPUs that do not listen, and to see where they are. The handler touches only its own CPU block.

use core::sync::atomic::Ordering;

use super::super::{apic, asm, paging, panic, time};
use super::percpu::{self, PerCpu};
use super::traps::TrapFrame;

/// Called on the NMI stack, at any instant: no lock may be taken here.
pub(super) fn taken(frame: &TrapFrame) {
    let cpu = percpu::this();
    cpu.nmis.fetch_add(1, Ordering::Relaxed);
    if cpu.stop.asked() {
        stop_here()
    }
    if cpu.trace_wanted.load(Ordering::Acquire) {
        collect(cpu, frame);
        cpu.trace_wanted.store(false, Ordering::Release);
    }
}

/// Obeys a stop request: marks this CPU as stopped and never returns.
pub(in crate::x86) fn stop_here() -> ! {
    percpu::this().stopped.store(true, Ordering::Release);
    asm::stop()
}

/// Follows the frame pointers from the interrupted instruction.
fn collect(cpu: &PerCpu, frame: &TrapFrame) {
    let (mut rip, mut at) = (frame.rip, frame.rbp);
    for slot in &cpu.trace {
        slot.store(rip, Ordering::Relaxed);
        if rip == 0 || at & 7 != 0 || !paging::is_stack(at, 16) {
            rip = 0;
            continue;
        }
        // SAFETY: in a mapped stack, aligned; only read.
        let [next, caller] = unsafe { (at as *const [u64; 2]).read_volatile() };
        (rip, at) = (caller, if next > at { next } else { 0 });
    }
}

/// Logs where another CPU is, if it answers within 10 ms. One without trap handlers is left alone: an NMI would reset the
/// machine.
pub(in crate::x86) fn show(cpu: &PerCpu) {
    if !cpu.stop.takes_nmi() {
        return;
    }
    let answered = ask(cpu);
    crate::warn!("Where it is:");
    print(cpu, answered);
}

/// Makes another CPU note where it is; whether it did within 10 ms.
pub(in crate::x86) fn ask(cpu: &PerCpu) -> bool {
    cpu.trace_wanted.store(true, Ordering::Release);
    apic::send_nmi(cpu);
    (0..100).any(|_| {
        time::spin_us(100);
        !cpu.trace_wanted.load(Ordering::Acquire)
    })
}

/// Logs the answer to [`ask`].
pub(in crate::x86) fn print(cpu: &PerCpu, answered: bool) {
    if !answered {
        crate::warn!("  it does not take NMIs");
        return;
    }
    let addresses = cpu.trace.iter().map(|a| a.load(Ordering::Relaxed));
    for address in addresses.take_while(|&a| a != 0) {
        crate::warn!("  {}", panic::Address(address));
    }
}
