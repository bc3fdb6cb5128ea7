//! Connections: between domains, within one, closing and reset; and the whole against a model.

use std::collections::HashMap;

use proptest::prelude::*;
use xen_abi::event_channel::status;

use super::*;
use crate::evtchn::{bind_interdomain, reset};

#[test]
fn events_cross_over() {
    let w = World::new(100);
    let (pa, pb) = w.connect(1, 2);
    assert_eq!(w.dom(1).status(pa), Ok((status::INTERDOMAIN, 0, [2, pb])));
    assert_eq!(w.dom(2).status(pb), Ok((status::INTERDOMAIN, 0, [1, pa])));
    // Binding raised the binder's own port.
    assert_eq!(w.dom(2).scan(0), [pb]);
    let (to, n) = w.send(1, pa).unwrap();
    assert_eq!((to, upcalls(n)), (DomId(2), vec![0]));
    assert_eq!(w.dom(2).scan(0), [pb]);
    assert_eq!(w.dom(2).evtchn.bind_vcpu(pb, 1), Ok(()));
    let (to, n) = w.send(1, pa).unwrap();
    assert_eq!((to, upcalls(n)), (DomId(2), vec![1]));
    let (to, n) = w.send(2, pb).unwrap();
    assert_eq!((to, upcalls(n)), (DomId(1), vec![0]));
}

#[test]
fn who_may_bind() {
    let w = World::new(3);
    let port = w.dom(1).evtchn.alloc_unbound(DomId(2)).unwrap();
    let bind = |from: usize, to: usize, port| {
        bind_interdomain(w.dom(from), w.dom(to), port).map(|(p, _)| p)
    };
    assert_eq!(bind(0, 1, port), Err(Errno::EINVAL));
    assert_eq!(bind(2, 1, port + 1), Err(Errno::EINVAL));
    assert_eq!(bind(2, 1, 9999), Err(Errno::EINVAL));
    assert_eq!(bind(2, 1, port), Ok(1));
    assert_eq!(bind(2, 1, port), Err(Errno::EINVAL));
    // The failures kept no port: there is exactly one left.
    assert!(w.dom(2).evtchn.bind_ipi(0).is_ok());
    assert_eq!(bind(2, 1, port), Err(Errno::ENOSPC));
}

#[test]
fn closing_one_end_leaves_the_other_waiting() {
    let w = World::new(100);
    let (pa, pb) = w.connect(1, 2);
    assert_eq!(w.close(2, pb), Ok(()));
    assert_eq!(w.dom(1).status(pa), Ok((status::UNBOUND, 0, [2, 0])));
    // What is sent meanwhile vanishes, without an error.
    assert!(w.send(1, pa).unwrap().1.is_empty());
    // The closer may bind again.
    let (again, n) = bind_interdomain(w.dom(2), w.dom(1), pa).unwrap();
    assert_eq!(again, pb);
    assert_eq!(
        upcalls(n),
        [] as [u32; 0],
        "the upcall of the first binding is still pending"
    );
    assert_eq!(w.dom(1).status(pa), Ok((status::INTERDOMAIN, 0, [2, pb])));
}

#[test]
fn a_domain_talks_to_itself() {
    let w = World::new(100);
    let d = w.dom(0);
    let (a, b) = w.connect(0, 0);
    assert_ne!(a, b);
    assert_eq!(d.scan(0), [b]);
    let (to, n) = w.send(0, a).unwrap();
    assert_eq!((to, upcalls(n)), (DomId(0), vec![0]));
    assert_eq!(d.scan(0), [b]);
    assert_eq!(upcalls(w.send(0, b).unwrap().1), [0]);
    assert_eq!(d.scan(0), [a]);
    assert_eq!(w.close(0, a), Ok(()));
    assert_eq!(d.status(b), Ok((status::UNBOUND, 0, [0, 0])));
    assert_eq!(w.close(0, b), Ok(()));
    // A port cannot be connected with itself: it is not waiting when it is looked at.
    let next = d.evtchn.bind_ipi(0).unwrap();
    assert_eq!(
        bind_interdomain(d, d, next + 1).map(|r| r.0),
        Err(Errno::EINVAL)
    );
}

