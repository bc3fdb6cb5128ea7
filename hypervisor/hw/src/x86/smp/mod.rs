//! Start of the other CPUs, all at once.
//!
//! The boot CPU makes a record (block, stack) for each, then sends INIT and start-up messages to all. Each CPU finds its
//! record by APIC ID and reports there. Afterwards all sleep until [`enter`] sends them into the core. A CPU that does
//! not report in time is named and left out; if it comes later, it finds itself abandoned and halts.

mod trampoline;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use alloc::boxed::Box;
use alloc::vec::Vec;

use x86_model::acpi::CpuEntry;

use super::cpu::percpu::{self, MAX_CPUS, PerCpu};
use super::cpu::{self, features, nmi, stacks};
use super::paging::{self, StackKind};
use super::{acpi, apic, asm, boot, time};
use crate::machine::CpuId;
use crate::{error, info, warn};

/// How long to wait for the next CPU to report.
const TIMEOUT_NS: u64 = 5_000_000_000;
/// When the start-up message is repeated to those that did not report yet.
const REPEAT_NS: u64 = 20_000_000;

/// Which CPUs to start, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmpOptions {
    /// `maxcpus=`: CPUs in all, the boot CPU included; `None` or 0 for no limit.
    pub max_cpus: Option<u32>,
    /// `nosmp`.
    pub no_smp: bool,
    /// `ap-bringup=serial`: one CPU after the other, for comparison.
    pub serial: bool,
}

/// What a starting CPU needs, and its report. Its lay-out is known to the trampoline.
#[repr(C)]
struct Record {
    apic_id: u32,
    state: AtomicU32,
    stack_top: u64,
    block: &'static PerCpu,
}

const WAITING: u32 = 0;
const ARRIVED: u32 = 1;
const ABANDONED: u32 = 2;
const BROKEN: u32 = 3;

/// Where sleeping CPUs go; null while they sleep.
static ENTRY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static LAST_TSC: AtomicU64 = AtomicU64::new(0);
static WORST_WARP: AtomicU64 = AtomicU64::new(0);

/// Starts the other CPUs and leaves them asleep. Returns the number of CPUs that are up. Boot CPU, once, after
/// [`super::bring_up`].
pub fn start_aps(options: &SmpOptions) -> u32 {
    let start = time::now_ns();
    let wanted = select(options);
    if wanted.is_empty() {
        return percpu::count();
    }
    let Some(records) = records(&wanted) else {
        return percpu::count();
    };
    let page = trampoline::install(
        boot::trampoline_page(),
        boot::trampoline_root(),
        paging::root(),
        records,
    );
    let group = if options.serial { 1 } else { records.len() };
    for group in records.chunks(group) {
        start_group(group, page);
    }
    for record in records {
        settle(record);
    }
    judge_tsc();
    apic::settle(acpi::madt().map_or(0, |m| m.mentioned()));
    let us = (time::now_ns() - start) / 1000;
    let up = percpu::count();
    info!(
        "Brought up {up} CPUs in {}.{:03} ms{}",
        us / 1000,
        us % 1000,
        if options.serial { ", one by one" } else { "" }
    );
    up
}

/// The CPUs to start, after the limits.
fn select(options: &SmpOptions) -> Vec<CpuEntry> {
    let Some(madt) = acpi::madt() else {
        return Vec::new();
    };
    let boot_id = percpu::this().apic_id();
    let others = madt.cpus.iter().filter(|c| c.apic_id != boot_id);
    let offered = others.clone().count();
    let limit = match (options.no_smp, options.max_cpus) {
        (true, _) => 1,
        (false, Some(n)) if n > 0 => n as usize,
        _ => MAX_CPUS,
    }
    .min(MAX_CPUS);
    if offered + 1 > limit {
        info!(
            "{limit} of {} CPUs are used ({})",
            offered + 1,
            if options.no_smp {
                "nosmp"
            } else if limit == MAX_CPUS {
                "limit of this build"
            } else {
                "maxcpus"
            }
        );
    }
    others.take(limit - 1).copied().collect()
}

fn records(wanted: &[CpuEntry]) -> Option<&'static [Record]> {
    let mut records: Vec<Record> = Vec::new();
    for (slot, entry) in (1u32..).zip(wanted) {
        let block = percpu::allocate(slot, entry.apic_id, entry.uid);
        let stack = paging::new_stack(slot, StackKind::Main);
        let (Some(stack), true) = (stack, stacks::give_guarded(block, slot)) else {
            error!(
                "No memory for the stacks of CPUs from APIC ID {:#x} on",
                entry.apic_id
            );
            break;
        };
        records.push(Record {
            apic_id: entry.apic_id,
            state: AtomicU32::new(WAITING),
            stack_top: stack as u64,
            block,
        });
    }
    (!records.is_empty()).then(|| &*Box::leak(records.into_boxed_slice()))
}

