//! Virtual IO-APICs of the control domain: one for each physical one, with its id, address, GSI base and pin count.
//!
//! The guest programs virtual vectors and destinations; the physical lines belong to the hypervisor. A write returns what
//! must happen to the physical line. One value per domain, behind the domain's interrupt lock: the methods are short and
//! call nobody.
//!
//! A level-triggered line is masked physically from its arrival until the guest's EOI, so a guest that never ends its
//! interrupt silences its device and nobody else.
//!
//! ```text
//! // guest access at gpa
//! if let Some((n, offset)) = ioapics.find(gpa) {
//!     match ioapics.write(n, offset, width, value) {
//!         IoApicEffect::None => {}
//!         IoApicEffect::Bind { gsi, mode } => { hw.route_gsi(gsi, cpu, vector, mode); hw.mask_gsi(gsi, false); }
//!         IoApicEffect::Unmask { gsi } => hw.mask_gsi(gsi, false),
//!         IoApicEffect::Mask { gsi } => hw.mask_gsi(gsi, true),
//!     }
//! }
//! // the host vector of a GSI arrived
//! if ioapics.is_level(gsi) { hw.mask_gsi(gsi, true); }
//! hw.eoi();
//! if let Some(ipi) = ioapics.interrupt(gsi) {
//!     if ipi.resolve(None, n, facts, deliver) == 0 { ioapics.not_accepted(gsi); }
//! }
//! // Effect::Eoi(vector) of a local APIC
//! ioapics.eoi(vector, |effect| apply(effect));     // as for a write
//! ```

use alloc::vec::Vec;

use hv_hw::machine::{IoApicInfo, LineMode};
use x86_model::apic::{
    DeliveryMode, IOAPIC_INDEX, IOAPIC_REG_ARB, IOAPIC_REG_ID, IOAPIC_REG_RTE, IOAPIC_REG_VERSION,
    IOAPIC_WINDOW, Rte,
};
use x86_model::{Gpa, Width};

use super::vlapic::{DestSpec, Ipi};

/// Version 0x11: no EOI register, so guests end interrupts through the local APIC alone.
const VERSION: u32 = 0x11;
/// Size of the register page.
const PAGE: u64 = 0x1000;

/// What a register write asks of the physical line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoApicEffect {
    /// Nothing.
    None,
    /// Route the line to the hypervisor with this signalling and unmask it. First unmask, or the signalling changed.
    Bind {
        /// The line.
        gsi: u32,
        /// How it is signalled.
        mode: LineMode,
    },
    /// Unmask the line.
    Unmask {
        /// The line.
        gsi: u32,
    },
    /// Mask the line.
    Mask {
        /// The line.
        gsi: u32,
    },
    /// The line's interrupts are for another target from now on ([`VIoApics::target`]).
    Retarget {
        /// The line.
        gsi: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    rte: Rte,
    /// Signalling that the physical line was last bound with.
    bound: Option<LineMode>,
    /// The physical line is unmasked.
    open: bool,
    /// Vector under which the interrupt whose EOI is awaited (remote IRR) was sent: the guest may change the entry
    /// meanwhile.
    inflight: u8,
}

impl Pin {
    fn mode(&self) -> LineMode {
        LineMode {
            level: self.rte.level(),
            low: self.rte.low(),
        }
    }

    /// Whether the physical line should be unmasked.
    fn wants_open(&self) -> bool {
        let deliverable = matches!(
            self.rte.mode(),
            DeliveryMode::Fixed | DeliveryMode::LowestPriority | DeliveryMode::Nmi
        );
        deliverable && !self.rte.masked() && !self.rte.remote_irr()
    }

    /// Brings the physical line to what the entry asks for.
    fn settle(&mut self, gsi: u32) -> IoApicEffect {
        let wants = self.wants_open();
        if wants && self.bound != Some(self.mode()) {
            self.bound = Some(self.mode());
            self.open = true;
            return IoApicEffect::Bind {
                gsi,
                mode: self.mode(),
            };
        }
        match (core::mem::replace(&mut self.open, wants), wants) {
            (false, true) => IoApicEffect::Unmask { gsi },
            (true, false) => IoApicEffect::Mask { gsi },
            _ => IoApicEffect::None,
        }
    }
}

#[derive(Debug)]
struct VIoApic {
    id: u8,
    address: u64,
    gsi_base: u32,
    index: u8,
    pins: Vec<Pin>,
}

/// All IO-APICs of a domain.
#[derive(Debug, Default)]
pub struct VIoApics {
    apics: Vec<VIoApic>,
}

impl VIoApics {
    /// In their reset state: every pin masked. At most 240 pins each are kept, the most that the index reaches.
    pub fn new(physical: &[IoApicInfo]) -> Self {
        let pin = Pin {
            rte: Rte(Rte::MASKED),
            bound: None,
            open: false,
            inflight: 0,
        };
        let apics = physical
            .iter()
            .map(|p| VIoApic {
                id: p.id,
                address: p.address.0,
                gsi_base: p.gsi_base,
                index: 0,
                pins: alloc::vec![pin; p.pins.clamp(1, 240) as usize],
            })
            .collect();
        Self { apics }
    }

    /// The IO-APIC whose register page contains this address, and the offset in it.
    #[inline]
    pub fn find(&self, gpa: Gpa) -> Option<(usize, u64)> {
        self.apics
            .iter()
            .position(|a| gpa.0 & !(PAGE - 1) == a.address & !(PAGE - 1))
            .map(|n| (n, gpa.0 & (PAGE - 1)))
    }

