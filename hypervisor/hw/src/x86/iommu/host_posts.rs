//! Descriptors of the CPUs themselves: where units post, all messages of devices whose interrupts the hypervisor takes share
//! one notification. How it is served, and why so, is in [`x86_model::posted::msi`].

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use x86_model::posted::{Ndst, Notice, msi};

use super::super::apic::{self, vectors};
use super::super::cpu::percpu::{self, MAX_CPUS};
use crate::machine::{CpuId, PostTo};
use crate::posted::PostTarget;

/// One CPU's. The counters are written by their CPU alone.
struct Slot {
    target: spin::Once<Arc<PostTarget>>,
    notifications: AtomicU64,
    turns: AtomicU64,
    interrupts: AtomicU64,
    stray: AtomicU64,
}

static SLOTS: [Slot; MAX_CPUS] = [const {
    Slot {
        target: spin::Once::new(),
        notifications: AtomicU64::new(0),
        turns: AtomicU64::new(0),
        interrupts: AtomicU64::new(0),
        stray: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Where a message for a device vector of this CPU is posted; `None` where units do not post (it is then remapped), or without
/// memory.
pub(super) fn to(cpu: u32, vector: u8) -> Option<PostTo> {
    if !super::posts() {
        return None;
    }
    let apic_id = percpu::of(CpuId(cpu))?.apic_id();
    let make = || {
        let target = PostTarget::new().ok_or(())?;
        target.run_on(Notice {
            vector: vectors::POSTED_MSI,
            dest: Ndst::new(apic_id, apic::x2apic()).ok_or(())?,
        });
        Ok::<_, ()>(Arc::new(target))
    };
    Some(PostTo {
        target: SLOTS
            .get(cpu as usize)?
            .target
            .try_call_once(make)
            .ok()?
            .clone(),
        vector,
        urgent: false,
    })
}

/// Serves a notification on its CPU, and ends it.
pub fn serve(cpu: CpuId, dispatch: &mut dyn FnMut(u8)) {
    let slot = SLOTS.get(cpu.0 as usize);
    let Some((slot, target)) = slot.and_then(|s| Some((s, s.target.get()?))) else {
        // Nobody posts here: somebody sent the vector.
        apic::eoi();
        return;
    };
    let devices = vectors::FIRST_DEVICE..=vectors::LAST_DEVICE;
    let served = msi::serve(target, devices, msi::PASSES, dispatch, apic::eoi);
    let add = |to: &AtomicU64, n: u64| to.store(to.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    add(&slot.notifications, 1);
    add(&slot.turns, served.turns.into());
    add(&slot.interrupts, served.interrupts.into());
    add(&slot.stray, served.stray.into());
}

/// Whether a message with this vector is posted to a CPU and not taken yet.
pub fn waits(cpu: CpuId, vector: u8) -> bool {
    let slot = SLOTS.get(cpu.0 as usize);
    slot.and_then(|s| s.target.get())
        .is_some_and(|t| t.words()[usize::from(vector) / 64] >> (vector % 64) & 1 != 0)
}

/// Notifications, turns, messages, stray bits.
pub fn counts(cpu: CpuId) -> [u64; 4] {
    SLOTS.get(cpu.0 as usize).map_or([0; 4], |s| {
        let counters = [&s.notifications, &s.turns, &s.interrupts, &s.stray];
        counters.map(|c| c.load(Ordering::Relaxed))
    })
}
