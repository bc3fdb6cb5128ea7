//! I/O memory management units: interrupt remapping. (DMA remapping will stand beside it; until then DMA passes.)
//!
//! Which kind a machine has is told by its ACPI tables, not by its CPU's vendor. Remapping is all or nothing: if a unit,
//! an IO-APIC's source or memory is missing, the reason is one line, and interrupts go out unremapped as on a machine
//! without units. Afterwards every pin and every message gets an entry of its own before it is used.
//!
//! One lock (rank IOMMU) over the tables, the units' queues and the list of entries in use. It is held while a unit
//! carries out an invalidation (microseconds); a unit that takes longer than a second is not asked again.

mod amd;
pub mod host_posts;
mod registers;
mod setup;
mod shared;
mod vtd;

use core::sync::atomic::{AtomicBool, Ordering};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use x86_model::Hpa;
use x86_model::interrupt::mode::Remapping;
use x86_model::iommu::{RemappedMessage, Requester, Target, decide};
use x86_model::pci::Bdf;

use super::cpu::percpu::PerCpu;
use super::{apic::vectors, time};
use crate::guest_log;
use crate::machine::{MsiMessage, MsiSource, PostTo};
use crate::sync::{SpinLock, rank};
pub use setup::{IommuOptions, asks_for_xapic, init};

/// Who sends an interrupt, as the units see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sender {
    segment: u16,
    /// Its own id.
    device: u16,
    /// Under which id its requests arrive.
    requester: Requester,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    /// Which table, where there are several.
    table: u32,
    index: u16,
}

/// The kind of unit.
enum Units {
    Vtd(vtd::Vtd),
    Amd(amd::AmdVi),
}

/// What an entry in use says.
struct Route {
    handle: Handle,
    sender: Sender,
    target: Target,
    /// It posts to a vCPU, and `target` only gets what was under way before. Not given back while a unit may use the entry.
    guest: Option<PostTo>,
}

/// What an entry shall say.
struct Wanted {
    sender: Sender,
    target: Target,
    guest: Option<PostTo>,
    /// The CPU, for messages that may be posted to its own descriptor.
    cpu: Option<u32>,
}

struct State {
    units: Units,
    /// By CPU and vector of the message's target.
    messages: BTreeMap<(u32, u8), Route>,
    /// By IO-APIC (its ACPI id) and pin.
    pins: BTreeMap<(u8, u32), Route>,
    /// Sources of the IO-APICs, by ACPI id.
    ioapics: BTreeMap<u8, Sender>,
    /// Log every change of an entry.
    trace: bool,
}

static STATE: SpinLock<Option<State>, { rank::IOMMU }> = SpinLock::new(None);
/// Whether [`STATE`] is there, to be read without the lock.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Whether entries can be in the posted format.
static POSTS: AtomicBool = AtomicBool::new(false);
/// Whether an IO-APIC must be told the end of a level-triggered interrupt by register.
static EXPLICIT_EOI: AtomicBool = AtomicBool::new(false);

/// Whether interrupts go through remapping entries.
#[inline]
pub fn active() -> bool {
    ACTIVE.load(Ordering::Acquire)
}

/// Whether entries can post: every unit is a VT-d unit that has the format, and `iommu=intpost` asks for it.
#[inline]
pub fn posts() -> bool {
    POSTS.load(Ordering::Acquire)
}

/// How far remapping reaches, for the choice of the local APIC mode.
pub fn interrupt_remapping() -> Remapping {
    match STATE.lock().as_ref().map(|s| &s.units) {
        None => Remapping::Off,
        Some(Units::Vtd(v)) => decide::vtd_reach(v.extended()),
        Some(Units::Amd(a)) => decide::amd_reach(a.format()),
    }
}

/// Whether an IO-APIC must be told the end of a level-triggered interrupt by its own register, because the entry makes an
/// edge of it for the CPU, whose end of interrupt is then not broadcast.
pub fn explicit_eoi() -> bool {
    EXPLICIT_EOI.load(Ordering::Relaxed)
}

