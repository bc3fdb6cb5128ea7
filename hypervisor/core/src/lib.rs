//! Xen semantics: domains, vCPUs, event channels, grants, memory, hypercalls. Safe code without statics, written
//! against `hv_hw::Hw`, so all of it runs on the host against the fake machine.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod console;
pub mod dom0;
pub mod domain;
pub mod evtchn;
mod exit_files;
pub mod grant;
pub mod guest;
pub mod heartbeat;
pub mod hotplug;
pub mod hvm;
pub mod hypercall;
pub mod hypervisor;
pub mod hypfs;
pub mod irq;
pub mod options;
pub mod p2m;
pub mod pci;
pub mod privilege;
pub mod sched;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod vcpu;
