//! What a hardware virtual machine sees of a platform: interrupt controllers, CPUID, MSRs, and instruction emulation for
//! device memory. Devices are state plus returned effects: they call nobody, so they run on the host under test.

pub mod cpuid;
pub mod cr;
pub mod debug_port;
pub mod emulate;
pub mod hypercall_page;
pub mod msr;
pub mod platform;
pub mod vioapic;
pub mod vlapic;