/// INIT and start-up messages to a group, then waits until all have reported or the time is over.
fn start_group(group: &[Record], page: u8) {
    let waiting = || {
        group
            .iter()
            .filter(|r| r.state.load(Ordering::Acquire) == WAITING)
    };
    for record in group {
        apic::send_init(record.apic_id);
    }
    if needs_delays() {
        time::spin_us(10_000);
        for record in group {
            apic::send_init_deassert(record.apic_id);
        }
    }
    for record in group {
        apic::send_startup(record.apic_id, page);
    }
    let start = time::now_ns();
    let mut repeat_at = if needs_delays() { 200_000 } else { REPEAT_NS };
    // Hundreds of CPUs of an emulator take longer than one sick CPU deserves: each arrival extends the time.
    let (mut missing, mut last_arrival) = (group.len(), 0);
    while missing > 0 {
        let passed = time::now_ns() - start;
        let now = waiting().count();
        if now < missing {
            (missing, last_arrival) = (now, passed);
        }
        if passed - last_arrival > TIMEOUT_NS {
            break;
        }
        if passed > repeat_at {
            // A CPU that has started ignores it; one that lost the first needs it.
            for record in waiting() {
                apic::send_startup(record.apic_id, page);
            }
            repeat_at = repeat_at.max(REPEAT_NS) * 4;
        }
        watch_tsc();
        asm::pause();
    }
}

/// The waits of the original protocol (MultiProcessor Specification 1.4, B.4) are for CPUs with external APICs and their
/// direct successors.
fn needs_delays() -> bool {
    let f = features::get();
    match &f.vendor {
        b"AuthenticAMD" | b"HygonGenuine" => f.family < 0xf,
        b"GenuineIntel" => f.family != 6,
        _ => !f.x2apic,
    }
}

/// Takes a CPU that reported into the machine, or names it and leaves it out.
fn settle(record: &'static Record) {
    let state = record
        .state
        .compare_exchange(WAITING, ABANDONED, Ordering::AcqRel, Ordering::Acquire)
        .unwrap_or_else(|now| now);
    match state {
        ARRIVED => {
            // The selection is no longer than the table.
            let _ = percpu::publish(record.block);
        }
        BROKEN => warn!("The CPU with APIC ID {:#x} is left out", record.apic_id),
        _ => {
            warn!(
                "The CPU with APIC ID {:#x} (ACPI UID {}) did not start within {} s and is left out; where it is:",
                record.apic_id,
                record.block.acpi_uid(),
                TIMEOUT_NS / 1_000_000_000
            );
            nmi::show(record.block);
        }
    }
}

/// First Rust code of another CPU, on its own stack.
extern "sysv64" fn ap_main(record: &'static Record) -> ! {
    cpu::activate(record.block);
    apic::enable();
    apic::join();
    time::init_cpu_timer();
    let broken = if apic::hardware_id() != record.apic_id {
        error!(
            "The CPU with APIC ID {:#x} calls itself {:#x}",
            record.apic_id,
            apic::hardware_id()
        );
        true
    } else if let Err(why) = super::bring_up::enable_virtualization() {
        error!("The CPU with APIC ID {:#x}: {why}", record.apic_id);
        true
    } else {
        false
    };
    for _ in 0..TSC_ROUNDS {
        watch_tsc();
    }
    let report = if broken { BROKEN } else { ARRIVED };
    let known = record
        .state
        .compare_exchange(WAITING, report, Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    if !known || broken {
        apic::leave(record.block);
        asm::stop();
    }
    let entry = sleep();
    entry(percpu::this().id())
}

/// Sleeps until [`enter`] says where to go; it kicks after that, so no wake-up is lost. That kick stays for the core to
/// take, since it may stand for one that the core sent as well.
fn sleep() -> fn(CpuId) -> ! {
    loop {
        let entry = ENTRY.load(Ordering::Acquire);
        if !entry.is_null() {
            // SAFETY: `enter` stored this function pointer, and nothing else is ever stored.
            return unsafe { core::mem::transmute::<*mut (), fn(CpuId) -> !>(entry) };
        }
        asm::halt_for_interrupt();
        if ENTRY.load(Ordering::Acquire).is_null() && percpu::this().take_vector().is_some() {
            apic::eoi();
        }
    }
}

/// Lets the other CPUs go on into `entry`. Boot CPU, once.
pub fn enter(entry: fn(CpuId) -> !) {
    ENTRY.store(entry as *mut (), Ordering::Release);
    apic::send_others(apic::vectors::KICK);
}

/// Comparisons that each starting CPU makes, while the boot CPU makes its own.
const TSC_ROUNDS: u32 = 100;

/// Compares this CPU's TSC with the largest value that any CPU has read before: it must not be less.
fn watch_tsc() {
    let last = LAST_TSC.load(Ordering::Acquire);
    let now = asm::rdtsc_ordered();
    if now < last {
        WORST_WARP.fetch_max(last - now, Ordering::AcqRel);
    }
    LAST_TSC.fetch_max(now, Ordering::AcqRel);
}

fn judge_tsc() {
    let warp = WORST_WARP.load(Ordering::Acquire);
    if warp != 0 {
        time::mark_unreliable();
        warn!("The CPUs' TSCs disagree by at least {warp} cycles: time may go backwards");
    }
}