#[test]
fn reset_closes_everything_in_pieces() {
    let w = World::new(200);
    let d = w.dom(1);
    let pairs: Vec<_> = (0..50).map(|_| w.connect(1, 2)).collect();
    for v in 0..VCPUS {
        d.evtchn.bind_ipi(v).unwrap();
        d.evtchn.bind_virq(0, v).unwrap();
    }
    let (mut at, mut steps) = (0, 0);
    while let Some(next) = reset(d, at, 10, |id| w.find(id)).unwrap() {
        assert!(next > at);
        (at, steps) = (next, steps + 1);
    }
    assert!(steps >= 6);
    for port in 1..64 {
        assert_eq!(d.status(port).unwrap().0, status::CLOSED);
    }
    for (_, pb) in pairs {
        assert_eq!(w.dom(2).status(pb), Ok((status::UNBOUND, 0, [1, 0])));
    }
    assert!(d.evtchn.bind_virq(0, 0).is_ok());
}

#[test]
fn both_ends_may_close_at_once() {
    let w = World::new(100);
    for _ in 0..200 {
        let (pa, pb) = w.connect(1, 2);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(w.close(1, pa), Ok(()));
            });
            s.spawn(|| {
                let _ = w.send(2, pb);
                assert_eq!(w.close(2, pb), Ok(()));
            });
        });
        assert_eq!(w.dom(1).status(pa).unwrap().0, status::CLOSED);
        assert_eq!(w.dom(2).status(pb).unwrap().0, status::CLOSED);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc(usize, u16),
    Bind(usize, usize, u32),
    Close(usize, u32),
    Send(usize, u32),
    Virq(usize, u32, u32),
    Ipi(usize, u32),
    Scan(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (dom, port) = (0..3usize, 0..12u32);
    prop_oneof![
        (dom.clone(), 0..3u16).prop_map(|(d, r)| Op::Alloc(d, r)),
        (dom.clone(), dom.clone(), port.clone()).prop_map(|(a, b, p)| Op::Bind(a, b, p)),
        (dom.clone(), port.clone()).prop_map(|(d, p)| Op::Close(d, p)),
        (dom.clone(), port).prop_map(|(d, p)| Op::Send(d, p)),
        (dom.clone(), 0..26u32, 0..4u32).prop_map(|(d, v, c)| Op::Virq(d, v, c)),
        (dom.clone(), 0..4u32).prop_map(|(d, c)| Op::Ipi(d, c)),
        dom.prop_map(Op::Scan),
    ]
}

/// What the model knows of a port.
#[derive(Clone, Copy, Debug, PartialEq)]
enum M {
    Unbound(u16),
    Peer(usize, u32),
    Virq(u32, u32),
    Ipi,
}

