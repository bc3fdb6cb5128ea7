//! Tests of the local APIC as a guest sees it.

use super::*;
use proptest::prelude::*;
use x86_model::Width;
use x86_model::apic::ESR_SEND_ILLEGAL;

const T0: Clocks = Clocks {
    now_ns: 1_000_000,
    guest_tsc: 5_000_000,
};

fn put(l: &mut Vlapic, register: u32, value: u32) -> Effect {
    l.mmio_write(register, Width::B4, u64::from(value), T0)
}
fn get(l: &mut Vlapic, register: u32) -> u32 {
    l.mmio_read(register, Width::B4, T0) as u32
}
fn enabled() -> Vlapic {
    let mut l = Vlapic::new(1, true);
    assert_eq!(put(&mut l, reg::SVR, 0x1ff), Effect::SoftwareEnabled);
    l
}
fn x2apic() -> Vlapic {
    let mut l = Vlapic::new(1, false);
    l.set_base(l.base() | ApicBase::EXTD).unwrap();
    assert_eq!(
        l.x2apic_write(0x80f, 0x1ff, T0),
        Ok(Effect::SoftwareEnabled)
    );
    l
}

#[test]
fn reset_state() {
    let mut bsp = Vlapic::new(0, false);
    assert_eq!(
        (bsp.base(), Vlapic::new(3, false).base()),
        (0xfee0_0900, 0xfee0_0800)
    );
    assert_eq!(get(&mut Vlapic::new(3, false), reg::ID), 6 << 24);
    assert_eq!(get(&mut bsp, reg::VERSION), 0x50014);
    assert_eq!(
        (get(&mut bsp, reg::SVR), get(&mut bsp, reg::DFR)),
        (0xff, u32::MAX)
    );
    for lvt in [
        reg::LVT_TIMER,
        reg::LVT_PERF,
        reg::LVT_LINT0,
        reg::LVT_ERROR,
    ] {
        assert_eq!(get(&mut bsp, lvt), Lvt::MASKED);
    }
}

#[test]
fn priorities_nest() {
    let mut l = enabled();
    l.raise(0x41);
    l.raise(0x45);
    l.raise(0x61);
    assert_eq!(l.pending_vector(), Some(0x61));
    l.ack(0x61);
    // Lower classes wait; a second of the same class too.
    l.raise(0x62);
    assert_eq!(l.pending_vector(), None);
    l.raise(0x70);
    assert_eq!(l.pending_vector(), Some(0x70));
    assert_eq!(
        (get(&mut l, reg::ISR + 0x30), get(&mut l, reg::PPR)),
        (2, 0x60)
    );
    put(&mut l, reg::TPR, 0x7f);
    assert_eq!(
        (l.pending_vector(), l.blocked_by_tpr(), l.ppr()),
        (None, Some(0x70), 0x7f)
    );
    put(&mut l, reg::TPR, 0);
    assert_eq!(put(&mut l, reg::EOI, 0), Effect::None);
    for v in [0x70, 0x62, 0x45, 0x41] {
        assert_eq!(l.pending_vector(), Some(v));
        l.ack(v);
        assert_eq!(l.eoi(), None);
    }
    assert_eq!((l.pending_vector(), l.eoi()), (None, None));
}

#[test]
fn level_interrupts_report_their_eoi() {
    let mut l = enabled();
    let post = LapicPost::new(2);
    post.vector(0x51, true);
    post.vector(0x52, false);
    assert!(l.needs_merge(&post));
    l.merge(&post);
    assert!(!l.needs_merge(&post));
    assert_eq!(get(&mut l, reg::TMR + 0x20), 1 << 0x11);
    l.ack(0x52);
    l.ack(0x51);
    assert_eq!(put(&mut l, reg::EOI, 0), Effect::None);
    assert_eq!(put(&mut l, reg::EOI, 0), Effect::Eoi(0x51));
    // Accepted as edge the next time: the bit follows.
    post.vector(0x51, false);
    l.merge(&post);
    assert_eq!(get(&mut l, reg::TMR + 0x20), 0);
}

