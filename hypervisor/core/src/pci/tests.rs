//! Tests of the virtual configuration space on a fake machine.

use super::fake::{Device, FakeHost};
use super::*;
use crate::hvm::vlapic::DestSpec;
use proptest::prelude::*;

const NIC: Bdf = Bdf::new(0, 3, 0);
const WINDOW: ConfigWindow = ConfigWindow {
    base: 0xb000_0000,
    segment: 0,
    first_bus: 0,
    last_bus: 255,
};
/// Table of the fake's MSI-X function: BAR at 0xc0000000, offset 0x2010.
const TABLE: u64 = 0xc000_2010;

fn machine() -> (VPci<u8>, FakeHost) {
    let mut bridge = Device::new(0x0001_1b36);
    bridge.put(cfg::HEADER_TYPE, Width::B1, 1);
    bridge.put(0x18, Width::B4, 0x0002_0100);
    bridge.allow(0x18, 4, 0xff);
    let host = FakeHost::with([
        (Bdf::new(0, 0, 0), Device::new(0x29c0_8086)),
        (Bdf::new(0, 1, 0), bridge),
        (NIC, Device::new(0x1041_1af4).msi().msix()),
        (Bdf::new(1, 0, 0), {
            let mut d = Device::new(0x0010_1b36).msi();
            d.put(cfg::HEADER_TYPE, Width::B1, 0x80);
            d
        }),
        (Bdf::new(1, 0, 5), Device::new(0x0010_1b36)),
    ]);
    (VPci::new(vec![WINDOW]), host)
}

fn latch(bdf: Bdf, register: u16) -> u32 {
    1 << 31 | u32::from(bdf.bus) << 16 | u32::from(bdf.devfn) << 8 | u32::from(register & 0xfc)
}

#[test]
fn scan_follows_bridges_and_functions() {
    let (mut p, mut h) = machine();
    assert_eq!(p.scan(&mut h), 5);
    let found: Vec<_> = p.functions().collect();
    assert!(found.contains(&Bdf::new(1, 0, 5)) && found.contains(&NIC));
    assert_eq!(p.take_unmaps(), [Gfn(0xc0002)]);
}

#[test]
fn ports_and_windows_agree() {
    let (mut p, mut h) = machine();
    for (register, width) in [
        (0, Width::B4),
        (2, Width::B2),
        (1, Width::B2),
        (0xe, Width::B1),
        (0x34, Width::B1),
        (0x50, Width::B4),
    ] {
        let by_port = p.port_read(
            latch(NIC, register),
            PORT_DATA + (register & 3),
            width,
            &mut h,
        );
        let at = Gpa(0xb000_0000 + x86_model::pci::ecam_offset(NIC) + u64::from(register));
        assert!(p.traps(at));
        assert_eq!(p.mmio_read(at, width, &mut h), Some(by_port.into()));
    }
    assert_eq!(
        p.port_read(latch(NIC, 0), 0xcfc, Width::B4, &mut h),
        0x1041_1af4
    );
    // Absent device, disabled latch, access that leaves the window.
    assert_eq!(
        p.port_read(latch(Bdf::new(7, 0, 0), 0), 0xcfc, Width::B4, &mut h),
        u32::MAX
    );
    assert_eq!(p.port_read(0, 0xcfc, Width::B2, &mut h), 0xffff);
    assert_eq!(p.port_read(latch(NIC, 0), 0xcff, Width::B2, &mut h), 0xffff);
    assert_eq!(p.port_read(latch(NIC, 0), 0xcf9, Width::B1, &mut h), 0xff);
    p.hide(Bdf::new(1, 0, 5));
    assert_eq!(p.read(Bdf::new(1, 0, 5), 0, Width::B4, &mut h), u32::MAX);
    // Quad-word through the window.
    assert_eq!(
        p.mmio_read(Gpa(0xb001_8000), Width::B8, &mut h)
            .map(|v| v as u32),
        Some(0x1041_1af4)
    );
}

