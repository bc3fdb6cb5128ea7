//! The root value: the machine, the domains, the scheduler, the interrupt map. One exists for the life of the system and
//! is shared by all pCPUs; everything mutable in it is atomic or behind a ranked lock.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use hv_hw::bootinfo::Screen;
use hv_hw::machine::CpuId;
use hv_hw::sync::{SpinLock, rank};
use hv_hw::{Hw, Machine};
use x86_model::posted::WakeList;
use xen_abi::{DomId, Errno};

use crate::console::input::{Input, Switch};
use crate::domain::Domain;
use crate::grant::Limits;
use crate::heartbeat::Heartbeat;
use crate::hotplug::{Busy, Hotplug};
use crate::irq::IrqMap;
use crate::sched::Scheduler;
use crate::trace::Trace;
use crate::vcpu::info::ClockSnapshot;
use crate::vcpu::posting::Asleep;
use crate::vcpu::{NEVER, Vcpu, VcpuKey, VcpuRef};

/// What the hypervisor says of itself (`xen_version`, CPUID leaf +1).
#[derive(Clone, Debug)]
pub struct Identity {
    /// Major version of Xen whose interface is presented.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// E.g. ".0-xenolith".
    pub extra: String,
    /// Build facts: compiler, who, where, when.
    pub compile: [String; 4],
    /// Source revision.
    pub changeset: String,
    /// The linker's digest of the image; empty: none.
    pub build_id: Vec<u8>,
    /// The hypervisor's command line.
    pub command_line: String,
    /// The screen, as the boot loader left it.
    pub screen: Screen,
    /// Whether the firmware is EFI.
    pub efi: bool,
}

/// What other CPUs may know and set of a pCPU.
#[derive(Default)]
pub struct Pcpu {
    /// Choose again at the next opportunity.
    pub resched: AtomicBool,
    /// Time without a vCPU to run, in ns.
    pub idle_ns: AtomicU64,
    /// Interrupts of unknown origin seen here.
    pub stray: AtomicU64,
    /// Interrupts that arrived here after their source had been told to send elsewhere.
    pub late: AtomicU64,
    /// vCPUs that sleep here and are woken by what is posted to them.
    pub sleepers: SpinLock<WakeList<Asleep>, { rank::DEVICE }>,
    /// Look whether old vectors are quiet.
    pub clean: AtomicBool,
    /// Coming and going.
    pub hotplug: Hotplug,
}

/// The root value.
pub struct Hypervisor {
    /// The machine.
    pub hw: Hw,
    /// Who we are.
    pub identity: Identity,
    /// vCPU scheduling.
    pub sched: Scheduler,
    /// Device interrupt bindings.
    pub irqs: IrqMap,
    /// Per-pCPU shared state.
    pub pcpus: Box<[Pcpu]>,
    /// The pCPU that comes or goes.
    pub(crate) busy: Busy,
    /// The watchdog over pCPUs.
    pub heartbeat: Heartbeat,
    /// Trace buffers.
    pub trace: Trace,
    /// What to do when dom0 ends in a way that calls for a reboot.
    pub noreboot: bool,
    /// What the control domain prints is kept in the log (`console_to_ring`).
    pub console_to_ring: bool,
    /// Position in the log up to which the control domain has been told.
    pub(crate) log_told: AtomicU64,
    /// The most that a grant table may have (`gnttab=` and its like); dom0 gets that.
    pub grant_limits: Limits,
    /// Held over each operation of the toolstack on domains.
    pub(crate) control: SpinLock<Control, { rank::CONTROL }>,
    domains: SpinLock<Vec<Arc<Domain>>, { rank::DOMAIN_LIST }>,
    virq_handlers: [AtomicU16; xen_abi::virq::nr::COUNT as usize],
    scale: (u32, i8),
    wall_offset: SpinLock<Wallclock, { rank::DEVICE }>,
    console_owner: AtomicU32,
    pub(crate) input: SpinLock<Input, { rank::DEVICE }>,
    /// The earliest deadline of a domain's watchdog.
    pub(crate) watchdog_at: AtomicU64,
}

/// Wall time at system time 0.
#[derive(Clone, Copy, Debug)]
pub struct Wallclock {
    /// Seconds since 1970.
    pub secs: u64,
    /// Nanoseconds.
    pub nsecs: u32,
}

/// What the toolstack's operations share.
pub struct Control {
    /// The identifier that was given to a domain last.
    pub last_id: u16,
}

impl Hypervisor {
    /// A system without domains on `hw`, without a watchdog.
    pub fn new(hw: Hw, identity: Identity, sched: Scheduler, noreboot: bool) -> Self {
        let cpus = hw.cpu_count();
        let (secs, nsecs) = hw.wallclock();
        let scale = ClockSnapshot::scale(hw.tsc_khz());
        let hv = Hypervisor {
            hw,
            identity,
            sched,
            irqs: IrqMap::new(),
            pcpus: (0..cpus).map(|_| Pcpu::default()).collect(),
            busy: Busy::default(),
            heartbeat: Heartbeat::new(cpus, 0),
            trace: Trace::default(),
            noreboot,
            console_to_ring: false,
            log_told: AtomicU64::new(0),
            grant_limits: Limits::default(),
            control: SpinLock::new(Control { last_id: 0 }),
            domains: SpinLock::new(Vec::new()),
            virq_handlers: [const { AtomicU16::new(0) }; xen_abi::virq::nr::COUNT as usize],
            scale,
            wall_offset: SpinLock::new(Wallclock { secs, nsecs }),
            console_owner: AtomicU32::new(0),
            input: SpinLock::new(Input::new(Switch::default())),
            watchdog_at: AtomicU64::new(NEVER),
        };
        hv.note_offline();
        hv
    }

