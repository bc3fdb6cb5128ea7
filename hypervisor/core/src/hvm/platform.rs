//! The control domain's platform: which ports and device pages it reaches, and the virtual interrupt controllers in front
//! of the physical ones.
//!
//! Ports with a clear bit in the bitmap go to hardware without an exit. The rest is decided here: legacy timers and
//! interrupt controllers are absent (a PVH domain has none), the RTC is shared, the PCI configuration ports are virtual.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use hv_hw::machine::{CpuId, IoApicInfo, MsiMessage, MsiSource};
use hv_hw::sync::{SpinLock, rank};
use hv_hw::{Hw, Machine};
use x86_model::acpi::ConfigWindow;
use x86_model::iommu::Requester;
use x86_model::iommu::requester::{self, requester};
use x86_model::pci::Bdf;
use x86_model::{Gpa, Hpa, Width};

use crate::domain::Domain;
use crate::hvm::vioapic::{IoApicEffect, VIoApics};
use crate::hvm::vlapic::Ipi;
use crate::hypervisor::Hypervisor;
use crate::irq::pirq::PCI_LINE;
use crate::irq::{IrqId, Seen, Source};
use crate::p2m::PageType;
use crate::pci::{HwConfig, PciHost, VPci};
use crate::vcpu::VcpuLocal;

/// Ports that a PVH dom0 does not reach: first and last.
const ABSENT: &[(u16, u16)] = &[
    // Interrupt controllers and their edge/level registers.
    (0x20, 0x21),
    (0xa0, 0xa1),
    (0x4d0, 0x4d1),
    // Interval timer and speaker gate.
    (0x40, 0x43),
    (0x61, 0x61),
];
/// Ports that this module handles.
const HANDLED: &[(u16, u16)] = &[(0x70, 0x71), (0xe9, 0xe9), (0xcf8, 0xcff)];

/// Facts about the host's fixed ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortFacts {
    /// The ACPI PM timer's port, 0 if none.
    pub pm_timer: u16,
}

/// The platform of a domain.
pub struct Platform {
    rtc_index: SpinLock<u8, { rank::DEVICE }>,
    ioapics: SpinLock<VIoApics, { rank::DEVICE }>,
    /// PCI configuration space.
    pci: SpinLock<VPci<IrqId>, { rank::DEVICE }>,
    windows: Vec<ConfigWindow>,
    /// The bound lines. Held while one is routed, so that it is where the table says.
    lines: SpinLock<BTreeMap<u32, IrqId>, { rank::DEVICE }>,
}

/// The I/O bitmap of the control domain: set bits exit.
pub fn io_bitmap(hw: &Hw, facts: PortFacts) -> &'static [u8; 8192] {
    let mut map = Box::new([0u8; 8192]);
    let mut trap = |first: u16, last: u16| {
        for p in first..=last {
            map[usize::from(p / 8)] |= 1 << (p % 8);
        }
    };
    for &(first, last) in ABSENT.iter().chain(HANDLED) {
        trap(first, last);
    }
    if facts.pm_timer != 0 {
        trap(facts.pm_timer, facts.pm_timer + 3);
    }
    for p in 0..=u16::MAX {
        if hw.port_is_ours(p) {
            trap(p, p);
        }
    }
    Box::leak(map)
}

impl Platform {
    /// A platform in its reset state, with a virtual IO-APIC for each physical one and the host's PCI configuration
    /// windows. The functions in `hidden` read as absent.
    pub fn new(ioapics: &[IoApicInfo], windows: Vec<ConfigWindow>, hidden: &[Bdf]) -> Self {
        let mut pci = VPci::new(windows.clone());
        for &bdf in hidden {
            pci.hide(bdf);
        }
        Platform {
            pci: SpinLock::new(pci),
            windows,
            rtc_index: SpinLock::new(0),
            ioapics: SpinLock::new(VIoApics::new(ioapics)),
            lines: SpinLock::new(BTreeMap::new()),
        }
    }

    /// Routes a line that is an event, and opens it.
    pub fn open_line(&self, hv: &Hypervisor, domain: &Domain, gsi: u32) {
        let mode = PCI_LINE;
        self.apply(hv, domain, IoApicEffect::Bind { gsi, mode });
    }

