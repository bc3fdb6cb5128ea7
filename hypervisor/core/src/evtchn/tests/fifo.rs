//! The FIFO format: set-up, delivery order, moves, remembered events; a model of the guest; a hostile guest.

use proptest::prelude::*;
use xen_abi::virq::nr;

use super::consumer::{Guest, LINKED, MASKED, PENDING};
use super::*;
use crate::evtchn::reset;

fn ports_of(events: &[(u32, u32)]) -> Vec<u32> {
    events.iter().map(|e| e.1).collect()
}

#[test]
fn set_up_is_checked() {
    let w = World::new(5000);
    let d = w.dom(0);
    let frame = || FrameRef::alloc(d.id);
    let init = |v, f, o| d.evtchn.init_control(v, f, o);
    assert_eq!(init(VCPUS, frame(), 0), Err(Errno::ENOENT));
    assert_eq!(init(0, frame(), 4096 - 64), Err(Errno::EINVAL));
    assert_eq!(init(0, frame(), u32::MAX), Err(Errno::EINVAL));
    assert_eq!(init(0, frame(), 12), Err(Errno::EINVAL));
    assert_eq!(init(0, None, 0), Err(Errno::EINVAL));
    // Nothing of this has switched the format.
    assert_eq!(d.evtchn.expand_array(d, frame()), Err(Errno::EOPNOTSUPP));
    assert_eq!(init(0, frame(), 4096 - 72), Ok(17));
    assert_eq!(init(0, frame(), 0), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.expand_array(d, None), Err(Errno::EINVAL));
    for _ in 0..128 {
        assert!(d.evtchn.expand_array(d, frame()).is_ok());
    }
    assert_eq!(d.evtchn.expand_array(d, frame()), Err(Errno::ENOSPC));
    let port = d.evtchn.bind_ipi(0).unwrap();
    assert_eq!(d.evtchn.set_priority(port, 16), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.set_priority(port + 1, 0), Err(Errno::EACCES));
    assert_eq!(d.evtchn.set_priority(9999, 0), Err(Errno::EINVAL));
    assert_eq!(d.evtchn.set_priority(port, 15), Ok(()));
}

#[test]
fn order_of_arrival_and_priority() {
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0], 1);
    let ports: Vec<_> = (0..5).map(|_| d.evtchn.bind_ipi(0).unwrap()).collect();
    for &p in &ports {
        g.open(p);
    }
    assert_eq!(d.evtchn.set_priority(ports[3], 0), Ok(()));
    assert_eq!(upcalls(w.send(0, ports[4]).unwrap().1), [0]);
    for i in [2, 0, 3, 1, 2] {
        assert!(
            w.send(0, ports[i]).unwrap().1.is_empty(),
            "the upcall is pending"
        );
    }
    assert!(d.take_upcall(0));
    let expected = [(0, 3), (7, 4), (7, 2), (7, 0), (7, 1)].map(|(q, i)| (q, ports[i]));
    assert_eq!(g.drain(0), expected);
    assert_eq!(g.drain(0), []);
    // The last tail was consumed: the next event starts the queue afresh, with an upcall.
    assert_eq!(upcalls(w.send(0, ports[1]).unwrap().1), [0]);
    assert_eq!(ports_of(&g.drain(0)), [ports[1]]);
}

#[test]
fn masked_events_wait() {
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0], 1);
    let port = d.evtchn.bind_ipi(0).unwrap();
    assert!(w.send(0, port).unwrap().1.is_empty());
    assert_eq!(g.word(port).load(Ordering::SeqCst), PENDING | MASKED);
    assert_eq!(d.evtchn.any_pending(&[port]), Ok(true));
    assert_eq!(upcalls(d.evtchn.unmask(d, port).unwrap()), [0]);
    assert_eq!(ports_of(&g.drain(0)), [port]);
}

