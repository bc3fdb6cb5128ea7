//! The hypervisor's own page tables, shared by all CPUs.
//!
//! | from | what |
//! |---|---|
//! | `0xffff_8300_0000_0000` | direct map of all RAM, not executable, 16 TiB |
//! | `0xffff_a000_0000_0000` | stacks of the other CPUs, each over an unmapped page |
//! | `0xffff_b000_0000_0000` | firmware tables outside RAM, mapped on request in the same way, read-only, 16 TiB |
//! | `0xffff_c000_0000_0000` | device memory, mapped on request at base + machine address, 32 TiB |
//! | `0xffff_ffff_8000_0000` | the image: code read-only, data not executable |
//!
//! Mappings are only ever added after boot, so no CPU needs to be told to flush. Writers hold one lock.

use core::sync::atomic::{AtomicU64, Ordering};

use x86_model::paging::{self, ADDRESS, PAT_SMALL, Pte};
use x86_model::{Hpa, Mfn, PAGE_SIZE};
use xen_abi::DomId;

use crate::mem::frames::{self, FrameKind};
use crate::mem::{DIRECT_MAP_BASE, phys_to_virt};
use crate::sync::{SpinLock, rank};

/// Bytes of RAM that the direct map can hold.
pub const DIRECT_MAP_BYTES: u64 = 16 << 40;
/// First stack slot.
const STACKS: u64 = 0xffff_a000_0000_0000;
/// Bytes between stacks; the unmapped rest of a slot is the guard.
const STACK_SLOT: u64 = 128 << 10;
/// Bytes of a CPU's stack.
pub const STACK_BYTES: u64 = 64 << 10;
/// Most stacks, four a CPU.
pub const MAX_STACKS: usize =
    (SLOTS_PER_CPU as usize * crate::config::NR_CPUS as usize).next_multiple_of(64);
const FIRMWARE: u64 = 0xffff_b000_0000_0000;
const FIRMWARE_BYTES: u64 = 16 << 40;
const DEVICES: u64 = 0xffff_c000_0000_0000;
const DEVICE_BYTES: u64 = 32 << 40;

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Instructions: read and execute.
    Code,
    /// Constants: read.
    Constant,
    /// Read and write, write-back cached.
    Data,
    /// Registers of a device: read and write, uncached.
    Device,
    /// A frame buffer: read and write, write-combining.
    Screen,
}

impl Use {
    /// Flags of a 4 KiB leaf; the PAT is set by [`super::boot::init_cpu`].
    fn flags(self) -> u64 {
        let base = Pte::PRESENT | Pte::ACCESSED | Pte::GLOBAL;
        let data = base | Pte::WRITE | Pte::DIRTY | Pte::NO_EXECUTE;
        match self {
            Use::Code => base.bits(),
            Use::Constant => (base | Pte::NO_EXECUTE).bits(),
            Use::Data => data.bits(),
            Use::Device => (data | Pte::PCD | Pte::PWT).bits(),
            Use::Screen => data.bits() | PAT_SMALL,
        }
    }
}

/// Where table frames come from and how to reach them.
pub(super) trait Source {
    /// A frame for a table; its contents do not matter.
    fn frame(&mut self) -> Option<Hpa>;
    /// Pointer to it.
    fn pointer(&self, table: Hpa) -> *mut u8;
}

/// After boot: the frame pool and the direct map.
struct Pool;

impl Source for Pool {
    fn frame(&mut self) -> Option<Hpa> {
        frames::alloc_contiguous(1, 1, None, FrameKind::Hypervisor, DomId::XEN).map(Mfn::hpa)
    }
    fn pointer(&self, table: Hpa) -> *mut u8 {
        phys_to_virt(table)
    }
}

/// No frame for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Page tables under construction or in use.
pub(super) struct Tables<S> {
    root: Hpa,
    source: S,
    /// Largest leaf, as a level.
    largest: u32,
}

impl<S: Source> Tables<S> {
    /// An empty tree.
    pub fn new(mut source: S, gib_pages: bool) -> Result<Self, NoMemory> {
        let root = source.frame().ok_or(NoMemory)?;
        let this = Tables {
            root,
            source,
            largest: if gib_pages { 2 } else { 1 },
        };
        this.clear(root);
        Ok(this)
    }

    /// Frame of the top-level table.
    pub fn root(&self) -> Hpa {
        self.root
    }

    /// Gives the source back; the tree stays.
    pub fn into_source(self) -> S {
        self.source
    }

    fn clear(&self, table: Hpa) {
        // SAFETY: a frame that the source gave for a table and that is in no tree yet.
        unsafe {
            self.source
                .pointer(table)
                .write_bytes(0, PAGE_SIZE as usize)
        }
    }