    /// Closes a line that was routed.
    pub fn close_line(&self, hv: &Hypervisor, gsi: u32) {
        if self.lines.lock().contains_key(&gsi) {
            hv.hw.mask_gsi(gsi, true);
        }
    }

    /// Whether an access to this page is emulated.
    pub fn traps(&self, gpa: Gpa) -> bool {
        self.ioapics.lock().find(gpa).is_some() || self.pci.lock().traps(gpa)
    }

    /// Reads an emulated device page. `None` if nothing is there.
    pub fn mmio_read(
        &self,
        hv: &Hypervisor,
        domain: &Domain,
        gpa: Gpa,
        width: Width,
    ) -> Option<u64> {
        {
            let apics = self.ioapics.lock();
            if let Some((which, offset)) = apics.find(gpa) {
                return Some(apics.read(which, offset, width));
            }
        }
        self.with_pci(hv, domain, |pci, host| pci.mmio_read(gpa, width, host))
    }

    /// Writes an emulated device page; false if nothing is there.
    pub fn mmio_write(
        &self,
        hv: &Hypervisor,
        domain: &Domain,
        gpa: Gpa,
        width: Width,
        value: u64,
    ) -> bool {
        let effect = {
            let mut apics = self.ioapics.lock();
            apics
                .find(gpa)
                .map(|(which, offset)| apics.write(which, offset, width, value))
        };
        match effect {
            Some(effect) => {
                self.apply(hv, domain, effect);
                true
            }
            None => self.with_pci(hv, domain, |pci, host| {
                pci.mmio_write(gpa, width, value, host)
            }),
        }
    }