#[test]
fn a_tail_that_moves_is_forgotten() {
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0, 1], 1);
    let (a, b) = (
        d.evtchn.alloc_unbound(d.id).unwrap(),
        d.evtchn.bind_ipi(0).unwrap(),
    );
    let (a2, _) = crate::evtchn::bind_interdomain(d, d, a).unwrap();
    for p in [a, b] {
        g.open(p);
    }
    // `a` becomes the tail of vCPU 0's queue and is consumed; then it is put on vCPU 1's.
    let _ = w.send(0, a2).unwrap();
    assert_eq!(ports_of(&g.drain(0)), [a]);
    assert_eq!(d.evtchn.bind_vcpu(a, 1), Ok(()));
    let _ = w.send(0, a2).unwrap();
    // `b` must not be appended behind `a`, which is linked elsewhere.
    let _ = w.send(0, b).unwrap();
    assert_eq!(ports_of(&g.drain(0)), [b]);
    assert_eq!(ports_of(&g.drain(1)), [a]);
}

#[test]
fn a_reused_port_does_not_connect_queues() {
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0, 1], 1);
    let (a, b) = (d.evtchn.bind_ipi(0).unwrap(), d.evtchn.bind_ipi(0).unwrap());
    g.open(a);
    g.open(b);
    let _ = w.send(0, a).unwrap();
    assert_eq!(ports_of(&g.drain(0)), [a]);
    // Closed while tail of vCPU 0's queue, and bound anew to vCPU 1.
    assert_eq!(w.close(0, a), Ok(()));
    assert_eq!(d.evtchn.bind_ipi(1), Ok(a));
    let _ = w.send(0, a).unwrap();
    let _ = w.send(0, b).unwrap();
    assert_eq!(ports_of(&g.drain(0)), [b]);
    assert_eq!(ports_of(&g.drain(1)), [a]);
}

#[test]
fn a_linked_port_is_not_given_out() {
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0], 1);
    let port = d.evtchn.bind_ipi(0).unwrap();
    g.open(port);
    let _ = w.send(0, port).unwrap();
    assert_eq!(w.close(0, port), Ok(()));
    assert_eq!(
        g.word(port).load(Ordering::SeqCst) & (PENDING | LINKED),
        LINKED
    );
    assert_eq!(d.evtchn.bind_ipi(0), Ok(port + 1));
    assert_eq!(g.drain(0), []);
    assert_eq!(d.evtchn.bind_ipi(0), Ok(port));
}

#[test]
fn events_before_their_word_are_remembered() {
    let w = World::new(5000);
    let d = w.dom(0);
    // Pending in the 2-level format already, and raised again before the page comes.
    let (early, late) = (d.evtchn.bind_ipi(0).unwrap(), d.evtchn.bind_ipi(0).unwrap());
    let closed = d.evtchn.bind_ipi(0).unwrap();
    d.set_mask(early, true);
    let _ = w.send(0, early).unwrap();
    let _ = w.send(0, closed).unwrap();
    let mut g = Guest::start(d, &[0], 0);
    assert!(w.send(0, late).unwrap().1.is_empty());
    assert_eq!(w.close(0, closed), Ok(()));
    let n = g.add_page(d);
    // The guest filled the page with MASKED, so nothing is delivered yet.
    assert!(n.upcalls.is_empty());
    for p in [early, late] {
        assert_eq!(g.word(p).load(Ordering::SeqCst), PENDING | MASKED);
        assert!(d.evtchn.unmask(d, p).is_ok());
    }
    assert_eq!(g.word(closed).load(Ordering::SeqCst), MASKED);
    assert_eq!(ports_of(&g.drain(0)), [early, late]);
}

#[test]
fn a_vcpu_without_control_block_gets_nothing() {
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0], 1);
    let timer = d.evtchn.bind_virq(nr::TIMER, 1).unwrap();
    g.open(timer);
    assert!(d.evtchn.raise_virq(d, 1, nr::TIMER).is_empty());
    assert_eq!(g.word(timer).load(Ordering::SeqCst), PENDING);
    g.add_control(d, 1);
    assert_eq!(upcalls(d.evtchn.raise_virq(d, 1, nr::TIMER)), [1]);
    assert_eq!(ports_of(&g.drain(1)), [timer]);
}