#[test]
fn disabled_apic_accepts_no_edge_and_keeps_levels_for_later() {
    let mut l = Vlapic::new(1, false);
    let post = LapicPost::new(2);
    l.raise(0xf3);
    post.vector(0xf3, false);
    post.vector(0x30, true);
    post.deliver(DeliveryMode::Nmi, 0, false);
    assert!(l.merge(&post).nmi);
    for i in 0..8 {
        assert_eq!(get(&mut l, reg::IRR + i * 16), 0);
    }
    assert!(!l.needs_merge(&post));
    assert_eq!(put(&mut l, reg::SVR, 0x1ff), Effect::SoftwareEnabled);
    assert_eq!(put(&mut l, reg::SVR, 0x1f0), Effect::None);
    assert!(l.needs_merge(&post));
    l.merge(&post);
    assert_eq!(l.pending_vector(), Some(0x30));
    assert!(l.tmr.contains(0x30));
}

#[test]
fn software_disable_masks_lvts_and_keeps_them_masked() {
    let mut l = enabled();
    put(&mut l, reg::LVT_TIMER, 0x40);
    assert_eq!(get(&mut l, reg::LVT_TIMER), 0x40);
    assert_eq!(put(&mut l, reg::SVR, 0xff), Effect::Timer);
    put(&mut l, reg::LVT_LINT0, 0x700);
    assert_eq!(
        (get(&mut l, reg::LVT_TIMER), get(&mut l, reg::LVT_LINT0)),
        (0x1_0040, 0x1_0700)
    );
}

#[test]
fn timer_interrupts_when_due() {
    let mut l = enabled();
    put(&mut l, reg::TIMER_DIVIDE, 0xb);
    put(&mut l, reg::LVT_TIMER, 0x44);
    assert_eq!(put(&mut l, reg::TIMER_INITIAL, 100), Effect::Timer);
    assert_eq!(l.timer_deadline(), Some(Deadline::Ns(1_001_000)));
    assert!(!l.timer_due(T0));
    let later = Clocks {
        now_ns: 1_001_000,
        ..T0
    };
    assert!(l.timer_due(later));
    assert_eq!((l.pending_vector(), l.timer_deadline()), (Some(0x44), None));
    // TSC-deadline mode, and its MSR only where CPUID shows it.
    put(&mut l, reg::LVT_TIMER, 0x4_0044);
    assert_eq!(l.set_tsc_deadline(9_000_000), Ok(Effect::Timer));
    assert_eq!(l.timer_deadline(), Some(Deadline::GuestTsc(9_000_000)));
    assert_eq!(x2apic().set_tsc_deadline(1), Err(Gp));
}

#[test]
fn illegal_error_vector_is_recorded_not_delivered() {
    for vector in 0..16 {
        let mut l = enabled();
        put(&mut l, reg::LVT_ERROR, vector);
        assert_eq!(put(&mut l, reg::ICR_LOW, 0x0004_000f), Effect::None);
        assert_eq!(get(&mut l, reg::ESR), 0);
        put(&mut l, reg::ESR, 0);
        assert_eq!(
            get(&mut l, reg::ESR),
            ESR_SEND_ILLEGAL | ESR_RECEIVE_ILLEGAL
        );
        put(&mut l, reg::ESR, 0);
        assert_eq!(get(&mut l, reg::ESR), 0);
        assert!(l.irr.is_empty());
    }
    let mut l = enabled();
    put(&mut l, reg::LVT_ERROR, 0xfe);
    put(&mut l, 0x40, 0);
    assert_eq!(l.pending_vector(), Some(0xfe));
}

#[test]
fn posted_illegal_vectors_become_an_error() {
    let mut l = enabled();
    put(&mut l, reg::LVT_ERROR, 0xfe);
    let post = LapicPost::new(2);
    post.vector(3, false);
    l.merge(&post);
    assert_eq!(l.pending_vector(), Some(0xfe));
}

