//! The end of the machine: power off, reset, halt.
//!
//! One CPU ends it: the first to claim it. Others that come here, and the owner itself when a step faults, stop.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use x86_model::acpi::GenericAddress;

use super::acpi;
use super::apic::{self, ioapic};
use super::asm::{self, inb, inw, outb, outl, outw};
use super::cpu::{nmi, percpu};
use super::time::spin_us;
use crate::machine::PowerAction;
use crate::{error, info, warn};

/// A way to reset the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResetMethod {
    /// Do not: halt.
    Halt = 1,
    /// The FADT's reset register.
    Acpi,
    /// The chipset's reset control, port 0xcf9.
    Chipset,
    /// The same, with a power cycle.
    PowerCycle,
    /// The keyboard controller's pulse.
    Keyboard,
    /// A fault that the CPU cannot deliver.
    TripleFault,
}

/// The method to try first; 0 for none.
static FIRST_RESET: AtomicU8 = AtomicU8::new(0);

/// Chooses the way of resetting that is tried first (`reboot=`).
pub fn prefer_reset(method: ResetMethod) {
    FIRST_RESET.store(method as u8, Ordering::Relaxed);
}

const NOBODY: u32 = u32::MAX;
static OWNER: AtomicU32 = AtomicU32::new(NOBODY);
static STEP: AtomicU32 = AtomicU32::new(0);

/// Ends the machine. Never returns; falls through from the polite ways to the rude ones.
pub fn end(action: PowerAction) -> ! {
    asm::cli();
    // Not the CPU number: CPUs on their way up have none.
    let me = percpu::this().slot();
    match OWNER.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => stop_others(),
        // A step of ours panicked: carry on with the step after it.
        Err(owner) if owner == me => {}
        Err(_) => nmi::stop_here(),
    }
    match action {
        PowerAction::PowerOff => {
            if next_step(0) {
                info!("Powering off.");
                ioapic::mask_all();
                power_off();
                spin_us(2_000_000);
                error!("ACPI did not power off. It is safe to switch off now.");
            }
        }
        PowerAction::Reboot => reset(),
        PowerAction::Halt => {
            if next_step(0) {
                info!("All CPUs halted.");
            }
        }
    }
    asm::stop()
}