proptest! {
    #![proptest_config(crate::testing::cases(400))]

    /// Random operations on three domains against the simplest possible description of them.
    #[test]
    fn behaves_like_the_model(ops in prop::collection::vec(op(), 1..120)) {
        const MAX: u32 = 10;
        let w = World::new(MAX);
        let mut model: [HashMap<u32, M>; 3] = Default::default();
        let mut pending: [std::collections::BTreeSet<u32>; 3] = Default::default();
        let free = |m: &HashMap<u32, M>| (1..MAX).find(|p| !m.contains_key(p)).ok_or(Errno::ENOSPC);
        for op in ops {
            match op {
                Op::Alloc(d, remote) => {
                    let expected = free(&model[d]);
                    prop_assert_eq!(w.dom(d).evtchn.alloc_unbound(DomId(remote)), expected);
                    if let Ok(p) = expected {
                        model[d].insert(p, M::Unbound(remote));
                    }
                }
                Op::Bind(a, b, rport) => {
                    let expected = free(&model[a]).and_then(|p| {
                        (model[b].get(&rport) == Some(&M::Unbound(a as u16))).then_some(p).ok_or(Errno::EINVAL)
                    });
                    let got = bind_interdomain(w.dom(a), w.dom(b), rport).map(|(p, _)| p);
                    prop_assert_eq!(got, expected);
                    if let Ok(p) = expected {
                        model[a].insert(p, M::Peer(b, rport));
                        model[b].insert(rport, M::Peer(a, p));
                        pending[a].insert(p);
                    }
                }
                Op::Close(d, p) => {
                    let old = model[d].remove(&p);
                    prop_assert_eq!(w.close(d, p), old.map(|_| ()).ok_or(Errno::EINVAL));
                    pending[d].remove(&p);
                    if let Some(M::Peer(b, rport)) = old {
                        model[b].insert(rport, M::Unbound(d as u16));
                    }
                }
                Op::Send(d, p) => {
                    let got = w.send(d, p).map(|(to, _)| to);
                    match model[d].get(&p) {
                        Some(M::Ipi) => {
                            prop_assert_eq!(got, Ok(DomId(d as u16)));
                            pending[d].insert(p);
                        }
                        Some(&M::Peer(b, rport)) => {
                            prop_assert_eq!(got, Ok(DomId(b as u16)));
                            pending[b].insert(rport);
                        }
                        Some(M::Unbound(_)) => prop_assert!(got.is_ok()),
                        Some(M::Virq(..)) | None => prop_assert_eq!(got, Err(Errno::EINVAL)),
                    }
                }
                Op::Virq(d, virq, vcpu) => {
                    let global = !matches!(virq, 0 | 1 | 7 | 13);
                    let expected = if virq >= 24 || global && vcpu != 0 {
                        Err(Errno::EINVAL)
                    } else if vcpu >= VCPUS {
                        Err(Errno::ENOENT)
                    } else if model[d].values().any(|m| *m == M::Virq(virq, vcpu)) {
                        Err(Errno::EEXIST)
                    } else {
                        free(&model[d])
                    };
                    prop_assert_eq!(w.dom(d).evtchn.bind_virq(virq, vcpu), expected);
                    if let Ok(p) = expected {
                        model[d].insert(p, M::Virq(virq, vcpu));
                    }
                }
                Op::Ipi(d, vcpu) => {
                    let expected = if vcpu >= VCPUS { Err(Errno::ENOENT) } else { free(&model[d]) };
                    prop_assert_eq!(w.dom(d).evtchn.bind_ipi(vcpu), expected);
                    if let Ok(p) = expected {
                        model[d].insert(p, M::Ipi);
                    }
                }
                Op::Scan(d) => {
                    // Both vCPUs that can see events; those of the third stay pending.
                    let mut seen = w.dom(d).scan(0);
                    seen.extend(w.dom(d).scan(1));
                    for p in seen {
                        prop_assert!(pending[d].remove(&p), "port {} was never raised", p);
                    }
                }
            }
            for d in 0..3 {
                for p in 0..MAX {
                    let expected = pending[d].contains(&p);
                    let got = w.dom(d).evtchn.any_pending(&[p]).unwrap_or(false);
                    prop_assert_eq!(got, expected, "pending {} of {}", p, d);
                    let got = w.dom(d).status(p).map_or(0, |s| s.0);
                    let expected = match model[d].get(&p) {
                        None => status::CLOSED,
                        Some(M::Unbound(_)) => status::UNBOUND,
                        Some(M::Peer(..)) => status::INTERDOMAIN,
                        Some(M::Virq(..)) => status::VIRQ,
                        Some(M::Ipi) => status::IPI,
                    };
                    prop_assert_eq!(got, expected);
                }
            }
        }
    }
}
