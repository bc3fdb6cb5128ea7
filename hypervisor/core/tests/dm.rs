//! What a device model asks of its guest.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::System;
use hv_core::domain::Domain;
use hv_core::hvm::vlapic::Clocks;
use hv_hw::Machine;
use hv_hw::host::FakeMachine;
use hv_hw::machine::{CpuId, Receiver};
use x86_model::Width;
use xen_abi::Errno;
use xen_abi::hvm::dm_op::{DmInjectMsi, DmNrVcpus, DmOpBuf, DmRemoteShutdown, op};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const BUFFERS: u64 = 0x3000;
const OP: u64 = 0x3100;
const GUEST: u16 = 3;

fn head(number: u32, pad: u32) -> [u32; 2] {
    [number, pad]
}

/// The call with one buffer of `size` bytes.
fn sized(
    s: &System,
    caller: &Arc<Domain>,
    target: u16,
    head: [u32; 2],
    body: &[u8],
    size: u64,
) -> i64 {
    let buffer = DmOpBuf { h: OP, size };
    let poke = |at, bytes: &[u8]| {
        hv_core::guest::access::write_phys(&caller.p2m, x86_model::Gpa(at), bytes).unwrap();
    };
    poke(BUFFERS, buffer.as_bytes());
    poke(OP, head.as_bytes());
    poke(OP + 8, body);
    s.call_from(caller, 0, 41, [target.into(), 1, BUFFERS, 0, 0])
        .0
}

fn ask(s: &System, target: u16, number: u32, body: &(impl IntoBytes + Immutable)) -> i64 {
    let body = body.as_bytes();
    let size = 8 + body.len() as u64;
    sized(s, &s.dom, target, head(number, 0), body, size)
}

fn message(addr: u64, data: u32) -> DmInjectMsi {
    DmInjectMsi {
        data,
        addr,
        ..Default::default()
    }
}

#[test]
fn calls_that_are_wrong_get_xens_errors() {
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 1);
    let msi = message(0xfee0_0000, 0x41);
    let body = msi.as_bytes();
    let call = |caller, target, number, pad, size| {
        sized(&s, caller, target, head(number, pad), body, size)
    };
    let e = |e: Errno| e.to_ret();
    assert_eq!(
        s.call(0, 41, [GUEST.into(), 3, BUFFERS, 0, 0]),
        e(Errno::E2BIG)
    );
    assert_eq!(
        s.call(0, 41, [GUEST.into(), 1, 1 << 46, 0, 0]),
        e(Errno::EFAULT)
    );
    // No buffer at all.
    assert_eq!(
        s.call(0, 41, [GUEST.into(), 0, BUFFERS, 0, 0]),
        e(Errno::EFAULT)
    );
    let own = s.dom.id.0;
    assert_eq!(call(&s.dom, own, op::INJECT_MSI, 0, 24), e(Errno::EPERM));
    assert_eq!(call(&s.dom, 77, op::INJECT_MSI, 0, 24), e(Errno::ESRCH));
    assert_eq!(call(&s.dom, 0x7ff0, op::INJECT_MSI, 0, 24), e(Errno::ESRCH));
    // Guests have no guests.
    assert_eq!(call(&guest, own, op::INJECT_MSI, 0, 24), e(Errno::EPERM));
    assert_eq!(call(&guest, GUEST, op::INJECT_MSI, 0, 24), e(Errno::EPERM));
    for (number, pad, size, errno) in [
        (op::INJECT_MSI, 0, 7, Errno::EFAULT),
        (op::INJECT_MSI, 0, 23, Errno::EFAULT),
        (op::INJECT_MSI, 1, 23, Errno::EFAULT),
        (op::INJECT_MSI, 1, 24, Errno::EINVAL),
        (op::CREATE_IOREQ_SERVER, 0, 24, Errno::EOPNOTSUPP),
        (21, 0, 8, Errno::EOPNOTSUPP),
        (u32::MAX, 0, 8, Errno::EOPNOTSUPP),
    ] {
        assert_eq!(
            call(&s.dom, GUEST, number, pad, size),
            e(errno),
            "{number} {pad} {size}"
        );
    }
    assert_eq!(call(&s.dom, GUEST, op::INJECT_MSI, 0, 24), 0);
}

