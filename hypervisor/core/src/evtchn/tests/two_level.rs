//! The 2-level format, virtual interrupts, polling.

use xen_abi::event_channel::status;
use xen_abi::virq::nr;

use super::*;
use crate::evtchn::POLL_SEVERAL;

#[test]
fn ipi_reaches_its_vcpu_once() {
    let w = World::new(100);
    let d = w.dom(0);
    let port = d.evtchn.bind_ipi(1).unwrap();
    assert_eq!(d.status(port), Ok((status::IPI, 1, [0, 0])));
    assert_eq!(upcalls(w.send(0, port).unwrap().1), [1]);
    // Pending already: nobody is told again.
    assert!(w.send(0, port).unwrap().1.is_empty());
    assert_eq!(d.scan(1), [port]);
    assert_eq!(d.scan(0), []);
    assert_eq!(upcalls(w.send(0, port).unwrap().1), [1]);
}

#[test]
fn second_port_of_a_word_needs_no_second_upcall() {
    let w = World::new(100);
    let d = w.dom(0);
    let (a, b) = (d.evtchn.bind_ipi(0).unwrap(), d.evtchn.bind_ipi(0).unwrap());
    assert_eq!(upcalls(w.send(0, a).unwrap().1), [0]);
    assert!(w.send(0, b).unwrap().1.is_empty());
    assert_eq!(d.scan(0), [a, b]);
}

#[test]
fn masked_port_stays_pending_until_unmasked() {
    let w = World::new(100);
    let d = w.dom(0);
    let port = d.evtchn.bind_ipi(0).unwrap();
    d.set_mask(port, true);
    assert!(w.send(0, port).unwrap().1.is_empty());
    assert_eq!(d.evtchn.any_pending(&[port]), Ok(true));
    assert_eq!(upcalls(d.evtchn.unmask(d, port).unwrap()), [0]);
    assert_eq!(d.scan(0), [port]);
    // Not masked, not pending: nothing to do.
    assert!(d.evtchn.unmask(d, port).unwrap().is_empty());
    assert_eq!(d.evtchn.unmask(d, 64), Err(Errno::EINVAL));
}

#[test]
fn vcpu_without_info_loses_nothing() {
    let w = World::new(100);
    let d = w.dom(0);
    let port = d.evtchn.bind_ipi(2).unwrap();
    assert!(w.send(0, port).unwrap().1.is_empty());
    assert_eq!(d.evtchn.any_pending(&[port]), Ok(true));
}

#[test]
fn virq_rules() {
    let w = World::new(100);
    let d = w.dom(0);
    assert_eq!(d.evtchn.bind_virq(24, 0), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.bind_virq(nr::CONSOLE, 1), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.bind_virq(nr::TIMER, VCPUS), Err(Errno::ENOENT));
    let t0 = d.evtchn.bind_virq(nr::TIMER, 0).unwrap();
    let t1 = d.evtchn.bind_virq(nr::TIMER, 1).unwrap();
    assert_eq!(d.evtchn.bind_virq(nr::TIMER, 1), Err(Errno::EEXIST));
    let console = d.evtchn.bind_virq(nr::CONSOLE, 0).unwrap();
    assert_eq!(d.status(t1), Ok((status::VIRQ, 1, [nr::TIMER, 0])));

    assert_eq!(upcalls(d.evtchn.raise_virq(d, 1, nr::TIMER)), [1]);
    assert_eq!(d.scan(1), [t1]);
    // Only the hypervisor raises them; a per-vCPU one stays where it is, a global one moves.
    assert_eq!(w.send(0, t0).err(), Some(Errno::EINVAL));
    assert_eq!(d.evtchn.bind_vcpu(t0, 1), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.bind_vcpu(console, 1), Ok(()));
    assert_eq!(d.evtchn.bind_vcpu(console, VCPUS), Err(Errno::ENOENT));
    assert_eq!(upcalls(d.evtchn.raise_global_virq(d, nr::CONSOLE)), [1]);
    // Closing frees the interrupt, also where a global one was moved.
    for (port, virq, vcpu) in [(console, nr::CONSOLE, 0), (t1, nr::TIMER, 1)] {
        assert_eq!(w.close(0, port), Ok(()));
        assert!(d.evtchn.raise_virq(d, vcpu, virq).is_empty());
        assert!(d.evtchn.bind_virq(virq, vcpu).is_ok());
    }
    assert!(d.evtchn.raise_virq(d, 77, nr::TIMER).is_empty());
    assert!(d.evtchn.raise_virq(d, 0, 99).is_empty());
}

#[test]
fn closing_forgets_what_was_pending() {
    let w = World::new(100);
    let d = w.dom(0);
    let port = d.evtchn.bind_ipi(0).unwrap();
    let _ = w.send(0, port).unwrap();
    assert_eq!(w.close(0, port), Ok(()));
    assert_eq!(w.close(0, port), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.bind_ipi(0), Ok(port));
    assert_eq!(d.evtchn.any_pending(&[port]), Ok(false));
}

#[test]
fn reserved_and_missing_ports() {
    let w = World::new(100);
    let d = w.dom(0);
    assert_eq!(d.status(0), Ok((status::CLOSED, 0, [0, 0])));
    let port = d.evtchn.bind_ipi(0).unwrap();
    assert_eq!(port, 1);
    assert_eq!(d.status(63), Ok((status::CLOSED, 0, [0, 0])));
    for bad in [0, 63, 64, 5000, u32::MAX] {
        assert_eq!(w.send(0, bad).err(), Some(Errno::EINVAL), "{bad}");
        assert_eq!(w.close(0, bad), Err(Errno::EINVAL), "{bad}");
        assert_eq!(d.evtchn.bind_vcpu(bad, 0), Err(Errno::EINVAL), "{bad}");
    }
    assert_eq!(d.evtchn.any_pending(&[63]), Ok(false));
    assert_eq!(d.evtchn.any_pending(&[port, 64]), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.set_priority(port, 0), Err(Errno::ENOSYS));
    assert_eq!(d.evtchn.expand_array(d, None), Err(Errno::EOPNOTSUPP));
}

#[test]
fn ports_run_out() {
    let w = World::new(5000);
    let d = w.dom(0);
    for _ in 1..4096 {
        d.evtchn.alloc_unbound(DomId(1)).unwrap();
    }
    assert_eq!(d.evtchn.alloc_unbound(DomId(1)), Err(Errno::ENOSPC));
    assert_eq!(w.close(0, 4095), Ok(()));
    assert_eq!(d.evtchn.bind_ipi(0), Ok(4095));
    assert_eq!(d.evtchn.bind_virq(nr::TIMER, 0), Err(Errno::ENOSPC));
    assert!(d.evtchn.raise_virq(d, 0, nr::TIMER).is_empty());
}

#[test]
fn pollers_wake_even_for_masked_ports() {
    let w = World::new(100);
    let d = w.dom(0);
    let port = d.evtchn.bind_ipi(0).unwrap();
    d.set_mask(port, true);
    d.evtchn.set_polling(0, port);
    d.evtchn.set_polling(1, POLL_SEVERAL);
    d.evtchn.set_polling(2, port + 1);
    let (_, n) = w.send(0, port).unwrap();
    assert!(n.upcalls.is_empty());
    assert_eq!(n.pollers.iter().collect::<Vec<_>>(), [0, 1]);
    // Pending already: whoever polls now has seen that.
    d.evtchn.set_polling(0, port);
    assert_eq!(d.evtchn.any_pending(&[port]), Ok(true));
    assert!(w.send(0, port).unwrap().1.is_empty());
}