    /// Works on the PCI configuration space and takes pages out of the domain's map that became trapped by it.
    fn with_pci<R>(
        &self,
        hv: &Hypervisor,
        domain: &Domain,
        f: impl FnOnce(&mut VPci<IrqId>, &mut Host<'_>) -> R,
    ) -> R {
        let mut host = Host {
            hv,
            domain,
            config: HwConfig {
                machine: &hv.hw,
                windows: &self.windows,
            },
        };
        let (result, unmaps) = {
            let mut pci = self.pci.lock();
            let result = f(&mut pci, &mut host);
            (result, pci.take_unmaps())
        };
        // Device memory mapped on first touch: there is no frame to give back. A BAR that is placed over memory (while its
        // size is probed, say) takes none away.
        let mapped = unmaps
            .iter()
            .filter(|&&gfn| domain.p2m.page_type(gfn) == Some(PageType::Mmio))
            .filter(|&&gfn| matches!(domain.p2m.unmap(gfn), Ok(Some(_))))
            .count();
        if mapped > 0 {
            hv.flush_domain(domain);
        }
        result
    }

    /// Finds the PCI functions that firmware configured, so that MSI-X tables are trapped before they are touched.
    pub fn scan_pci(&self, hv: &Hypervisor, domain: &Domain) -> usize {
        self.with_pci(hv, domain, |pci, host| pci.scan(host))
    }

    /// Programs a function's MSI and MSI-X registers again after a reset. False if there is no such function.
    pub fn restore_msi(&self, hv: &Hypervisor, domain: &Domain, bdf: Bdf) -> bool {
        self.with_pci(hv, domain, |pci, host| pci.restore(bdf, host))
    }

    /// Whether a configuration window of `segment` lies at `base` and covers these buses.
    pub fn has_window(&self, segment: u16, base: u64, first_bus: u8, last_bus: u8) -> bool {
        self.windows.iter().any(|w| {
            (w.segment, w.base) == (segment, base)
                && w.first_bus <= first_bus
                && last_bus <= w.last_bus
        })
    }

    /// Whether the function was found when its configuration space was looked at.
    pub fn knows_function(&self, bdf: Bdf) -> bool {
        self.pci.lock().functions().any(|known| known == bdf)
    }

    /// Does to the physical line what the guest's programming asks for. Takes no lock of its caller's rank.
    fn apply(&self, hv: &Hypervisor, domain: &Domain, effect: IoApicEffect) {
        match effect {
            IoApicEffect::None => {}
            IoApicEffect::Mask { gsi } => hv.hw.mask_gsi(gsi, true),
            IoApicEffect::Unmask { gsi } => hv.hw.mask_gsi(gsi, false),
            IoApicEffect::Retarget { gsi } => {
                let target = self.ioapics.lock().target(gsi);
                if let Some(home) = target.and_then(|t| hv.home_of(domain, &t))
                    && let Some(&id) = self.lines.lock().get(&gsi)
                {
                    // At the next arrival: a pin cannot be told without being masked for a moment.
                    hv.irqs.wish(id, home.0);
                }
            }
            IoApicEffect::Bind { gsi, mode } => {
                let source = Source::Gsi { gsi, mode };
                let mut lines = self.lines.lock();
                let id = match lines.get(&gsi).copied() {
                    Some(id) => {
                        hv.irqs.set_source(id, source);
                        Some(id)
                    }
                    None => hv.bind_vector(domain, CpuId(0), source),
                };
                let Some(id) = id else { return };
                lines.insert(gsi, id);
                let Some(at) = hv.irqs.place(id) else { return };
                if hv.hw.route_gsi(gsi, CpuId(at.cpu), at.vector, mode) {
                    hv.hw.mask_gsi(gsi, false);
                }
            }
        }
    }

    /// Moves a bound line to another pCPU. False if it stays for now.
    pub fn move_line(&self, hv: &Hypervisor, gsi: u32, id: IrqId, to: CpuId) -> bool {
        let lines = self.lines.lock();
        if lines.get(&gsi) != Some(&id) {
            return false;
        }
        let Some(m) = hv.irqs.begin(&hv.hw, id, to, false) else {
            return false;
        };
        let moved = hv.hw.move_gsi(gsi, to, m.to.vector);
        if !moved {
            hv_hw::guest_log!(
                Error,
                "GSI {gsi} is lost: it cannot be routed to CPU {}",
                to.0
            );
        }
        moved
    }

    /// Moves a bound message to another pCPU. False if it stays for now.
    pub fn move_message(
        &self,
        hv: &Hypervisor,
        domain: &Domain,
        device: Bdf,
        id: IrqId,
        to: CpuId,
    ) -> bool {
        self.with_pci(hv, domain, |pci, host| {
            // The device may have been given another vector, or none, since the caller looked.
            if !pci.owns(device, id) {
                return false;
            }
            match hv.begin_message(id, to) {
                None => false,
                // The device's message names the remapping entry, which has changed behind it.
                Some(true) if hv.hw.remaps_interrupts() => true,
                Some(true) => pci.readdress(device, id, host),
                Some(false) => {
                    hv_hw::guest_log!(Error, "{}: an interrupt of {device:?} is lost: its remapping entry cannot be written", domain.id);
                    false
                }
            }
        })
    }

    /// Reads a trapped port; `None` if nothing answers there.
    pub fn port_read(
        &self,
        hv: &Hypervisor,
        domain: &Domain,
        local: &VcpuLocal,
        port: u16,
        width: Width,
    ) -> Option<u32> {
        match (port, width) {
            (0x71, Width::B1) => {
                let index = self.rtc_index.lock();
                hv.hw.port_out(0x70, Width::B1, u32::from(*index));
                Some(hv.hw.port_in(0x71, Width::B1))
            }
            (0xcf8, Width::B4) => Some(local.pci_address),
            (0xcfc..=0xcff, _) => {
                let latch = local.pci_address;
                Some(self.with_pci(hv, domain, |pci, host| {
                    pci.port_read(latch, port, width, host)
                }))
            }
            _ => None,
        }
    }

    /// Writes a trapped port; writes that nothing takes are dropped.
    pub fn port_write(
        &self,
        hv: &Hypervisor,
        domain: &Domain,
        local: &mut VcpuLocal,
        port: u16,
        width: Width,
        value: u32,
    ) {
        match (port, width) {
            // Bit 7 masks NMI: not the guest's to set.
            (0x70, Width::B1) => *self.rtc_index.lock() = value as u8 & 0x7f,
            (0x71, Width::B1) => {
                let index = self.rtc_index.lock();
                hv.hw.port_out(0x70, Width::B1, u32::from(*index));
                hv.hw.port_out(0x71, Width::B1, value);
            }
            (0xcf8, Width::B4) => local.pci_address = value,
            (0xcfc..=0xcff, _) => {
                let latch = local.pci_address;
                self.with_pci(hv, domain, |pci, host| {
                    pci.port_write(latch, port, width, value, host)
                });
            }
            _ => {}
        }
    }
}

/// The machine behind a domain's PCI configuration space.
struct Host<'a> {
    hv: &'a Hypervisor,
    domain: &'a Domain,
    config: HwConfig<'a, Hw>,
}

