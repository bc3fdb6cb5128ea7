//! The local APIC in both of its forms, and the choice of addressing for interrupts.
//!
//! Boot decides on the driver once ([`mode::decide`]), before the first interrupt; afterwards this module is read-only.
//! What a driver is, and why messages and device interrupts are addressed apart, is told in
//! [`x86_model::interrupt::driver`]; `send` has the messages.

pub mod ioapic;
pub mod legacy;
mod send;
pub mod vectors;

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use x86_model::Hpa;
use x86_model::interrupt::driver::Driver;
use x86_model::interrupt::mode::{self, Facts, Remapping, X2apicMode};
use x86_model::iommu::Target;
use x86_model::regs::apic::{self, reg};
use x86_model::regs::msr;

use super::asm;
use super::cpu::percpu::{self, PerCpu};
use super::cpu::{features, msr as safe};
use crate::{info, warn};
pub(super) use send::{
    enlist, join, leave, send, send_by, send_init, send_init_deassert, send_nmi, send_startup,
    settle,
};
pub use send::{send_mask, send_others};

/// The destination mode of a build whose administrator and firmware say nothing.
const BUILD_DEFAULT: X2apicMode = if cfg!(CONFIG_X2APIC_PHYSICAL) {
    X2apicMode::Physical
} else if cfg!(CONFIG_X2APIC_CLUSTER) {
    X2apicMode::Cluster
} else {
    X2apicMode::Mixed
};

/// What was asked for on the command line.
#[derive(Clone, Copy, Debug)]
pub struct ApicOptions {
    /// `x2apic=`.
    pub x2apic: bool,
    /// `x2apic-mode=`; `None` if not given.
    pub mode: Option<X2apicMode>,
    /// `x2apic_phys=`; `None` if not given.
    pub phys: Option<bool>,
}

impl Default for ApicOptions {
    fn default() -> Self {
        ApicOptions {
            x2apic: true,
            mode: None,
            phys: None,
        }
    }
}

/// What the rest of the machine has to say about the choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings {
    /// Interrupt remapping, as it will be used.
    pub remapping: Remapping,
    /// The remapping tables ask for xAPIC mode.
    pub opt_out: bool,
    /// FADT: physical destinations.
    pub fadt_physical: bool,
    /// FADT: too large for the flat model.
    pub fadt_cluster: bool,
    /// Enabled CPUs.
    pub cpus: u32,
    /// Their highest APIC ID.
    pub highest_id: u32,
}

static DRIVER: spin::Once<Driver> = spin::Once::new();
static X2APIC: AtomicBool = AtomicBool::new(false);
static PAGE: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the local APICs are in x2APIC mode.
pub fn x2apic() -> bool {
    X2APIC.load(Ordering::Relaxed)
}

/// The driver in use; xAPIC before the choice.
pub fn driver() -> Driver {
    DRIVER.get().copied().unwrap_or(Driver::XAPIC_PHYSICAL)
}

/// Chooses the driver, says why, and enables the boot CPU's APIC. `map` maps the register page uncached. Returns the
/// first APIC ID that cannot be reached.
pub fn init(
    options: ApicOptions,
    around: &Surroundings,
    map: impl FnOnce(Hpa) -> Option<*mut u8>,
) -> Result<u32, &'static str> {
    let base = asm::rdmsr(msr::APIC_BASE);
    if base & msr::APIC_BASE_ENABLE == 0 {
        return Err("the local APIC is disabled in APIC_BASE");
    }
    let decision = mode::decide(&Facts {
        x2apic: options.x2apic,
        mode: options.mode,
        phys: options.phys,
        default: BUILD_DEFAULT,
        cpu_x2apic: features::get().x2apic,
        enabled_by_firmware: base & msr::APIC_BASE_X2APIC != 0,
        opt_out: around.opt_out,
        fadt_physical: around.fadt_physical,
        fadt_cluster: around.fadt_cluster,
        remapping: around.remapping,
        highest_id: around.highest_id,
        cpus: around.cpus,
    });
    for warning in &decision.warnings {
        warn!("{warning}");
    }
    let driver = decision.driver;
    if !driver.x2apic() {
        let page =
            map(Hpa(base & msr::APIC_BASE_ADDRESS)).ok_or("no mapping for the local APIC")?;
        PAGE.store(page.cast(), Ordering::Release);
    }
    X2APIC.store(driver.x2apic(), Ordering::Release);
    DRIVER.call_once(|| driver);
    enable();
    join();
    info!("Switched to APIC driver {decision}");
    Ok(decision.first_unreachable)
}

/// Whether local APICs will be in x2APIC mode with these options, before [`init`] decides the rest.
pub fn will_be_x2apic(options: &ApicOptions, opt_out: bool) -> bool {
    let by_firmware = asm::rdmsr(msr::APIC_BASE) & msr::APIC_BASE_X2APIC != 0;
    by_firmware || features::get().x2apic && options.x2apic && !opt_out
}

/// How a remapped device interrupt names a vector of this CPU.
pub(super) fn target(cpu: &PerCpu, vector: u8, level: bool) -> Target {
    // In cluster mode the destination is a set of CPUs; the interrupt is for one, so the set has one.
    let to = send::external_destination(cpu);
    Target {
        dest: to.id,
        logical: to.logical,
        lowest: false,
        vector,
        level,
    }
}