    fn entry(&self, table: Hpa, index: usize) -> &AtomicU64 {
        // SAFETY: `table` is a table of this tree, so its 512 words are only used as atomics; the CPUs' walkers may read
        // them at any time and set accessed bits in none, since all entries have them set.
        unsafe { &*self.source.pointer(table).cast::<AtomicU64>().add(index) }
    }

    /// Maps `len` bytes (whole pages) in the largest leaves that fit. What is mapped already stays as it is.
    pub fn map(&mut self, va: u64, hpa: Hpa, len: u64, what: Use) -> Result<(), NoMemory> {
        self.map_up_to(self.largest, va, hpa, len, what)
    }

    /// As [`Tables::map`], in 4 KiB leaves.
    pub fn map_small(&mut self, va: u64, hpa: Hpa, len: u64, what: Use) -> Result<(), NoMemory> {
        self.map_up_to(0, va, hpa, len, what)
    }

    fn map_up_to(
        &mut self,
        largest: u32,
        va: u64,
        hpa: Hpa,
        len: u64,
        what: Use,
    ) -> Result<(), NoMemory> {
        let mut done = 0;
        while done < len {
            let (va, pa) = (va + done, hpa.0 + done);
            let level = (0..=largest)
                .rev()
                .find(|&l| (va | pa) & (paging::span(l) - 1) == 0 && len - done >= paging::span(l))
                .unwrap_or(0);
            self.map_leaf(va, pa, level, what)?;
            done += paging::span(level);
        }
        Ok(())
    }

    fn map_leaf(&mut self, va: u64, pa: u64, target: u32, what: Use) -> Result<(), NoMemory> {
        let mut table = self.root;
        for level in (target + 1..=3).rev() {
            let at = paging::index(va, level);
            let old = self.entry(table, at).load(Ordering::Acquire);
            if old & Pte::PRESENT.bits() == 0 {
                let new = self.source.frame().ok_or(NoMemory)?;
                self.clear(new);
                let flags = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED;
                self.entry(table, at)
                    .store(new.0 | flags.bits(), Ordering::Release);
                table = new;
            } else if old & Pte::LARGE.bits() != 0 {
                return Ok(());
            } else {
                table = Hpa(old & ADDRESS);
            }
        }
        let large = if target > 0 { Pte::LARGE.bits() } else { 0 };
        let slot = self.entry(table, paging::index(va, target));
        if slot.load(Ordering::Acquire) & Pte::PRESENT.bits() == 0 {
            slot.store(pa | what.flags() | large, Ordering::Release);
        }
        Ok(())
    }

    /// Whether `va` is mapped.
    fn is_mapped(&self, va: u64) -> bool {
        let mut table = self.root;
        for level in (0..=3).rev() {
            let e = self
                .entry(table, paging::index(va, level))
                .load(Ordering::Acquire);
            if e & Pte::PRESENT.bits() == 0 {
                return false;
            }
            if level == 0 || e & Pte::LARGE.bits() != 0 {
                return true;
            }
            table = Hpa(e & ADDRESS);
        }
        false
    }

    /// Copies the upper half's top-level entries of another tree, so that both share everything below them.
    pub fn share_upper_half(&mut self, other: Hpa) {
        for i in 256..512 {
            let e = self.entry(other, i).load(Ordering::Acquire);
            self.entry(self.root, i).store(e, Ordering::Release);
        }
    }
}

static HOST: SpinLock<Option<Tables<Pool>>, { rank::HOST_MAP }> = SpinLock::new(None);
static ROOT: AtomicU64 = AtomicU64::new(0);

/// Takes over the tree that the boot code has built and switched to.
pub(super) fn adopt(root: Hpa, gib_pages: bool) {
    *HOST.lock() = Some(Tables {
        root,
        source: Pool,
        largest: if gib_pages { 2 } else { 1 },
    });
    ROOT.store(root.0, Ordering::Release);
}

/// What CR3 holds on every CPU.
pub fn root() -> Hpa {
    Hpa(ROOT.load(Ordering::Acquire))
}

fn map_device(hpa: Hpa, len: u64, what: Use) -> Option<*mut u8> {
    let end = hpa.0.checked_add(len.max(1))?;
    if end > DEVICE_BYTES {
        return None;
    }
    let first = hpa.0 & !(PAGE_SIZE - 1);
    let pages = end.next_multiple_of(PAGE_SIZE) - first;
    let mut host = HOST.lock();
    let host = host.as_mut()?;
    let mut offsets = (first..end).step_by(PAGE_SIZE as usize);
    if offsets.clone().all(|page| host.is_mapped(DEVICES + page)) {
        return Some((DEVICES + hpa.0) as *mut u8);
    }
    // An uncached alias of RAM would make its contents undefined.
    if offsets.any(|page| host.is_mapped(DIRECT_MAP_BASE as u64 + page)) {
        return None;
    }
    host.map_small(DEVICES + first, Hpa(first), pages, what)
        .ok()?;
    Some((DEVICES + hpa.0) as *mut u8)
}