#[test]
fn xapic_icr() {
    let mut l = enabled();
    put(&mut l, reg::ICR_HIGH, 4 << 24);
    let Effect::Ipi(ipi) = put(&mut l, reg::ICR_LOW, 0x0000_5631) else {
        panic!()
    };
    assert_eq!(
        ipi,
        Ipi {
            dest: DestSpec::Physical(4),
            mode: DeliveryMode::Startup,
            vector: 0x31,
            level: false
        }
    );
    assert_eq!(
        (get(&mut l, reg::ICR_LOW), get(&mut l, reg::ICR_HIGH)),
        (0x4631, 4 << 24)
    );
    // Self shorthand stays inside; INIT de-assert is nothing.
    assert_eq!(put(&mut l, reg::ICR_LOW, 0x0004_0055), Effect::None);
    assert_eq!(l.pending_vector(), Some(0x55));
    assert_eq!(put(&mut l, reg::ICR_LOW, 0x000c_8500), Effect::None);
    assert!(matches!(
        put(&mut l, reg::ICR_LOW, 0x000c_4400),
        Effect::Ipi(Ipi {
            dest: DestSpec::AllButSelf,
            mode: DeliveryMode::Nmi,
            ..
        })
    ));
}

#[test]
fn x2apic_msrs() {
    let mut l = x2apic();
    assert_eq!(
        (l.x2apic_read(0x802, T0), l.x2apic_read(0x80d, T0)),
        (Ok(2), Ok(4))
    );
    let Ok(Effect::Ipi(ipi)) = l.x2apic_write(0x830, 0x0000_0008_0000_0045, T0) else {
        panic!()
    };
    assert_eq!((ipi.dest, ipi.vector), (DestSpec::Physical(8), 0x45));
    assert_eq!(l.x2apic_read(0x830, T0), Ok(0x0000_0008_0000_0045));
    assert_eq!(l.x2apic_write(0x83f, 0x77, T0), Ok(Effect::None));
    assert_eq!(l.pending_vector(), Some(0x77));
    l.ack(0x77);
    assert_eq!(l.x2apic_write(0x80b, 0, T0), Ok(Effect::None));
    for (msr, value) in [
        (0x80b, 1),
        (0x828, 1),
        (0x802, 0),
        (0x803, 0),
        (0x80a, 0),
        (0x80d, 0),
        (0x80e, 0),
        (0x82f, 0),
        (0x831, 0),
        (0x839, 0),
        (0x840, 0),
        (0x8ff, 0),
        (0x808, 0x100),
        (0x830, 1 << 12),
        (0x83f, 0x100),
        (0x832, 1 << 18),
        (0x838, 1 << 32),
        (0x83e, 4),
        (0x80f, 1 << 12),
        (0x801, 0),
        (0x800, 0),
    ] {
        assert_eq!(
            l.x2apic_write(msr, value, T0),
            Err(Gp),
            "{msr:#x} <- {value:#x}"
        );
    }
    for msr in [
        0x800, 0x801, 0x809, 0x80b, 0x80c, 0x80e, 0x82f, 0x831, 0x83f, 0x840, 0x8ff,
    ] {
        assert_eq!(l.x2apic_read(msr, T0), Err(Gp), "{msr:#x}");
    }
    // The page is not there in this mode, nor the MSRs in the other.
    assert_eq!(get(&mut l, reg::ID), u32::MAX);
    assert_eq!(put(&mut l, reg::SVR, 0), Effect::None);
    assert!(l.enabled());
    assert_eq!(enabled().x2apic_read(0x802, T0), Err(Gp));
}

#[test]
fn base_transitions() {
    const EN: u64 = 0xfee0_0800;
    const X2: u64 = 0xfee0_0c00;
    const OFF: u64 = 0xfee0_0000;
    let ok = |path: &[u64]| {
        let mut l = Vlapic::new(1, false);
        path.iter()
            .map(|&v| l.set_base(v).is_ok())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ok(&[X2, EN, OFF, X2, EN, X2]),
        [true, false, true, false, true, true]
    );
    assert_eq!(
        ok(&[
            0xfee0_0400,
            0xfee0_1800,
            0xfee0_0801,
            EN | 1 << 40,
            EN | 1 << 8
        ]),
        [false, false, false, false, true]
    );
    let mut l = enabled();
    l.raise(0x40);
    l.set_base(OFF).unwrap();
    assert_eq!((l.pending_vector(), get(&mut l, reg::ID)), (None, u32::MAX));
    l.set_base(EN).unwrap();
    assert!(!l.enabled() && l.base() == EN);
}

