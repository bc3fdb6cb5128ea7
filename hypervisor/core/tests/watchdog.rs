//! The watchdog over pCPUs in the run loop.

mod common;

use common::System;
use std::sync::atomic::Ordering;

use hv_core::heartbeat::Heartbeat;
use hv_core::vcpu::run::{PcpuLocal, step};
use hv_hw::machine::CpuId;

const S: u64 = 1_000_000_000;

#[test]
fn a_pcpu_that_does_not_come_back_is_reported() {
    let mut system = System::new(1);
    system.hv.heartbeat = Heartbeat::new(2, 5);
    let hv = &system.hv;
    let mut pcpus = [0, 1].map(|n| PcpuLocal::new(CpuId(n)));
    let hung = || hv.hw.seen.lock().unwrap().hung.clone();
    for pcpu in &mut pcpus {
        step(hv, pcpu);
    }
    let armed = hv.hw.seen.lock().unwrap().timer;
    assert!(
        armed.is_some_and(|at| at <= S),
        "an idle pCPU must wake up to beat: {armed:?}"
    );
    for second in 1..=5 {
        hv.hw.clock_ns.store(second * S, Ordering::Relaxed);
        step(hv, &mut pcpus[0]);
    }
    assert_eq!(hung(), []);
    hv.hw.clock_ns.store(6 * S, Ordering::Relaxed);
    step(hv, &mut pcpus[0]);
    assert_eq!(hung(), [CpuId(1)]);
}
