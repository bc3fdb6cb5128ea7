//! Run-time library of the micro-guests.
//!
//! A micro-guest is a PVH kernel of a few pages that asks one question about its hypervisor, prints what it saw
//! and ends the machine. This crate gives it the entry by ELF note, 64-bit mode with 0..4 GiB identity mapped,
//! traps with recovery, hypercalls, local APIC, start of the other processors and the report.
//!
//! Ownership: a guest owns its whole machine, so statics are the natural home of its state. They are atomics or
//! [`page::Page`]s, because other processors and the hypervisor write to them. On a host target only the types
//! compile; nothing runs.
#![cfg_attr(target_os = "none", no_std)]

pub mod acpi;
pub mod boot;
pub mod child;
pub mod console;
pub mod cpu;
pub mod evtchn;
pub mod exits;
pub mod hypercall;
pub mod lapic;
pub mod narrow;
pub mod page;
pub mod report;
pub mod ring;
pub mod shared;
pub mod smp;
pub mod start;
pub mod time;
pub mod trap;
pub mod user;

pub use page::Page;

/// Names the guest and its body: `guest_rt::entry!("cpuid", run);` where `run` is `fn()`.
#[macro_export]
macro_rules! entry {
    ($name:literal, $run:path) => {
        /// Called by the run-time library on the boot processor.
        #[cfg(target_os = "none")]
        #[unsafe(no_mangle)]
        extern "Rust" fn guest_main() {
            $crate::report::begin($name);
            $run();
        }

        #[cfg(not(target_os = "none"))]
        fn main() {
            let run: fn() = $run;
            println!(
                "{} ({run:p}) is a bare-metal guest: build it for x86_64-unknown-none",
                $name
            );
        }
    };
}

/// Marks the start of a measured section for the instruction-counting plugin: a no-op that never exits.
#[macro_export]
macro_rules! marker_start {
    ($id:literal) => {
        $crate::cpu::marker::<{ 0x7e00_0000 + $id }>()
    };
}

/// Marks the end of the section that [`marker_start!`] began.
#[macro_export]
macro_rules! marker_stop {
    ($id:literal) => {
        $crate::cpu::marker::<{ 0x7e01_0000 + $id }>()
    };
}