impl PciHost for Host<'_> {
    type Vector = IrqId;

    fn config_read(&mut self, bdf: Bdf, register: u16, width: Width) -> u32 {
        self.config.read(bdf, register, width)
    }
    fn config_write(&mut self, bdf: Bdf, register: u16, width: Width, value: u32) {
        self.config.write(bdf, register, width, value);
    }
    fn mmio_read(&mut self, at: Hpa, width: Width) -> u64 {
        self.hv.hw.mmio_read(at, width).unwrap_or(width.mask())
    }
    fn mmio_write(&mut self, at: Hpa, width: Width, value: u64) {
        self.hv.hw.mmio_write(at, width, value);
    }
    fn bind(&mut self, bdf: Bdf, old: Option<IrqId>, guest: &Ipi) -> Option<(IrqId, MsiMessage)> {
        let hv = self.hv;
        let named = guest.pirq().filter(|_| self.domain.pirqs.is_some());
        let source = match named {
            Some(pirq) => Source::Pirq { pirq, device: bdf },
            None => Source::Msi {
                guest: *guest,
                device: bdf,
            },
        };
        let id = match old {
            Some(id) => {
                hv.irqs.set_source(id, source);
                hv.retarget_message(self.domain, id, guest);
                id
            }
            None => {
                let near = hv.home_of(self.domain, guest).unwrap_or(CpuId(0));
                hv.bind_vector(self.domain, near, source)?
            }
        };
        let message = self.message(bdf, id);
        if message.is_none() {
            hv_hw::guest_log!(
                Error,
                "{}: no remapping entry for an interrupt of {bdf:?}",
                self.domain.id
            );
            hv.unbind_vector(id);
        }
        Some((id, message?))
    }
    fn message(&mut self, bdf: Bdf, id: IrqId) -> Option<MsiMessage> {
        let hv = self.hv;
        let sender = MsiSource {
            device: bdf,
            requester: if hv.hw.remaps_interrupts() {
                requester(bdf, |at, word| self.config.read(at, word, Width::B4))
            } else {
                Requester::Exact(requester::id(bdf))
            },
        };
        hv.route_message(self.domain, id, &sender)
    }
    fn unbind(&mut self, id: IrqId) {
        self.hv.unbind_vector(id);
    }
}

impl Hypervisor {
    /// A bound line was raised: delivers what the guest's IO-APIC entry says, after moving the line if it should be on
    /// another pCPU.
    pub fn line_raised(&self, domain: &Domain, gsi: u32, seen: &Seen) {
        let Some(p) = &domain.platform else { return };
        if self.raise_line_pirq(domain, gsi) {
            return;
        }
        let ipi = p.ioapics.lock().interrupt(gsi);
        if let Some(ipi) = ipi {
            self.consider_move(domain, seen, &ipi);
            self.deliver_line(domain, p, gsi, &ipi);
        }
    }

    /// Makes a line look raised.
    pub fn raise_line(&self, domain: &Domain, gsi: u32) {
        let Some(p) = &domain.platform else { return };
        if self.raise_line_pirq(domain, gsi) {
            return;
        }
        let ipi = p.ioapics.lock().interrupt(gsi);
        if let Some(ipi) = ipi {
            self.deliver_line(domain, p, gsi, &ipi);
        }
    }

    fn deliver_line(&self, domain: &Domain, p: &Platform, gsi: u32, ipi: &Ipi) {
        if self.deliver(domain, None, ipi) == 0 {
            p.ioapics.lock().not_accepted(gsi);
        }
    }

    /// The guest ended a level-triggered interrupt: lines that wait for it open again.
    pub fn guest_eoi(&self, domain: &Domain, vector: u8) {
        let Some(p) = &domain.platform else { return };
        // Nearly always one line; a guest that puts more on one vector than fit makes the list spill to the heap, bounded
        // by the number of pins.
        let mut effects = ArrayVec::<IoApicEffect, 16>::new();
        let mut spilled = Vec::new();
        p.ioapics.lock().eoi(vector, |e| {
            if let Err(full) = effects.try_push(e) {
                spilled.push(full.element());
            }
        });
        for e in effects.into_iter().chain(spilled) {
            p.apply(self, domain, e);
        }
    }
}
