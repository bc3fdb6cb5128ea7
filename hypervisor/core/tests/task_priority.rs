//! The task priority that a guest sets by CR8, of which only the processor knows, on the fake machine.

mod common;

use std::sync::atomic::Ordering;

use common::System;
use hv_core::hvm::vlapic::Clocks;
use hv_core::vcpu::{Sleep, VcpuLocal, VcpuRef};
use hv_hw::machine::Event;
use x86_model::Width;

const T0: Clocks = Clocks {
    now_ns: 0,
    guest_tsc: 0,
};
const VECTOR: u8 = 0x41;

/// A vCPU with interrupts enabled, whose local APIC is on and has one interrupt requested.
fn requested(s: &System) -> VcpuRef {
    let v = s.dom.vcpu(0).unwrap().clone();
    let mut local = v.local.try_lock().unwrap();
    local.ctx.sys.rflags = 2 | 1 << 9;
    local.lapic.mmio_write(0xf0, Width::B4, 0x1ff, T0);
    local.lapic.raise(VECTOR);
    drop(local);
    v
}

fn enter(s: &System, v: &VcpuRef, local: &mut VcpuLocal) -> Vec<Event> {
    local.inject_pending(&s.dom, v);
    std::mem::take(&mut local.ctx.injected)
}

#[test]
fn an_interrupt_waits_for_cr8_and_is_watched_for() {
    let s = System::new(1);
    let v = requested(&s);
    let local = &mut *v.local.try_lock().unwrap();
    for class in [15, 5, 4] {
        local.ctx.tpr = class << 4;
        local.ctx.watched = 0;
        assert_eq!(enter(&s, &v, local), []);
        // Lowering it below the vector's class is told.
        assert_eq!((local.ctx.watched, local.lapic.tpr()), (4, class << 4));
        assert!(!local.ctx.window);
    }
    local.ctx.tpr = 3 << 4;
    assert_eq!(enter(&s, &v, local), [Event::Interrupt(VECTOR)]);
    assert_eq!(local.lapic.pending_vector(), None);
}

#[test]
fn a_sleeper_waits_for_what_cr8_lets_through() {
    let s = System::new(1);
    let v = requested(&s);
    let local = &mut *v.local.try_lock().unwrap();
    local.ctx.tpr = 0x40;
    assert!(local.try_sleep(&s.dom, &v, Sleep::Halted, None));
    local.ctx.tpr = 0x30;
    assert!(!local.try_sleep(&s.dom, &v, Sleep::Halted, None));
    v.sleep.store(0, Ordering::SeqCst);
}

#[test]
fn init_clears_cr8() {
    let s = System::new(1);
    let v = requested(&s);
    let local = &mut *v.local.try_lock().unwrap();
    // The low half is the register's alone: a class that has not changed leaves it.
    local.lapic.mmio_write(0x80, Width::B4, 0x53, T0);
    local.show_tpr();
    local.take_tpr();
    assert_eq!((local.ctx.tpr, local.lapic.tpr()), (0x53, 0x53));
    local.ctx.tpr = 0x60;
    local.take_tpr();
    assert_eq!(local.lapic.tpr(), 0x60);
    local.lapic.reset();
    local.show_tpr();
    assert_eq!(local.ctx.tpr, 0);
}
