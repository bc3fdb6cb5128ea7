use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const HERE: Notice = Notice {
    vector: 0xf2,
    dest: Ndst(3),
};
const WAKE: Notice = Notice {
    vector: 0xf3,
    dest: Ndst(3),
};

fn raw(d: &Descriptor) -> [u64; 8] {
    let w = |a: &AtomicU64| a.load(Ordering::Relaxed);
    let [a, b, c, e] = d.words();
    let [x, y, z] = &d.reserved;
    [a, b, c, e, w(&d.control), w(x), w(y), w(z)]
}

#[test]
fn fields_stand_where_the_manual_has_them() {
    let d = Descriptor::suppressed();
    assert_eq!(raw(&d), [0, 0, 0, 0, 2, 0, 0, 0]);
    d.run_on(Notice {
        vector: 0xf2,
        dest: Ndst::new(0x0102_0304, true).unwrap(),
    });
    assert_eq!(raw(&d)[4], 0x0102_0304_00f2_0000);
    assert!(matches!(d.post(0x41), Post::Notify(_)));
    assert_eq!(raw(&d), [0, 2, 0, 0, 0x0102_0304_00f2_0001, 0, 0, 0]);
    d.run_on(Notice {
        vector: 0xf2,
        dest: Ndst::new(0xfe, false).unwrap(),
    });
    assert_eq!(raw(&d)[4], 0x0000_fe00_00f2_0001);
    assert!(d.is_valid());
    // ON, SN, NV and NDST are all that is not reserved.
    assert_eq!(
        control::RESERVED | ON | SN | 0xff << 16 | 0xffff_ffff << 32,
        u64::MAX
    );
}

#[test]
fn destinations_by_mode() {
    assert_eq!(Ndst::new(0xff, false), None);
    assert_eq!(Ndst::new(u32::MAX, true), None);
    for (id, x2apic) in [(0, false), (0xfe, false), (0, true), (0x1_0000, true)] {
        assert_eq!(Ndst::new(id, x2apic).unwrap().apic_id(x2apic), id);
    }
}

#[test]
fn a_running_receiver_is_notified_once_until_it_looks() {
    let d = Descriptor::suppressed();
    assert!(!d.run_on(HERE));
    assert_eq!(d.post(0x31), Post::Notify(HERE));
    assert_eq!(d.post(0x31), Post::Already);
    assert_eq!(d.post(0xff), Post::Pending);
    assert_eq!(d.post_by_unit(0x31, true), None);
    assert_eq!(d.sync(), Some([1 << 0x31, 0, 0, 1 << 63]));
    assert_eq!(d.sync(), None);
    assert_eq!(d.post_by_unit(0, false), Some(HERE));
}

#[test]
fn a_waiting_receiver_finds_by_itself_what_came() {
    let d = Descriptor::suppressed();
    d.run_on(HERE);
    d.preempt();
    assert!(!d.is_pending());
    assert_eq!(d.post(0x80), Post::Suppressed);
    assert!(d.is_pending() && !d.is_notified());
    assert_eq!(d.sync(), None, "only after run_on");
    let there = Notice {
        dest: Ndst(7),
        ..HERE
    };
    assert!(d.run_on(there));
    assert_eq!(d.notice(), there);
    assert_eq!(d.sync(), Some([0, 0, 1, 0]));
}

#[test]
fn an_urgent_post_is_told_at_once() {
    let d = Descriptor::suppressed();
    d.run_on(HERE);
    d.preempt();
    assert_eq!(d.post_by_unit(0x40, false), None);
    assert_eq!(d.post_by_unit(0x41, true), Some(HERE));
    assert_eq!(d.post_by_unit(0x42, true), None);
    assert!(d.run_on(HERE));
}

#[test]
fn no_sleep_over_a_post() {
    let d = Descriptor::suppressed();
    d.run_on(HERE);
    d.post(0x50);
    assert!(!d.block(WAKE));
    assert_eq!(d.notice(), HERE);
    d.sync();
    assert!(d.block(WAKE));
    assert_eq!(d.post(0x50), Post::Notify(WAKE));
    assert!(d.run_on(HERE), "the post is still to be taken");
}

