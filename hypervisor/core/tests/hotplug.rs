//! pCPUs go and come back by the control interface, on the fake machine.

mod common;

use std::sync::atomic::Ordering;

use common::System;
use hv_core::hotplug::Stage;
use hv_core::hypervisor::Hypervisor;
use hv_core::irq::{Binding, Source};
use hv_core::vcpu::NO_CPU;
use hv_core::vcpu::run::{PcpuLocal, step};
use hv_hw::Machine;
use hv_hw::host::FakeMachine;
use hv_hw::machine::{CpuId, LineMode};
use xen_abi::{DomId, Errno};

const ARG: u64 = 0x3000;
const SYSCTL: u64 = 35;
const PLATFORM: u64 = 7;

/// `sysctl` cpu_hotplug: one attempt; `None` while it restarts.
fn sysctl(s: &System, cpu: u32, what: u32) -> Option<i64> {
    s.poke_words(ARG, &[11, 0x15, cpu, what]);
    once(s, SYSCTL)
}

/// `platform_op` cpu_online or cpu_offline: one attempt.
fn platform(s: &System, op: u32, cpu: u32) -> Option<i64> {
    s.poke_words(ARG, &[op, 0x0300_0001, cpu, 0]);
    once(s, PLATFORM)
}

fn once(s: &System, number: u64) -> Option<i64> {
    s.call_once(0, number, [ARG, 0, 0, 0, 0])
}

fn stage(hv: &Hypervisor, cpu: u32) -> Stage {
    hv.cpu_stage(CpuId(cpu)).unwrap()
}

/// CPU 1 has an interrupt and a vCPU that runs; what happens until it has stopped.
#[test]
fn a_cpu_loses_its_interrupts_and_vcpus_and_comes_back() {
    let s = System::new(2);
    let hv = &s.hv;
    let binding = Binding {
        domain: DomId::DOM0,
        source: Source::Gsi {
            gsi: 4,
            mode: LineMode {
                level: false,
                low: false,
            },
        },
    };
    // A line of dom0's, which its platform knows.
    let p = s.dom.platform.as_ref().unwrap();
    let at = |o: u64| x86_model::Gpa(0xfec0_0000 + o);
    assert!(p.mmio_write(hv, &s.dom, at(0), x86_model::Width::B4, 0x18));
    assert!(p.mmio_write(hv, &s.dom, at(0x10), x86_model::Width::B4, 0x51));
    let line = hv.irqs.all()[0].0;
    assert!(hv.irqs.begin(&hv.hw, line, CpuId(1), false).is_some());
    hv.hw
        .move_gsi(4, CpuId(1), hv.irqs.place(line).unwrap().vector);

    // A sleeper whose timer CPU 1 watches.
    let sleeper = s.dom.vcpu(1).unwrap().clone();
    sleeper.home.store(1, Ordering::SeqCst);
    sleeper.wake_at.store(50_000_000, Ordering::SeqCst);

    hv.hw.seen.lock().unwrap().stuck.insert(1);
    assert_eq!(sysctl(&s, 1, 1), None, "goes on");
    assert_eq!(stage(hv, 1), Stage::Going);
    assert!(
        hv.irqs.bind(&hv.hw, CpuId(1), binding).is_none(),
        "takes no new ones"
    );
    assert_eq!(hv.hw.online_cpus(), 1);
    // The line's old vector on CPU 0 goes once it counts as seen, then the line moves, then its vector here.
    let mut rounds = 0;
    while stage(hv, 1) == Stage::Going {
        hv.hw.clock_ns.fetch_add(2_000_000, Ordering::Relaxed);
        assert_eq!(sysctl(&s, 1, 1), None);
        hv.clean_vectors(CpuId(0));
        hv.clean_vectors(CpuId(1));
        rounds += 1;
        assert!(rounds < 10);
    }
    assert_eq!(hv.irqs.place(line).unwrap().cpu, 0);
    assert!(hv.hw.seen.lock().unwrap().vectors.iter().all(|v| v.0 == 0));
    assert_eq!((stage(hv, 1), sysctl(&s, 1, 1)), (Stage::Stopping, None));
    // It leaves its loop.
    assert!(hv.pcpus[1].hotplug.must_leave());
    hv.hand_over(CpuId(1), vec![sleeper.clone()]);
    assert_eq!(sysctl(&s, 1, 1), None, "is still on its way");
    hv.hw.seen.lock().unwrap().stuck.clear();
    assert_eq!(sysctl(&s, 1, 1), Some(0));
    assert_eq!(stage(hv, 1), Stage::Offline);
    assert_eq!(sysctl(&s, 1, 1), Some(Errno::EEXIST.to_ret()));
    assert_eq!(platform(&s, 57, 1), Some(0), "there already");
    // CPU 0 watches the sleeper now.
    assert_eq!(sleeper.home.load(Ordering::SeqCst), 0);
    let mut pcpu = PcpuLocal::new(CpuId(0));
    step(hv, &mut pcpu);
    assert_eq!(hv.hw.seen.lock().unwrap().timer, Some(50_000_000));

    assert_eq!(sysctl(&s, 1, 0), Some(0));
    assert_eq!((stage(hv, 1), hv.hw.online_cpus()), (Stage::Online, 2));
    assert_eq!(sysctl(&s, 1, 0), Some(Errno::EEXIST.to_ret()));
    assert_eq!(platform(&s, 56, 1), Some(0));
    assert!(hv.irqs.bind(&hv.hw, CpuId(1), binding).is_some());
    assert!(!hv.pcpus[1].hotplug.must_leave());
}

