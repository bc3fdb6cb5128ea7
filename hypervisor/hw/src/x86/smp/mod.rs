//! Start of the other CPUs, all at once.
//!
//! The boot CPU sends INIT to all, makes a record (block, stack) for each while they reset, then sends the start-up message
//! to all. Each CPU finds its record by APIC ID, checks itself and reports there ([`ap`]); nothing is shared on the way.
//! Afterwards all sleep until [`enter`] sends them into the core, or for ever if they are parked. A CPU that does not report
//! in time is named with the last stage it reached, and left out; if it comes later, it finds itself given up and halts.

mod ap;
mod flush;
mod trampoline;
mod tsc;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use alloc::boxed::Box;
use alloc::vec::Vec;

use x86_model::acpi::CpuEntry;
use x86_model::callin::{CallIn, Report};
use x86_model::siblings;

use super::cpu::checks::{self, Differences};
use super::cpu::percpu::{self, MAX_CPUS, PerCpu};
use super::cpu::{features, nmi, stacks};
use super::paging::{self, StackKind};
use super::virt::Backend;
use super::{acpi, apic, asm, boot, bring_up, time};
use crate::machine::CpuId;
use crate::{error, info, warn};

/// How long to wait for the next of `cpus` CPUs to report, in seconds: 5, and a second more for every 32, since hundreds of CPUs
/// share the cores of an emulator's host.
const fn patience_s(cpus: usize) -> u64 {
    5 + cpus as u64 / 32
}
/// When the start-up message is repeated to those that did not report yet.
const REPEAT_NS: u64 = 20_000_000;
/// INIT to start-up message, for CPUs that need a pause (MultiProcessor Specification 1.4, B.4).
const INIT_NS: u64 = 10_000_000;

/// What a CPU does wrong, on purpose: for tests of what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApFault {
    /// Hangs before it has trap handlers.
    Deaf,
    /// Hangs later.
    Hang,
    /// Panics.
    Panic,
    /// Reports when it was given up.
    Late,
}

/// Which CPUs to start, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmpOptions {
    /// `maxcpus=`: CPUs in all, the boot CPU included; `None` or 0 for no limit.
    pub max_cpus: Option<u32>,
    /// `nosmp`.
    pub no_smp: bool,
    /// `ap-bringup=serial`: one CPU after the other, for comparison.
    pub serial: bool,
    /// `ap-bringup=delays`: with the pauses of the original protocol, whatever the CPU.
    pub delays: bool,
    /// `smt=off`: siblings are parked.
    pub no_siblings: bool,
    /// `ipi-bench=`: flushes to measure for each way of addressing; 0 for none.
    pub ipi_bench: u32,
    /// `ap-fault=`: APIC IDs and what goes wrong there.
    pub faults: [Option<(u32, ApFault)>; 4],
}

/// What a starting CPU needs, and its report. Its lay-out is known to the trampoline.
#[repr(C)]
struct Record {
    apic_id: u32,
    /// Stops once it is ready.
    park: AtomicBool,
    fault: Option<ApFault>,
    stack_top: u64,
    block: &'static PerCpu,
    call: CallIn<AtomicU32>,
    differences: spin::Once<Differences>,
    why: spin::Once<ap::Broken>,
}

/// A CPU to start.
struct Wanted {
    cpu: CpuEntry,
    park: bool,
}

/// Starts the other CPUs and leaves them asleep. Returns the number of CPUs that are up. Boot CPU, once, after
/// [`super::bring_up`].
pub fn start_aps(options: &SmpOptions) -> u32 {
    let start = time::now_ns();
    let wanted = select(options);
    if wanted.is_empty() {
        return percpu::count();
    }
    checks::take_reference();
    let mut init_at = None;
    if !options.serial {
        wanted.iter().for_each(|w| apic::send_init(w.cpu.apic_id));
        init_at = Some(time::now_ns());
    }
    let Some(records) = records(&wanted, options) else {
        return percpu::count();
    };
    let page = trampoline::install(
        boot::trampoline_page(),
        boot::trampoline_root(),
        paging::root(),
        records,
    );
    let group = if options.serial { 1 } else { records.len() };
    let delays = options.delays || needs_delays();
    for group in records.chunks(group) {
        start_group(group, page, init_at, delays);
    }
    RECORDS.call_once(|| records);
    let waited_s = patience_s(group);
    let parked: Vec<&Record> = (records.iter()).filter(|r| settle(r, waited_s)).collect();
    for record in &parked {
        // They are numbered after those that work.
        record.block.halted.store(true, Ordering::Release);
        let _ = percpu::publish(record.block);
    }
    let parked = parked.len();
    tell_differences(records);
    tsc::judge();
    apic::settle(acpi::madt().map_or(0, |m| m.mentioned()));
    let us = (time::now_ns() - start) / 1000;
    let up = percpu::online_count();
    info!(
        "Brought up {up} CPUs in {}.{:03} ms{}",
        us / 1000,
        us % 1000,
        if options.serial { ", one by one" } else { "" }
    );
    if parked != 0 {
        info!("Parked {parked} siblings (smt=off)");
    }
    if options.ipi_bench != 0 {
        flush::measure(options.ipi_bench);
    }
    up
}