#[test]
fn reset_goes_back_to_two_levels() {
    let w = World::new(5000);
    let d = w.dom(0);
    let g = Guest::start(d, &[0], 1);
    let port = d.evtchn.bind_ipi(0).unwrap();
    g.open(port);
    let _ = w.send(0, port).unwrap();
    assert_eq!(reset(d, 0, u32::MAX, |id| w.find(id)), Ok(None));
    d.take_upcall(0);
    assert_eq!(d.evtchn.bind_ipi(0), Ok(port));
    assert_eq!(upcalls(w.send(0, port).unwrap().1), [0]);
    assert_eq!(d.scan(0), [port]);
    // And the FIFO format can be set up again.
    let mut g = Guest::start(d, &[0, 1], 1);
    assert!(d.evtchn.unmask(d, port).is_ok());
    let _ = w.send(0, port).unwrap();
    assert_eq!(ports_of(&g.drain(0)), [port]);
}

#[test]
fn ports_above_the_two_level_limit() {
    let w = World::new(crate::evtchn::CONTROL_MAX_PORTS);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0], 5);
    let last = (1..5000)
        .map(|_| d.evtchn.bind_ipi(0).unwrap())
        .last()
        .unwrap();
    assert_eq!(last, 4999);
    g.open(last);
    assert_eq!(upcalls(w.send(0, last).unwrap().1), [0]);
    assert_eq!(ports_of(&g.drain(0)), [last]);
}

