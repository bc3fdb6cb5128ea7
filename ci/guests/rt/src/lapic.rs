//! The local APIC in both modes.
//!
//! Registers are named by their x2APIC number (MSR 0x800 + n); the xAPIC offset is 16 * n. The mode is read from
//! APIC_BASE at each access, so a guest may switch at will.

use crate::cpu::{self, Fault};

/// APIC_BASE.
pub const APIC_BASE: u32 = 0x1b;
/// ID.
pub const ID: u32 = 0x02;
/// Version.
pub const VERSION: u32 = 0x03;
/// Task priority.
pub const TPR: u32 = 0x08;
/// Processor priority.
pub const PPR: u32 = 0x0a;
/// End of interrupt.
pub const EOI: u32 = 0x0b;
/// Logical destination.
pub const LDR: u32 = 0x0d;
/// Destination format (xAPIC only).
pub const DFR: u32 = 0x0e;
/// Spurious vector and software enable.
pub const SVR: u32 = 0x0f;
/// First of the eight in-service registers.
pub const ISR: u32 = 0x10;
/// First of the eight request registers.
pub const IRR: u32 = 0x20;
/// Error status.
pub const ESR: u32 = 0x28;
/// Interrupt command (low half in xAPIC mode; 0x31 is the high half).
pub const ICR: u32 = 0x30;
/// Timer entry of the local vector table.
pub const LVT_TIMER: u32 = 0x32;
/// LINT0 entry.
pub const LVT_LINT0: u32 = 0x35;
/// LINT1 entry.
pub const LVT_LINT1: u32 = 0x36;
/// Error entry.
pub const LVT_ERROR: u32 = 0x37;
/// Initial count of the timer.
pub const TIMER_INIT: u32 = 0x38;
/// Current count of the timer.
pub const TIMER_CURRENT: u32 = 0x39;
/// Divider of the timer.
pub const TIMER_DIVIDE: u32 = 0x3e;
/// Self IPI (x2APIC only).
pub const SELF_IPI: u32 = 0x3f;

const MMIO: u64 = 0xfee0_0000;

/// True in x2APIC mode.
pub fn x2apic() -> bool {
    cpu::rdmsr(APIC_BASE) & 1 << 10 != 0
}

/// Switches the running processor to x2APIC mode.
pub fn enable_x2apic() -> Result<(), Fault> {
    let base = cpu::rdmsr(APIC_BASE);
    cpu::wrmsr_safe(APIC_BASE, base | 1 << 10)
}

/// Reads a register by MMIO, whatever the mode.
pub fn read_mmio(register: u32) -> u32 {
    // SAFETY: identity mapped device page.
    unsafe { core::ptr::read_volatile((MMIO + 16 * u64::from(register)) as *const u32) }
}

/// Writes a register by MMIO, whatever the mode.
pub fn write_mmio(register: u32, value: u32) {
    // SAFETY: as above; the guest owns its APIC.
    unsafe { core::ptr::write_volatile((MMIO + 16 * u64::from(register)) as *mut u32, value) };
}

/// Reads a register in the current mode.
pub fn read(register: u32) -> u32 {
    if x2apic() {
        cpu::rdmsr(0x800 + register) as u32
    } else {
        read_mmio(register)
    }
}

/// Writes a register in the current mode.
pub fn write(register: u32, value: u32) {
    if x2apic() {
        cpu::wrmsr(0x800 + register, value.into());
    } else {
        write_mmio(register, value);
    }
}

/// APIC ID of the running processor.
pub fn id() -> u32 {
    if x2apic() { read(ID) } else { read(ID) >> 24 }
}

/// Software-enables the APIC with spurious vector 0xff.
pub fn enable() {
    write(SVR, 0x1ff);
}

/// Acknowledges the interrupt in service.
pub fn eoi() {
    write(EOI, 0);
}

/// Sends `command` (the low half of ICR) to APIC `destination`; 0xffffffff means all in both modes.
pub fn send(destination: u32, command: u32) {
    if x2apic() {
        cpu::wrmsr(
            0x800 + ICR,
            u64::from(destination) << 32 | u64::from(command),
        );
    } else {
        write_mmio(ICR + 1, destination << 24);
        write_mmio(ICR, command);
        while read_mmio(ICR) & 1 << 12 != 0 {
            cpu::pause();
        }
    }
}

/// True if `vector` is set in the 256-bit register starting at `base` (ISR, IRR).
pub fn bit(base: u32, vector: u8) -> bool {
    read(base + u32::from(vector) / 32) & 1 << (vector % 32) != 0
}

/// Latches and returns the error status: write, then read.
pub fn take_errors() -> u32 {
    write(ESR, 0);
    read(ESR)
}
