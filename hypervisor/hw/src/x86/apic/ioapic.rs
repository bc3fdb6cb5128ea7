//! IO-APICs: every pin masked at boot, then routed one by one as domains ask.
//!
//! One lock (rank IRQ) over all units, because each access is a select-then-data pair. The low halves of the entries
//! are kept in memory, so that masking is one write and no slow read.

use alloc::vec::Vec;

use x86_model::Hpa;
use x86_model::regs::apic::{self, io};

use super::super::cpu::percpu::PerCpu;
use super::super::iommu;
use crate::machine::{IoApicInfo, LineMode};
use crate::sync::{SpinLock, rank};
use crate::{info, warn};

struct Unit {
    info: IoApicInfo,
    version: u8,
    registers: Registers,
    /// Low halves of the redirection entries.
    low: Vec<u32>,
    /// Pins of the hypervisor's own, which domains cannot route or mask.
    ours: Vec<bool>,
}

/// The mapped register page.
struct Registers(*mut u32);
// SAFETY: a device page, mapped on all CPUs for ever; used only under the lock.
unsafe impl Send for Registers {}

impl Registers {
    fn read(&mut self, register: u32) -> u32 {
        // SAFETY: both offsets lie in the mapped page; `&mut` keeps the pair together.
        unsafe {
            self.0.byte_add(io::SELECT).write_volatile(register);
            self.0.byte_add(io::WINDOW).read_volatile()
        }
    }
    /// Ends the interrupts of the pins with this vector. Only where the version says that the register is there.
    fn end(&mut self, vector: u8) {
        // SAFETY: the offset lies in the mapped page.
        unsafe { self.0.byte_add(io::EOI).write_volatile(vector.into()) };
    }
    fn write(&mut self, register: u32, value: u32) {
        // SAFETY: as above. Entries are only written by this module, with vectors that have stubs.
        unsafe {
            self.0.byte_add(io::SELECT).write_volatile(register);
            self.0.byte_add(io::WINDOW).write_volatile(value);
        }
    }
}

static UNITS: SpinLock<Vec<Unit>, { rank::IRQ }> = SpinLock::new(Vec::new());

/// Takes over an IO-APIC and masks all of its pins. One that does not answer (all ones) is refused with a warning.
pub fn add(id: u8, address: Hpa, gsi_base: u32, map: impl FnOnce(Hpa) -> Option<*mut u8>) {
    let Some(page) = map(address) else {
        warn!("IO-APIC {id} at {:#x}: no mapping, not used", address.0);
        return;
    };
    let mut registers = Registers(page.cast());
    let version = registers.read(io::VERSION);
    if version == u32::MAX {
        warn!("IO-APIC {id} at {:#x} does not answer, not used", address.0);
        return;
    }
    let pins = (version >> 16 & 0xff) + 1;
    for pin in 0..pins {
        registers.write(io::REDIRECTION + 2 * pin, apic::RTE_MASKED as u32);
        registers.write(io::REDIRECTION + 2 * pin + 1, 0);
    }
    info!(
        "IO-APIC {id} at {:#x}, version {:#x}, GSI {gsi_base}-{}",
        address.0,
        version & 0xff,
        gsi_base + (pins - 1)
    );
    UNITS.lock().push(Unit {
        info: IoApicInfo {
            id,
            address,
            gsi_base,
            pins,
        },
        version: version as u8,
        registers,
        low: alloc::vec![apic::RTE_MASKED as u32; pins as usize],
        ours: alloc::vec![false; pins as usize],
    });
}

/// All units in the order of the firmware's table.
pub fn list() -> Vec<IoApicInfo> {
    UNITS.lock().iter().map(|u| u.info).collect()
}

/// Whether a machine frame holds registers of an IO-APIC.
pub fn owns(hpa: Hpa) -> bool {
    UNITS
        .lock()
        .iter()
        .any(|u| u.info.address.mfn() == hpa.mfn())
}

fn with_pin<R>(gsi: u32, f: impl FnOnce(&mut Unit, u32) -> R) -> Option<R> {
    let mut units = UNITS.lock();
    let unit = units.iter_mut().find(|u| {
        gsi.checked_sub(u.info.gsi_base)
            .is_some_and(|pin| pin < u.info.pins)
    })?;
    let pin = gsi - unit.info.gsi_base;
    Some(f(unit, pin))
}

/// Routes a GSI to a vector of a CPU, masked. False if no pin has the GSI, the pin is the hypervisor's own, or the CPU
/// cannot be addressed.
pub fn route(gsi: u32, cpu: &PerCpu, vector: u8, mode: LineMode) -> bool {
    with_pin(gsi, |unit, pin| {
        !unit.ours[pin as usize] && unit.route(pin, cpu, vector, mode, apic::RTE_MASKED)
    })
    .unwrap_or(false)
}