/// True the first time it is called with each number, in ascending order.
fn next_step(n: u32) -> bool {
    STEP.compare_exchange(n, n + 1, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
}

/// Stops every other CPU, waiting at most 100 ms: by NMI, or, if it has no trap handlers yet, by a note that it finds when
/// it has. Also for the panic path.
pub fn stop_others() {
    if !percpu::ready() {
        return;
    }
    let me = percpu::this().slot();
    let others = || percpu::known().filter(move |c| c.slot() != me);
    for cpu in others() {
        if cpu.stop.ask() {
            apic::send_nmi(cpu);
        }
    }
    let running = |c: &&percpu::PerCpu| c.stop.takes_nmi() && !c.stopped.load(Ordering::Acquire);
    for _ in 0..1000 {
        if !others().any(|c| running(&c)) {
            return;
        }
        spin_us(100);
    }
    for cpu in others().filter(running) {
        warn!("{} did not stop", percpu::Name(cpu));
    }
}

fn read_register(register: &GenericAddress) -> Option<u32> {
    match register.space {
        GenericAddress::IO => {
            let port = u16::try_from(register.address).ok()?;
            Some(if register.bits == 8 {
                inb(port).into()
            } else {
                inw(port).into()
            })
        }
        _ => None,
    }
}

/// Writes a power register. False if its space is not supported.
fn write_register(register: &GenericAddress, value: u32) -> bool {
    match register.space {
        GenericAddress::IO => {
            let Ok(port) = u16::try_from(register.address) else {
                return false;
            };
            // SAFETY: a power or reset register that the firmware names; the machine ends here.
            unsafe {
                if register.bits == 8 {
                    outb(port, value as u8);
                } else {
                    outw(port, value as u16);
                }
            }
            true
        }
        GenericAddress::MEMORY => {
            match super::paging::map_mmio(x86_model::Hpa(register.address), 4) {
                Some(p) => {
                    // SAFETY: as above, mapped just now; the machine ends here.
                    unsafe {
                        if register.bits == 8 {
                            p.write_volatile(value as u8);
                        } else {
                            p.cast::<u16>().write_volatile(value as u16);
                        }
                    }
                    true
                }
                None => false,
            }
        }
        GenericAddress::PCI => {
            let at = register.address;
            let (device, function, offset) = (at >> 32 & 31, at >> 16 & 7, at & 0xfc);
            let select = 1u32 << 31 | (device << 11 | function << 8 | offset) as u32;
            // SAFETY: configuration space of a bus-0 device that the firmware names for this; the machine ends here.
            unsafe {
                outl(0xcf8, select);
                outb(0xcfc + (at & 3) as u16, value as u8);
            }
            true
        }
        _ => false,
    }
}

const SLEEP_ENABLE: u32 = 1 << 13;
const SLEEP_TYPE_SHIFT: u32 = 10;
const SCI_ENABLE: u32 = 1;

fn power_off() {
    let (Some(fadt), Some((type_a, type_b))) = (acpi::fadt(), acpi::sleep_types()) else {
        error!("ACPI tables do not say how to power off");
        return;
    };
    if fadt.hw_reduced {
        if let Some(register) = fadt.sleep_control {
            let byte = GenericAddress {
                bits: 8,
                ..register
            };
            // SLP_EN is bit 5 here, the type in bits 4:2.
            write_register(&byte, u32::from(type_a) << 2 | 1 << 5);
        }
        return;
    }
    let Some(control_a) = fadt.pm1a_control else {
        error!("The FADT has no PM1 control register");
        return;
    };
    let value = |register: &GenericAddress, kind: u8| {
        let kept = read_register(register).unwrap_or(0) & !(7 << SLEEP_TYPE_SHIFT | SLEEP_ENABLE);
        kept | u32::from(kind) << SLEEP_TYPE_SHIFT
    };
    if read_register(&control_a).is_some_and(|v| v & SCI_ENABLE == 0)
        && fadt.smi_command != 0
        && fadt.acpi_enable != 0
    {
        // SAFETY: the firmware's own hand-over command.
        unsafe { outb(fadt.smi_command, fadt.acpi_enable) };
        for _ in 0..1000 {
            if read_register(&control_a).is_none_or(|v| v & SCI_ENABLE != 0) {
                break;
            }
            spin_us(300);
        }
    }
    // Types first, then the enable bit, PM1b last but one (ACPI 6.5, 16.1.7).
    write_register(&control_a, value(&control_a, type_a));
    if let Some(control_b) = fadt.pm1b_control {
        write_register(&control_b, value(&control_b, type_b));
        write_register(&control_b, value(&control_b, type_b) | SLEEP_ENABLE);
    }
    write_register(&control_a, value(&control_a, type_a) | SLEEP_ENABLE);
}

fn reset() {
    let first = FIRST_RESET.load(Ordering::Relaxed);
    let preferred = [
        ResetMethod::Acpi,
        ResetMethod::Chipset,
        ResetMethod::PowerCycle,
        ResetMethod::Keyboard,
        ResetMethod::TripleFault,
    ]
    .into_iter()
    .find(|&m| m as u8 == first);
    if first == ResetMethod::Halt as u8 {
        info!("Not resetting (reboot=no). All CPUs halted.");
        asm::stop()
    }
    if next_step(0) {
        info!("Resetting.");
        ioapic::mask_all();
    }
    let order = [
        ResetMethod::Acpi,
        ResetMethod::Chipset,
        ResetMethod::Keyboard,
        ResetMethod::TripleFault,
    ];
    for (step, method) in (1..).zip(preferred.into_iter().chain(order)) {
        // A method that faulted brought us here again: the next one is tried.
        if next_step(step) {
            try_reset(method);
        }
    }
}

fn try_reset(method: ResetMethod) {
    match method {
        ResetMethod::Halt => {}
        ResetMethod::Acpi => {
            if let Some((register, value)) = acpi::fadt().and_then(|f| f.reset) {
                let byte = GenericAddress {
                    bits: 8,
                    ..register
                };
                write_register(&byte, value.into());
                spin_us(100_000);
            }
        }
        ResetMethod::Chipset => chipset(0x02, 0x06),
        ResetMethod::PowerCycle => chipset(0x0a, 0x0e),
        ResetMethod::Keyboard => {
            for _ in 0..10 {
                // Wait for an empty input buffer, then pulse the reset line.
                for _ in 0..1000 {
                    if inb(0x64) & 2 == 0 {
                        break;
                    }
                    spin_us(10);
                }
                // SAFETY: the keyboard controller's reset pulse.
                unsafe { outb(0x64, 0xfe) };
                spin_us(1000);
            }
        }
        ResetMethod::TripleFault => triple_fault(),
    }
}

/// The chipset's reset control: first the kind, then the edge.
fn chipset(kind: u8, edge: u8) {
    // SAFETY: the machine ends here.
    unsafe {
        outb(0xcf9, kind);
        spin_us(50);
        outb(0xcf9, edge);
    }
    spin_us(100_000);
}

fn triple_fault() -> ! {
    let empty = [0u8; 10];
    // SAFETY: the intent is to lose the CPU: with an empty IDT the breakpoint has no way but reset.
    unsafe {
        core::arch::asm!("lidt [{}]", "int3", in(reg) &empty, options(readonly, nostack));
    }
    asm::stop()
}
