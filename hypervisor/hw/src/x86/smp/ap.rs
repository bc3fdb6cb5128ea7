//! A starting CPU's own way: everything it touches is its own, and all CPUs go it at once.

use core::sync::atomic::{AtomicPtr, Ordering};

use x86_model::callin::{Report, Stage};

use super::super::cpu::percpu;
use super::super::cpu::{self, checks};
use super::super::{apic, asm, bring_up, time};
use super::{ApFault, Record, flush, tsc};
use crate::machine::CpuId;

/// Where sleeping CPUs go; null while they sleep.
pub(super) static ENTRY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// First Rust code of another CPU, on its own stack.
pub(super) extern "sysv64" fn main(record: &'static Record) -> ! {
    if record.fault == Some(ApFault::Deaf) {
        hang();
    }
    cpu::activate(record.block);
    record.call.reach(Stage::Traps);
    apic::enable();
    record.call.reach(Stage::Apic);
    match record.fault {
        Some(ApFault::Hang) => hang(),
        Some(ApFault::Panic) => panic!("ap-fault=panic"),
        _ => {}
    }
    let report = match ready(record) {
        Ok(()) if record.park.load(Ordering::Acquire) => Report::Parked,
        Ok(()) => Report::Up,
        Err(why) => {
            record.why.call_once(|| why);
            Report::Broken
        }
    };
    if record.fault == Some(ApFault::Late) {
        while record.call.is_waiting() {
            asm::pause();
        }
    }
    if !record.call.report(report) || report != Report::Up {
        apic::leave(record.block);
        asm::stop();
    }
    let entry = sleep();
    entry(percpu::this().id())
}

/// Makes the CPU ready for work; the error is the end of a sentence that begins with the CPU.
fn ready(record: &Record) -> Result<(), Broken> {
    if apic::hardware_id() != record.apic_id {
        return Err(Broken::OtherId(apic::hardware_id()));
    }
    let found = checks::compare();
    record.differences.call_once(|| found);
    if let Some(feature) = found.missing {
        return Err(Broken::Lacks(feature));
    }
    record.call.reach(Stage::Checks);
    if !record.park.load(Ordering::Acquire) {
        // Reachable before it reports, so that whoever finds it up can send to it.
        apic::join();
        time::init_cpu_timer();
        bring_up::enable_virtualization().map_err(Broken::Virtualization)?;
    }
    record.call.reach(Stage::Virtualization);
    for _ in 0..tsc::ROUNDS {
        tsc::watch();
    }
    Ok(())
}

/// Why a CPU cannot be used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Broken {
    OtherId(u32),
    Lacks(&'static str),
    Virtualization(&'static str),
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OtherId(id) => write!(f, "it calls itself {id:#x}"),
            Self::Lacks(what) => write!(f, "it has no {what}, which the boot CPU has"),
            Self::Virtualization(why) => f.write_str(why),
        }
    }
}

fn hang() -> ! {
    loop {
        asm::pause();
    }
}

/// Sleeps until [`super::enter`] says where to go; it kicks after that, so no wake-up is lost. That kick stays for the core
/// to take, since it may stand for one that the core sent as well.
fn sleep() -> fn(CpuId) -> ! {
    loop {
        let entry = ENTRY.load(Ordering::Acquire);
        if !entry.is_null() {
            // SAFETY: `enter` stored this function pointer, and nothing else is ever stored.
            return unsafe { core::mem::transmute::<*mut (), fn(CpuId) -> !>(entry) };
        }
        asm::halt_for_interrupt();
        if ENTRY.load(Ordering::Acquire).is_null()
            && let Some(vector) = percpu::this().take_vector()
        {
            if vector == apic::vectors::FLUSH {
                flush::serve();
            }
            apic::eoi();
        }
    }
}
