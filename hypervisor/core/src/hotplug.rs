//! Taking pCPUs away and bringing them back, one at a time.
//!
//! A pCPU that goes stops taking vCPUs and interrupts, then loses those that it has, then leaves its loop. Each step is short:
//! the hypercall that asked for it restarts until the pCPU has stopped, so that it can be called on the very pCPU that goes, and
//! nobody waits with a lock. Coming back is one step, the start-up of one CPU.

mod siblings;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use alloc::vec::Vec;

use hv_hw::Machine;
use hv_hw::machine::CpuId;
use hv_hw::sync::{SpinLock, rank};
use xen_abi::Errno;
use xen_abi::virq::nr;

use crate::hypervisor::Hypervisor;
use crate::vcpu::{NO_CPU, VcpuRef};

/// Where a pCPU is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Works.
    Online = 0,
    /// Loses its vCPUs and interrupts.
    Going = 1,
    /// Has none, and was told to stop.
    Stopping = 2,
    /// Stopped, or never came up (a parked sibling).
    Offline = 3,
    /// Is being started.
    Coming = 4,
}

/// A pCPU's part of the protocol.
#[derive(Default)]
pub struct Hotplug {
    stage: AtomicU8,
    /// When it began to go, in ns since boot.
    since: AtomicU64,
    /// The pCPU must leave its loop.
    leave: AtomicBool,
    /// There is something in `adopted`.
    has_adopted: AtomicBool,
    /// vCPUs that slept on a pCPU that has gone; their timers are this one's from now on.
    adopted: SpinLock<Vec<VcpuRef>, { rank::DEVICE }>,
}

impl Hotplug {
    /// The stage.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Online,
            1 => Stage::Going,
            2 => Stage::Stopping,
            3 => Stage::Offline,
            _ => Stage::Coming,
        }
    }

    fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::SeqCst);
    }

    /// Goes on from one stage to another; false if it is not there.
    fn step(&self, from: Stage, to: Stage) -> bool {
        self.stage
            .compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether the pCPU must leave its loop.
    #[inline]
    pub fn must_leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }

    /// vCPUs to watch that slept elsewhere; none most of the time.
    #[inline]
    pub fn take_adopted(&self) -> Option<Vec<VcpuRef>> {
        if !self.has_adopted.load(Ordering::Relaxed) {
            return None;
        }
        self.has_adopted.store(false, Ordering::SeqCst);
        Some(core::mem::take(&mut *self.adopted.lock()))
    }
}

/// After this time a pCPU that cannot get rid of its interrupts stays.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// It is over.
    Done,
    /// To be called again.
    Again,
}

/// The pCPU that comes or goes; one at a time.
pub struct Busy(AtomicU32);

impl Default for Busy {
    fn default() -> Self {
        Busy(AtomicU32::new(NO_CPU))
    }
}

impl Busy {
    fn begin(&self, cpu: CpuId) -> Result<(), Errno> {
        self.0
            .compare_exchange(NO_CPU, cpu.0, Ordering::SeqCst, Ordering::SeqCst)
            .map(drop)
            .map_err(|_| Errno::EBUSY)
    }
    fn end(&self) {
        self.0.store(NO_CPU, Ordering::SeqCst);
    }
}

impl Hypervisor {
    /// pCPUs that never came up (parked siblings) are known to be offline from the start.
    pub(crate) fn note_offline(&self) {
        for cpu in (0..self.hw.cpu_count()).map(CpuId) {
            if !self.hw.is_online(cpu) {
                self.pcpus[cpu.0 as usize].hotplug.set(Stage::Offline);
                self.sched.with(|p| p.set_online(cpu, false));
            }
        }
    }

    /// The stage of a pCPU; `None` if there is no such.
    pub fn cpu_stage(&self, cpu: CpuId) -> Option<Stage> {
        Some(self.pcpus.get(cpu.0 as usize)?.hotplug.stage())
    }

