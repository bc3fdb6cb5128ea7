//! Virtual PCI configuration space of the control domain.
//!
//! Everything goes to the physical devices, with these exceptions: the MSI and MSI-X capabilities and the MSI-X tables
//! are kept virtual, because the guest writes its own vectors and APIC ids there while the device must be given the
//! hypervisor's; SR-IOV is hidden; functions that the hypervisor uses itself read as absent.
//!
//! [`VPci`] is one value per domain behind the domain's device lock. It reaches the hardware and the interrupt table
//! through [`PciHost`]. Pages that hold an MSI-X table must not be mapped in the guest: [`VPci::traps`] says so to the
//! fault handler, and [`VPci::take_unmaps`] names pages that became trapped and may still be mapped.
//!
//! ```text
//! let mut pci = VPci::new(windows);
//! pci.scan(&mut host);
//! // ports 0xcfc..0xcff, `latch` is the vCPU's last write to 0xcf8
//! let value = pci.port_read(latch, port, width, &mut host);
//! pci.port_write(latch, port, width, value, &mut host);
//! // second-stage faults
//! if pci.traps(gpa) { pci.mmio_read(gpa, width, &mut host) ... }
//! // after each, with the lock dropped
//! for gfn in pci.take_unmaps() { p2m.unmap(gfn); }
//! ```

mod function;
mod hw;
mod msi;
mod msix;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt::Debug;

use hv_hw::machine::MsiMessage;
use x86_model::acpi::ConfigWindow;
use x86_model::pci::{AddressLatch, Bdf, PORT_DATA, cfg, ecam_target};
use x86_model::{Gfn, Gpa, Hpa, PAGE_SIZE, Width};

use crate::hvm::vlapic::Ipi;
use function::Function;
pub use hw::HwConfig;

/// The machine as the virtual configuration space needs it. All methods are called with the domain's device lock held.
pub trait PciHost {
    /// A physical interrupt vector that a message was bound to.
    type Vector: Copy + Debug;

    /// Reads physical configuration space; all ones where nothing answers. `width` is at most 4 and naturally aligned.
    fn config_read(&mut self, bdf: Bdf, register: u16, width: Width) -> u32;
    /// Writes physical configuration space.
    fn config_write(&mut self, bdf: Bdf, register: u16, width: Width, value: u32);
    /// Reads device memory; all ones where nothing answers.
    fn mmio_read(&mut self, at: Hpa, width: Width) -> u64;
    /// Writes device memory.
    fn mmio_write(&mut self, at: Hpa, width: Width, value: u64);
    /// Makes a physical vector deliver `guest`, re-using `old` where possible. The message that the device `bdf` must
    /// send; `None` if there is no vector left (`old` is then free).
    fn bind(
        &mut self,
        bdf: Bdf,
        old: Option<Self::Vector>,
        guest: &Ipi,
    ) -> Option<(Self::Vector, MsiMessage)>;
    /// The message that the device must send for a bound vector, which may have moved. `None` as for [`PciHost::bind`].
    fn message(&mut self, bdf: Bdf, vector: Self::Vector) -> Option<MsiMessage>;
    /// Gives a vector back.
    fn unbind(&mut self, vector: Self::Vector);
}

/// The function and register that a window has at an address.
fn window_target(w: &ConfigWindow, gpa: Gpa) -> Option<(Bdf, u16)> {
    let (bdf, register) = ecam_target(w.segment, gpa.0.checked_sub(w.base)?)?;
    (w.first_bus..=w.last_bus)
        .contains(&bdf.bus)
        .then_some((bdf, register))
}

/// The virtual configuration space.
#[derive(Debug)]
pub struct VPci<V> {
    windows: Vec<ConfigWindow>,
    functions: BTreeMap<Bdf, Function<V>>,
    hidden: BTreeSet<Bdf>,
    /// MSI-X tables in decoded memory: start and owner, to end.
    tables: BTreeMap<(u64, Bdf), u64>,
    /// Pages that contain part of a table.
    trapped: BTreeMap<u64, u32>,
    unmaps: Vec<Gfn>,
}

