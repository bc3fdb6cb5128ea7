//! Posted interrupts on the fake machine: vCPUs that run, sleep and wait; a device whose entry follows what the guest
//! programs; the host's own messages.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::System;
use hv_core::hvm::vlapic::{Clocks, DestSpec, Ipi};
use hv_core::irq::{IrqId, Source};
use hv_core::vcpu::VcpuRef;
use hv_core::vcpu::run::{self, PcpuLocal};
use hv_hw::Machine;
use hv_hw::host::FakeMachine;
use hv_hw::host::vtd::{FakeVtd, Outcome, fault};
use hv_hw::machine::{CpuId, Event, HostInterrupt, MsiMessage, MsiSource, Receiver};
use hv_hw::posted::PostTarget;
use x86_model::Width;
use x86_model::apic::DeliveryMode;
use x86_model::iommu::{RemappedMessage, Requester};
use x86_model::pci::Bdf;
use x86_model::posted::Notice;

const T0: Clocks = Clocks {
    now_ns: 0,
    guest_tsc: 0,
};
const DEVICE: Bdf = Bdf::new(1, 2, 0);
const ID: u16 = 1 << 8 | 2 << 3;

fn machine(posting: bool) -> FakeMachine {
    FakeMachine {
        posting,
        remapping: true,
        vtd: Some(FakeVtd::new(64, true)),
        ..FakeMachine::new(2)
    }
}

fn target(v: &VcpuRef) -> &Arc<PostTarget> {
    &v.posting.as_ref().unwrap().target
}

fn notice(s: &System, cpu: u32, receiver: Receiver) -> Notice {
    s.hv.hw.post_notice(CpuId(cpu), receiver).unwrap()
}

/// A vCPU with its local APIC on and interrupts enabled, on nobody's CPU.
fn started(s: &System, n: u32) -> VcpuRef {
    let v = s.dom.vcpu(n).unwrap().clone();
    {
        let mut local = v.local.try_lock().unwrap();
        local.started = true;
        local.ctx.sys.rflags = 2 | 1 << 9;
        local.lapic.mmio_write(0xf0, Width::B4, 0x1ff, T0);
        local.merge_posted(&v);
    }
    v.up.store(true, Ordering::SeqCst);
    v
}

fn fixed(dest: DestSpec, vector: u8) -> Ipi {
    Ipi {
        dest,
        mode: DeliveryMode::Fixed,
        vector,
        level: false,
    }
}

fn bind(s: &System, guest: Ipi) -> IrqId {
    let source = Source::Msi {
        guest,
        device: DEVICE,
    };
    s.hv.bind_vector(&s.dom, CpuId(1), source).unwrap()
}

/// Has the entry written, as after the guest's write.
fn route(s: &System, id: IrqId) -> MsiMessage {
    let sender = MsiSource {
        device: DEVICE,
        requester: Requester::Exact(ID),
    };
    s.hv.route_message(&s.dom, id, &sender).unwrap()
}

/// The guest names another target for a bound message.
fn reprogram(s: &System, id: IrqId, guest: Ipi) -> MsiMessage {
    s.hv.irqs.set_source(
        id,
        Source::Msi {
            guest,
            device: DEVICE,
        },
    );
    route(s, id)
}

fn send(s: &System, m: MsiMessage) -> Outcome {
    let message = RemappedMessage {
        address: m.address as u32,
        data: m.data,
    };
    s.hv.hw.vtd.as_ref().unwrap().message(ID, message)
}

