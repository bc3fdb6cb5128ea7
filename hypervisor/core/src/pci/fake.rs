//! A fake PCI machine for tests: configuration spaces with BARs and read-only fields, device memory, vectors.

use std::collections::BTreeMap;

use hv_hw::machine::MsiMessage;
use x86_model::pci::{Bdf, cfg};
use x86_model::{Hpa, Width};

use super::PciHost;
use crate::hvm::vlapic::Ipi;

pub struct Device {
    pub space: Vec<u8>,
    writable: Vec<u8>,
}

impl Device {
    /// A type 0 function without capabilities.
    pub fn new(id: u32) -> Self {
        let mut d = Self {
            space: vec![0; 4096],
            writable: vec![0; 4096],
        };
        d.put(0, Width::B4, id);
        d.allow(cfg::COMMAND, 2, 0xff);
        d
    }
    pub fn put(&mut self, at: u16, w: Width, v: u32) {
        let at = usize::from(at);
        self.space[at..at + w.bytes()].copy_from_slice(&v.to_le_bytes()[..w.bytes()]);
    }
    pub fn get(&self, at: u16, w: Width) -> u32 {
        let mut b = [0; 4];
        let at = usize::from(at);
        b[..w.bytes()].copy_from_slice(&self.space[at..at + w.bytes()]);
        u32::from_le_bytes(b)
    }
    pub fn allow(&mut self, at: u16, n: usize, mask: u8) {
        self.writable[usize::from(at)..usize::from(at) + n].fill(mask);
    }
    /// A 64-bit memory BAR of 16 KiB at `address`, decoded.
    pub fn bar64(mut self, bar: u16, address: u64) -> Self {
        let at = cfg::BAR0 + 4 * bar;
        self.put(at, Width::B4, address as u32 | 4);
        self.put(at + 4, Width::B4, (address >> 32) as u32);
        self.allow(at + 2, 6, 0xff);
        self.allow(at + 1, 1, 0xc0);
        self.put(cfg::COMMAND, Width::B2, 2);
        self
    }
    /// A capability at `at` in front of the list.
    pub fn cap(mut self, at: u16, id: u8, words: &[u32], writable: &[(u16, usize)]) -> Self {
        let next = self.get(cfg::CAPABILITIES, Width::B1);
        self.put(cfg::STATUS, Width::B2, 0x10);
        self.put(cfg::CAPABILITIES, Width::B1, at.into());
        for (i, w) in words.iter().enumerate() {
            self.put(at + 4 * i as u16, Width::B4, *w);
        }
        self.put(at, Width::B1, id.into());
        self.put(at + 1, Width::B1, next);
        for (o, n) in writable {
            self.allow(at + o, *n, 0xff);
        }
        self
    }
    /// MSI, 64-bit, maskable, four vectors.
    pub fn msi(self) -> Self {
        self.cap(
            0x50,
            5,
            &[0x0184_0000, 0, 0, 0, 0, 0x55],
            &[(2, 1), (4, 16)],
        )
    }
    /// MSI-X with eight entries at offset 0x2010 of BAR 4.
    pub fn msix(self) -> Self {
        self.bar64(4, 0xc000_0000)
            .cap(0x70, 0x11, &[0x0007_0000, 0x2014, 0x3004], &[(3, 1)])
    }
}

#[derive(Default)]
pub struct FakeHost {
    pub devices: BTreeMap<Bdf, Device>,
    pub memory: BTreeMap<u64, u32>,
    pub bound: BTreeMap<u8, Ipi>,
    /// Where vectors were moved to.
    pub moved: BTreeMap<u8, u8>,
    /// Writes to configuration space: register and value.
    pub writes: Vec<(u16, u32)>,
    pub vectors_left: usize,
    pub refused: bool,
}

impl FakeHost {
    pub fn with(devices: impl IntoIterator<Item = (Bdf, Device)>) -> Self {
        Self {
            devices: devices.into_iter().collect(),
            vectors_left: 200,
            ..Self::default()
        }
    }
}

impl PciHost for FakeHost {
    type Vector = u8;

    fn config_read(&mut self, bdf: Bdf, register: u16, width: Width) -> u32 {
        assert!(
            register.is_multiple_of(width.bytes() as u16) && register < 4096 && width <= Width::B4
        );
        self.devices
            .get(&bdf)
            .map_or(width.mask() as u32, |d| d.get(register, width))
    }
    fn config_write(&mut self, bdf: Bdf, register: u16, width: Width, value: u32) {
        assert!(
            register.is_multiple_of(width.bytes() as u16) && register < 4096 && width <= Width::B4
        );
        assert!(u64::from(value) <= width.mask());
        self.writes.push((register, value));
        if let Some(d) = self.devices.get_mut(&bdf) {
            for (i, v) in value
                .to_le_bytes()
                .into_iter()
                .take(width.bytes())
                .enumerate()
            {
                let at = usize::from(register) + i;
                let m = d.writable[at];
                d.space[at] = d.space[at] & !m | v & m;
            }
        }
    }
    fn mmio_read(&mut self, at: Hpa, width: Width) -> u64 {
        u64::from(self.memory.get(&at.0).copied().unwrap_or(u32::MAX)) & width.mask()
    }
    fn mmio_write(&mut self, at: Hpa, _: Width, value: u64) {
        self.memory.insert(at.0, value as u32);
    }
    fn bind(&mut self, bdf: Bdf, old: Option<u8>, guest: &Ipi) -> Option<(u8, MsiMessage)> {
        assert!(self.devices.contains_key(&bdf), "no such sender: {bdf:?}");
        if let Some(v) = old {
            assert!(
                self.bound.contains_key(&v),
                "re-bound a vector that was given back"
            );
        }
        let v = match old {
            Some(v) => v,
            None if self.bound.len() >= self.vectors_left => {
                self.refused = true;
                return None;
            }
            None => (0x30..=0xff).find(|v| !self.bound.contains_key(v))?,
        };
        self.bound.insert(v, *guest);
        Some((v, self.message(bdf, v)?))
    }
    fn message(&mut self, _: Bdf, vector: u8) -> Option<MsiMessage> {
        assert!(self.bound.contains_key(&vector));
        let moved = self.moved.get(&vector).copied();
        Some(MsiMessage {
            address: 0xfee0_0000 | moved.map_or(0, |cpu| u64::from(cpu) << 12),
            data: vector.into(),
        })
    }
    fn unbind(&mut self, vector: u8) {
        assert!(
            self.bound.remove(&vector).is_some(),
            "gave a vector back twice"
        );
    }
}