/// Turns the local APIC of a vCPU on.
fn start(guest: &Arc<Domain>, n: u32) {
    const T0: Clocks = Clocks {
        now_ns: 0,
        guest_tsc: 0,
    };
    let v = guest.vcpu(n).unwrap();
    let mut local = v.local.try_lock().unwrap();
    local.started = true;
    local.lapic.mmio_write(0xf0, Width::B4, 0x1ff, T0);
    local.merge_posted(v);
}

/// The vector that the vCPU would take next.
fn pending(guest: &Arc<Domain>, n: u32) -> Option<u8> {
    let v = guest.vcpu(n).unwrap();
    let mut local = v.local.try_lock().unwrap();
    local.merge_posted(v);
    local.lapic.pending_vector()
}

#[test]
fn a_message_reaches_the_local_apics_that_it_names() {
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 3);
    (0..3).for_each(|n| start(&guest, n));
    let inject = |addr, data| ask(&s, GUEST, op::INJECT_MSI, &message(addr, data));
    // APIC ids are twice the vCPU's number. What stands in the address beside the destination does not matter.
    assert_eq!(inject(0xfee0_2000, 0x41), 0);
    assert_eq!(inject(0x1234_0000_0000_4000, 0x4052), 0);
    let all = |want: [Option<u8>; 3]| assert_eq!([0, 1, 2].map(|n| pending(&guest, n)), want);
    all([None, Some(0x41), Some(0x52)]);
    assert_eq!(inject(0xfeef_f000, 0x63), 0);
    all([Some(0x63); 3]);
    // Nobody is addressed: no error, except where one must be chosen.
    assert_eq!(inject(0xfee7_0000, 0x71), 0);
    assert_eq!(inject(0xfee7_0000, 0x171), Errno::ESRCH.to_ret());
    // SMI, NMI, INIT, start-up, ExtINT.
    for mode in [2, 4, 5, 6, 7] {
        assert_eq!(
            inject(0xfee0_0000, 0x71 | mode << 8),
            Errno::EINVAL.to_ret()
        );
    }
    // A pirq's number in place of the destination.
    assert_eq!(inject(0xfee1_0000, 0x700), Errno::EINVAL.to_ret());
    all([Some(0x63); 3]);
}

#[test]
fn a_message_to_a_running_vcpu_is_posted() {
    let hw = FakeMachine {
        posting: true,
        ..FakeMachine::new(2)
    };
    let s = System::on(hw, 1);
    let guest = s.add_guest(GUEST, 1);
    start(&guest, 0);
    let v = guest.vcpu(0).unwrap();
    let target = &v.posting.as_ref().unwrap().target;
    target.run_on(s.hv.hw.post_notice(CpuId(1), Receiver::Running).unwrap());
    v.running_on.store(1, Ordering::SeqCst);
    for vector in [0x41, 0x42] {
        assert_eq!(
            ask(&s, GUEST, op::INJECT_MSI, &message(0xfee0_0000, vector)),
            0
        );
    }
    let seen = s.hv.hw.seen.lock().unwrap();
    assert_eq!((&seen.notified[..], seen.kicks.len()), (&[CpuId(1)][..], 0));
    assert!(target.sync().is_some());
}

#[test]
fn a_device_model_can_end_its_guest_and_count_it() {
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 2);
    assert_eq!(ask(&s, GUEST, op::NR_VCPUS, &DmNrVcpus::default()), 0);
    let answer = DmNrVcpus::read_from_bytes(&s.peek::<4>(OP + 8)).unwrap();
    assert_eq!(answer.vcpus, 2);
    let end = |reason| ask(&s, GUEST, op::REMOTE_SHUTDOWN, &DmRemoteShutdown { reason });
    assert_eq!(end(99), Errno::EINVAL.to_ret());
    assert!(guest.shutdown_reason().is_none());
    assert_eq!(end(3), 0);
    assert!(guest.shutdown_reason().is_some());
}