#[test]
fn a_running_vcpu_is_notified_once_and_never_kicked() {
    let s = System::on(machine(true), 2);
    let v = started(&s, 1);
    let here = notice(&s, 1, Receiver::Running);
    target(&v).run_on(here);
    v.running_on.store(1, Ordering::SeqCst);
    for vector in [0x41, 0x42, 0x41] {
        assert_eq!(
            s.hv.deliver(&s.dom, None, &fixed(DestSpec::Physical(2), vector)),
            1
        );
    }
    {
        let seen = s.hv.hw.seen.lock().unwrap();
        assert_eq!((&seen.notified[..], seen.kicks.len()), (&[CpuId(1)][..], 0));
    }
    // What has no place in the descriptor takes the other way.
    s.hv.deliver_to(&v, DeliveryMode::Fixed, 0x50, true);
    s.hv.deliver_to(&v, DeliveryMode::Nmi, 0, false);
    assert_eq!(s.hv.hw.seen.lock().unwrap().kicks, [CpuId(1)]);
    let mut local = v.local.try_lock().unwrap();
    local.merge_posted(&v);
    assert!(local.nmi_pending);
    for vector in [0x50, 0x42, 0x41] {
        assert_eq!(local.lapic.pending_vector(), Some(vector));
        local.lapic.ack(vector);
        local.lapic.eoi();
    }
    assert_eq!(target(&v).sync(), None);
}

#[test]
fn a_sleeper_is_woken_by_the_device_and_takes_the_vector() {
    let s = System::on(machine(true), 1);
    let v = started(&s, 0);
    let id = bind(&s, fixed(DestSpec::Physical(0), 0x61));
    let m = route(&s, id);
    s.hv.make_runnable(&v);
    let mut pcpu = PcpuLocal::new(CpuId(0));
    // Runs, halts, sleeps.
    run::step(&s.hv, &mut pcpu);
    assert_eq!(s.hv.pcpus[0].sleepers.lock().len(), 1);
    assert_eq!(target(&v).notice(), notice(&s, 0, Receiver::Sleeping));
    for round in 1..=3 {
        let wake = notice(&s, 0, Receiver::Sleeping);
        assert_eq!(send(&s, m), Outcome::Posted(Some(wake)), "round {round}");
        assert_eq!(send(&s, m), Outcome::Posted(None));
        s.hv.hw
            .seen
            .lock()
            .unwrap()
            .interrupts
            .push_back(HostInterrupt::Wake);
        run::step(&s.hv, &mut pcpu);
        {
            let mut local = v.local.try_lock().unwrap();
            assert_eq!(local.ctx.injected, [Event::Interrupt(0x61)]);
            local.ctx.injected.clear();
            local.lapic.eoi();
        }
        // Asleep again, and on the list again, once.
        assert_eq!(s.hv.pcpus[0].sleepers.lock().len(), 1);
    }
    // Woken by the other way: it is off the list while it runs.
    s.hv.deliver_to(&v, DeliveryMode::Nmi, 0, false);
    assert!(v.wants_cpu());
    // The pCPU goes: nobody is left on its list, and the sleeper is awake.
    s.hv.wake_all_sleepers(CpuId(0));
    assert!(s.hv.pcpus[0].sleepers.lock().is_empty());
}

#[test]
fn a_vcpu_does_not_sleep_over_what_is_posted() {
    let s = System::on(machine(true), 1);
    let v = started(&s, 0);
    target(&v).post(0x33);
    s.hv.make_runnable(&v);
    let mut pcpu = PcpuLocal::new(CpuId(0));
    run::step(&s.hv, &mut pcpu);
    let local = v.local.try_lock().unwrap();
    assert_eq!(local.ctx.injected, [Event::Interrupt(0x33)]);
}

