use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

const fn place(cpu: u32, vector: u8) -> Place {
    Place { cpu, vector }
}

#[test]
fn a_move_keeps_the_old_vector_until_the_new_one_was_seen_and_the_old_one_is_quiet() {
    let mut m = Moving::new(place(0, 0x40));
    assert_eq!(m.want(0), Wish::There);
    assert_eq!(m.want(1), Wish::Now);
    assert!(m.begin(place(1, 0x41), Some(place(0, 0x41))));
    assert!(!m.begin(place(2, 0x41), None));
    assert_eq!(m.places().count(), 3);
    assert!(!m.quiet(place(0, 0x40)), "not confirmed");
    assert_eq!(m.arrived(place(0, 0x40)), Arrival::Late);
    assert_eq!(m.want(2), Wish::Later(0));
    assert_eq!(m.take_wish(), None);
    assert_eq!(m.arrived(place(1, 0x41)), Arrival::First(0));
    assert_eq!(m.arrived(place(1, 0x41)), Arrival::Settled);
    assert_eq!(m.old_on(0).count(), 2);
    assert!(m.quiet(place(0, 0x40)) && !m.quiet(place(0, 0x40)));
    assert!(!m.quiet(place(1, 0x41)), "the present place");
    assert_eq!(m.arrived(place(0, 0x40)), Arrival::Elsewhere);
    assert!(m.quiet(place(0, 0x41)) && m.is_settled());
    assert_eq!((m.take_wish(), m.take_wish()), (Some(2), None));
}

#[test]
fn a_wish_to_stay_takes_back_an_earlier_one() {
    let mut m = Moving::new(place(0, 0x40));
    assert!(m.begin(place(1, 0x40), None));
    assert_eq!(m.want(2), Wish::Later(0));
    assert_eq!(m.want(1), Wish::There);
    m.confirm();
    assert!(m.quiet(place(0, 0x40)));
    assert_eq!(m.take_wish(), None);
    // One that waits for an arrival only.
    m.wish(3);
    m.wish(2);
    assert_eq!((m.take_wish(), m.take_wish()), (Some(2), None));
    m.wish(3);
    m.wish(1);
    assert_eq!(m.take_wish(), None, "it is there");
}

#[test]
fn it_follows_only_a_target_that_stays() {
    let mut m = Moving::new(place(0, 0x40));
    for n in 0..400 {
        assert!(!m.follow(1 + n % 2), "runs about");
    }
    for _ in 1..PATIENCE {
        assert!(!m.follow(3));
    }
    assert!(m.follow(3));
    assert!(!m.follow(0) && !m.follow(3), "came home in between");
}

/// A device behind a fabric that keeps the order of its messages, CPUs with request registers, and a mover.
struct Machine {
    m: Moving,
    /// What the device was last told.
    told: Place,
    /// What it will be told.
    steps: VecDeque<Place>,
    /// On their way.
    fabric: VecDeque<Place>,
    requests: BTreeSet<Place>,
    /// Vectors in use, by place.
    bound: BTreeSet<Place>,
    /// An interrupt was sent and nothing has been delivered since.
    owed: bool,
    looks: BTreeMap<u32, bool>,
    late: u32,
}

impl Machine {
    fn free(&self, cpu: u32) -> Option<Place> {
        (0x30..0x34)
            .map(|v| place(cpu, v))
            .find(|p| !self.bound.contains(p))
    }

    fn go(&mut self, cpu: u32, two_steps: bool) {
        let old = self.m.at();
        let Some(mut to) = self.free(cpu) else { return };
        let mut by = None;
        if two_steps && to.vector != old.vector {
            // A vector that is free on both.
            let both = (0x30..0x34).find(|&v| {
                !self.bound.contains(&place(cpu, v)) && !self.bound.contains(&place(old.cpu, v))
            });
            let Some(v) = both else { return };
            to.vector = v;
            by = Some(place(old.cpu, v));
        }
        if self.m.begin(to, by) {
            self.bound.extend([to].into_iter().chain(by));
            self.steps = by.into_iter().chain([to]).collect();
        }
    }

    fn want(&mut self, cpu: u32, two_steps: bool) {
        match self.m.want(cpu) {
            Wish::Now => self.go(cpu, two_steps),
            Wish::Later(old) => drop(self.looks.insert(old, true)),
            Wish::There => {}
        }
    }

    fn take(&mut self, cpu: u32, two_steps: bool) -> Result<(), TestCaseError> {
        let first = self.requests.iter().copied().find(|p| p.cpu == cpu);
        if let Some(p) = first {
            self.requests.remove(&p);
            let arrival = self.m.arrived(p);
            prop_assert_ne!(arrival, Arrival::Elsewhere, "{:?} in {:?}", p, self.m);
            self.late += u32::from(arrival == Arrival::Late);
            if let Arrival::First(old) = arrival {
                self.looks.insert(old, true);
            }
            self.owed = false;
            if self.steps.is_empty()
                && let Some(next) = self.m.take_wish()
            {
                self.go(next, two_steps);
            }
        }
        self.look(cpu);
        Ok(())
    }

    fn look(&mut self, cpu: u32) {
        if self.looks.insert(cpu, false) != Some(true) || !self.steps.is_empty() {
            return;
        }
        for p in self.m.old_on(cpu).collect::<Vec<_>>() {
            if self.requests.contains(&p) {
                self.looks.insert(cpu, true);
            } else if self.m.quiet(p) {
                self.bound.remove(&p);
            }
        }
    }
}

proptest! {
    /// Whatever the device, the fabric, the CPUs and the mover do, in any order: nothing arrives at a vector that is not
    /// bound to it, what was sent is delivered, and in the end one vector is in use.
    #[test]
    fn nothing_is_lost(two_steps in any::<bool>(), steps in proptest::collection::vec((0u8..7, 0u32..4), 0..600)) {
        let first = place(0, 0x30);
        let mut w = Machine {
            m: Moving::new(first), told: first, steps: VecDeque::new(), fabric: VecDeque::new(),
            requests: BTreeSet::new(), bound: BTreeSet::from([first]), owed: false, looks: BTreeMap::new(), late: 0,
        };
        let land = |w: &mut Machine| if let Some(p) = w.fabric.pop_front() { w.requests.insert(p); };
        let tell = |w: &mut Machine| if let Some(p) = w.steps.pop_front() { w.told = p; };
        for (what, cpu) in steps {
            match what {
                0 | 1 => { w.fabric.push_back(w.told); w.owed = true; }
                2 => land(&mut w),
                3 => tell(&mut w),
                4 => w.want(cpu, two_steps),
                _ => w.take(cpu, two_steps)?,
            }
            prop_assert!(w.m.places().all(|p| w.bound.contains(&p)));
        }
        // The dust settles; interrupts go on until the last move is over.
        for round in 0..400 {
            while !w.steps.is_empty() { tell(&mut w); }
            if !w.m.is_settled() && w.fabric.is_empty() {
                w.fabric.push_back(w.told);
            }
            land(&mut w);
            w.take(round % 4, two_steps)?;
        }
        prop_assert!(!w.owed);
        prop_assert!(w.m.is_settled(), "{:?}", w.m);
        prop_assert_eq!(w.bound, BTreeSet::from([w.m.at()]));
    }
}
