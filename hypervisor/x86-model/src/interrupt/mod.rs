//! How interrupts find CPUs: the choice of the local APIC driver, the drivers' addressing, the vectors of each CPU.

pub mod cluster;
pub mod driver;
pub mod ipi;
pub mod mode;
pub mod moving;
pub mod vectors;
