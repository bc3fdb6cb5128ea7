//! Tests of the virtual IO-APICs.

use super::*;
use proptest::prelude::*;
use x86_model::Hpa;

const LOW_LEVEL: LineMode = LineMode {
    level: true,
    low: true,
};

fn two() -> VIoApics {
    let info = |id, address, gsi_base, pins| IoApicInfo {
        id,
        address: Hpa(address),
        gsi_base,
        pins,
    };
    VIoApics::new(&[info(2, 0xfec0_0000, 0, 24), info(5, 0xfec1_0000, 24, 32)])
}

fn put(v: &mut VIoApics, which: usize, register: u8, value: u32) -> IoApicEffect {
    assert_eq!(
        v.write(which, 0, Width::B4, register.into()),
        IoApicEffect::None
    );
    v.write(which, 0x10, Width::B4, value.into())
}
fn get(v: &mut VIoApics, which: usize, register: u8) -> u32 {
    v.write(which, 0, Width::B1, register.into());
    v.read(which, 0x10, Width::B4) as u32
}
/// Programs a pin of the second IO-APIC as Linux does: high half, then low half.
fn pin(v: &mut VIoApics, n: u8, low: u32) -> IoApicEffect {
    assert_eq!(put(v, 1, 0x11 + 2 * n, 0x0400_0000), IoApicEffect::None);
    put(v, 1, 0x10 + 2 * n, low)
}
fn ended(v: &mut VIoApics, vector: u8) -> Vec<u32> {
    let mut out = Vec::new();
    v.eoi(vector, |e| match e {
        IoApicEffect::Unmask { gsi } => out.push(gsi),
        other => panic!("{other:?}"),
    });
    out
}

#[test]
fn registers() {
    let mut v = two();
    assert_eq!(v.find(Gpa(0xfec1_0010)), Some((1, 0x10)));
    assert_eq!(v.find(Gpa(0xfec2_0000)), None);
    assert_eq!((get(&mut v, 0, 0), get(&mut v, 1, 0)), (2 << 24, 5 << 24));
    assert_eq!(
        (get(&mut v, 0, 1), get(&mut v, 1, 1)),
        (0x17_0011, 0x1f_0011)
    );
    assert_eq!((get(&mut v, 0, 0x10), get(&mut v, 0, 0x11)), (0x1_0000, 0));
    assert_eq!((get(&mut v, 0, 0x40), get(&mut v, 0, 3)), (0, 0));
    // Read-only and reserved bits do not stick.
    put(&mut v, 0, 0x10, u32::MAX);
    assert_eq!(get(&mut v, 0, 0x10), 0x1_afff);
}

#[test]
fn a_bound_line_that_is_for_another_target_is_named() {
    let mut v = two();
    pin(&mut v, 3, 0x31);
    assert_eq!(
        put(&mut v, 1, 0x17, 0x0400_0000),
        IoApicEffect::None,
        "the same"
    );
    assert_eq!(
        put(&mut v, 1, 0x17, 0x0200_0000),
        IoApicEffect::Retarget { gsi: 27 }
    );
    let target = v.target(27).unwrap();
    assert_eq!((target.dest, target.vector), (DestSpec::Physical(2), 0x31));
    // Not yet bound: nothing can move.
    assert_eq!(put(&mut v, 1, 0x19, 0x0200_0000), IoApicEffect::None);
    assert_eq!(v.target(99), None);
}

#[test]
fn edge_lines_are_bound_on_unmask_and_masked_on_mask() {
    let mut v = two();
    assert_eq!(pin(&mut v, 3, 0x1_0031), IoApicEffect::None);
    let edge = LineMode {
        level: false,
        low: false,
    };
    assert_eq!(
        pin(&mut v, 3, 0x31),
        IoApicEffect::Bind {
            gsi: 27,
            mode: edge
        }
    );
    assert!(!v.is_level(27));
    for _ in 0..2 {
        let ipi = v.interrupt(27).unwrap();
        assert_eq!(
            (ipi.dest, ipi.vector, ipi.level),
            (DestSpec::Physical(4), 0x31, false)
        );
    }
    assert_eq!(ended(&mut v, 0x31), []);
    assert_eq!(
        put(&mut v, 1, 0x16, 0x1_0031),
        IoApicEffect::Mask { gsi: 27 }
    );
    assert_eq!(v.interrupt(27), None);
    assert_eq!(put(&mut v, 1, 0x16, 0x31), IoApicEffect::Unmask { gsi: 27 });
    assert_eq!(
        put(&mut v, 1, 0x16, 0x2031),
        IoApicEffect::Bind {
            gsi: 27,
            mode: LineMode {
                level: false,
                low: true
            }
        }
    );
}

#[test]
fn level_lines_wait_for_the_eoi() {
    let mut v = two();
    assert_eq!(
        pin(&mut v, 0, 0xa041),
        IoApicEffect::Bind {
            gsi: 24,
            mode: LOW_LEVEL
        }
    );
    assert!(v.is_level(24));
    assert!(v.interrupt(24).unwrap().level);
    assert_eq!(get(&mut v, 1, 0x10), 0xe041);
    assert_eq!(v.interrupt(24), None);
    assert_eq!(ended(&mut v, 0x40), []);
    assert_eq!(ended(&mut v, 0x41), [24]);
    assert_eq!(ended(&mut v, 0x41), []);
    assert_eq!(get(&mut v, 1, 0x10), 0xa041);
}