#[test]
fn what_is_refused() {
    let s = System::new(1);
    assert_eq!(sysctl(&s, 0, 1), Some(Errno::EINVAL.to_ret()));
    assert_eq!(platform(&s, 57, 0), Some(Errno::EOPNOTSUPP.to_ret()));
    for cpu in [2, NO_CPU] {
        for what in [0, 1] {
            assert_eq!(sysctl(&s, cpu, what), Some(Errno::EINVAL.to_ret()));
            assert_eq!(platform(&s, 56 + what, cpu), Some(Errno::EINVAL.to_ret()));
        }
    }
    // Cores have one thread here.
    for what in [2, 3, 99] {
        assert_eq!(sysctl(&s, 1, what), Some(Errno::EOPNOTSUPP.to_ret()));
    }
    // Only the control domain.
    let guest = s.add_guest(5, 1);
    let (ret, _) = s.call_from(&guest, 0, PLATFORM, [ARG, 0, 0, 0, 0]);
    assert_eq!(ret, Errno::EPERM.to_ret());
}

#[test]
fn a_cpu_that_does_not_start_stays_away_and_one_comes_or_goes_at_a_time() {
    let s = System::new(1);
    assert_eq!(sysctl(&s, 1, 1), None);
    assert_eq!(sysctl(&s, 1, 0), Some(Errno::EBUSY.to_ret()), "it is going");
    assert_eq!(sysctl(&s, 1, 1), None);
    assert_eq!(sysctl(&s, 1, 1), Some(0));
    s.hv.hw.seen.lock().unwrap().stuck.insert(1);
    assert_eq!(sysctl(&s, 1, 0), Some(Errno::EIO.to_ret()));
    assert_eq!(stage(&s.hv, 1), Stage::Offline);
    s.hv.hw.seen.lock().unwrap().stuck.clear();
    assert_eq!(sysctl(&s, 1, 0), Some(0));
}

