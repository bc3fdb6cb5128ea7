//! The per-CPU block, reached through the GS base while the hypervisor runs.
//!
//! Every field is written by its own CPU only, except where its comment says otherwise; others may read. All fields are
//! atomics used with relaxed ordering, which on x86 costs plain loads and stores.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use alloc::boxed::Box;

use x86_model::callin::StopRequest;
use x86_model::interrupt::vectors::VectorMap;

use super::gdt::Descriptors;
use crate::machine::CpuId;

/// Most CPUs that this build can use (`NR_CPUS`).
pub const MAX_CPUS: usize = crate::config::NR_CPUS as usize;

/// Most return addresses that an NMI collects.
const TRACE: usize = 16;

/// "No deadline" in [`PerCpu::deadline`].
pub const NO_DEADLINE: u64 = u64::MAX;

/// The CPU number of a CPU that is not up.
const NOT_UP: u32 = u32::MAX;

/// One CPU's block.
#[repr(C, align(64))]
pub struct PerCpu {
    /// Its own address, so that `this()` is one load. Must stay first.
    this: AtomicPtr<PerCpu>,
    /// CPU number; [`NOT_UP`] until it has one.
    id: AtomicU32,
    /// The vector that the interrupt stub recorded; 0 when none.
    vector: AtomicU32,
    /// The vector that an exit acknowledged; 0 when none.
    acknowledged: AtomicU32,
    /// TSC-domain deadline that is armed in the local APIC, in ns; [`NO_DEADLINE`] when none.
    pub(in crate::x86) deadline: AtomicU64,
    apic_id: AtomicU32,
    acpi_uid: AtomicU32,
    /// Set by a CPU that ends the machine, before its NMI.
    pub(in crate::x86) stop: StopRequest<AtomicU32>,
    /// Set when the request was obeyed.
    pub(in crate::x86) stopped: AtomicBool,
    /// Set by a CPU that wants to know where this one is, before its NMI; cleared when `trace` is filled.
    pub(in crate::x86) trace_wanted: AtomicBool,
    /// Return addresses, innermost first, 0 after the last.
    pub(in crate::x86) trace: [AtomicU64; TRACE],
    /// Nesting of fatal traps, to break recursion in the dump.
    pub(in crate::x86) fatal_depth: AtomicU32,
    /// NMIs taken.
    pub(in crate::x86) nmis: AtomicU64,
    /// Spurious, error and legacy-PIC vectors taken.
    pub(in crate::x86) spurious: AtomicU64,
    /// A number that no other block has, in the order of the firmware's table; 0 for the boot CPU. Unlike the CPU number,
    /// it is known before the CPU is up.
    slot: u32,
    /// Place among the clusters, packed; 0 if it has none. Cleared by whoever takes the CPU away.
    pub(in crate::x86) place: AtomicU32,
    /// Writes to the interrupt command register.
    pub(in crate::x86) icr_writes: AtomicU64,
    /// It takes device vectors and is meant by "all others"; changed by the CPU that brings it up or takes it away.
    online: AtomicBool,
    /// It has stopped, until it is started again.
    pub(in crate::x86) halted: AtomicBool,
    /// Exits that the backend settled by itself, so that nobody counted them as a guest's.
    settled: AtomicU64,
    /// Faults of the machine below that were put right after exits.
    repaired: AtomicU64,
    /// On Bochs, the first request register of the guest that runs here; null if there is none. Read by other CPUs.
    #[cfg(CONFIG_INTEL)]
    pub(in crate::x86) requests: AtomicPtr<AtomicU32>,
    /// Device vectors in use; changed by any CPU.
    pub(in crate::x86) vectors: VectorMap<AtomicU32>,
    /// Ranks of the locks that it holds.
    #[cfg(CONFIG_DEBUG_LOCKS)]
    pub(crate) held: crate::sync::Ranks,
    /// For the virtualization backend: whatever it hangs here lives for ever.
    pub virt: AtomicUsize,
    pub(super) descriptors: UnsafeCell<Descriptors>,
}

// SAFETY: everything but `descriptors` is atomic; `descriptors` is touched only by its own CPU, or by the CPU that
// makes the block before it is published.
unsafe impl Sync for PerCpu {}

const _: () = assert!(offset_of!(PerCpu, this) == 0);
/// Offset of the recorded vector, for the stubs.
pub(super) const VECTOR_OFFSET: usize = offset_of!(PerCpu, vector);

static BOOT: PerCpu = PerCpu::new(0);