#[test]
fn msi_is_virtual() {
    let (mut p, mut h) = machine();
    let w = |p: &mut VPci<u8>, h: &mut FakeHost, at, width, v| p.write(NIC, at, width, v, h);
    // One vector is offered, 64-bit and maskable kept.
    assert_eq!(p.read(NIC, 0x50, Width::B4, &mut h), 0x0180_0005);
    w(&mut p, &mut h, 0x54, Width::B4, 0xfee0_4003);
    w(&mut p, &mut h, 0x5c, Width::B2, 0x0031);
    assert!(h.bound.is_empty());
    w(&mut p, &mut h, 0x52, Width::B2, 0x0181);
    assert_eq!(p.read(NIC, 0x52, Width::B2, &mut h), 0x0181);
    assert_eq!(
        (
            p.read(NIC, 0x54, Width::B4, &mut h),
            p.read(NIC, 0x5c, Width::B4, &mut h)
        ),
        (0xfee0_4000, 0x31)
    );
    let d = &h.devices[&NIC];
    assert_eq!(
        (
            d.get(0x54, Width::B4),
            d.get(0x5c, Width::B2),
            d.get(0x52, Width::B1)
        ),
        (0xfee0_0000, 0x30, 0x85)
    );
    let ipi = h.bound[&0x30];
    assert_eq!((ipi.dest, ipi.vector), (DestSpec::Physical(4), 0x31));
    // Moving it keeps the vector.
    w(&mut p, &mut h, 0x5d, Width::B1, 0x00);
    w(&mut p, &mut h, 0x5c, Width::B1, 0x42);
    assert_eq!((h.bound.len(), h.bound[&0x30].vector), (1, 0x42));
    // Mask is the device's own.
    w(&mut p, &mut h, 0x60, Width::B4, 1);
    assert_eq!(
        (
            p.read(NIC, 0x60, Width::B4, &mut h),
            h.devices[&NIC].get(0x60, Width::B4)
        ),
        (1, 1)
    );
    w(&mut p, &mut h, 0x52, Width::B1, 0x80);
    assert!(h.bound.is_empty());
    assert_eq!(h.devices[&NIC].get(0x52, Width::B1) & 1, 0);
}

#[test]
fn msi_without_a_vector_or_message_stays_off() {
    let (mut p, mut h) = machine();
    h.vectors_left = 0;
    p.write(NIC, 0x54, Width::B4, 0xfee0_0000, &mut h);
    p.write(NIC, 0x5c, Width::B2, 0x31, &mut h);
    p.write(NIC, 0x52, Width::B2, 1, &mut h);
    assert!(h.refused);
    assert_eq!(h.devices[&NIC].get(0x52, Width::B1) & 1, 0);
    // The next write tries again.
    h.vectors_left = 1;
    p.write(NIC, 0x5c, Width::B2, 0x32, &mut h);
    assert_eq!(h.devices[&NIC].get(0x52, Width::B1) & 1, 1);
    // Vector below 16: what was bound stays.
    p.write(NIC, 0x5c, Width::B2, 3, &mut h);
    assert_eq!(h.bound[&0x30].vector, 0x32);
}

fn entry(p: &mut VPci<u8>, h: &mut FakeHost, n: u64, words: [u32; 4]) {
    for (i, v) in words.into_iter().enumerate() {
        assert!(p.mmio_write(Gpa(TABLE + 16 * n + 4 * i as u64), Width::B4, v.into(), h));
    }
}

#[test]
fn msix_is_virtual() {
    let (mut p, mut h) = machine();
    assert_eq!(p.read(NIC, 0x70, Width::B4, &mut h), 0x0007_5011);
    assert!(p.traps(Gpa(TABLE)) && !p.traps(Gpa(0xc000_3000)));
    // Firmware's or Linux's order: enabled and masked, then entries, then unmasked.
    p.write(NIC, 0x72, Width::B2, 0xc007, &mut h);
    entry(&mut p, &mut h, 2, [0xfee0_2004, 0, 0x4141, 1]);
    assert!(h.bound.is_empty());
    entry(&mut p, &mut h, 2, [0xfee0_2004, 0, 0x0041, 0]);
    assert_eq!(h.bound[&0x30].dest, DestSpec::Logical(2));
    p.write(NIC, 0x72, Width::B2, 0x8007, &mut h);
    assert_eq!(p.read(NIC, 0x72, Width::B2, &mut h), 0x8007);
    assert_eq!(h.devices[&NIC].get(0x72, Width::B2), 0x8007);
    // The guest reads its own message, the device has the other.
    assert_eq!(
        p.mmio_read(Gpa(TABLE + 32), Width::B4, &mut h),
        Some(0xfee0_2004)
    );
    assert_eq!(p.mmio_read(Gpa(TABLE + 40), Width::B8, &mut h), Some(0x41));
    let dev = |h: &FakeHost| [0, 4, 8, 12].map(|o| h.memory[&(TABLE + 32 + o)]);
    assert_eq!(dev(&h), [0xfee0_0000, 0, 0x30, 0]);
    // Masking keeps the vector; disabling gives it back.
    p.mmio_write(Gpa(TABLE + 44), Width::B4, 1, &mut h);
    assert_eq!((dev(&h)[3], h.bound.len()), (1, 1));
    p.write(NIC, 0x72, Width::B2, 0, &mut h);
    assert!(h.bound.is_empty());
    // Other registers in the page are the device's.
    p.mmio_write(Gpa(0xc000_2ff0), Width::B4, 0x77, &mut h);
    assert_eq!(h.memory[&0xc000_2ff0], 0x77);
    assert_eq!(p.mmio_read(Gpa(0xc000_2ff0), Width::B4, &mut h), Some(0x77));
}