#[test]
fn a_cpu_stays_whose_interrupts_have_nowhere_to_go() {
    let s = System::new(1);
    let (hv, hw) = (&s.hv, &s.hv.hw);
    let binding = Binding {
        domain: DomId::DOM0,
        source: Source::Gsi {
            gsi: 4,
            mode: LineMode {
                level: false,
                low: false,
            },
        },
    };
    assert!(hv.irqs.bind(hw, CpuId(1), binding).is_some());
    while hw.alloc_vector(CpuId(0)).is_some() {}
    for _ in 0..4 {
        assert_eq!(sysctl(&s, 1, 1), None);
        hw.clock_ns.fetch_add(3_000_000_000, Ordering::Relaxed);
    }
    assert_eq!(sysctl(&s, 1, 1), Some(Errno::EBUSY.to_ret()));
    assert_eq!((stage(hv, 1), hw.online_cpus()), (Stage::Online, 2));
    // With room it goes: a line that no platform knows cannot move, so the interrupt is dropped first.
    let id = hv.irqs.all()[0].0;
    hv.irqs.unbind(hw, id);
    assert_eq!(sysctl(&s, 1, 1), None);
    assert_eq!(sysctl(&s, 1, 1), None);
    assert_eq!(sysctl(&s, 1, 1), Some(0));
}

/// Two cores of two threads: CPUs 1 and 3 share theirs with 0 and 2.
#[test]
fn siblings_go_and_come_at_once() {
    const ENABLE: u32 = 2;
    const DISABLE: u32 = 3;
    let mut machine = FakeMachine::new(4);
    machine.thread_bits = 1;
    let s = System::on(machine, 1);
    // The CPU's number in the argument says nothing.
    let all = |what| {
        let calls = (1..20).find_map(|n| sysctl(&s, 99, what).map(|ret| (ret, n)));
        calls.expect("it comes to an end")
    };
    let stages = || [0, 1, 2, 3].map(|cpu| stage(&s.hv, cpu));
    use Stage::{Going, Offline, Online};
    assert_eq!(all(ENABLE), (0, 1), "they are here");
    let (ret, calls) = all(DISABLE);
    assert_eq!((ret, stages()), (0, [Online, Offline, Online, Offline]));
    assert!(calls > 4, "a step of one CPU at each call, not {calls}");
    assert_eq!(all(DISABLE), (0, 1), "they are away");
    // Whoever has gone otherwise does not come back with them.
    while sysctl(&s, 2, 1).is_none() {}
    assert_eq!(all(ENABLE), (0, 3));
    assert_eq!(stages(), [Online, Online, Offline, Online]);
    // One that does not start ends it, and one that comes or goes on its own hinders it.
    assert_eq!(all(DISABLE).0, 0);
    s.hv.hw.seen.lock().unwrap().stuck.insert(3);
    assert_eq!(all(ENABLE), (Errno::EIO.to_ret(), 2));
    assert_eq!(stages(), [Online, Online, Offline, Offline]);
    s.hv.hw.seen.lock().unwrap().stuck.clear();
    assert_eq!(sysctl(&s, 1, 1), None);
    assert_eq!(all(ENABLE), (Errno::EBUSY.to_ret(), 1));
    assert_eq!(stages(), [Online, Going, Offline, Offline]);
    // A CPU that is on its way already counts as one of them.
    assert_eq!(all(DISABLE).0, 0);
    assert_eq!(all(ENABLE).0, 0);
    assert_eq!(stages(), [Online, Online, Offline, Online]);
}

/// What dom0's driver asks for.
#[test]
fn cpu_info_tells_who_is_online() {
    let s = System::new(1);
    let flags = |cpu: u32| {
        s.poke_words(ARG, &[55, 0x0300_0001, cpu, 0, 0, 0, 0]);
        assert_eq!(once(&s, PLATFORM), Some(0));
        (s.peek_u32(ARG + 12), s.peek_u32(ARG + 16))
    };
    assert_eq!((flags(0), flags(1)), ((1, 1), (1, 1)));
    s.hv.hw.seen.lock().unwrap().offline.insert(1);
    assert_eq!((flags(0), flags(1)), ((1, 1), (1, 0)));
}