/// Maps device registers, uncached; asking again gives the same pointer. `None` if a part of it is RAM, beyond 32 TiB,
/// or without memory for tables. The pointer stays valid for ever.
pub fn map_mmio(hpa: Hpa, len: u64) -> Option<*mut u8> {
    map_device(hpa, len, Use::Device)
}

/// Maps a frame buffer, write-combining. As [`map_mmio`].
pub fn map_screen(hpa: Hpa, len: u64) -> Option<*mut u8> {
    map_device(hpa, len, Use::Screen)
}

/// Pointer for reading firmware tables: through the direct map if they lie in RAM (of any kind), else in a window of
/// their own. Cached: where that would be wrong, the firmware's memory type ranges overrule it. `None` beyond 16 TiB or
/// without memory for tables.
pub fn map_firmware(hpa: Hpa, len: u64) -> Option<*const u8> {
    let end = hpa.0.checked_add(len.max(1))?;
    if end > FIRMWARE_BYTES.min(DIRECT_MAP_BYTES) {
        return None;
    }
    let first = hpa.0 & !(PAGE_SIZE - 1);
    let mut pages = (first..end).step_by(PAGE_SIZE as usize);
    let mut host = HOST.lock();
    let host = host.as_mut()?;
    if pages.all(|page| host.is_mapped(DIRECT_MAP_BASE as u64 + page)) {
        return Some(phys_to_virt(hpa));
    }
    let len = end.next_multiple_of(PAGE_SIZE) - first;
    host.map_small(FIRMWARE + first, Hpa(first), len, Use::Constant)
        .ok()?;
    Some((FIRMWARE + hpa.0) as *const u8)
}

/// Slots of stacks that a CPU has: its own, and those of NMI, double fault and machine check.
const SLOTS_PER_CPU: u64 = 4;
/// Bytes of the three small stacks.
const SMALL_STACK_BYTES: u64 = 8 << 10;

/// Which of a CPU's stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum StackKind {
    /// The one it runs on, [`STACK_BYTES`].
    Main = 0,
    /// NMI.
    Nmi = 1,
    /// Double fault.
    DoubleFault = 2,
    /// Machine check.
    MachineCheck = 3,
}

const fn stack_bytes(slot: u64) -> u64 {
    if slot % SLOTS_PER_CPU == StackKind::Main as u64 {
        STACK_BYTES
    } else {
        SMALL_STACK_BYTES
    }
}

/// A new stack for CPU number `cpu` (each kind once), over unmapped pages: its top. `None` without memory, or beyond
/// [`MAX_STACKS`].
pub fn new_stack(cpu: u32, kind: StackKind) -> Option<*mut u8> {
    let slot = u64::from(cpu) * SLOTS_PER_CPU + kind as u64;
    let made = STACK_MADE.get(slot as usize / 64)?;
    let bytes = stack_bytes(slot);
    let top = STACKS + (slot + 1) * STACK_SLOT;
    let mut host = HOST.lock();
    let host = host.as_mut()?;
    for page in (0..bytes).step_by(PAGE_SIZE as usize) {
        let frame = host.source.frame()?;
        host.map_small(top - bytes + page, frame, PAGE_SIZE, Use::Data)
            .ok()?;
    }
    made.fetch_or(1 << (slot % 64), Ordering::AcqRel);
    Some(top as *mut u8)
}

/// The bottom of the stack in whose slot the address lies, if it is in the area of [`new_stack`]. Below it is the guard.
pub(super) fn stack_bottom(va: u64) -> Option<u64> {
    let slot = va.checked_sub(STACKS)? / STACK_SLOT;
    (slot < MAX_STACKS as u64).then(|| STACKS + (slot + 1) * STACK_SLOT - stack_bytes(slot))
}

/// Stacks that exist, by slot.
static STACK_MADE: [AtomicU64; MAX_STACKS / 64] = [const { AtomicU64::new(0) }; MAX_STACKS / 64];

/// Whether `len` bytes at `va` lie in a stack of the boot CPU or of another. Takes no lock: for the panic path.
pub(super) fn is_stack(va: u64, len: u64) -> bool {
    let boot = super::boot::stack();
    if boot.start <= va && va.saturating_add(len) <= boot.end {
        return true;
    }
    let Some(offset) = va.checked_sub(STACKS) else {
        return false;
    };
    let (slot, within) = ((offset / STACK_SLOT) as usize, offset % STACK_SLOT);
    within >= STACK_SLOT - stack_bytes(slot as u64)
        && within + len <= STACK_SLOT
        && STACK_MADE
            .get(slot / 64)
            .is_some_and(|w| w.load(Ordering::Acquire) >> (slot % 64) & 1 != 0)
}