#[test]
fn a_message_that_names_a_pirq_needs_no_mask_bit() {
    let (mut p, mut h) = machine();
    p.write(NIC, 0x72, Width::B2, 0x8007, &mut h);
    // Pirq 0x217, its entry masked, as Linux leaves it.
    entry(&mut p, &mut h, 2, [0xfee1_7000, 0x200, 0x0700, 1]);
    assert_eq!(h.bound[&0x30].pirq(), Some(0x217));
    assert_eq!(h.memory[&(TABLE + 32 + 12)], 0);
    entry(&mut p, &mut h, 1, [0xfee1_7000, 0x200, 0x0041, 1]);
    assert_eq!(h.bound.len(), 1);
    // By MSI.
    p.write(NIC, 0x54, Width::B4, 0xfee2_0000, &mut h);
    p.write(NIC, 0x58, Width::B4, 0x100, &mut h);
    p.write(NIC, 0x5c, Width::B2, 0x700, &mut h);
    p.write(NIC, 0x52, Width::B2, 1, &mut h);
    assert!(h.bound.values().any(|ipi| ipi.pirq() == Some(0x120)));
}

#[test]
fn a_moved_message_is_told_in_two_whole_steps() {
    let (mut p, mut h) = machine();
    p.write(NIC, 0x54, Width::B4, 0xfee0_4000, &mut h);
    p.write(NIC, 0x5c, Width::B2, 0x31, &mut h);
    assert!(!p.owns(NIC, 0x30) && !p.readdress(NIC, 0x30, &mut h));
    p.write(NIC, 0x52, Width::B2, 1, &mut h);
    assert!(p.owns(NIC, 0x30) && !p.owns(Bdf::new(9, 0, 0), 0x30));
    h.moved.insert(0x30, 3);
    h.writes.clear();
    assert!(p.readdress(NIC, 0x30, &mut h));
    // The data, then the half of the address that names the CPU; the enable bit is not touched.
    let registers: Vec<u16> = h.writes.iter().map(|w| w.0).collect();
    assert_eq!(registers, [0x5c, 0x58, 0x54]);
    assert_eq!(h.devices[&NIC].get(0x54, Width::B4), 0xfee0_3000);
    // The guest sees its own.
    assert_eq!(p.read(NIC, 0x54, Width::B4, &mut h), 0xfee0_4000);
}

#[test]
fn a_moved_entry_is_told_when_the_guest_has_it_unmasked() {
    let (mut p, mut h) = machine();
    p.scan(&mut h);
    p.write(NIC, 0x72, Width::B2, 0x8000, &mut h);
    entry(&mut p, &mut h, 1, [0xfee0_0000, 0, 0x51, 0]);
    let dev = |h: &FakeHost| [0, 8, 12].map(|o| h.memory[&(TABLE + 16 + o)]);
    h.moved.insert(0x30, 2);
    assert!(p.owns(NIC, 0x30) && p.readdress(NIC, 0x30, &mut h));
    assert_eq!(dev(&h), [0xfee0_2000, 0x30, 0]);
    // Masked by the guest: stays as it is, and is told when it is unmasked.
    entry(&mut p, &mut h, 1, [0xfee0_0000, 0, 0x51, 1]);
    h.moved.insert(0x30, 5);
    assert!(p.readdress(NIC, 0x30, &mut h));
    assert_eq!(dev(&h), [0xfee0_2000, 0x30, 1]);
    entry(&mut p, &mut h, 1, [0xfee0_0000, 0, 0x51, 0]);
    assert_eq!(dev(&h), [0xfee0_5000, 0x30, 0]);
}