#[test]
fn logical_id_is_published() {
    let mut l = enabled();
    let post = LapicPost::new(2);
    put(&mut l, reg::LDR, 0x1200_0000);
    put(&mut l, reg::DFR, 0x0fff_ffff);
    l.merge(&post);
    assert_eq!(post.facts(), l.facts());
    assert!(post.facts().cluster && post.facts().ldr == 0x12 && post.facts().software_enabled);
    l.set_base(0xfee0_0c00).unwrap();
    l.merge(&post);
    assert_eq!((post.facts().mode, post.facts().ldr), (ApicMode::X2Apic, 4));
}

#[test]
fn narrow_accesses() {
    let mut l = enabled();
    put(&mut l, reg::LVT_LINT1, 0x1_0487);
    assert_eq!(l.mmio_read(reg::LVT_LINT1 + 1, Width::B1, T0), 4);
    assert_eq!(l.mmio_read(reg::LVT_LINT1 + 4, Width::B4, T0), 0);
    l.mmio_write(reg::LVT_LINT1, Width::B1, 0x55, T0);
    assert_eq!(get(&mut l, reg::LVT_LINT1), 0x1_0455);
    assert_eq!(l.mmio_read(reg::ID, Width::B8, T0), 2 << 24);
}

#[derive(Clone, Debug)]
enum Op {
    Read(u32, u8),
    Write(u32, u8, u64),
    Msr(u32, u64),
    Base(u64),
    Post(u8, u8, bool),
    Take,
    Time(u32),
    Init,
}

fn op() -> impl Strategy<Value = Op> {
    let register = prop_oneof![0..0x1000u32, (0..0x40u32).prop_map(|r| r << 4)];
    let value = prop_oneof![any::<u64>(), 0..0x10_0000u64];
    prop_oneof![
        (register.clone(), 0..4u8).prop_map(|(r, w)| Op::Read(r, w)),
        (register, 0..4u8, value.clone()).prop_map(|(r, w, v)| Op::Write(r, w, v)),
        (0x7f0..0x910u32, value).prop_map(|(m, v)| Op::Msr(m, v)),
        (0..16u64).prop_map(|m| Op::Base(0xfee0_0000 | m << 8)),
        (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(m, v, l)| Op::Post(m, v, l)),
        Just(Op::Take),
        any::<u32>().prop_map(Op::Time),
        Just(Op::Init),
    ]
}

proptest! {
    /// Any sequence: no panic; only legal vectors above the processor's priority are offered; what is in service ends.
    #[test]
    fn any_sequence_keeps_the_invariants(ops in prop::collection::vec(op(), 1..200)) {
        let widths = [Width::B1, Width::B2, Width::B4, Width::B8];
        let mut l = Vlapic::new(1, true);
        let post = LapicPost::new(2);
        let mut c = T0;
        for o in ops {
            match o {
                Op::Read(r, w) => {
                    let w = widths[w as usize];
                    prop_assert!(l.mmio_read(r, w, c) <= w.mask());
                }
                Op::Write(r, w, v) => {
                    if let Effect::Ipi(i) = l.mmio_write(r, widths[w as usize], v, c) {
                        prop_assert!(!i.mode.has_vector() || i.vector >= 16);
                    }
                }
                Op::Msr(m, v) => {
                    let _ = l.x2apic_read(m, c);
                    let _ = l.x2apic_write(m, v, c);
                }
                Op::Base(v) => {
                    let _ = l.set_base(v);
                }
                Op::Post(m, v, level) => {
                    post.deliver(DeliveryMode::from_bits(m.into()), v, level);
                }
                Op::Take => {
                    if let Some(v) = l.pending_vector() {
                        l.ack(v);
                    }
                }
                Op::Time(ns) => {
                    c.now_ns += u64::from(ns);
                    c.guest_tsc += u64::from(ns) * 3;
                    l.timer_due(c);
                }
                Op::Init => l.reset(),
            }
            if l.needs_merge(&post) {
                l.merge(&post);
                prop_assert!(!l.needs_merge(&post));
                prop_assert_eq!(post.facts(), l.facts());
            }
            if let Some(v) = l.pending_vector() {
                prop_assert!(v >= 16 && l.enabled() && v >> 4 > l.ppr() >> 4);
            }
            prop_assert_eq!(l.irr.0[0] & 0xffff, 0);
            if !l.enabled() {
                prop_assert_eq!(l.timer_deadline(), None);
            }
        }
    }
}