/// Whether a machine frame holds registers of a unit.
pub fn owns(hpa: Hpa) -> bool {
    active()
        && match STATE.lock().as_ref().map(|s| &s.units) {
            None => false,
            Some(Units::Vtd(v)) => v.owns(hpa),
            Some(Units::Amd(a)) => a.owns(hpa),
        }
}

/// PCI functions of the units themselves, which no domain may touch.
pub fn own_functions() -> Vec<Bdf> {
    match STATE.lock().as_ref().map(|s| &s.units) {
        Some(Units::Amd(a)) => a.functions().collect(),
        _ => Vec::new(),
    }
}

impl State {
    fn new(units: Units, ioapics: BTreeMap<u8, Sender>, trace: bool) -> Self {
        State {
            units,
            messages: BTreeMap::new(),
            pins: BTreeMap::new(),
            ioapics,
            trace,
        }
    }

    /// Makes a fresh entry, or changes `old` where it can stay. `pin` for IO-APICs. `None` if no entry is left, the target
    /// does not fit, or a unit does not answer; `old` is then given back.
    fn route(&mut self, old: Option<Route>, wanted: Wanted, pin: bool) -> Option<Route> {
        let Wanted {
            sender,
            target,
            guest,
            cpu,
        } = &wanted;
        if let Some(o) = &old {
            if (&o.sender, &o.target, &o.guest) == (sender, target, guest) {
                return old;
            }
            let stays = o.sender == *sender
                && match &self.units {
                    Units::Vtd(_) => true,
                    Units::Amd(a) => !pin || a.suits_pin(o.handle, target.vector),
                };
            if !stays {
                self.give(o.handle, o.guest.clone());
                return self.route(None, wanted, pin);
            }
        }
        let handle = match &old {
            Some(o) => o.handle,
            None => match &mut self.units {
                Units::Vtd(v) => v.take(),
                Units::Amd(a) => a.take(sender, pin.then_some(target.vector)),
            }?,
        };
        // A guest's descriptor, or else that of the CPU, where there is one. Pins are never posted.
        let post = guest
            .clone()
            .or_else(|| host_posts::to((*cpu)?, target.vector));
        let written = match &mut self.units {
            Units::Vtd(v) => v.set(handle, sender, target, post.as_ref()),
            Units::Amd(a) => a.set(handle, target),
        };
        if !written {
            core::mem::forget(wanted.guest);
            self.give(handle, old.and_then(|o| o.guest));
            return None;
        }
        if self.trace {
            let (used, all) = self.entries();
            guest_log!(
                Debug,
                "Remapping: {} {} entry {} to {} {:#x} vector {:#x}, {used} of {all} entries in use",
                Id(*sender),
                if pin { "pin" } else { "message" },
                handle.index,
                if target.logical { "set" } else { "APIC" },
                target.dest,
                target.vector
            );
        }
        Some(Route {
            handle,
            sender: wanted.sender,
            target: wanted.target,
            guest: wanted.guest,
        })
    }

    /// Gives an entry back, and then what it posted to.
    fn give(&mut self, handle: Handle, guest: Option<PostTo>) {
        let unused = match &mut self.units {
            Units::Vtd(v) => v.give(handle),
            Units::Amd(a) => {
                a.give(handle);
                true
            }
        };
        if !unused {
            // A unit may post there for ever.
            core::mem::forget(guest);
        }
    }

    fn message(&self, handle: Handle) -> RemappedMessage {
        match &self.units {
            Units::Vtd(v) => v.message(handle),
            Units::Amd(a) => a.message(handle),
        }
    }

    fn entries(&self) -> (u32, u32) {
        match &self.units {
            Units::Vtd(v) => v.entries(),
            Units::Amd(a) => a.entries(),
        }
    }
}

/// Shows a sender as bus, device, function.
struct Id(Sender);

impl core::fmt::Display for Id {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let d = self.0.device;
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{}",
            self.0.segment,
            d >> 8,
            d >> 3 & 31,
            d & 7
        )
    }
}