/// The CPUs to start, after the limits.
fn select(options: &SmpOptions) -> Vec<Wanted> {
    let Some(madt) = acpi::madt() else {
        return Vec::new();
    };
    let boot_id = percpu::this().apic_id();
    let limit = match (options.no_smp, options.max_cpus) {
        (true, _) => 1,
        (false, Some(n)) if n > 0 => n as usize,
        _ => MAX_CPUS,
    }
    .min(MAX_CPUS);
    let threads = features::thread_bits();
    let mut wanted = Vec::new();
    let (mut used, mut offered) = (1, 1);
    for cpu in madt.cpus.iter().filter(|c| c.apic_id != boot_id) {
        let ids = madt.cpus.iter().map(|c| c.apic_id);
        let park = options.no_siblings && siblings::is_sibling(cpu.apic_id, boot_id, ids, threads);
        offered += usize::from(!park);
        used += usize::from(!park);
        let fits = wanted.len() + 1 < MAX_CPUS && !options.no_smp;
        if used > limit {
            used = limit;
        } else if fits {
            wanted.push(Wanted { cpu: *cpu, park });
        }
    }
    if offered > limit {
        info!(
            "{limit} of {offered} CPUs are used ({})",
            if options.no_smp {
                "nosmp"
            } else if limit == MAX_CPUS {
                "limit of this build"
            } else {
                "maxcpus"
            }
        );
    }
    wanted
}

fn records(wanted: &[Wanted], options: &SmpOptions) -> Option<&'static [Record]> {
    let mut records: Vec<Record> = Vec::new();
    for (slot, Wanted { cpu, park }) in (1u32..).zip(wanted) {
        let block = percpu::allocate(slot, cpu.apic_id, cpu.uid);
        let stack = paging::new_stack(slot, StackKind::Main);
        let ready = stacks::give_guarded(block, slot)
            && (*park || bring_up::prepare_virtualization(block).is_ok());
        let (Some(stack), true) = (stack, ready) else {
            error!("No memory for the CPUs from APIC ID {:#x} on", cpu.apic_id);
            break;
        };
        let faults = options.faults.iter().flatten();
        records.push(Record {
            apic_id: cpu.apic_id,
            park: AtomicBool::new(*park),
            fault: faults.copied().find(|f| f.0 == cpu.apic_id).map(|f| f.1),
            stack_top: stack as u64,
            block,
            call: CallIn::new(AtomicU32::new(0), AtomicU32::new(0)),
            differences: spin::Once::new(),
            why: spin::Once::new(),
        });
    }
    (!records.is_empty()).then(|| &*Box::leak(records.into_boxed_slice()))
}

/// INIT, if it was not sent at `init_at`, and start-up messages to a group; then waits until all have reported or the time
/// is over.
fn start_group(group: &[Record], page: u8, init_at: Option<u64>, delays: bool) {
    let waiting = || group.iter().filter(|r| r.call.is_waiting());
    let init_at = init_at.unwrap_or_else(|| {
        group.iter().for_each(|r| apic::send_init(r.apic_id));
        time::now_ns()
    });
    if delays {
        while time::now_ns() - init_at < INIT_NS {
            asm::pause();
        }
        for record in group {
            apic::send_init_deassert(record.apic_id);
        }
    }
    for record in group {
        apic::send_startup(record.apic_id, page);
    }
    let start = time::now_ns();
    let mut repeat_at = if delays { 200_000 } else { REPEAT_NS };
    // Hundreds of CPUs of an emulator take longer than one sick CPU deserves: each arrival extends the time.
    let patience_ns = patience_s(group.len()) * 1_000_000_000;
    let (mut missing, mut last_arrival) = (group.len(), 0);
    while missing > 0 {
        let passed = time::now_ns() - start;
        let now = waiting().count();
        if now < missing {
            (missing, last_arrival) = (now, passed);
        }
        if passed - last_arrival > patience_ns {
            break;
        }
        if passed > repeat_at {
            // A CPU that has started ignores it; one that lost the first needs it.
            for record in waiting() {
                apic::send_startup(record.apic_id, page);
            }
            repeat_at = repeat_at.max(REPEAT_NS) * 4;
        }
        tsc::watch();
        asm::pause();
    }
}

