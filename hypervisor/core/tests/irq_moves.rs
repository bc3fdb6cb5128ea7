//! Interrupts that move between pCPUs, on the fake machine: what the source is told, when the old vector is given back.

mod common;

use std::sync::atomic::Ordering;

use common::System;
use hv_core::irq::{Binding, IrqId, Source};
use hv_hw::Machine;
use hv_hw::machine::{CpuId, LineMode};
use x86_model::interrupt::moving::{PATIENCE, Place};
use x86_model::{Gpa, Width};
use xen_abi::DomId;

const IOAPIC: u64 = 0xfec0_0000;

/// Programs the guest's IO-APIC entry of a pin.
fn program(s: &System, pin: u64, low: u64, high: u64) {
    let p = s.dom.platform.as_ref().unwrap();
    for (register, value) in [(0x11 + 2 * pin, high), (0x10 + 2 * pin, low)] {
        assert!(p.mmio_write(&s.hv, &s.dom, Gpa(IOAPIC), Width::B4, register));
        assert!(p.mmio_write(&s.hv, &s.dom, Gpa(IOAPIC + 0x10), Width::B4, value));
    }
}

/// Where the physical pin leads: CPU, vector, signalling, masked.
fn route(s: &System, gsi: u32) -> (u32, u8, LineMode, bool) {
    s.hv.hw.seen.lock().unwrap().gsis[&gsi]
}

fn places(s: &System, id: IrqId) -> Vec<Place> {
    let all = s.hv.irqs.all();
    let (_, irq) = all.iter().find(|(i, _)| *i == id).unwrap();
    irq.moving.places().collect()
}

fn only(s: &System) -> IrqId {
    let all = s.hv.irqs.all();
    assert_eq!(all.len(), 1);
    all[0].0
}

fn vectors(s: &System) -> usize {
    s.hv.hw.seen.lock().unwrap().vectors.len()
}

/// A level line for vCPU 1 (APIC ID 2), whose vCPU lives on CPU 1.
fn level_line(s: &System) -> IrqId {
    s.dom.vcpu(1).unwrap().home.store(1, Ordering::SeqCst);
    program(s, 9, 0x40 | 1 << 15, 2 << 24);
    only(s)
}

#[test]
fn a_line_follows_its_vcpu_before_it_is_delivered_and_stays_masked() {
    let s = System::new(2);
    let id = level_line(&s);
    assert_eq!(route(&s, 9).0, 0, "bound to the first CPU");
    let first = places(&s, id)[0];
    for n in 1..=u32::from(PATIENCE) {
        s.hv.device_interrupt(CpuId(0), first.vector);
        assert!(
            route(&s, 9).3,
            "a level line is masked while the guest serves it"
        );
        let moved = n == u32::from(PATIENCE);
        assert_eq!(route(&s, 9).0, u32::from(moved), "after {n}");
        s.hv.guest_eoi(&s.dom, 0x40);
        assert!(!route(&s, 9).3, "opened by the guest's end of interrupt");
    }
    // Under way since before the move: delivered, and counted.
    assert_eq!(places(&s, id).len(), 2);
    s.hv.device_interrupt(CpuId(0), first.vector);
    assert_eq!(s.hv.pcpus[0].late.load(Ordering::Relaxed), 1);
    s.hv.guest_eoi(&s.dom, 0x40);
    s.hv.clean_vectors(CpuId(0));
    assert_eq!(
        places(&s, id).len(),
        2,
        "the new place has seen nothing yet"
    );
    // The first at the new place makes the old CPU look.
    let now = places(&s, id)[0];
    s.hv.device_interrupt(CpuId(1), now.vector);
    assert!(s.hv.pcpus[0].clean.load(Ordering::Relaxed));
    // One waits in the old CPU's request register: it looks again later.
    s.hv.hw.seen.lock().unwrap().waiting.insert(first.vector);
    s.hv.clean_vectors(CpuId(0));
    assert_eq!(places(&s, id).len(), 2);
    assert!(s.hv.pcpus[0].clean.load(Ordering::Relaxed));
    s.hv.hw.seen.lock().unwrap().waiting.clear();
    s.hv.clean_vectors(CpuId(0));
    assert_eq!((places(&s, id), vectors(&s)), (vec![now], 1));
    // What comes now belongs to nobody.
    s.hv.device_interrupt(CpuId(0), first.vector);
    assert_eq!(s.hv.pcpus[0].stray.load(Ordering::Relaxed), 1);
}