#[test]
fn entries_unmasked_before_enabling_are_bound_then() {
    let (mut p, mut h) = machine();
    p.scan(&mut h);
    entry(&mut p, &mut h, 0, [0xfee0_0000, 0, 0x51, 0]);
    assert!(h.bound.is_empty());
    p.write(NIC, 0x72, Width::B2, 0x8000, &mut h);
    assert_eq!(h.bound[&0x30].vector, 0x51);
    // Moved while unmasked.
    p.mmio_write(Gpa(TABLE), Width::B8, 0xfee0_6000, &mut h);
    assert_eq!(
        (h.bound.len(), h.bound[&0x30].dest),
        (1, DestSpec::Physical(6))
    );
}

#[test]
fn the_table_follows_its_bar() {
    let (mut p, mut h) = machine();
    p.scan(&mut h);
    p.write(NIC, 0x72, Width::B2, 0x8000, &mut h);
    entry(&mut p, &mut h, 0, [0xfee0_0000, 0, 0x51, 0]);
    p.take_unmaps();
    // Decoding off: nothing is trapped. Sizing, a new address, decoding on: the new page is.
    p.write(NIC, cfg::COMMAND, Width::B2, 0, &mut h);
    assert!(!p.traps(Gpa(TABLE)));
    p.write(NIC, cfg::BAR0 + 16, Width::B4, u32::MAX, &mut h);
    assert_eq!(p.read(NIC, cfg::BAR0 + 16, Width::B4, &mut h), 0xffff_c004);
    p.write(NIC, cfg::BAR0 + 16, Width::B4, 0xd000_0000, &mut h);
    p.write(NIC, cfg::BAR0 + 20, Width::B4, 1, &mut h);
    assert!(p.take_unmaps().is_empty());
    p.write(NIC, cfg::COMMAND, Width::B1, 2, &mut h);
    assert!(p.traps(Gpa(0x1_d000_2010)) && !p.traps(Gpa(TABLE)));
    assert_eq!(p.take_unmaps(), [Gfn(0x1_d0002)]);
    // The device's table is filled at its new place.
    assert_eq!(h.memory[&0x1_d000_2018], 0x30);
    // A move while decoding.
    p.write(NIC, cfg::BAR0 + 20, Width::B4, 2, &mut h);
    assert!(p.traps(Gpa(0x2_d000_2010)) && !p.traps(Gpa(0x1_d000_2010)));
}

#[test]
fn restore_rewrites_the_device() {
    let (mut p, mut h) = machine();
    p.scan(&mut h);
    p.write(NIC, 0x72, Width::B2, 0x8000, &mut h);
    entry(&mut p, &mut h, 0, [0xfee0_0000, 0, 0x51, 0]);
    h.memory.clear();
    h.devices.get_mut(&NIC).unwrap().put(0x72, Width::B2, 7);
    assert!(p.restore(NIC, &mut h));
    assert_eq!(
        (h.memory[&(TABLE + 8)], h.devices[&NIC].get(0x72, Width::B2)),
        (0x30, 0x8007)
    );
    assert!(!p.restore(Bdf::new(9, 9, 0), &mut h));
}

#[test]
fn renumbered_buses_are_found_again() {
    let (mut p, mut h) = machine();
    p.scan(&mut h);
    let old = Bdf::new(1, 0, 0);
    p.write(old, 0x54, Width::B4, 0xfee0_0000, &mut h);
    p.write(old, 0x5c, Width::B2, 0x31, &mut h);
    p.write(old, 0x52, Width::B2, 1, &mut h);
    assert_eq!(h.bound.len(), 1);
    p.write(Bdf::new(0, 1, 0), 0x18, Width::B4, 0x0005_0500, &mut h);
    let d = h.devices.remove(&old).unwrap();
    h.devices.insert(Bdf::new(5, 0, 0), d);
    assert!(h.bound.is_empty());
    assert_eq!(p.read(old, 0, Width::B4, &mut h), u32::MAX);
    assert_eq!(p.read(Bdf::new(5, 0, 0), 0x52, Width::B2, &mut h), 0x0180);
}