/// The waits of the original protocol are for CPUs with external APICs and their direct successors.
fn needs_delays() -> bool {
    let f = features::get();
    match &f.vendor {
        b"AuthenticAMD" | b"HygonGenuine" => f.family < 0xf,
        b"GenuineIntel" => f.family != 6,
        _ => !f.x2apic,
    }
}

/// Takes a CPU that reported into the machine, or names it and leaves it out, `waited_s` seconds after the last that did. True if
/// it is parked.
fn settle(record: &'static Record, waited_s: u64) -> bool {
    match record.call.close() {
        Ok(Report::Up) => {
            // The selection is no longer than the table.
            let _ = percpu::publish(record.block);
            record.block.set_online(true);
            apic::enlist(record.block);
        }
        Ok(Report::Parked) => return true,
        Ok(Report::Broken) => match record.why.get() {
            Some(why) => warn!(
                "The CPU with APIC ID {:#x} is left out: {why}",
                record.apic_id
            ),
            None => warn!("The CPU with APIC ID {:#x} is left out", record.apic_id),
        },
        Err(stage) => {
            warn!(
                "The CPU with APIC ID {:#x} (ACPI UID {}) did not start within {waited_s} s and is left out; last seen {stage}",
                record.apic_id,
                record.block.acpi_uid()
            );
            nmi::show(record.block);
        }
    }
    false
}

/// One line for each kind of difference from the boot CPU.
fn tell_differences(records: &[Record]) {
    let found = || (records.iter()).filter_map(|r| Some((r, r.differences.get()?)));
    let microcode = || found().filter_map(|(r, d)| Some((r, d.microcode?)));
    if let Some((r, (boot, here))) = microcode().next() {
        warn!(
            "{} CPUs have another microcode revision than the boot CPU's {boot:#x}; the one with APIC ID {:#x} has {here:#x}. \
             Update the firmware",
            microcode().count(),
            r.apic_id
        );
    }
    let types = || found().filter_map(|(r, d)| Some((r, d.memory_type?, d.memory_type_left)));
    if let Some((r, (msr, _, had), _)) = types().next() {
        info!(
            "{} CPUs were given the boot CPU's memory types (APIC ID {:#x} had {had:#x} in MSR {msr:#x})",
            types().count(),
            r.apic_id
        );
    }
    if let Some((r, (msr, boot, here))) = types().find_map(|(r, _, left)| Some((r, left?))) {
        warn!(
            "The CPU with APIC ID {:#x} has other memory types than the boot CPU (MSR {msr:#x}: {here:#x}, not {boot:#x}) and \
             keeps them: memory may be corrupted",
            r.apic_id
        );
    }
}

/// The CPUs that were started at boot, for starting them again.
static RECORDS: spin::Once<&'static [Record]> = spin::Once::new();

/// Starts a CPU that stopped by [`stop_this_cpu`], or was parked, and waits for its report. The caller sees to it that one CPU
/// is started at a time. The error is the end of a sentence.
pub(super) fn start_again(block: &'static PerCpu) -> Result<(), &'static str> {
    if !block.halted.load(Ordering::Acquire) {
        return Err("it has not stopped");
    }
    let records = RECORDS.get().copied().unwrap_or_default();
    let record = records
        .iter()
        .find(|r| core::ptr::eq(r.block, block))
        .ok_or("it was not started at boot")?;
    if block.virt.load(Ordering::Relaxed) == 0 {
        bring_up::prepare_virtualization(block)?;
    }
    if !record.call.reopen() {
        return Err("it was given up when it did not start in time");
    }
    record.park.store(false, Ordering::Release);
    let _ = block.take_vector();
    let page = (boot::trampoline_page().0 >> 12) as u8;
    start_group(core::slice::from_ref(record), page, None, needs_delays());
    match record.call.close() {
        Ok(Report::Up) => {
            tsc::judge();
            apic::enlist(block);
            block.halted.store(false, Ordering::Release);
            Ok(())
        }
        Ok(_) => Err("it failed the checks"),
        Err(_) => {
            nmi::show(block);
            Err("it did not start in time")
        }
    }
}

/// Stops this CPU until it is started again: out of reach of messages, without its timer, out of virtualization, so that INIT
/// reaches it.
pub(super) fn stop_this_cpu(backend: Backend) -> ! {
    let block = percpu::this();
    time::set_timer(None);
    apic::leave(block);
    block.vectors.clear();
    backend.disable_this_cpu();
    block.halted.store(true, Ordering::Release);
    asm::stop()
}

/// Lets the other CPUs go on into `entry`. Boot CPU, once.
pub fn enter(entry: fn(CpuId) -> !) {
    ap::ENTRY.store(entry as *mut (), Ordering::Release);
    apic::send_others(apic::vectors::KICK);
}