/// Two senders and one consumer at full speed: what was sent last must have been handled after that.
#[test]
fn concurrent_consumer_loses_nothing() {
    const ROUNDS: u32 = 20_000;
    let w = World::new(5000);
    let d = w.dom(0);
    let mut g = Guest::start(d, &[0], 1);
    let ports: Vec<_> = (0..6).map(|_| d.evtchn.bind_ipi(0).unwrap()).collect();
    for &p in &ports {
        g.open(p);
    }
    let sent: Vec<_> = ports
        .iter()
        .map(|_| std::sync::atomic::AtomicU32::new(0))
        .collect();
    let mut seen = vec![0; ports.len()];
    let done = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|s| {
        for half in 0..2 {
            let (w, ports, sent, done) = (&w, &ports, &sent, &done);
            s.spawn(move || {
                for i in 0..ROUNDS {
                    let at = half * 3 + (i % 3) as usize;
                    sent[at].fetch_add(1, Ordering::SeqCst);
                    let _ = w.send(0, ports[at]).expect("bound port");
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        loop {
            let finished = done.load(Ordering::SeqCst) == 2;
            for (_, port) in g.drain(0) {
                let at = ports.iter().position(|p| *p == port).expect("known port");
                seen[at] = sent[at].load(Ordering::SeqCst);
            }
            if finished {
                break;
            }
        }
    });
    for (at, sent) in sent.iter().enumerate() {
        assert_eq!(seen[at], sent.load(Ordering::SeqCst), "port {}", ports[at]);
        assert_eq!(
            g.word(ports[at]).load(Ordering::SeqCst) & (PENDING | LINKED),
            0
        );
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Send(usize),
    Mask(usize),
    Unmask(usize),
    Priority(usize, u32),
    Move(usize, u32),
    Drain(u32),
    Step(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let (p, v) = (0..6usize, 0..2u32);
    prop_oneof![
        4 => p.clone().prop_map(Op::Send),
        1 => p.clone().prop_map(Op::Mask),
        2 => p.clone().prop_map(Op::Unmask),
        1 => (p.clone(), 0..16u32).prop_map(|(p, q)| Op::Priority(p, q)),
        1 => (p, v.clone()).prop_map(|(p, v)| Op::Move(p, v)),
        1 => v.clone().prop_map(Op::Drain),
        2 => v.prop_map(Op::Step),
    ]
}

proptest! {
    #![proptest_config(crate::testing::cases(400))]

    /// Whatever the order of operations, an event that is raised and not masked reaches the guest, once per raise at
    /// most, and the queues stay sound.
    #[test]
    fn no_event_is_lost_or_invented(ops in prop::collection::vec(op(), 1..200)) {
        let w = World::new(5000);
        let d = w.dom(0);
        let mut g = Guest::start(d, &[0, 1], 1);
        // Ends of connections within the domain: they can be moved between vCPUs.
        let pairs: Vec<_> = (0..6).map(|_| w.connect(0, 0)).collect();
        let index = |port: u32| pairs.iter().position(|p| p.0 == port);
        let mut due = [false; 6];
        let mut ready = [0u32; 2];
        for p in &pairs {
            g.open(p.0);
        }
        for op in ops {
            match op {
                Op::Send(i) => {
                    let _ = w.send(0, pairs[i].1).unwrap();
                    due[i] = true;
                }
                Op::Mask(i) => {
                    g.word(pairs[i].0).fetch_or(MASKED, Ordering::SeqCst);
                }
                Op::Unmask(i) => {
                    let _ = d.evtchn.unmask(d, pairs[i].0).unwrap();
                }
                Op::Priority(i, q) => d.evtchn.set_priority(pairs[i].0, q).unwrap(),
                Op::Move(i, v) => d.evtchn.bind_vcpu(pairs[i].0, v).unwrap(),
                Op::Drain(v) => {
                    // Finishes what single steps began.
                    while ready[v as usize] != 0 {
                        let q = ready[v as usize].trailing_zeros();
                        if let Some(i) = g.consume_one(v, q, &mut ready[v as usize]).and_then(index) {
                            prop_assert!(due[i]);
                            due[i] = false;
                        }
                    }
                    for (_, port) in g.drain(v) {
                        if let Some(i) = index(port) {
                            prop_assert!(due[i]);
                            due[i] = false;
                        }
                    }
                }
                Op::Step(v) => {
                    let r = &mut ready[v as usize];
                    *r |= g.control[v as usize].as_ref().unwrap()
                        .atomic_u32(super::consumer::CONTROL_AT as usize).swap(0, Ordering::SeqCst);
                    if *r != 0 {
                        let q = r.trailing_zeros();
                        if let Some(i) = g.consume_one(v, q, r).and_then(index) {
                            prop_assert!(due[i]);
                            due[i] = false;
                        }
                    }
                }
            }
        }
        for p in &pairs {
            let _ = d.evtchn.unmask(d, p.0).unwrap();
        }
        for v in 0..2u32 {
            while ready[v as usize] != 0 {
                let q = ready[v as usize].trailing_zeros();
                if let Some(i) = g.consume_one(v, q, &mut ready[v as usize]).and_then(index) {
                    due[i] = false;
                }
            }
        }
        for _ in 0..2 {
            for v in 0..2 {
                for (_, port) in g.drain(v) {
                    if let Some(i) = index(port) {
                        due[i] = false;
                    }
                }
            }
        }
        prop_assert_eq!(due, [false; 6]);
    }

    /// A guest that scribbles over its event words and control blocks harms itself only: no panic, no hang.
    #[test]
    fn scribbling_guest(
        scribbles in prop::collection::vec((0..40u32, any::<u32>(), 0..20usize, any::<u32>(), 1..20u32), 1..150),
    ) {
        let w = World::new(5000);
        let d = w.dom(0);
        let g = Guest::start(d, &[0, 1], 1);
        for _ in 0..16 {
            let _ = d.evtchn.bind_ipi(0);
            let _ = d.evtchn.bind_ipi(1);
        }
        for (port, word, at, value, send) in scribbles {
            g.word(port).store(word, Ordering::SeqCst);
            let control = g.control[(port % 2) as usize].as_ref().unwrap();
            control.atomic_u32(super::consumer::CONTROL_AT as usize + at * 4).store(value, Ordering::SeqCst);
            let _ = w.send(0, send);
            let _ = d.evtchn.unmask(d, send);
            let _ = d.evtchn.set_priority(send, value % 18);
            if value % 7 == 0 {
                let _ = w.close(0, send);
                let _ = d.evtchn.bind_ipi(value % 2);
            }
        }
    }
}