#[test]
fn masking_around_the_eoi_defers_the_unmask() {
    let mut v = two();
    pin(&mut v, 0, 0xa041);
    v.interrupt(24);
    // Threaded handlers: mask, EOI, later unmask.
    assert_eq!(put(&mut v, 1, 0x10, 0x1_a041), IoApicEffect::None);
    assert_eq!(ended(&mut v, 0x41), []);
    assert_eq!(
        put(&mut v, 1, 0x10, 0xa041),
        IoApicEffect::Unmask { gsi: 24 }
    );
    // Unmasked before the EOI: the EOI opens the line.
    v.interrupt(24);
    put(&mut v, 1, 0x10, 0x1_a041);
    assert_eq!(put(&mut v, 1, 0x10, 0xa041), IoApicEffect::None);
    assert_eq!(ended(&mut v, 0x41), [24]);
}

#[test]
fn a_moved_entry_is_ended_by_the_vector_it_was_sent_with() {
    let mut v = two();
    pin(&mut v, 0, 0xa041);
    v.interrupt(24);
    put(&mut v, 1, 0x10, 0xa052);
    assert_eq!(ended(&mut v, 0x52), []);
    assert_eq!(ended(&mut v, 0x41), [24]);
}

#[test]
fn a_change_of_polarity_in_flight_is_bound_at_the_eoi() {
    let mut v = two();
    pin(&mut v, 0, 0xa041);
    v.interrupt(24);
    assert_eq!(put(&mut v, 1, 0x10, 0x8041), IoApicEffect::None);
    let mut got = Vec::new();
    v.eoi(0x41, |e| got.push(e));
    assert_eq!(
        got,
        [IoApicEffect::Bind {
            gsi: 24,
            mode: LineMode {
                level: true,
                low: false
            }
        }]
    );
}

#[test]
fn shared_vectors_end_together() {
    let mut v = two();
    pin(&mut v, 0, 0xa041);
    pin(&mut v, 1, 0xa041);
    v.interrupt(24);
    v.interrupt(25);
    assert_eq!(ended(&mut v, 0x41), [24, 25]);
}

#[test]
fn edge_and_back_ends_an_interrupt() {
    let mut v = two();
    pin(&mut v, 0, 0xa041);
    v.interrupt(24);
    assert_eq!(put(&mut v, 1, 0x10, 0x1_2041), IoApicEffect::None);
    assert_eq!(get(&mut v, 1, 0x10), 0x1_2041);
    assert_eq!(
        put(&mut v, 1, 0x10, 0xa041),
        IoApicEffect::Unmask { gsi: 24 }
    );
}

#[test]
fn nobody_home_parks_the_line() {
    let mut v = two();
    pin(&mut v, 0, 0xa041);
    assert!(v.interrupt(24).is_some());
    v.not_accepted(24);
    assert_eq!(ended(&mut v, 0x41), []);
    assert_eq!(put(&mut v, 1, 0x11, 0), IoApicEffect::Unmask { gsi: 24 });
    assert_eq!(v.interrupt(24).unwrap().dest, DestSpec::Physical(0));
}

#[test]
fn legacy_modes_bind_nothing() {
    let mut v = two();
    assert_eq!(put(&mut v, 0, 0x10, 0x700), IoApicEffect::None);
    assert_eq!(v.interrupt(0), None);
    assert_eq!(v.interrupt(9999), None);
}

proptest! {
    /// Any accesses, interrupts and EOIs: no panic, and the reported state of each physical line is what the entry
    /// says: open exactly when it is unmasked and awaits nothing.
    #[test]
    fn lines_follow_entries(ops in prop::collection::vec((0..6u8, any::<u8>(), any::<u32>(), any::<u16>()), 1..200)) {
        let mut v = two();
        let mut open = [false; 56];
        for (what, a, b, c) in ops {
            let gsi = u32::from(c % 60);
            match what {
                0..3 => {
                    let which = usize::from(a & 3);
                    let width = [Width::B1, Width::B2, Width::B4, Width::B8][usize::from(a >> 2 & 3)];
                    let offset = if a & 0x80 != 0 { u64::from(c) } else { 0x10 };
                    v.write(which, 0, Width::B1, u64::from(0x10 + (c & 0x4f)));
                    v.read(which, offset, width);
                    match v.write(which, offset, width, b.into()) {
                        IoApicEffect::None => {}
                        IoApicEffect::Bind { gsi, .. } => open[gsi as usize] = true,
                        IoApicEffect::Unmask { gsi } => {
                            prop_assert!(!open[gsi as usize]);
                            open[gsi as usize] = true;
                        }
                        IoApicEffect::Mask { gsi } => open[gsi as usize] = false,
                        IoApicEffect::Retarget { .. } => {}
                    }
                }
                3 | 4 => {
                    if open.get(gsi as usize) == Some(&true) {
                        if v.is_level(gsi) {
                            open[gsi as usize] = false;
                        }
                        if v.interrupt(gsi).is_some() && what == 4 && a == 0 {
                            v.not_accepted(gsi);
                        }
                    }
                }
                _ => v.eoi(a, |e| match e {
                    IoApicEffect::Bind { gsi, .. } | IoApicEffect::Unmask { gsi } => {
                        assert!(!open[gsi as usize]);
                        open[gsi as usize] = true;
                    }
                    other => panic!("{other:?}"),
                }),
            }
            for (gsi, open) in (0..).zip(open) {
                prop_assert_eq!(v.pin_mut(gsi).unwrap().open, open);
            }
        }
    }
}