/// Physical address of the xAPIC register page as this CPU has it, for keeping guests off it.
pub fn page_address() -> Hpa {
    Hpa(asm::rdmsr(msr::APIC_BASE) & msr::APIC_BASE_ADDRESS)
}

/// Puts this CPU's APIC into the chosen mode, accepting interrupts, with all local sources masked but NMI on LINT1.
pub(super) fn enable() {
    let x2apic = X2APIC.load(Ordering::Relaxed);
    let base = asm::rdmsr(msr::APIC_BASE);
    let wanted = base | msr::APIC_BASE_ENABLE | if x2apic { msr::APIC_BASE_X2APIC } else { 0 };
    if base != wanted {
        // SAFETY: enabling, or entering x2APIC from enabled xAPIC, are allowed transitions; the page stays where it is.
        unsafe { asm::wrmsr(msr::APIC_BASE, wanted) };
    }
    write(reg::SVR, apic::SVR_ENABLE | u32::from(vectors::SPURIOUS));
    if !x2apic {
        // The flat model, also where logical messages are not used: a reserved one would make some chipsets raise errors.
        write(reg::DFR, apic::DFR_FLAT);
    }
    write(reg::TPR, 0);
    for lvt in [reg::LVT_TIMER, reg::LVT_LINT0] {
        write(lvt, apic::LVT_MASKED);
    }
    let last = read(reg::VERSION) >> 16 & 0xff;
    for (index, lvt) in [
        (4, reg::LVT_PERF),
        (5, reg::LVT_THERMAL),
        (6, reg::LVT_CMCI),
    ] {
        // The thermal entry is the firmware's (SMI) unless it would send us a vector.
        let keep = lvt == reg::LVT_THERMAL && last >= index && read(lvt) & 0x700 != 0;
        if last >= index && !keep && !(lvt == reg::LVT_CMCI && x2apic && !has_cmci()) {
            write(lvt, apic::LVT_MASKED);
        }
    }
    write(reg::LVT_LINT1, apic::LVT_NMI);
    if last >= 3 {
        write(reg::ESR, 0);
        write(reg::LVT_ERROR, u32::from(vectors::ERROR));
    }
    // What was in service when a former owner (firmware, a crashed kernel) let go.
    for _ in 0..256 {
        if (0..8).all(|i| read(reg::ISR + 16 * i) == 0) {
            break;
        }
        eoi();
    }
}

fn has_cmci() -> bool {
    safe::rdmsr_safe(msr::X2APIC_FIRST + (reg::LVT_CMCI >> 4)).is_some()
}

/// Reads a register of this CPU's APIC.
#[inline]
pub(super) fn read(offset: u32) -> u32 {
    if X2APIC.load(Ordering::Relaxed) {
        asm::rdmsr(msr::X2APIC_FIRST + (offset >> 4)) as u32
    } else {
        let page = PAGE.load(Ordering::Relaxed);
        debug_assert!(!page.is_null());
        // SAFETY: the page was mapped in `init`; `offset` is one of the register constants, all inside it.
        unsafe { page.byte_add(offset as usize).read_volatile() }
    }
}

/// Writes a register of this CPU's APIC.
#[inline]
pub(super) fn write(offset: u32, value: u32) {
    if X2APIC.load(Ordering::Relaxed) {
        // SAFETY: local APIC registers deliver interrupts, all of which have handlers; no memory is written by them.
        unsafe { asm::wrmsr(msr::X2APIC_FIRST + (offset >> 4), u64::from(value)) };
    } else {
        let page = PAGE.load(Ordering::Relaxed);
        debug_assert!(!page.is_null());
        // SAFETY: as in `read` and above.
        unsafe { page.byte_add(offset as usize).write_volatile(value) };
    }
}

/// Makes the APIC tell its CPU again what is pending; the task priority stays what it always is.
pub fn look_again() {
    write(reg::TPR, 0);
}

/// This CPU's APIC ID as the hardware has it.
pub fn hardware_id() -> u32 {
    if X2APIC.load(Ordering::Relaxed) {
        read(reg::ID)
    } else {
        read(reg::ID) >> 24
    }
}

/// Ends the interrupt of highest priority in service.
#[inline(always)]
pub(super) fn eoi() {
    write(reg::EOI, 0);
}

/// Whether this vector is requested on this CPU, in service, or taken by a stub and not dealt with yet.
pub(super) fn waits(vector: u8) -> bool {
    let (word, bit) = apic::vector_bit(vector);
    percpu::this().recorded() == Some(vector)
        || [reg::IRR, reg::ISR]
            .iter()
            .any(|first| read(first + 16 * word as u32) & bit != 0)
}

/// Accounts for a vector that nobody asked for, and acknowledges it if the APIC has it in service.
pub(super) fn unexpected(vector: u8) {
    percpu::this().spurious.fetch_add(1, Ordering::Relaxed);
    let (word, bit) = apic::vector_bit(vector);
    if read(reg::ISR + 16 * word as u32) & bit == 0 {
        // Spurious by definition, or from the legacy controllers: not in service, no EOI.
        return;
    }
    eoi();
    if vector == vectors::ERROR {
        write(reg::ESR, 0);
        let status = read(reg::ESR);
        warn!(
            "{}: local APIC error {status:#x}",
            percpu::Name(percpu::this())
        );
    } else {
        warn!(
            "{}: unexpected interrupt vector {vector:#x}",
            percpu::Name(percpu::this())
        );
    }
}