/// Blocks by CPU number; filled in order and never emptied. A CPU that goes away keeps its number.
static BLOCKS: [AtomicPtr<PerCpu>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Those of them that are online.
static ONLINE: AtomicU32 = AtomicU32::new(0);
/// Blocks by slot, also of CPUs that are on their way, parked or left out.
static KNOWN: [AtomicPtr<PerCpu>; MAX_CPUS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// Shows a CPU as "CPU 3", or "CPU with APIC ID 0x3 (starting)" if it has no number.
pub struct Name<'a>(pub &'a PerCpu);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.id().0 {
            NOT_UP => write!(f, "CPU with APIC ID {:#x} (starting)", self.0.apic_id()),
            n => write!(f, "CPU {n}"),
        }
    }
}

impl PerCpu {
    const fn new(slot: u32) -> Self {
        PerCpu {
            this: AtomicPtr::new(core::ptr::null_mut()),
            id: AtomicU32::new(NOT_UP),
            vector: AtomicU32::new(0),
            acknowledged: AtomicU32::new(0),
            deadline: AtomicU64::new(NO_DEADLINE),
            apic_id: AtomicU32::new(NOT_UP),
            acpi_uid: AtomicU32::new(NOT_UP),
            stop: StopRequest::new(AtomicU32::new(0)),
            stopped: AtomicBool::new(false),
            trace_wanted: AtomicBool::new(false),
            trace: [const { AtomicU64::new(0) }; TRACE],
            fatal_depth: AtomicU32::new(0),
            nmis: AtomicU64::new(0),
            spurious: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
            #[cfg(CONFIG_INTEL)]
            requests: AtomicPtr::new(core::ptr::null_mut()),
            slot,
            place: AtomicU32::new(0),
            icr_writes: AtomicU64::new(0),
            online: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            vectors: VectorMap::empty(),
            #[cfg(CONFIG_DEBUG_LOCKS)]
            held: crate::sync::Ranks::new(),
            virt: AtomicUsize::new(0),
            descriptors: UnsafeCell::new(Descriptors::new()),
        }
    }

    /// CPU number. Of a CPU that is not up: a number that no CPU has.
    #[inline(always)]
    pub fn id(&self) -> CpuId {
        CpuId(self.id.load(Ordering::Relaxed))
    }

    /// A number that no other block has; 0 for the boot CPU.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Local APIC ID.
    pub fn apic_id(&self) -> u32 {
        self.apic_id.load(Ordering::Relaxed)
    }

    /// ACPI processor UID.
    pub fn acpi_uid(&self) -> u32 {
        self.acpi_uid.load(Ordering::Relaxed)
    }

    pub(in crate::x86) fn set_apic_id(&self, id: u32) {
        self.apic_id.store(id, Ordering::Relaxed);
    }

    pub(in crate::x86) fn set_acpi_uid(&self, uid: u32) {
        self.acpi_uid.store(uid, Ordering::Relaxed);
    }

    /// Whether it takes device vectors and is meant by "all others".
    #[inline]
    pub fn is_online(&self) -> bool {
        self.online.load(Ordering::Acquire)
    }

    pub(in crate::x86) fn set_online(&self, online: bool) {
        match (self.online.swap(online, Ordering::AcqRel), online) {
            (false, true) => ONLINE.fetch_add(1, Ordering::AcqRel),
            (true, false) => ONLINE.fetch_sub(1, Ordering::AcqRel),
            _ => 0,
        };
    }

    /// Takes the vector that a stub recorded, then the one that an exit acknowledged: a stub's came after it, and is to be
    /// ended before it. For the owning CPU, with interrupts off.
    #[inline(always)]
    pub(in crate::x86) fn take_vector(&self) -> Option<u8> {
        for cell in [&self.vector, &self.acknowledged] {
            let vector = cell.load(Ordering::Relaxed);
            if vector != 0 {
                cell.store(0, Ordering::Relaxed);
                return Some(vector as u8);
            }
        }
        None
    }

    /// An exit acknowledged this vector, which is in service now. For the owning CPU, which has taken the one before.
    #[cfg(CONFIG_INTEL)]
    pub(in crate::x86) fn acknowledged(&self, vector: u8) {
        self.acknowledged.store(vector.into(), Ordering::Relaxed);
    }

    /// The vector that a stub recorded, left there.
    pub(in crate::x86) fn recorded(&self) -> Option<u8> {
        match self.vector.load(Ordering::Relaxed) {
            0 => None,
            vector => Some(vector as u8),
        }
    }