impl<V: Copy + Debug + PartialEq> VPci<V> {
    /// With these configuration windows. Functions are found as the guest touches them, or by [`VPci::scan`].
    pub fn new(windows: Vec<ConfigWindow>) -> Self {
        Self {
            windows,
            functions: BTreeMap::new(),
            hidden: BTreeSet::new(),
            tables: BTreeMap::new(),
            trapped: BTreeMap::new(),
            unmaps: Vec::new(),
        }
    }

    /// Makes a function read as absent: one that the hypervisor uses itself.
    pub fn hide(&mut self, bdf: Bdf) {
        self.hidden.insert(bdf);
    }

    /// Functions found so far.
    pub fn functions(&self) -> impl Iterator<Item = Bdf> {
        self.functions.keys().copied()
    }

    /// Finds all functions that are reachable from bus 0 of each segment through configured bridges. Returns their number.
    pub fn scan<H: PciHost<Vector = V>>(&mut self, host: &mut H) -> usize {
        let mut segments: BTreeSet<u16> = self.windows.iter().map(|w| w.segment).collect();
        segments.insert(0);
        for segment in segments {
            let first = self
                .windows
                .iter()
                .find(|w| w.segment == segment)
                .map_or(0, |w| w.first_bus);
            let mut buses = alloc::vec![first];
            let mut seen = BTreeSet::from([first]);
            while let Some(bus) = buses.pop() {
                for device in 0..32 {
                    for secondary in self.scan_device(
                        Bdf {
                            segment,
                            bus,
                            devfn: device << 3,
                        },
                        host,
                    ) {
                        if seen.insert(secondary) {
                            buses.push(secondary);
                        }
                    }
                }
            }
        }
        self.functions.len()
    }

    /// Finds the functions of one device; the buses behind its bridges.
    fn scan_device<H: PciHost<Vector = V>>(&mut self, first: Bdf, host: &mut H) -> Vec<u8> {
        let mut buses = Vec::new();
        for function in 0..8 {
            let bdf = Bdf {
                devfn: first.devfn | function,
                ..first
            };
            if !self.known(bdf, host) {
                if function == 0 {
                    break;
                }
                continue;
            }
            let header = host.config_read(bdf, cfg::HEADER_TYPE, Width::B1) as u8;
            if header & 0x7f == 1 {
                buses.push(host.config_read(bdf, cfg::SECONDARY_BUS, Width::B1) as u8);
            }
            if function == 0 && header & x86_model::pci::HEADER_MULTI == 0 {
                break;
            }
        }
        buses
    }

