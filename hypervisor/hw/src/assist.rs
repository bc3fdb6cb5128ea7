//! What processors do for virtual local APICs.

#[cfg(doc)]
use crate::machine::GuestContext;

/// What this machine's processors can do for virtual local APICs, beyond the task priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApicAssists {
    /// Anything at all.
    pub any: bool,
    /// Accesses to the register page are told from others, if there is a page ([`crate::machine::VcpuSetup::apic_page`]).
    pub page: bool,
    /// With it, most reads of registers in xAPIC mode make no exit.
    pub xapic: bool,
    /// A guest in x2APIC mode reads registers and handles its interrupts without exits.
    pub x2apic: bool,
}

/// What the processor does for one virtual local APIC in its present mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApicAssist {
    /// The guest reads registers without exits: they must be given ([`GuestContext::put_registers`],
    /// [`GuestContext::put_vectors`]).
    pub registers: bool,
    /// It delivers interrupts: vectors are given before and taken back after each run.
    pub delivery: bool,
}
