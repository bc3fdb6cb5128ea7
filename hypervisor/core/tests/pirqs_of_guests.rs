//! A guest's own pirqs: what it is told of them, its calls, and messages of its device model that become events.

mod common;

use std::sync::Arc;

use common::System;
use hv_core::domain::Domain;
use hv_core::guest::access::write_phys;
use hv_core::hvm::vlapic::Clocks;
use x86_model::{Gfn, Gpa, Width};
use xen_abi::features::feature;
use xen_abi::hvm::dm_op::{DmInjectMsi, op as dm_op};
use xen_abi::physdev::{map_pirq, op};
use xen_abi::{DomId, Errno};
use zerocopy::IntoBytes;

const ARG: u64 = 0x3000;
const GUEST: u16 = 1;
/// A message to the local APIC with ID 0, and its vector.
const ADDRESS: u64 = 0xfee0_0000;
const VECTOR: u8 = 0x51;
/// Data of a message that names a pirq: a delivery mode that no local APIC takes from a device, and vector 0.
const EXT_INT: u32 = 7 << 8;

/// What a guest's call answers, and the words at its argument afterwards.
fn call(s: &System, guest: &Arc<Domain>, number: u64, sub: u32, words: &[u32]) -> (i64, [u32; 4]) {
    write_phys(&guest.p2m, Gpa(ARG), &[0; 64]).unwrap();
    write_phys(&guest.p2m, Gpa(ARG), words.as_bytes()).unwrap();
    let (ret, _) = s.call_from(guest, 0, number, [sub.into(), ARG, 0, 0, 0]);
    let (frame, _) = guest.p2m.frame(Gfn(ARG >> 12)).unwrap();
    let mut out = [0u8; 16];
    frame.read(0, &mut out);
    let word = |n: usize| u32::from_le_bytes(out[4 * n..4 * n + 4].try_into().unwrap());
    (ret, [0, 1, 2, 3].map(word))
}

/// `XEN_DMOP_inject_msi` by the control domain.
fn inject(s: &System, data: u32, addr: u64) -> i64 {
    let buffer = ARG + 0x100;
    let a = DmInjectMsi {
        data,
        addr,
        ..Default::default()
    };
    s.poke_words(ARG, &[buffer as u32, 0, 24, 0]);
    s.poke_words(buffer, &[dm_op::INJECT_MSI, 0]);
    s.poke(buffer + 8, a.as_bytes());
    s.call(0, 41, [GUEST.into(), 1, ARG, 0, 0])
}

/// The address of a message that names a pirq: its low byte where the APIC ID stands, the others in the high half.
fn names(pirq: u32) -> u64 {
    u64::from(pirq >> 8) << 40 | ADDRESS | u64::from(pirq & 0xff) << 12
}

fn features(s: &System, guest: &Arc<Domain>) -> u32 {
    let (ret, words) = call(s, guest, 17, 6, &[0]);
    assert_eq!(ret, 0);
    words[1]
}

#[test]
fn a_message_of_the_device_model_is_an_event() {
    let s = System::new(1);
    let guest = s.add_guest_with_pirqs(GUEST, 1);
    assert_ne!(features(&s, &guest) & 1 << feature::HVM_PIRQS, 0);
    let (ret, words) = call(&s, &guest, 33, op::GET_FREE_PIRQ, &[map_pirq::MSI as u32]);
    let pirq = words[1];
    assert_eq!((ret, pirq), (0, 511));
    let own = u32::from(DomId::SELF.0);
    let line = [own, map_pirq::GSI as u32, 17, u32::MAX];
    assert_eq!(
        call(&s, &guest, 33, op::MAP_PIRQ, &line).0,
        Errno::EINVAL.to_ret(),
        "it has no lines"
    );
    let message = [own, map_pirq::MSI as u32, 0, pirq];
    assert_eq!(call(&s, &guest, 33, op::MAP_PIRQ, &message).0, 0);
    // Lost before it is bound, as on a machine.
    assert_eq!(inject(&s, EXT_INT, names(pirq)), 0);
    let (ret, words) = call(&s, &guest, 32, 2, &[pirq, 0]);
    assert_eq!(ret, 0);
    let port = words[2];
    let pending = || guest.evtchn.any_pending(&[port]).unwrap();
    assert!(!pending());
    assert_eq!(inject(&s, EXT_INT, names(pirq)), 0);
    assert!(pending());
    assert_eq!(call(&s, &guest, 33, op::EOI, &[pirq]).0, 0);
    // Back again: the number means nothing.
    assert_eq!(call(&s, &guest, 33, op::UNMAP_PIRQ, &[own, pirq]).0, 0);
    assert_eq!(
        call(&s, &guest, 33, op::EOI, &[pirq]).0,
        Errno::EINVAL.to_ret()
    );
    // What is the hardware domain's stays so.
    assert_eq!(
        call(&s, &guest, 33, op::PCI_DEVICE_ADD, &[0]).0,
        Errno::ENOSYS.to_ret()
    );
}

/// With pirqs or without: a message with a vector is an interrupt of the local APIC.
#[test]
fn a_message_with_a_vector_is_an_interrupt() {
    for pirqs in [false, true] {
        let s = System::new(1);
        let guest = if pirqs {
            s.add_guest_with_pirqs(GUEST, 1)
        } else {
            s.add_guest(GUEST, 1)
        };
        assert_eq!(features(&s, &guest) & 1 << feature::HVM_PIRQS != 0, pirqs);
        let vcpu = guest.vcpu(0).unwrap();
        const CLOCKS: Clocks = Clocks {
            now_ns: 0,
            guest_tsc: 0,
        };
        {
            let mut local = vcpu.local.try_lock().unwrap();
            local.lapic.mmio_write(0xf0, Width::B4, 0x1ff, CLOCKS);
        }
        let requested = || {
            let mut local = vcpu.local.try_lock().unwrap();
            local.merge_posted(vcpu);
            local.lapic.pending_vector() == Some(VECTOR)
        };
        assert!(!requested());
        // Without pirqs nobody is named by a message of vector 0.
        let ret = inject(&s, EXT_INT, names(511));
        assert_eq!(ret, if pirqs { 0 } else { Errno::EINVAL.to_ret() });
        assert!(!requested());
        assert_eq!(inject(&s, VECTOR.into(), ADDRESS), 0);
        assert!(requested());
    }
}
