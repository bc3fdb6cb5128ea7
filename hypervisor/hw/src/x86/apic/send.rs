//! Messages between CPUs. Which destinations are written is decided in [`x86_model::interrupt::ipi`].

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use x86_model::interrupt::cluster::{Clusters, Place};
use x86_model::interrupt::driver::IpiAddressing;
use x86_model::interrupt::ipi::{self, Destination, Presence, Roster, Target};
use x86_model::regs::apic::{self, reg};
use x86_model::regs::msr;

use super::super::asm;
use super::super::cpu::features;
use super::super::cpu::percpu::{self, MAX_CPUS, PerCpu};
use super::{X2APIC, driver, read, write};

/// CPUs that can take logical messages. There cannot be more clusters than CPUs.
static CLUSTERS: Clusters<AtomicU32, MAX_CPUS> = Clusters::<AtomicU32, MAX_CPUS>::empty();
/// The CPUs that are up, by number.
static ROSTER: Roster<AtomicU32, BLOCKS> = Roster::<AtomicU32, BLOCKS>::empty();
const BLOCKS: usize = MAX_CPUS.div_ceil(64);
/// CPUs that the firmware's tables mention; 0 while CPUs come or go.
static LISTED: AtomicU32 = AtomicU32::new(0);
/// x2APIC: the ICR's writes must be fenced.
static FENCE: AtomicBool = AtomicBool::new(false);

/// Makes this CPU reachable by logical messages. After the APIC was enabled, before the CPU says that it is up.
pub(in crate::x86) fn join() {
    let cpu = percpu::this();
    let logical_id = if X2APIC.load(Ordering::Relaxed) {
        FENCE.store(
            ipi::needs_fence(true, &features::get().vendor),
            Ordering::Relaxed,
        );
        // Read, not computed: not every emulator's follows the formula.
        read(reg::LDR)
    } else if driver().ipi == IpiAddressing::Flat && cpu.slot() < 8 {
        let bit = 1 << cpu.slot();
        write(reg::LDR, bit << 24);
        bit
    } else {
        return;
    };
    if let Some(place) = CLUSTERS.join(logical_id) {
        cpu.place.store(place.pack(), Ordering::Release);
    }
}

/// Takes a CPU out of logical messages: it goes, or never came. Any CPU may call it.
pub(in crate::x86) fn leave(cpu: &PerCpu) {
    if let Some(place) = Place::unpack(cpu.place.swap(0, Ordering::AcqRel)) {
        CLUSTERS.leave(place);
    }
}

/// A CPU has its number: from here on it is among those that [`send_mask`] knows.
pub(in crate::x86) fn enlist(cpu: &PerCpu) {
    ROSTER.set(cpu.id().0, as_target(cpu));
}

/// A CPU as messages name it.
pub(super) fn as_target(cpu: &PerCpu) -> Target {
    Target {
        apic_id: cpu.apic_id(),
        place: Place::unpack(cpu.place.load(Ordering::Acquire)),
    }
}

/// How a device interrupt names this CPU, where an entry of interrupt remapping has room for it.
pub(super) fn external_destination(cpu: &PerCpu) -> Destination {
    driver().external.destination(&CLUSTERS, as_target(cpu))
}

/// From here on no CPU comes or goes; `listed` are those that the firmware's tables mention in any way.
pub(in crate::x86) fn settle(listed: u32) {
    LISTED.store(listed, Ordering::Release);
}

/// Orders what this CPU has stored before the messages that it is about to send.
#[inline]
fn fence() {
    if FENCE.load(Ordering::Relaxed) {
        asm::mfence();
        asm::lfence();
    }
}

/// Writes the ICR: `command` (vector, mode, flags) to one destination. After [`fence`].
#[inline]
fn command(destination: Destination, command: u32) {
    let writes = &percpu::this().icr_writes;
    writes.store(writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let command = command
        | if destination.logical {
            apic::ICR_LOGICAL
        } else {
            0
        };
    if X2APIC.load(Ordering::Relaxed) {
        let value = u64::from(destination.id) << 32 | u64::from(command);
        // SAFETY: an IPI to CPUs that have handlers, or an INIT/SIPI by `smp`, which owns its targets.
        unsafe { asm::wrmsr(msr::X2APIC_FIRST + (reg::ICR_LOW >> 4), value) };
        return;
    }
    wait_idle();
    write(reg::ICR_HIGH, destination.id << 24);
    write(reg::ICR_LOW, command);
}

/// xAPIC only: waits until the last command has left.
fn wait_idle() {
    // Bounded: a bus that never accepts is reported by the missing effect.
    for _ in 0..1_000_000 {
        if read(reg::ICR_LOW) & apic::ICR_PENDING == 0 {
            break;
        }
        asm::pause();
    }
}

fn one(apic_id: u32, bits: u32) {
    fence();
    command(Destination::physical(apic_id), bits);
}

/// Sends a fixed vector to one CPU.
#[inline]
pub(in crate::x86) fn send(target: &PerCpu, vector: u8) {
    one(target.apic_id(), apic::ICR_ASSERT | u32::from(vector));
}

/// Sends a fixed vector to the CPUs of a mask (a bit for each CPU number), with as few writes as the driver's addressing
/// allows.
pub fn send_mask(mask: &[u64], vector: u8) {
    send_by(driver().ipi, mask, vector);
}

/// [`send_mask`] with a certain addressing, which the APIC's mode must have.
pub(in crate::x86) fn send_by(how: IpiAddressing, mask: &[u64], vector: u8) {
    fence();
    let fixed = apic::ICR_ASSERT | u32::from(vector);
    how.deliver(&CLUSTERS, &ROSTER, mask, |to| command(to, fixed));
}

/// Sends a fixed vector to every other CPU that is up: by one "all but self" where that is exact. Not for NMI context.
pub fn send_others(vector: u8) {
    let listed = LISTED.load(Ordering::Acquire);
    let presence = Presence {
        listed,
        up: percpu::online_count(),
        settled: listed != 0,
    };
    let fixed = apic::ICR_ASSERT | u32::from(vector);
    fence();
    if ipi::shorthand_is_exact(presence) {
        command(Destination::physical(0), fixed | apic::ICR_ALL_BUT_SELF);
    } else if driver().ipi == IpiAddressing::Physical {
        let me = percpu::this().id();
        for cpu in percpu::all().filter(|c| c.id() != me) {
            command(Destination::physical(cpu.apic_id()), fixed);
        }
    } else {
        let me = Place::unpack(percpu::this().place.load(Ordering::Relaxed));
        ipi::deliver_to_others(&CLUSTERS, me, |to| command(to, fixed));
    }
}

/// Sends an NMI to one CPU.
pub(in crate::x86) fn send_nmi(target: &PerCpu) {
    one(target.apic_id(), apic::ICR_ASSERT | apic::ICR_NMI);
}

/// Sends INIT.
pub(in crate::x86) fn send_init(apic_id: u32) {
    one(apic_id, apic::ICR_ASSERT | apic::ICR_LEVEL | apic::ICR_INIT);
}

/// Ends the INIT level (old APICs only; others ignore it).
pub(in crate::x86) fn send_init_deassert(apic_id: u32) {
    if !X2APIC.load(Ordering::Relaxed) {
        one(apic_id, apic::ICR_LEVEL | apic::ICR_INIT);
    }
}

/// Sends a start-up message for the code at `page << 12`.
pub(in crate::x86) fn send_startup(apic_id: u32, page: u8) {
    one(
        apic_id,
        apic::ICR_ASSERT | apic::ICR_STARTUP | u32::from(page),
    );
}
