//! The unsafe floor: physical memory, CPUs, interrupts, virtualization, on the machine or on its fake twin for
//! host tests. Knows no domain policy. The only hypervisor crate that contains `unsafe`.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

mod assist;
pub mod bootinfo;
pub mod config;
pub mod log;
pub mod machine;
pub mod mem;
pub mod origin;
pub mod posted;
pub mod sync;

#[cfg(not(target_os = "none"))]
pub mod host;
#[cfg(target_os = "none")]
pub mod x86;

#[cfg(not(target_os = "none"))]
pub use host::FakeMachine as Hw;
#[cfg(target_os = "none")]
pub use x86::Metal as Hw;

/// The virtual CPU of [`Hw`].
pub type HwVcpu = <Hw as machine::Machine>::Vcpu;

pub use machine::{GuestContext, Machine};
