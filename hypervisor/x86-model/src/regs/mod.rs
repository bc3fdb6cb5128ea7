//! Register numbers and bit layouts: MSRs, control registers, the local APIC, the IO-APIC.

pub mod apic;
pub mod cr;
pub mod msr;