    /// Takes a pCPU away, a step at a time. EINVAL: there is no such, or it is the boot CPU, which the machine needs. EEXIST:
    /// it is away. EBUSY: another one comes or goes, its vCPU has no other place to run (with the null scheduler), or no other has
    /// vectors left for its interrupts. Hold no lock.
    pub fn cpu_down(&self, cpu: CpuId) -> Result<Progress, Errno> {
        let Some(p) = self.pcpus.get(cpu.0 as usize).filter(|_| cpu.0 != 0) else {
            return Err(Errno::EINVAL);
        };
        match p.hotplug.stage() {
            Stage::Offline => return Err(Errno::EEXIST),
            Stage::Coming => return Err(Errno::EBUSY),
            Stage::Online => {
                self.busy.begin(cpu)?;
                let goes = self.sched.with(|s| {
                    let spared = s.spares(cpu);
                    if spared {
                        s.set_online(cpu, false);
                    }
                    spared
                });
                if !goes {
                    self.busy.end();
                    hv_hw::warn!(
                        "CPU {} stays online: the scheduler has no other CPU for its vCPU (debug key 'r' shows them)",
                        cpu.0
                    );
                    return Err(Errno::EBUSY);
                }
                p.hotplug.since.store(self.hw.now_ns(), Ordering::Relaxed);
                p.hotplug.set(Stage::Going);
                self.irqs.set_online(&self.hw, cpu, false);
                self.resched_all();
            }
            Stage::Going => {
                if self.evacuate(cpu) {
                    if p.hotplug.step(Stage::Going, Stage::Stopping) {
                        p.hotplug.leave.store(true, Ordering::SeqCst);
                        self.resched(cpu);
                    }
                } else if self.hw.now_ns() - p.hotplug.since.load(Ordering::Relaxed) > PATIENCE_NS
                    && p.hotplug.step(Stage::Going, Stage::Online)
                {
                    hv_hw::warn!(
                        "CPU {} stays online: its interrupts find no vectors elsewhere (debug key 'i' shows them)",
                        cpu.0
                    );
                    self.take_in(cpu);
                    return Err(Errno::EBUSY);
                }
            }
            Stage::Stopping => {
                if self.hw.has_stopped(cpu) && p.hotplug.step(Stage::Stopping, Stage::Offline) {
                    self.heartbeat.forget(cpu);
                    self.busy.end();
                    hv_hw::info!("CPU {} is offline", cpu.0);
                    self.raise_global_virq(nr::PCPU_STATE);
                    return Ok(Progress::Done);
                }
            }
        }
        Ok(Progress::Again)
    }

    /// Brings a pCPU back. EINVAL: there is no such. EEXIST: it is up. EBUSY: another one comes or goes. EIO: it does not
    /// start; the log says why. Hold no lock: it waits for the CPU.
    pub fn cpu_up(&self, cpu: CpuId) -> Result<(), Errno> {
        let p = self.pcpus.get(cpu.0 as usize).ok_or(Errno::EINVAL)?;
        match p.hotplug.stage() {
            Stage::Online => return Err(Errno::EEXIST),
            Stage::Offline => self.busy.begin(cpu)?,
            _ => return Err(Errno::EBUSY),
        }
        if !p.hotplug.step(Stage::Offline, Stage::Coming) {
            self.busy.end();
            return Err(Errno::EBUSY);
        }
        p.hotplug.leave.store(false, Ordering::SeqCst);
        p.resched.store(false, Ordering::SeqCst);
        p.clean.store(false, Ordering::SeqCst);
        if let Err(why) = self.hw.start_cpu(cpu) {
            hv_hw::warn!("CPU {} stays offline: {why}", cpu.0);
            p.hotplug.set(Stage::Offline);
            self.busy.end();
            return Err(Errno::EIO);
        }
        p.hotplug.set(Stage::Online);
        self.take_in(cpu);
        hv_hw::info!("CPU {} is online", cpu.0);
        self.raise_global_virq(nr::PCPU_STATE);
        Ok(())
    }

    /// A pCPU takes interrupts and vCPUs, and the operation on it is over.
    fn take_in(&self, cpu: CpuId) {
        self.irqs.set_online(&self.hw, cpu, true);
        self.busy.end();
        self.sched.with(|s| s.set_online(cpu, true));
        self.resched_all();
    }

    /// Makes every pCPU that works choose again.
    pub(crate) fn resched_all(&self) {
        for cpu in (0..self.hw.cpu_count()).map(CpuId) {
            let stage = self.pcpus[cpu.0 as usize].hotplug.stage();
            if matches!(stage, Stage::Online | Stage::Going) {
                self.resched(cpu);
            }
        }
    }

    /// This pCPU leaves its loop: the boot CPU watches those of its sleepers that did not wake up elsewhere.
    pub fn hand_over(&self, from: CpuId, sleepers: Vec<VcpuRef>) {
        self.wake_all_sleepers(from);
        let mut moved: Vec<VcpuRef> = sleepers
            .into_iter()
            .filter(|v| {
                v.home
                    .compare_exchange(from.0, 0, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            })
            .collect();
        let heir = &self.pcpus[0].hotplug;
        heir.adopted.lock().append(&mut moved);
        heir.has_adopted.store(true, Ordering::SeqCst);
        self.hw.kick(CpuId(0));
    }
}