/// Makes a routed GSI raise a vector of this CPU, signalled and masked as it is. False as in [`route`].
pub fn reroute(gsi: u32, cpu: &PerCpu, vector: u8) -> bool {
    with_pin(gsi, |unit, pin| {
        let old = unit.low[pin as usize];
        let mode = LineMode {
            level: old & apic::RTE_LEVEL as u32 != 0,
            low: old & apic::RTE_LOW as u32 != 0,
        };
        if unit.ours[pin as usize] || !unit.route(pin, cpu, vector, mode, apic::RTE_MASKED) {
            return false;
        }
        if mode.level {
            // An interrupt of the old vector may be under way to a CPU, whose end of interrupt will not be taken for this
            // entry's: without one the line would be silent for ever. If the device still asks, it is heard again.
            unit.end(pin);
        }
        if old & apic::RTE_MASKED as u32 == 0 {
            let open = unit.low[pin as usize] & !(apic::RTE_MASKED as u32);
            unit.low[pin as usize] = open;
            unit.registers.write(io::REDIRECTION + 2 * pin, open);
        }
        true
    })
    .unwrap_or(false)
}

/// Routes a GSI to one of the hypervisor's own vectors and keeps it from all domains, unmasked. False as in [`route`].
pub fn claim(gsi: u32, cpu: &PerCpu, vector: u8, mode: LineMode) -> bool {
    with_pin(gsi, |unit, pin| {
        let routed = unit.route(pin, cpu, vector, mode, 0);
        unit.ours[pin as usize] |= routed;
        routed
    })
    .unwrap_or(false)
}

/// Masks or unmasks a GSI; a GSI without a pin, or with a pin of the hypervisor's own, is ignored.
pub fn mask(gsi: u32, masked: bool) {
    with_pin(gsi, |unit, pin| {
        let old = unit.low[pin as usize];
        let new = if masked {
            old | apic::RTE_MASKED as u32
        } else {
            old & !(apic::RTE_MASKED as u32)
        };
        if new != old && !unit.ours[pin as usize] {
            if !masked && iommu::explicit_eoi() && old & apic::RTE_LEVEL as u32 != 0 {
                unit.end(pin);
            }
            unit.low[pin as usize] = new;
            unit.registers.write(io::REDIRECTION + 2 * pin, new);
        }
    });
}

impl Unit {
    /// Makes a pin raise a vector of a CPU, through a remapping entry where there are such. False if that CPU cannot be
    /// addressed or no entry is left; the pin is then masked.
    fn route(&mut self, pin: u32, cpu: &PerCpu, vector: u8, mode: LineMode, flags: u64) -> bool {
        let entry = if iommu::active() {
            // The remapping entry may move: the pin must not fire in between.
            let masked = self.low[pin as usize] | apic::RTE_MASKED as u32;
            self.registers.write(io::REDIRECTION + 2 * pin, masked);
            self.low[pin as usize] = masked;
            let target = super::target(cpu, vector, mode.level);
            iommu::pin(self.info.id, pin, target, mode.low)
        } else {
            apic::redirection(cpu.apic_id(), vector, mode.level, mode.low)
        };
        match entry {
            Some(entry) => self.set(pin, entry | flags),
            None => warn!(
                "IO-APIC {}: pin {pin} cannot be routed to CPU {}",
                self.info.id,
                cpu.id().0
            ),
        }
        entry.is_some()
    }

    /// Tells the IO-APIC that a level-triggered pin's interrupt, which the CPU has ended, is over. For a masked pin.
    fn end(&mut self, pin: u32) {
        let low = self.low[pin as usize];
        if self.version >= io::VERSION_WITH_EOI {
            self.registers.end(low as u8);
        } else {
            // Older ones forget about the interrupt when the pin is edge-triggered for a moment.
            let register = io::REDIRECTION + 2 * pin;
            self.registers
                .write(register, low & !(apic::RTE_LEVEL as u32));
            self.registers.write(register, low);
        }
    }

    fn set(&mut self, pin: u32, entry: u64) {
        let register = io::REDIRECTION + 2 * pin;
        // Mask first: the entry is two registers, and a half-new one must not fire.
        let masked = self.low[pin as usize] | apic::RTE_MASKED as u32;
        self.registers.write(register, masked);
        self.registers.write(register + 1, (entry >> 32) as u32);
        self.registers.write(register, entry as u32);
        self.low[pin as usize] = entry as u32;
    }
}

/// Masks every pin, for the end of the machine. Skipped if another CPU is in the middle of an access.
pub fn mask_all() {
    let Some(mut units) = UNITS.try_lock() else {
        return;
    };
    for unit in units.iter_mut() {
        for pin in 0..unit.info.pins {
            unit.registers
                .write(io::REDIRECTION + 2 * pin, apic::RTE_MASKED as u32);
        }
    }
}