#[test]
fn retargeting_tells_of_what_may_have_gone_astray() {
    let d = Descriptor::suppressed();
    d.run_on(HERE);
    assert!(d.block(WAKE));
    assert!(!d.retarget(Ndst(9)));
    assert_eq!(
        d.notice(),
        Notice {
            dest: Ndst(9),
            ..WAKE
        }
    );
    d.post(0x60);
    assert!(d.retarget(Ndst(10)));
    d.reset();
    assert!(!d.is_pending());
    assert_eq!(raw(&d), [0, 0, 0, 0, 2, 0, 0, 0]);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post(u8),
    Unit(u8, bool),
    Sync,
    Run(u32),
    Preempt,
    Block(u32),
    Retarget(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Post),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(v, u)| Step::Unit(v, u)),
        2 => Just(Step::Sync),
        1 => (0u32..8).prop_map(Step::Run),
        1 => Just(Step::Preempt),
        1 => (0u32..8).prop_map(Step::Block),
        1 => (0u32..8).prop_map(Step::Retarget),
    ]
}

proptest! {
    /// One after another, against a set of vectors and three flags: nothing is lost or made up, ON is set exactly while
    /// somebody was told, and the control word holds what the last transition said.
    #[test]
    fn agrees_with_a_set(steps in proptest::collection::vec(step(), 0..200)) {
        let d = Descriptor::suppressed();
        let mut words = [0u64; 4];
        let (mut on, mut sn, mut at) = (false, true, Notice { vector: 0, dest: Ndst(0) });
        for s in steps {
            match s {
                Step::Post(v) => {
                    let old = words[usize::from(v) / 64] & 1 << (v % 64) != 0;
                    words[usize::from(v) / 64] |= 1 << (v % 64);
                    let wanted = if old { Post::Already } else if on { Post::Pending } else if sn { Post::Suppressed } else { Post::Notify(at) };
                    prop_assert_eq!(d.post(v), wanted);
                    on |= matches!(wanted, Post::Notify(_));
                }
                Step::Unit(v, urgent) => {
                    words[usize::from(v) / 64] |= 1 << (v % 64);
                    let tell = !on && (urgent || !sn);
                    prop_assert_eq!(d.post_by_unit(v, urgent), tell.then_some(at));
                    on |= tell;
                }
                Step::Sync => {
                    prop_assert_eq!(d.sync(), on.then_some(words));
                    if on { words = [0; 4]; }
                    on = false;
                }
                Step::Run(cpu) => {
                    at = Notice { vector: 0xf2, dest: Ndst(cpu) };
                    on |= sn && words != [0; 4];
                    sn = false;
                    prop_assert_eq!(d.run_on(at), on);
                }
                Step::Preempt => { d.preempt(); sn = true; }
                Step::Block(cpu) => {
                    prop_assert_eq!(d.block(Notice { vector: 0xf3, dest: Ndst(cpu) }), !on);
                    if !on { at = Notice { vector: 0xf3, dest: Ndst(cpu) }; sn = false; }
                }
                Step::Retarget(cpu) => { at.dest = Ndst(cpu); prop_assert_eq!(d.retarget(at.dest), on); }
            }
            prop_assert_eq!(d.is_notified(), on);
            prop_assert_eq!(d.is_pending(), on || sn && words != [0; 4]);
            prop_assert_eq!(d.notice(), at);
            prop_assert!(d.is_valid());
        }
    }

    /// Every vector has a bit of its own.
    #[test]
    fn vectors_come_out_as_they_went_in(vectors in proptest::collection::btree_set(any::<u8>(), 0..40)) {
        let d = Descriptor::suppressed();
        d.run_on(HERE);
        for &v in &vectors { d.post(v); }
        let words = d.sync().unwrap_or_default();
        let out: Vec<u8> = (0..=255u8).filter(|&v| words[usize::from(v) / 64] >> (v % 64) & 1 != 0).collect();
        prop_assert_eq!(out, vectors.into_iter().collect::<Vec<_>>());
    }
}