#[test]
fn a_line_that_the_guest_points_elsewhere_moves_at_its_next_arrival() {
    let s = System::new(2);
    let id = level_line(&s);
    let first = places(&s, id)[0];
    s.dom.vcpu(0).unwrap().home.store(0, Ordering::SeqCst);
    // To vCPU 0, which is at home where the line is, and back to vCPU 1.
    for (apic, home) in [(0, 0), (2, 0), (2, 0)] {
        program(&s, 9, 0x40 | 1 << 15, apic << 24);
        assert_eq!(route(&s, 9).0, home, "not before an interrupt has arrived");
    }
    s.hv.device_interrupt(CpuId(0), first.vector);
    assert_eq!((route(&s, 9).0, route(&s, 9).3), (1, true));
    s.hv.guest_eoi(&s.dom, 0x40);
    assert!(!route(&s, 9).3);
}

#[test]
fn a_cpu_loses_all_interrupts_and_an_edge_that_may_have_been_missed_is_made_up_for() {
    let s = System::new(2);
    // An edge-triggered line to vCPU 0, bound on CPU 0.
    program(&s, 4, 0x51, 0);
    let id = only(&s);
    let post = &s.dom.vcpu(0).unwrap().post;
    assert!(!post.is_pending());
    assert!(
        !s.hv.evacuate(CpuId(0)),
        "something was moved, so look again"
    );
    assert_eq!(route(&s, 4).0, 1);
    assert!(post.is_pending(), "one edge too many");
    // The old vector goes once enough time has passed and the old CPU has looked.
    assert!(!s.hv.evacuate(CpuId(0)));
    s.hv.clean_vectors(CpuId(0));
    assert_eq!(places(&s, id).len(), 2, "too early");
    s.hv.hw.clock_ns.store(5_000_000, Ordering::Relaxed);
    assert!(!s.hv.evacuate(CpuId(0)));
    s.hv.clean_vectors(CpuId(0));
    assert!(s.hv.evacuate(CpuId(0)));
    assert_eq!((places(&s, id).len(), vectors(&s)), (1, 1));
}

#[test]
fn a_message_in_two_halves_passes_through_a_vector_of_its_own() {
    let s = System::new(2);
    let (hw, irqs) = (&s.hv.hw, &s.hv.irqs);
    let binding = Binding {
        domain: DomId::DOM0,
        source: Source::Gsi {
            gsi: 1,
            mode: LineMode {
                level: false,
                low: false,
            },
        },
    };
    let a = irqs.bind(hw, CpuId(0), binding).unwrap();
    let at = irqs.place(a).unwrap();
    // The same vector is free over there: only the address changes.
    let m = irqs.begin(hw, a, CpuId(1), true).unwrap();
    assert_eq!((m.to.vector, places(&s, a).len()), (at.vector, 2));
    assert_eq!(
        irqs.begin(hw, a, CpuId(0), true),
        None,
        "the move is not over"
    );
    // It is taken over there: another one, which is the interrupt's on both CPUs meanwhile.
    let b = irqs.bind(hw, CpuId(0), binding).unwrap();
    let at = irqs.place(b).unwrap();
    assert!(hw.take_vector(CpuId(1), at.vector));
    let m = irqs.begin(hw, b, CpuId(1), true).unwrap();
    assert_ne!(m.to.vector, at.vector);
    let through = Place {
        cpu: 0,
        vector: m.to.vector,
    };
    assert_eq!(places(&s, b), [m.to, at, through]);
    assert!(irqs.arrived(through).is_some());
    irqs.unbind(hw, b);
    irqs.unbind(hw, a);
    assert_eq!(vectors(&s), 1, "the one that the test took");
}

#[test]
fn an_interrupt_stays_where_no_vector_is_free_over_there() {
    let s = System::new(2);
    let id = level_line(&s);
    while s.hv.hw.alloc_vector(CpuId(1)).is_some() {}
    let at = places(&s, id);
    for _ in 0..100 {
        s.hv.device_interrupt(CpuId(0), at[0].vector);
        s.hv.guest_eoi(&s.dom, 0x40);
    }
    assert_eq!(places(&s, id), at);
    assert_eq!((route(&s, 9).0, route(&s, 9).3), (0, false));
    // A CPU that is not online takes none.
    s.hv.hw.seen.lock().unwrap().vectors.clear();
    s.hv.hw.seen.lock().unwrap().offline.insert(1);
    s.hv.device_interrupt(CpuId(0), at[0].vector);
    assert_eq!(places(&s, id), at);
}