/// The message that makes a device's interrupt reach `target`, a vector of CPU number `cpu`. Asking again for the same
/// CPU and vector changes the entry. With `guest` the entry posts to that vCPU instead. `None` if there is no entry left or
/// the target cannot be reached.
pub fn message(
    source: &MsiSource,
    cpu: u32,
    target: Target,
    guest: Option<&PostTo>,
) -> Option<MsiMessage> {
    let mut state = STATE.lock();
    let state = state.as_mut()?;
    let sender = Sender {
        segment: source.device.segment,
        device: x86_model::iommu::requester::id(source.device),
        requester: source.requester,
    };
    let place = (cpu, target.vector);
    let old = state.messages.remove(&place);
    let wanted = Wanted {
        sender,
        target,
        guest: guest.filter(|_| posts()).cloned(),
        cpu: Some(cpu),
    };
    let route = state.route(old, wanted, false)?;
    let RemappedMessage { address, data } = state.message(route.handle);
    state.messages.insert(place, route);
    Some(MsiMessage {
        address: address.into(),
        data,
    })
}

/// Makes the entry of a message to one CPU number and vector lead to `target`, a vector of CPU number `cpu`, in one write.
/// False if there is no such entry, or it could not be written and is given back.
pub fn move_message(from: (u32, u8), cpu: u32, target: Target) -> bool {
    let mut state = STATE.lock();
    let Some(state) = state.as_mut() else {
        return false;
    };
    let Some(old) = state.messages.remove(&from) else {
        return false;
    };
    let wanted = Wanted {
        sender: old.sender,
        target,
        guest: old.guest.clone(),
        cpu: Some(cpu),
    };
    let Some(route) = state.route(Some(old), wanted, false) else {
        return false;
    };
    state.messages.insert((cpu, target.vector), route);
    true
}

/// Gives the entry of a message's vector back, if it has one.
pub fn forget_message(cpu: u32, vector: u8) {
    if !active() {
        return;
    }
    let mut state = STATE.lock();
    if let Some(state) = state.as_mut()
        && let Some(route) = state.messages.remove(&(cpu, vector))
    {
        state.give(route.handle, route.guest);
        if state.trace {
            let (used, all) = state.entries();
            guest_log!(
                Debug,
                "Remapping: {} message entry {} given back, {used} of {all} entries in use",
                Id(route.sender),
                route.handle.index
            );
        }
    }
}

/// The redirection entry (unmasked) that makes an IO-APIC's pin reach `target`. Asking again for the pin changes the
/// remapping entry, so the pin must be masked. `None` as for [`message`].
pub fn pin(ioapic: u8, pin: u32, target: Target, active_low: bool) -> Option<u64> {
    let mut state = STATE.lock();
    let state = state.as_mut()?;
    let sender = *state.ioapics.get(&ioapic)?;
    let old = state.pins.remove(&(ioapic, pin));
    let wanted = Wanted {
        sender,
        target,
        guest: None,
        cpu: None,
    };
    let route = state.route(old, wanted, true)?;
    let handle = route.handle;
    state.pins.insert((ioapic, pin), route);
    Some(match &state.units {
        Units::Vtd(v) => v.redirection(handle, &target, active_low),
        Units::Amd(a) => a.redirection(handle, &target, active_low),
    })
}

/// From now on, faults raise an interrupt on this CPU, to be answered by [`report_faults`].
pub fn arm_faults(cpu: &PerCpu) {
    if let Some(state) = STATE.lock().as_mut() {
        match &mut state.units {
            Units::Vtd(v) => v.arm_faults(cpu.apic_id(), vectors::IOMMU),
            Units::Amd(a) => a.arm_faults(cpu.apic_id(), vectors::IOMMU),
        }
    }
}

/// Tells what the units recorded.
#[cold]
pub(super) fn report_faults() {
    let now = time::now_ns();
    if let Some(state) = STATE.lock().as_mut() {
        match &mut state.units {
            Units::Vtd(v) => v.report_faults(now),
            Units::Amd(a) => a.report_faults(now),
        }
    }
}
