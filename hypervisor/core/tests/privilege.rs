//! What a guest gets when it asks for what is not its own: the numbers of Xen 4.17.

mod common;

use common::System;
use xen_abi::Errno;

/// A page of zeroes: where an argument names a domain, it is domain 0.
const ARG: u64 = 0x3000;
const GUEST: u16 = 4;

/// Call, sub-operation, answer. Structures are zeroes unless stated.
const REFUSED: &[(u64, u64, Errno, &[u32])] = &[
    // memory_op: others' memory, and what only a toolstack does.
    (12, 3, Errno::EPERM, &[]),
    (12, 4, Errno::EPERM, &[]),
    (12, 14, Errno::EPERM, &[]),
    (12, 7, Errno::EPERM, &[]),
    (12, 13, Errno::EPERM, &[]),
    (12, 15, Errno::EPERM, &[]),
    (12, 16, Errno::EPERM, &[]),
    (12, 17, Errno::EPERM, &[]),
    (12, 23, Errno::EPERM, &[]),
    (12, 24, Errno::EPERM, &[]),
    (12, 28, Errno::EPERM, &[]),
    // xen_version: what built the hypervisor.
    (17, 10, Errno::EPERM, &[]),
    // Mandatory access control is not built in.
    (27, 0, Errno::ENOSYS, &[]),
    // sched_op: ending others, staying on a pCPU.
    (29, 4, Errno::EPERM, &[0, 1]),
    (29, 7, Errno::EPERM, &[]),
    // event_channel_op: others' ports.
    (32, 5, Errno::EPERM, &[0, 1]),
    (32, 6, Errno::EPERM, &[]),
    (32, 10, Errno::EPERM, &[]),
    // physdev_op is for whoever has the devices.
    (33, 25, Errno::ENOSYS, &[]),
    // hvm_op: others' parameters and memory.
    (34, 0, Errno::EPERM, &[]),
    (34, 1, Errno::EPERM, &[]),
    (34, 15, Errno::EPERM, &[]),
    // Own parameters that are the toolstack's: xenstore's page, the timer mode.
    (34, 0, Errno::EPERM, &[0x7ff0, 1]),
    (34, 0, Errno::EPERM, &[0x7ff0, 10]),
    (34, 1, Errno::EPERM, &[0x7ff0, 12]),
];

#[test]
fn guests_are_refused() {
    let s = System::new(1);
    let guest = s.add_guest(GUEST, 1);
    for (call, sub, errno, words) in REFUSED {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let poke = |b: &[u8]| {
            hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), b).unwrap();
        };
        poke(&[0; 256]);
        poke(&bytes);
        let (ret, _) = s.call_from(&guest, 0, *call, [*sub, ARG, 1, 0, 0]);
        assert_eq!(ret, errno.to_ret(), "{call} {sub} {words:?}");
    }
    // The argument comes first in these.
    for (call, words, errno) in [
        (7, [17, 0x0300_0001, 0], Errno::EPERM),
        (35, [3, 0x15, 0], Errno::EPERM),
        (36, [5, 0x15, 0], Errno::EPERM),
        (36, [1, 0x15, 0], Errno::EPERM),
    ] {
        let bytes: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), &bytes).unwrap();
        let (ret, _) = s.call_from(&guest, 0, call, [ARG, 0, 0, 0, 0]);
        assert_eq!(ret, errno.to_ret(), "{call} {words:?}");
    }
    // The console is the control domain's.
    let (ret, _) = s.call_from(&guest, 0, 18, [0, 1, ARG, 0, 0]);
    assert_eq!(ret, Errno::EPERM.to_ret());
    // Populating another domain: nothing is done, which is no error.
    hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG), &[0; 64]).unwrap();
    hv_core::guest::access::write_phys(&guest.p2m, x86_model::Gpa(ARG + 8), &[1]).unwrap();
    for sub in [0, 1, 6] {
        let (ret, _) = s.call_from(&guest, 0, 12, [sub, ARG, 0, 0, 0]);
        assert_eq!(ret, 0, "{sub}");
    }
    assert_eq!(s.dom.p2m.pages() as u64, common::PAGES);
}