    /// Reads a register of IO-APIC `which` (from [`VIoApics::find`]). Unknown registers read as zero.
    pub fn read(&self, which: usize, offset: u64, width: Width) -> u64 {
        let Some(a) = self.apics.get(which) else {
            return width.mask();
        };
        let (register, lane) = (offset & !3, (offset & 3) * 8);
        let value = match register {
            IOAPIC_INDEX => u32::from(a.index),
            IOAPIC_WINDOW => a.window(),
            _ => 0,
        };
        u64::from(value) >> lane & width.mask()
    }

    /// Writes a register. The window takes whole 32-bit words only.
    pub fn write(&mut self, which: usize, offset: u64, width: Width, value: u64) -> IoApicEffect {
        let Some(a) = self.apics.get_mut(which) else {
            return IoApicEffect::None;
        };
        match offset {
            IOAPIC_INDEX => a.index = value as u8,
            IOAPIC_WINDOW if width >= Width::B4 => return a.set_window(value as u32),
            _ => {}
        }
        IoApicEffect::None
    }

    fn pin_mut(&mut self, gsi: u32) -> Option<&mut Pin> {
        self.apics
            .iter_mut()
            .find_map(|a| a.pins.get_mut(gsi.checked_sub(a.gsi_base)? as usize))
    }

    /// Whether the line was bound as level-triggered: then it must be masked when it fires.
    pub fn is_level(&self, gsi: u32) -> bool {
        self.apics
            .iter()
            .find_map(|a| a.pins.get(gsi.checked_sub(a.gsi_base)? as usize))
            .is_some_and(|p| p.bound.is_some_and(|m| m.level))
    }

    /// What the entry of a line would deliver.
    pub fn target(&mut self, gsi: u32) -> Option<Ipi> {
        let rte = self.pin_mut(gsi)?.rte;
        Some(Ipi {
            dest: DestSpec::of8(rte.dest(), rte.logical()),
            mode: rte.mode(),
            vector: rte.vector(),
            level: rte.level(),
        })
    }

    /// The physical line fired (and was masked, if level). What to deliver; `None` if the entry is masked or a level
    /// interrupt awaits its EOI.
    pub fn interrupt(&mut self, gsi: u32) -> Option<Ipi> {
        let pin = self.pin_mut(gsi)?;
        let level = pin.bound.is_some_and(|m| m.level);
        if level {
            pin.open = false;
        }
        if !pin.wants_open() {
            return None;
        }
        let level = level && pin.rte.level() && pin.rte.mode().has_vector();
        if level {
            pin.rte.0 |= Rte::REMOTE_IRR;
            pin.inflight = pin.rte.vector();
        }
        Some(Ipi {
            dest: DestSpec::of8(pin.rte.dest(), pin.rte.logical()),
            mode: pin.rte.mode(),
            vector: pin.rte.vector(),
            level,
        })
    }

    /// No local APIC was addressed by what [`VIoApics::interrupt`] returned: nobody will send an EOI. The line stays
    /// physically masked until the guest writes the entry again.
    pub fn not_accepted(&mut self, gsi: u32) {
        if let Some(pin) = self.pin_mut(gsi) {
            pin.rte.0 &= !Rte::REMOTE_IRR;
        }
    }

    /// A local APIC ended a level interrupt of this vector: `apply` is called for each line that can be opened again.
    pub fn eoi(&mut self, vector: u8, mut apply: impl FnMut(IoApicEffect)) {
        for a in &mut self.apics {
            for (gsi, pin) in (a.gsi_base..).zip(&mut a.pins) {
                if !pin.rte.remote_irr() || pin.inflight != vector {
                    continue;
                }
                pin.rte.0 &= !Rte::REMOTE_IRR;
                match pin.settle(gsi) {
                    IoApicEffect::None => {}
                    effect => apply(effect),
                }
            }
        }
    }
}

impl VIoApic {
    fn window(&self) -> u32 {
        match self.index {
            IOAPIC_REG_ID | IOAPIC_REG_ARB => u32::from(self.id & 0xf) << 24,
            IOAPIC_REG_VERSION => VERSION | (self.pins.len() as u32 - 1) << 16,
            IOAPIC_REG_RTE.. => {
                let n = self.index - IOAPIC_REG_RTE;
                let rte = self.pins.get(usize::from(n / 2)).map_or(0, |p| p.rte.0);
                if n.is_multiple_of(2) {
                    rte as u32
                } else {
                    (rte >> 32) as u32
                }
            }
            _ => 0,
        }
    }

    fn set_window(&mut self, value: u32) -> IoApicEffect {
        if self.index == IOAPIC_REG_ID {
            self.id = (value >> 24 & 0xf) as u8;
        }
        let Some(n) = self.index.checked_sub(IOAPIC_REG_RTE) else {
            return IoApicEffect::None;
        };
        let Some(pin) = self.pins.get_mut(usize::from(n / 2)) else {
            return IoApicEffect::None;
        };
        let old = pin.rte.0;
        let wide = if n.is_multiple_of(2) {
            old & !0xffff_ffff | u64::from(value)
        } else {
            old & 0xffff_ffff | u64::from(value) << 32
        };
        let read_only = Rte::REMOTE_IRR | Rte::STATUS;
        pin.rte = Rte(wide & Rte::WRITABLE | old & read_only);
        if !pin.rte.level() {
            // Turning an entry to edge and back is how guests end an interrupt without an EOI register.
            pin.rte.0 &= !Rte::REMOTE_IRR;
        }
        let gsi = self.gsi_base + u32::from(n / 2);
        let bound = pin.bound.is_some();
        let moved = pin.rte.dest() != Rte(old).dest();
        match pin.settle(gsi) {
            IoApicEffect::None if bound && moved => IoApicEffect::Retarget { gsi },
            effect => effect,
        }
    }
}

#[cfg(test)]
#[path = "vioapic_tests.rs"]
mod tests;