    /// Whether the function exists; finds it if it is new.
    fn known<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) -> bool {
        if self.functions.contains_key(&bdf) {
            return true;
        }
        if self.hidden.contains(&bdf) {
            return false;
        }
        let Some(f) = Function::probe(bdf, host) else {
            return false;
        };
        self.functions.insert(bdf, f);
        self.follow_table(bdf, host);
        true
    }

    /// Reads the data ports. Accesses that leave the four ports, or with the latch disabled, read all ones.
    pub fn port_read<H: PciHost<Vector = V>>(
        &mut self,
        latch: u32,
        port: u16,
        width: Width,
        host: &mut H,
    ) -> u32 {
        let lane = port.wrapping_sub(PORT_DATA);
        match AddressLatch(latch).target(lane) {
            Some((bdf, register)) if lane < 4 => self.read(bdf, register, width, host),
            _ => width.mask() as u32,
        }
    }

    /// Writes the data ports.
    pub fn port_write<H: PciHost<Vector = V>>(
        &mut self,
        latch: u32,
        port: u16,
        width: Width,
        value: u32,
        host: &mut H,
    ) {
        let lane = port.wrapping_sub(PORT_DATA);
        if let Some((bdf, register)) = AddressLatch(latch).target(lane)
            && lane < 4
        {
            self.write(bdf, register, width, value, host);
        }
    }

    /// Reads a configuration register. An access must lie within one 32-bit word.
    pub fn read<H: PciHost<Vector = V>>(
        &mut self,
        bdf: Bdf,
        register: u16,
        width: Width,
        host: &mut H,
    ) -> u32 {
        let ones = width.mask() as u32;
        let lane = register & 3;
        if usize::from(lane) + width.bytes() > 4 || register > 0xfff || !self.known(bdf, host) {
            return ones;
        }
        let word = register & !3;
        match self.functions.get(&bdf) {
            Some(f) if f.filters(word) => f.view(bdf, word, host) >> (lane * 8) & ones,
            _ => read_aligned(bdf, register, width, host),
        }
    }

    /// Writes a configuration register, under the same rule. Writes to absent functions go nowhere.
    pub fn write<H: PciHost<Vector = V>>(
        &mut self,
        bdf: Bdf,
        register: u16,
        width: Width,
        value: u32,
        host: &mut H,
    ) {
        let lane = register & 3;
        if usize::from(lane) + width.bytes() > 4 || register > 0xfff || !self.known(bdf, host) {
            return;
        }
        let Some(f) = self.functions.get_mut(&bdf) else {
            return;
        };
        let word = register & !3;
        if f.filters(word) {
            let mask = (width.mask() as u32) << (lane * 8);
            f.set(bdf, word, mask, value << (lane * 8) & mask, host);
            return;
        }
        let buses = f.bridge_buses(bdf, word, host);
        write_aligned(bdf, register, width, value, host);
        if f.moves_table(word) {
            self.follow_table(bdf, host);
        }
        if let Some(old) = buses {
            self.renumbered(bdf, old, host);
        }
    }

    /// After a write to a bridge's bus numbers: what was found behind it is found again under its new address.
    fn renumbered<H: PciHost<Vector = V>>(&mut self, bridge: Bdf, old: (u8, u8), host: &mut H) {
        let Some(new) = self
            .functions
            .get(&bridge)
            .and_then(|f| f.bridge_buses(bridge, function::BUS_NUMBERS, host))
        else {
            return;
        };
        if new == old {
            return;
        }
        let behind = |b: &Bdf| {
            let on = |r: (u8, u8)| b.bus != 0 && (r.0..=r.1).contains(&b.bus);
            *b != bridge && b.segment == bridge.segment && (on(old) || on(new))
        };
        let gone: Vec<Bdf> = self.functions.keys().copied().filter(behind).collect();
        for bdf in gone {
            if let Some(mut f) = self.functions.remove(&bdf) {
                f.release(host);
                self.forget_table(bdf);
            }
        }
    }

    /// Rewrites the physical MSI and MSI-X registers of a function after a reset that the guest does not undo itself.
    /// False if the function is unknown.
    pub fn restore<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) -> bool {
        if !self.known(bdf, host) {
            return false;
        }
        self.follow_table(bdf, host);
        if let Some(f) = self.functions.get_mut(&bdf) {
            f.restore(bdf, host);
        }
        true
    }

    /// Whether a function has this vector for one of its messages.
    pub fn owns(&self, bdf: Bdf, vector: V) -> bool {
        self.functions.get(&bdf).is_some_and(|f| f.owns(vector))
    }

    /// Tells a function the message of a vector that has moved, if the function may send it; otherwise it is told when the
    /// guest lets it. False if the function has no such vector.
    pub fn readdress<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, vector: V, host: &mut H) -> bool {
        (self.functions.get_mut(&bdf)).is_some_and(|f| f.readdress(bdf, vector, host))
    }

    /// Whether a guest page is emulated here: a configuration window, or an MSI-X table in decoded memory.
    #[inline]
    pub fn traps(&self, gpa: Gpa) -> bool {
        self.trapped.contains_key(&gpa.gfn().0)
            || self.windows.iter().any(|w| window_target(w, gpa).is_some())
    }

    /// Pages that became trapped since the last call: the caller removes them from the guest's map.
    pub fn take_unmaps(&mut self) -> Vec<Gfn> {
        core::mem::take(&mut self.unmaps)
    }

    /// Reads a trapped page. `None` if nothing here traps it.
    pub fn mmio_read<H: PciHost<Vector = V>>(
        &mut self,
        gpa: Gpa,
        width: Width,
        host: &mut H,
    ) -> Option<u64> {
        if let Some((bdf, register)) = self.windows.iter().find_map(|w| window_target(w, gpa)) {
            return Some(match width {
                Width::B8 => {
                    let low = self.read(bdf, register, Width::B4, host);
                    let high = self.read(bdf, register + 4, Width::B4, host);
                    u64::from(low) | u64::from(high) << 32
                }
                _ => self.read(bdf, register, width, host).into(),
            });
        }
        if !self.trapped.contains_key(&gpa.gfn().0) {
            return None;
        }
        let table = self.table_at(gpa).and_then(|(bdf, offset)| {
            let msix = self.functions.get(&bdf)?.msix()?;
            Some(msix.read(offset, width))
        });
        Some(table.unwrap_or_else(|| host.mmio_read(Hpa(gpa.0), width)))
    }

    /// Writes a trapped page; false if nothing here traps it.
    pub fn mmio_write<H: PciHost<Vector = V>>(
        &mut self,
        gpa: Gpa,
        width: Width,
        value: u64,
        host: &mut H,
    ) -> bool {
        if let Some((bdf, register)) = self.windows.iter().find_map(|w| window_target(w, gpa)) {
            if width == Width::B8 {
                self.write(bdf, register, Width::B4, value as u32, host);
                self.write(bdf, register + 4, Width::B4, (value >> 32) as u32, host);
            } else {
                self.write(bdf, register, width, value as u32, host);
            }
            return true;
        }
        if !self.trapped.contains_key(&gpa.gfn().0) {
            return false;
        }
        match self.table_at(gpa) {
            Some((bdf, offset)) => {
                if let Some(msix) = self.functions.get_mut(&bdf).and_then(Function::msix_mut) {
                    msix.write(offset, width, value, host);
                }
            }
            None => host.mmio_write(Hpa(gpa.0), width, value),
        }
        true
    }

    /// The function whose table contains the address, and the offset in the table.
    fn table_at(&self, gpa: Gpa) -> Option<(Bdf, u32)> {
        let top = Bdf {
            segment: u16::MAX,
            bus: u8::MAX,
            devfn: u8::MAX,
        };
        let (&(start, bdf), &end) = self.tables.range(..=(gpa.0, top)).next_back()?;
        (gpa.0 < end).then(|| (bdf, (gpa.0 - start) as u32))
    }

    /// Looks where the function's MSI-X table is decoded now, and moves the trapped pages there.
    fn follow_table<H: PciHost<Vector = V>>(&mut self, bdf: Bdf, host: &mut H) {
        let Some(f) = self.functions.get_mut(&bdf) else {
            return;
        };
        let Some(moved) = f.locate_table(bdf, host) else {
            return;
        };
        self.forget_table(bdf);
        let Some(range) = moved else { return };
        self.tables.insert((range.start, bdf), range.end);
        for page in pages(&range) {
            *self.trapped.entry(page).or_insert(0) += 1;
            self.unmaps.push(Gfn(page));
        }
    }

    fn forget_table(&mut self, bdf: Bdf) {
        let Some((&(start, _), &end)) = self.tables.iter().find(|((_, b), _)| *b == bdf) else {
            return;
        };
        self.tables.remove(&(start, bdf));
        for page in pages(&(start..end)) {
            if let Some(n) = self.trapped.get_mut(&page) {
                *n -= 1;
                if *n == 0 {
                    self.trapped.remove(&page);
                }
            }
        }
    }
}

fn pages(range: &core::ops::Range<u64>) -> core::ops::RangeInclusive<u64> {
    range.start / PAGE_SIZE..=(range.end - 1) / PAGE_SIZE
}

/// Reads within one word; an odd 16-bit access, which hosts need not support, is cut out of the word.
fn read_aligned<H: PciHost>(bdf: Bdf, register: u16, width: Width, host: &mut H) -> u32 {
    if register & (width.bytes() as u16 - 1) == 0 {
        return host.config_read(bdf, register, width);
    }
    let word = host.config_read(bdf, register & !3, Width::B4);
    word >> ((register & 3) * 8) & width.mask() as u32
}

fn write_aligned<H: PciHost>(bdf: Bdf, register: u16, width: Width, value: u32, host: &mut H) {
    if register & (width.bytes() as u16 - 1) == 0 {
        return host.config_write(bdf, register, width, value & width.mask() as u32);
    }
    for i in 0..width.bytes() as u16 {
        host.config_write(bdf, register + i, Width::B1, value >> (i * 8) & 0xff);
    }
}