#[test]
fn sriov_is_hidden() {
    let (mut p, mut h) = machine();
    let bdf = Bdf::new(2, 0, 0);
    let mut d = Device::new(0x10c9_8086).cap(0x40, 0x10, &[0], &[]);
    d.put(0x100, Width::B4, 0x1401_0001);
    d.put(0x140, Width::B4, 0x2001_0010);
    d.put(0x200, Width::B4, 0x0001_0003);
    d.allow(0x140, 0x40, 0xff);
    h.devices.insert(bdf, d);
    assert_eq!(p.read(bdf, 0x140, Width::B4, &mut h), 0x2000_0000);
    assert_eq!(p.read(bdf, 0x148, Width::B4, &mut h), 0);
    p.write(bdf, 0x148, Width::B2, 0xffff, &mut h);
    assert_eq!(h.devices[&bdf].get(0x148, Width::B2), 0);
    assert_eq!(p.read(bdf, 0x200, Width::B4, &mut h), 0x0001_0003);
}

#[test]
fn firmware_leftovers_are_turned_off() {
    let (mut p, mut h) = machine();
    let d = h.devices.get_mut(&NIC).unwrap();
    d.put(0x52, Width::B2, 0x0185);
    d.put(0x72, Width::B2, 0x8007);
    p.scan(&mut h);
    let d = &h.devices[&NIC];
    assert_eq!((d.get(0x52, Width::B1) & 1, d.get(0x72, Width::B2)), (0, 7));
}

proptest! {
    /// Capability lists of any shape end.
    #[test]
    fn any_configuration_space_is_probed(bytes in prop::collection::vec(any::<u8>(), 4096), header in 0..3u8) {
        let mut d = Device::new(0x1234_5678);
        d.space[4..].copy_from_slice(&bytes[4..]);
        d.put(cfg::HEADER_TYPE, Width::B1, header.into());
        let mut h = FakeHost::with([(NIC, d)]);
        let mut p = VPci::new(vec![WINDOW]);
        p.scan(&mut h);
        for r in (0..4096).step_by(4) {
            p.read(NIC, r, Width::B4, &mut h);
        }
    }

    /// Any accesses: no panic, vectors are neither lost nor doubled, and all are given back in the end.
    #[test]
    fn any_sequence(ops in prop::collection::vec((0..5u8, any::<u16>(), any::<u32>(), 0..4u8), 1..150), left in 0..5usize) {
        let (mut p, mut h) = machine();
        h.vectors_left = left;
        p.scan(&mut h);
        let widths = [Width::B1, Width::B2, Width::B4, Width::B8];
        let interesting = [0x04, 0x10, 0x20, 0x24, 0x50, 0x52, 0x54, 0x58, 0x5c, 0x60, 0x70, 0x72, 0x18];
        for (op, a, v, w) in ops {
            let w = widths[usize::from(w)];
            let register = if a & 0x8000 != 0 { a & 0xfff } else { interesting[usize::from(a) % interesting.len()] };
            let bdf = [NIC, Bdf::new(0, 1, 0), Bdf::new(1, 0, 0), Bdf::new((a >> 8) as u8, 0, 0)][usize::from(a >> 13) & 3];
            let value = [v, 0xfee0_1000 | v & 0xf_f0ff, v & 0xff, 0x8000_0000 | v][v as usize >> 3 & 3];
            match op {
                0 => { p.read(bdf, register, w.min(Width::B4), &mut h); }
                1 => p.write(bdf, register, w.min(Width::B4), value, &mut h),
                2 => {
                    p.port_read(latch(bdf, register), 0xcf8 + (a & 7), w.min(Width::B4), &mut h);
                    p.port_write(latch(bdf, register), 0xcf8 + (a & 7), w.min(Width::B4), value, &mut h);
                }
                3 => { p.mmio_write(Gpa(TABLE + u64::from(a % 160)), w, value.into(), &mut h); }
                _ => {
                    let at = Gpa(WINDOW.base + u64::from(v) % (256 << 20));
                    p.mmio_read(at, w, &mut h);
                    p.mmio_write(at, w, value.into(), &mut h);
                }
            }
            prop_assert!(h.bound.len() <= left);
        }
        let all: Vec<_> = p.functions().collect();
        for bdf in all {
            p.write(bdf, 0x52, Width::B2, 0, &mut h);
            p.write(bdf, 0x72, Width::B2, 0, &mut h);
        }
        prop_assert!(h.bound.is_empty());
        prop_assert!(p.tables.len() <= 1 && p.trapped.len() <= 1);
    }
}
