//! Which processor features a guest may see, as arithmetic on CPUID values. Shared by the hypervisor and the tools.

pub mod features;
pub mod topology;
pub mod xstate;
