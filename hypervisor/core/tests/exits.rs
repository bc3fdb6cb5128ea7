//! Exits that no guest should cause: they end the guest that does, nobody else.

mod common;

use common::System;
use hv_core::vcpu::Sleep;
use hv_core::vcpu::exits::{self, Next};
use hv_core::vcpu::run::{self, PcpuLocal, Turn};
use hv_hw::GuestContext;
use hv_hw::machine::{CpuId, Exit, Stage2Fault};
use std::sync::atomic::Ordering;
use x86_model::{Gpa, Gpr};
use xen_abi::DomId;

const RFLAGS_IF: u64 = 1 << 9;
/// Far above the RAM of the test domains.
const NOWHERE: Gpa = Gpa(0x7f_0000_0000);

#[test]
fn page_tables_outside_of_memory_crash_the_guest_alone() {
    let system = System::new(1);
    let guest = system.add_guest(1, 1);
    let vcpu = guest.vcpu(0).unwrap();
    let mut local = vcpu.local.try_lock().unwrap();
    let mut pcpu = PcpuLocal::new(CpuId(0));
    let mut handle = |walk| {
        let mut turn = Turn {
            hv: &system.hv,
            pcpu: &mut pcpu,
            domain: &guest,
            vcpu,
            local: &mut local,
        };
        let fault = Stage2Fault {
            gpa: NOWHERE,
            write: false,
            fetch: true,
            walk,
        };
        exits::handle(&mut turn, Exit::Stage2(fault))
    };
    // Executing where nothing is: an invalid instruction, the guest's own affair.
    assert_eq!(handle(false), Next::Continue);
    assert_eq!(handle(true), Next::Down);
    assert!(guest.shutdown_reason().is_some());
    assert!(
        system
            .hv
            .domain(DomId::DOM0)
            .unwrap()
            .shutdown_reason()
            .is_none()
    );
}

#[test]
fn a_halt_waits_for_no_event_that_is_on_its_way() {
    let system = System::new(1);
    let vcpu = system.dom.vcpu(0).unwrap();
    let mut local = vcpu.local.try_lock().unwrap();
    local.ctx.sys.rflags = 2 | RFLAGS_IF;
    for undelivered in [true, false] {
        local.ctx.undelivered = undelivered;
        let sleeps = local.try_sleep(&system.dom, vcpu, Sleep::Halted, None);
        assert_eq!(sleeps, !undelivered);
    }
}

/// Each exit of a turn is counted once, by its kind, and its time falls into one bucket.
#[test]
fn every_exit_of_a_turn_is_counted() {
    let system = System::new(1);
    let vcpu = system.dom.vcpu(0).unwrap();
    vcpu.up.store(true, Ordering::SeqCst);
    {
        let mut local = vcpu.local.try_lock().unwrap();
        local.started = true;
        local.ctx.sys.rflags = 2 | RFLAGS_IF;
        local.ctx.script = [
            Exit::Cpuid { len: 2 },
            Exit::InterruptWindow,
            Exit::Cpuid { len: 2 },
            Exit::CacheFlush { len: 2 },
        ]
        .into();
    }
    system.hv.make_runnable(vcpu);
    let mut pcpu = PcpuLocal::new(CpuId(0));
    run::step(&system.hv, &mut pcpu);
    let lines: Vec<_> = vcpu.stats.lines().map(|l| (l.name, l.count)).collect();
    assert_eq!(
        lines,
        [
            ("schedule", 1),
            ("interrupt-window", 1),
            ("cpuid", 2),
            ("halt", 1),
            ("cache-flush", 1)
        ]
    );
    assert_eq!(vcpu.stats.exits(), 5);
    for l in vcpu.stats.lines() {
        let timed: u64 = l.buckets.iter().sum();
        assert_eq!(timed, if cfg!(CONFIG_EXIT_TIMES) { l.count } else { 0 });
    }
}

#[test]
fn the_clock_does_not_jump_when_the_guest_writes_its_tsc() {
    let system = System::new(1);
    let guest = system.add_guest(1, 1);
    let vcpu = guest.vcpu(0).unwrap();
    system.hv.hw.clock_ns.store(7_000_000, Ordering::Relaxed);
    let mut local = vcpu.local.try_lock().unwrap();
    let mut pcpu = PcpuLocal::new(CpuId(0));
    let g = local.ctx.gprs_mut();
    g.set(Gpr::Rcx, 0x10);
    g.set(Gpr::Rdx, 0x1234);
    g.set(Gpr::Rax, 0x5678);
    let mut turn = Turn {
        hv: &system.hv,
        pcpu: &mut pcpu,
        domain: &guest,
        vcpu,
        local: &mut local,
    };
    let write = Exit::Msr {
        write: true,
        len: 2,
    };
    assert_eq!(exits::handle(&mut turn, write), Next::Continue);
    let at = vcpu.areas.info().unwrap();
    let word = |offset| {
        let mut bytes = [0; 8];
        at.frame.read(at.offset + 32 + offset, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    // Of vcpu_time_info: what the guest's TSC was when system time was what.
    assert_eq!((word(8), word(16)), (0x1234_0000_5678, 7_000_000));
    // And when the vCPU is given a CPU the next time.
    system.hv.hw.clock_ns.store(9_000_000, Ordering::Relaxed);
    vcpu.areas.update_clock(&system.hv.clock());
    assert_eq!(
        (word(8), word(16)),
        (0x1234_0000_5678 + 2_000_000, 9_000_000)
    );
}
