//! The control domain's platform: which ports and device pages it reaches, and the virtual interrupt controllers in front
//! of the physical ones.
//!
//! Ports with a clear bit in the bitmap go to hardware without an exit. The rest is decided here: legacy timers and
//! interrupt controllers are absent (a PVH domain has none), the RTC is shared, the PCI configuration ports are virtual.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use arrayvec::ArrayVec;
use hv_hw::machine::IoApicInfo;
use hv_hw::sync::{SpinLock, rank};
use hv_hw::{Hw, Machine};
use x86_model::{Gpa, Width};

use crate::domain::Domain;
use crate::hvm::vioapic::{IoApicEffect, VIoApics};
use crate::hypervisor::Hypervisor;
use crate::irq::{Binding, HostVector, Source};
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
    /// Host vectors of the bound lines.
    lines: SpinLock<BTreeMap<u32, HostVector>, { rank::DEVICE }>,
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
    /// A platform in its reset state, with a virtual IO-APIC for each physical one.
    pub fn new(ioapics: &[IoApicInfo]) -> Self {
        Platform {
            rtc_index: SpinLock::new(0),
            ioapics: SpinLock::new(VIoApics::new(ioapics)),
            lines: SpinLock::new(BTreeMap::new()),
        }
    }

    /// Whether an access to this page is emulated.
    pub fn traps(&self, gpa: Gpa) -> bool {
        self.ioapics.lock().find(gpa).is_some()
    }

    /// Reads an emulated device page. `None` if nothing is there.
    pub fn mmio_read(&self, _hv: &Hypervisor, gpa: Gpa, width: Width) -> Option<u64> {
        let apics = self.ioapics.lock();
        let (which, offset) = apics.find(gpa)?;
        Some(apics.read(which, offset, width))
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
            let Some((which, offset)) = apics.find(gpa) else {
                return false;
            };
            apics.write(which, offset, width, value)
        };
        self.apply(hv, domain, effect);
        true
    }

    /// Does to the physical line what the guest's programming asks for. Takes no lock of its caller's rank.
    fn apply(&self, hv: &Hypervisor, domain: &Domain, effect: IoApicEffect) {
        match effect {
            IoApicEffect::None => {}
            IoApicEffect::Mask { gsi } => hv.hw.mask_gsi(gsi, true),
            IoApicEffect::Unmask { gsi } => hv.hw.mask_gsi(gsi, false),
            IoApicEffect::Bind { gsi, mode } => {
                let source = Source::Gsi { gsi, mode };
                let bound = self.lines.lock().get(&gsi).copied();
                let at = match bound {
                    Some(at) => {
                        hv.irqs.set(
                            at,
                            Binding {
                                domain: domain.id,
                                source,
                            },
                        );
                        Some(at)
                    }
                    None => hv.bind_vector(domain, 0, source),
                };
                let Some(at) = at else { return };
                self.lines.lock().insert(gsi, at);
                if hv.hw.route_gsi(gsi, at.cpu, at.vector, mode) {
                    hv.hw.mask_gsi(gsi, false);
                }
            }
        }
    }

    /// Reads a trapped port; `None` reads as all-ones.
    pub fn port_read(
        &self,
        hv: &Hypervisor,
        _local: &VcpuLocal,
        port: u16,
        width: Width,
    ) -> Option<u32> {
        match (port, width) {
            (0x71, Width::B1) => {
                let index = self.rtc_index.lock();
                hv.hw.port_out(0x70, Width::B1, u32::from(*index));
                Some(hv.hw.port_in(0x71, Width::B1))
            }
            _ => None,
        }
    }

    /// Writes a trapped port; writes that nothing takes are dropped.
    pub fn port_write(
        &self,
        hv: &Hypervisor,
        _domain: &Domain,
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
            _ => {}
        }
    }
}

impl Hypervisor {
    /// A bound line was raised: delivers what the guest's IO-APIC entry says.
    pub fn line_raised(&self, domain: &Domain, gsi: u32) {
        let Some(p) = &domain.platform else { return };
        let ipi = p.ioapics.lock().interrupt(gsi);
        if let Some(ipi) = ipi
            && self.deliver(domain, None, &ipi) == 0
        {
            p.ioapics.lock().not_accepted(gsi);
        }
    }

    /// The guest ended a level-triggered interrupt: lines that wait for it open again.
    pub fn guest_eoi(&self, domain: &Domain, vector: u8) {
        let Some(p) = &domain.platform else { return };
        let mut effects = ArrayVec::<IoApicEffect, 16>::new();
        // More lines on one vector than fit are opened by the next end of interrupt.
        p.ioapics.lock().eoi(vector, |e| {
            let _ = effects.try_push(e);
        });
        for e in effects {
            p.apply(self, domain, e);
        }
    }
}