    /// Whether a vector waits for [`Self::take_vector`].
    #[inline(always)]
    pub(in crate::x86) fn has_vector(&self) -> bool {
        self.vector.load(Ordering::Relaxed) | self.acknowledged.load(Ordering::Relaxed) != 0
    }

    /// The backend settled an exit by itself. For the owning CPU.
    #[cfg(CONFIG_INTEL)]
    #[inline]
    pub(in crate::x86) fn count_settled(&self) {
        let n = self.settled.load(Ordering::Relaxed);
        self.settled.store(n.wrapping_add(1), Ordering::Relaxed);
    }

    /// So many faults were put right. For the owning CPU.
    pub(in crate::x86) fn count_repaired(&self, n: u32) {
        self.repaired.fetch_add(n.into(), Ordering::Relaxed);
    }

    /// Exits that the backend settled, and faults that were put right.
    pub(in crate::x86) fn settled_and_repaired(&self) -> (u64, u64) {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        (read(&self.settled), read(&self.repaired))
    }

    /// Gives the CPU a number when it came up.
    pub(in crate::x86) fn set_id(&self, id: CpuId) {
        self.id.store(id.0, Ordering::Relaxed);
    }
}

/// The block of the boot CPU.
pub(super) fn boot_block() -> &'static PerCpu {
    prepare(&BOOT);
    publish(&BOOT);
    BOOT.set_online(true);
    &BOOT
}

/// A new block for an application CPU, not yet published; `slot` as in [`PerCpu::slot`].
pub(in crate::x86) fn allocate(slot: u32, apic_id: u32, acpi_uid: u32) -> &'static PerCpu {
    let block = Box::leak(Box::new(PerCpu::new(slot)));
    block.set_apic_id(apic_id);
    block.set_acpi_uid(acpi_uid);
    prepare(block);
    block
}

fn prepare(block: &'static PerCpu) {
    let pointer = core::ptr::from_ref(block).cast_mut();
    block.this.store(pointer, Ordering::Relaxed);
    if let Some(known) = KNOWN.get(block.slot as usize) {
        known.store(pointer, Ordering::Release);
    }
}

/// Every CPU that has a block: those that are up, and those that are on their way, parked or left out.
pub(in crate::x86) fn known() -> impl Iterator<Item = &'static PerCpu> + Clone {
    // SAFETY: the table holds only pointers to blocks that live for ever.
    (KNOWN.iter()).filter_map(|p| unsafe { p.load(Ordering::Acquire).as_ref() })
}

/// Adds a CPU to the table, under the next number: it is up, or can be brought up. Only the boot CPU calls it, one at a time.
pub(in crate::x86) fn publish(block: &'static PerCpu) -> Option<CpuId> {
    let n = COUNT.load(Ordering::Relaxed);
    let slot = BLOCKS.get(n as usize)?;
    block.set_id(CpuId(n));
    slot.store(core::ptr::from_ref(block).cast_mut(), Ordering::Release);
    COUNT.store(n + 1, Ordering::Release);
    Some(CpuId(n))
}

/// CPUs that have a number.
#[inline]
pub fn count() -> u32 {
    COUNT.load(Ordering::Acquire)
}

/// CPUs that are online. Cheap: "all others" asks each time.
#[inline]
pub fn online_count() -> u32 {
    ONLINE.load(Ordering::Acquire)
}

/// The block of a CPU that has a number.
#[inline]
pub fn of(cpu: CpuId) -> Option<&'static PerCpu> {
    let ptr = BLOCKS.get(cpu.0 as usize)?.load(Ordering::Acquire);
    // SAFETY: the table holds only pointers to blocks that live for ever.
    unsafe { ptr.as_ref() }
}

/// All CPUs that have a number, in order.
pub fn numbered() -> impl Iterator<Item = &'static PerCpu> + Clone {
    (0..count()).filter_map(|n| of(CpuId(n)))
}

/// All CPUs that are online, in order.
pub fn all() -> impl Iterator<Item = &'static PerCpu> + Clone {
    numbered().filter(|c| c.is_online())
}

/// Whether `this()` may be used (the boot CPU has its block).
pub fn ready() -> bool {
    count() != 0
}

/// This CPU's block. Only after [`super::early_init`].
#[inline(always)]
pub fn this() -> &'static PerCpu {
    let ptr: *const PerCpu;
    // SAFETY: the GS base points to this CPU's block from `activate` on, whose first word is its own address; blocks
    // live for ever. Guest entry code restores the base before any Rust code runs. `pure` is right because a thread
    // of control never changes its CPU here.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) ptr, options(pure, readonly, nostack, preserves_flags));
        &*ptr
    }
}