    /// Adds a domain. The caller has made sure that its identifier is free. ENOMEM.
    pub fn add_domain(&self, domain: Arc<Domain>) -> Result<(), Errno> {
        let mut list = self.domains.lock();
        list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let at = list.partition_point(|d| d.id < domain.id);
        list.insert(at, domain);
        Ok(())
    }

    /// Takes a domain off the list. It lives on until the last user has let go.
    pub fn remove_domain(&self, id: DomId) {
        let mut list = self.domains.lock();
        let found = list.iter().position(|d| d.id == id);
        let removed = found.map(|at| list.remove(at));
        drop(list);
        // Maybe the last reference: not under the lock.
        drop(removed);
    }

    /// Domains on the list.
    pub fn domain_count(&self) -> usize {
        self.domains.lock().len()
    }

    /// The domain with the lowest identifier from `first` on.
    pub fn next_domain(&self, first: DomId) -> Option<Arc<Domain>> {
        self.domains.lock().iter().find(|d| d.id >= first).cloned()
    }

    /// The domain that gets a global virtual interrupt.
    pub fn virq_handler(&self, virq: u32) -> DomId {
        self.virq_handlers
            .get(virq as usize)
            .map_or(DomId::DOM0, |h| DomId(h.load(Ordering::Relaxed)))
    }

    /// Sends a global virtual interrupt to another domain from now on.
    pub fn set_virq_handler(&self, virq: u32, domain: DomId) {
        if let Some(h) = self.virq_handlers.get(virq as usize) {
            h.store(domain.0, Ordering::Relaxed);
        }
    }

    /// A domain by identifier.
    pub fn domain(&self, id: DomId) -> Option<Arc<Domain>> {
        self.domains.lock().iter().find(|d| d.id == id).cloned()
    }

    /// All domains, by ascending identifier.
    pub fn domains(&self) -> Vec<Arc<Domain>> {
        self.domains.lock().clone()
    }

    /// The domain and vCPU of a key.
    pub fn vcpu(&self, key: VcpuKey) -> Option<(Arc<Domain>, VcpuRef)> {
        let domain = self.domain(key.domain)?;
        let vcpu = domain.vcpu(key.vcpu)?.clone();
        Some((domain, vcpu))
    }

    /// The domain that `id` means for `caller` (SELF is the caller).
    pub fn resolve(&self, caller: &Arc<Domain>, id: DomId) -> Option<Arc<Domain>> {
        if id == DomId::SELF || id == caller.id {
            Some(caller.clone())
        } else {
            self.domain(id)
        }
    }

    /// The clock at this moment, in the guest's terms.
    pub fn clock(&self) -> ClockSnapshot {
        let tsc = self.hw.tsc();
        let (mul, shift) = self.scale;
        ClockSnapshot {
            tsc,
            system_ns: self.hw.tsc_to_ns(tsc),
            mul,
            shift,
            flags: 0,
        }
    }

    /// Wall time at system time 0.
    pub fn wallclock(&self) -> Wallclock {
        *self.wall_offset.lock()
    }

    /// Sets the wall clock (by dom0) and tells every domain.
    pub fn set_wallclock(&self, wall: Wallclock) {
        *self.wall_offset.lock() = wall;
        for d in self.domains() {
            d.publish_wallclock(wall);
        }
    }

    /// The domain that gets console input.
    pub fn console_owner(&self) -> DomId {
        DomId(self.console_owner.load(Ordering::Relaxed) as u16)
    }

    /// Makes a pCPU choose again whom to run.
    pub fn resched(&self, cpu: CpuId) {
        if let Some(p) = self.pcpus.get(cpu.0 as usize) {
            p.resched.store(true, Ordering::SeqCst);
            if cpu != self.hw.cpu() {
                self.hw.kick(cpu);
            }
        }
    }

    /// Makes every pCPU outside of `domain`'s stale translations: on return no pCPU runs the domain with mappings older
    /// than this call. Waits only for pCPUs that are in guest mode; a pCPU in the hypervisor is never waited for, so two
    /// concurrent flushes cannot deadlock. Hold no lock.
    pub fn flush_domain(&self, domain: &Domain) {
        let generation = domain.p2m.stage2().generation();
        let stale = |v: &Vcpu| is_stale(v, generation);
        for v in domain.vcpus() {
            let cpu = v.running_on.load(Ordering::SeqCst);
            if stale(v) && CpuId(cpu) != self.hw.cpu() {
                self.hw.kick(CpuId(cpu));
            }
        }
        for v in domain.vcpus() {
            // Outside guest mode the value is NEVER, which is never stale.
            while stale(v) && v.entered_generation.load(Ordering::SeqCst) != NEVER {
                core::hint::spin_loop();
            }
        }
    }

    /// Whether a vCPU of `domain` is in the guest with mappings older than this call.
    pub fn has_stale_vcpu(&self, domain: &Domain) -> bool {
        let generation = domain.p2m.stage2().generation();
        domain.vcpus().iter().any(|v| is_stale(v, generation))
    }
}

/// Whether the vCPU entered the guest before the memory map reached this generation.
fn is_stale(v: &Vcpu, generation: u64) -> bool {
    v.entered_generation.load(Ordering::SeqCst) < generation
}
