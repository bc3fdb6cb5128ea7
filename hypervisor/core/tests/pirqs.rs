//! Interrupts of devices as event channels of the control domain.

mod common;

use common::System;
use hv_core::irq::{Binding, Source};
use hv_hw::Machine;
use hv_hw::machine::CpuId;
use x86_model::pci::Bdf;
use xen_abi::event_channel::{EvtchnBindPirq, EvtchnStatus, status};
use xen_abi::features::feature;
use xen_abi::physdev::{
    PhysdevEoi, PhysdevGetFreePirq, PhysdevIrq, PhysdevIrqStatusQuery, PhysdevMapPirq,
    PhysdevUnmapPirq, irq_status, map_pirq, op,
};
use xen_abi::{DomId, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const ARG: u64 = 0x3000;

fn err(e: Errno) -> i64 {
    e.to_ret()
}

/// Makes a call with a structure; the answer is what stands in memory afterwards.
fn call<T: IntoBytes + FromBytes + Immutable>(s: &System, number: u64, sub: u32, a: &mut T) -> i64 {
    s.poke(ARG, a.as_bytes());
    let ret = s.call(0, number, [sub.into(), ARG, 0, 0, 0]);
    *a = T::read_from_bytes(&s.peek_bytes(ARG, size_of::<T>())).unwrap();
    ret
}

fn map(s: &System, kind: i32, index: i32, pirq: i32) -> Result<i32, i64> {
    let mut a = PhysdevMapPirq {
        domid: DomId::SELF,
        kind,
        index,
        pirq,
        ..Default::default()
    };
    match call(s, 33, op::MAP_PIRQ, &mut a) {
        0 => Ok(a.pirq),
        ret => Err(ret),
    }
}

fn bind(s: &System, pirq: u32) -> Result<u32, i64> {
    let mut a = EvtchnBindPirq {
        pirq,
        ..Default::default()
    };
    match call(s, 32, 2, &mut a) {
        0 => Ok(a.port),
        ret => Err(ret),
    }
}

fn eoi(s: &System, irq: u32) -> i64 {
    call(s, 33, op::EOI, &mut PhysdevEoi { irq })
}

fn flags(s: &System, irq: u32) -> Result<u32, i64> {
    let mut a = PhysdevIrqStatusQuery {
        irq,
        ..Default::default()
    };
    match call(s, 33, op::IRQ_STATUS_QUERY, &mut a) {
        0 => Ok(a.flags),
        ret => Err(ret),
    }
}

fn pending(s: &System, port: u32) -> bool {
    let was = s.dom.evtchn.any_pending(&[port]).unwrap();
    s.dom.shared_info.write(2048, &[0; 64]);
    was
}

#[test]
fn a_line_is_an_event_until_its_port_is_closed() {
    let s = System::with_pirqs(2);
    assert_eq!(map(&s, map_pirq::GSI, 19, -1), Ok(19));
    let mut vector = PhysdevIrq { irq: 19, vector: 0 };
    assert_eq!(call(&s, 33, op::ALLOC_IRQ_VECTOR, &mut vector), 0);
    assert_eq!(vector.vector, 19);
    assert_eq!(flags(&s, 19), Ok(irq_status::NEEDS_EOI));
    let port = bind(&s, 19).unwrap();
    assert_eq!(bind(&s, 19), Err(err(Errno::EEXIST)));
    let mut st = EvtchnStatus {
        dom: DomId::SELF,
        port,
        ..Default::default()
    };
    assert_eq!(call(&s, 32, 5, &mut st), 0);
    assert_eq!((st.status, st.u[0]), (status::PIRQ, 19));
    // Routed as PCI lines are, and open.
    let route = |gsi| s.hv.hw.seen.lock().unwrap().gsis[&gsi];
    let (cpu, vector, mode, masked) = route(19);
    assert!(mode.level && mode.low && !masked);
    // A level stays masked until the guest has served the device.
    s.hv.device_interrupt(CpuId(cpu), vector);
    assert!(pending(&s, port) && route(19).3);
    assert_eq!(eoi(&s, 19), 0);
    assert!(!route(19).3);
    // On another vCPU.
    s.poke_words(ARG, &[port, 1]);
    assert_eq!(s.call(0, 32, [8, ARG, 0, 0, 0]), 0);
    s.hv.device_interrupt(CpuId(cpu), vector);
    assert!(pending(&s, port));
    assert_eq!(eoi(&s, 19), 0);
    // Closed: the line opens no more, whatever the port is used for next.
    s.poke_words(ARG, &[port]);
    assert_eq!(s.call(0, 32, [3, ARG, 0, 0, 0]), 0);
    s.poke_words(ARG, &[8, 0, 0]);
    assert_eq!(s.call(0, 32, [1, ARG, 0, 0, 0]), 0);
    assert_eq!(s.peek_u32(ARG + 8), port);
    s.hv.device_interrupt(CpuId(cpu), vector);
    assert!(!pending(&s, port));
    assert_eq!(eoi(&s, 19), 0);
    assert!(route(19).3);
    // Bound again, and taken back.
    assert_eq!(bind(&s, 19), Ok(port + 1));
    assert!(!route(19).3);
    let mut un = PhysdevUnmapPirq {
        domid: DomId::SELF,
        pirq: 19,
        ..Default::default()
    };
    assert_eq!(call(&s, 33, op::UNMAP_PIRQ, &mut un), 0);
    assert!(route(19).3);
    assert_eq!(call(&s, 33, op::UNMAP_PIRQ, &mut un), err(Errno::EINVAL));
    assert_eq!(eoi(&s, 19), err(Errno::EINVAL));
}

#[test]
fn a_message_is_an_event() {
    let s = System::with_pirqs(1);
    let mut free = PhysdevGetFreePirq::default();
    assert_eq!(call(&s, 33, op::GET_FREE_PIRQ, &mut free), 0);
    let pirq = free.pirq;
    assert_eq!(map(&s, map_pirq::MSI, 0, pirq as i32), Ok(pirq as i32));
    assert_eq!(flags(&s, pirq), Ok(0));
    let source = Source::Pirq {
        pirq,
        device: Bdf::new(0, 3, 0),
    };
    let binding = Binding {
        domain: DomId::DOM0,
        source,
    };
    let id = s.hv.irqs.bind(&s.hv.hw, CpuId(1), binding).unwrap();
    let at = s.hv.irqs.place(id).unwrap();
    let raise = || s.hv.device_interrupt(CpuId(at.cpu), at.vector);
    // Before it is bound it is lost.
    raise();
    let port = bind(&s, pirq).unwrap();
    assert!(!pending(&s, port));
    raise();
    assert!(pending(&s, port));
    assert_eq!(eoi(&s, pirq), 0);
    assert_eq!(s.hv.hw.seen.lock().unwrap().eois, 2);
}

#[test]
fn bad_numbers_are_refused() {
    let s = System::with_pirqs(1);
    let invalid = err(Errno::EINVAL);
    for (kind, index, pirq) in [
        (map_pirq::GSI, 24, -1),
        (map_pirq::GSI, -1, -1),
        (map_pirq::GSI, 9, -1),
        (map_pirq::GSI, 18, 100_000),
        (map_pirq::MSI, 0, i32::MAX),
        (map_pirq::MSI_SEG, 0, -1),
        (99, 0, -1),
    ] {
        assert_eq!(map(&s, kind, index, pirq), Err(invalid), "{kind} {index}");
    }
    assert_eq!(bind(&s, 100_000), Err(invalid));
    assert_eq!(eoi(&s, 100_000), invalid);
    assert_eq!(flags(&s, 20), Err(invalid));
    let mut other = PhysdevMapPirq {
        domid: DomId(5),
        kind: map_pirq::GSI,
        index: 5,
        pirq: -1,
        ..Default::default()
    };
    assert_eq!(call(&s, 33, op::MAP_PIRQ, &mut other), err(Errno::ESRCH));
    let guest = s.add_guest(5, 1);
    assert_eq!(
        call(&s, 33, op::MAP_PIRQ, &mut other),
        err(Errno::EOPNOTSUPP)
    );
    let a = s.call_from(&guest, 0, 33, [op::MAP_PIRQ.into(), ARG, 0, 0, 0]);
    assert_eq!(a.0, err(Errno::ENOSYS));
    // One that stands for nothing can be bound, as on Xen; nothing raises it.
    assert!(bind(&s, 50).is_ok());
}

#[test]
fn without_the_feature_nothing_of_it_is_there() {
    let has = |s: &System| {
        s.poke_words(ARG, &[0, 0]);
        assert_eq!(s.call(0, 17, [6, ARG, 0, 0, 0]), 0);
        s.peek_u32(ARG + 4) & 1 << feature::HVM_PIRQS != 0
    };
    let s = System::new(1);
    assert!(!has(&s) && has(&System::with_pirqs(1)));
    assert_eq!(map(&s, map_pirq::GSI, 9, -1), Err(err(Errno::ENOSYS)));
    assert_eq!(bind(&s, 9), Err(err(Errno::EINVAL)));
    assert_eq!(eoi(&s, 9), err(Errno::ENOSYS));
    assert_eq!(s.hv.hw.cpu_count(), 2);
}