#[test]
fn the_route_follows_what_the_guest_programs() {
    let s = System::on(machine(true), 3);
    let all: Vec<_> = (0..3).map(|n| started(&s, n)).collect();
    let id = bind(&s, fixed(DestSpec::Physical(2), 0x61));
    let m = route(&s, id);
    let users = |n: usize| Arc::strong_count(target(&all[n]));
    let idle = users(0);
    assert_eq!(
        send(&s, m),
        Outcome::Posted(None),
        "suppressed: it does not run"
    );
    assert_eq!(
        (users(1), target(&all[1]).words()[1]),
        (idle + 1, 1 << 0x21)
    );
    // Another vector, another vCPU: the same entry, and the old descriptor is let go.
    assert_eq!(reprogram(&s, id, fixed(DestSpec::Physical(4), 0x99)), m);
    assert_eq!(send(&s, m), Outcome::Posted(None));
    assert_eq!((users(1), users(2)), (idle, idle + 1));
    assert_eq!(target(&all[2]).words()[2], 1 << 0x19);
    // Nobody in particular: to the host's vector, on the CPU where it was bound.
    for guest in [
        fixed(DestSpec::All, 0x61),
        fixed(DestSpec::Physical(40), 0x61),
        fixed(DestSpec::Logical(1), 0x61),
        Ipi {
            mode: DeliveryMode::Nmi,
            ..fixed(DestSpec::Physical(2), 0)
        },
        Ipi {
            level: true,
            ..fixed(DestSpec::Physical(2), 0x61)
        },
    ] {
        reprogram(&s, id, guest);
        let at = s.hv.irqs.place(id).unwrap();
        match send(&s, m) {
            Outcome::Remapped(t) => assert_eq!((t.dest, t.vector), (at.cpu, at.vector)),
            other => panic!("{guest:?}: {other:?}"),
        }
        assert_eq!(users(2), idle);
    }
    // And back.
    reprogram(&s, id, fixed(DestSpec::Physical(0), 0x62));
    assert_eq!(send(&s, m), Outcome::Posted(None));
    s.hv.unbind_vector(id);
    assert_eq!(send(&s, m), Outcome::Fault(fault::NOT_PRESENT));
    assert_eq!(users(0), idle);
}

#[test]
fn without_posting_every_message_is_remapped() {
    let s = System::on(machine(false), 1);
    let v = started(&s, 0);
    assert!(v.posting.is_none());
    let id = bind(&s, fixed(DestSpec::Physical(0), 0x61));
    let m = route(&s, id);
    assert!(matches!(send(&s, m), Outcome::Remapped(_)));
    let at = s.hv.irqs.place(id).unwrap();
    s.hv.device_interrupt(CpuId(at.cpu), at.vector);
    assert!(v.post.is_pending());
    assert_eq!(s.hv.hw.seen.lock().unwrap().eois, 1);
}

#[test]
fn the_hosts_messages_share_a_notification_and_an_end_of_interrupt() {
    let mut hw = machine(false);
    let shared = Arc::new(PostTarget::new().unwrap());
    let here = hw.post_notice(CpuId(0), Receiver::Running).unwrap();
    shared.run_on(here);
    hw.host_target = Some(shared.clone());
    let s = System::on(hw, 2);
    let vcpus = [started(&s, 0), started(&s, 1)];
    let ids: Vec<_> = (0..6u8)
        .map(|n| {
            let guest = fixed(DestSpec::Physical(u32::from(n % 2) * 2), 0x60 + n);
            let source = Source::Msi {
                guest,
                device: DEVICE,
            };
            s.hv.bind_vector(&s.dom, CpuId(0), source).unwrap()
        })
        .collect();
    let outcomes: Vec<_> = ids.iter().map(|&id| send(&s, route(&s, id))).collect();
    assert_eq!(outcomes[0], Outcome::Posted(Some(here)));
    assert!(outcomes[1..].iter().all(|o| *o == Outcome::Posted(None)));
    s.hv.hw
        .seen
        .lock()
        .unwrap()
        .interrupts
        .push_back(HostInterrupt::Posted);
    run::step(&s.hv, &mut PcpuLocal::new(CpuId(0)));
    assert_eq!(s.hv.hw.seen.lock().unwrap().eois, 1, "one for all");
    let counts = s.hv.hw.interrupt_counts(CpuId(0)).unwrap();
    assert_eq!(
        (counts.notifications, counts.posted_turns, counts.posted),
        (1, 3, 6)
    );
    assert!(!shared.is_pending());
    for (n, v) in vcpus.iter().enumerate() {
        let mut local = v.local.try_lock().unwrap();
        local.merge_posted(v);
        for vector in (0..3u8).rev().map(|k| 0x60 + 2 * k + n as u8) {
            assert_eq!(local.lapic.pending_vector(), Some(vector));
            local.lapic.ack(vector);
            local.lapic.eoi();
        }
    }
    // Those bound to the other CPU have no descriptor.
    let other = bind(&s, fixed(DestSpec::Physical(0), 0x70));
    assert!(matches!(send(&s, route(&s, other)), Outcome::Remapped(_)));
}
