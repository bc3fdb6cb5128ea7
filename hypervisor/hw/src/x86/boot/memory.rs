//! Memory bring-up: chooses where everything goes, moves the image, builds the final page tables, fills the frame table.
//!
//! Before: the image at 1 MiB, the entry stub's identity map. After: the image at the top of RAM below 4 GiB, the map of
//! [`crate::x86::paging`], a frame pool, a heap. Low memory stays free for an identity-mapped dom0.

use core::sync::atomic::{AtomicU64, Ordering};

use spin::Once;
use x86_model::{Hpa, PAGE_SIZE};

use super::loader;
use crate::bootinfo::BootInfo;
use crate::bootinfo::memmap::{Kind, Range, Ranges};
use crate::mem::{DIRECT_MAP_BASE, frames, phys_to_virt};
use crate::origin::{self, Origin};
use crate::x86::paging::{self, DIRECT_MAP_BYTES, NoMemory, Source, Tables, Use};
use crate::x86::panic::boot_error;

const MIB: u64 = 1 << 20;
const GIB4: u64 = 4 << 30;
/// Link address of physical address 0 before the move.
const LINK: u64 = 0xffff_ffff_8000_0000;
/// Below this there is nothing to run on: the hypervisor and the smallest dom0.
const LEAST_RAM: u64 = 64 * MIB;

/// Ranges of RAM while booting; what does not fit (see [`Ranges`]) is left unused.
type Free = Ranges<256>;

/// Borders of the image's parts, from the linker script; only their addresses mean anything.
mod border {
    unsafe extern "C" {
        pub static __image_start: u8;
        pub static __text_end: u8;
        pub static __rodata_end: u8;
        pub static __stack_guard: u8;
        pub static __stack_bottom: u8;
        pub static __stack_top: u8;
        pub static __symbols_start: u8;
        pub static __symbols_end: u8;
        pub static __build_note_start: u8;
        pub static __build_note_end: u8;
        pub static __origin_start: u8;
        pub static __origin_end: u8;
        pub static __image_end: u8;
    }
}

macro_rules! address {
    ($name:ident) => {
        (&raw const border::$name) as u64
    };
}

/// What stays known after the bring-up.
struct Layout {
    /// All RAM of the memory map.
    ram: Free,
    trampoline: Hpa,
    trampoline_root: Hpa,
    image: Range,
}

static LAYOUT: Once<Layout> = Once::new();
/// Machine address of the image's first byte.
static IMAGE_BASE: AtomicU64 = AtomicU64::new(MIB);

fn layout() -> &'static Layout {
    match LAYOUT.get() {
        Some(l) => l,
        None => panic!("memory lay-out asked for before it was made"),
    }
}

/// Table frames while booting: taken from the top of RAM below 4 GiB, reached through the identity map.
struct Early<'a> {
    free: &'a mut Free,
    taken: &'a mut Ranges<64>,
}

impl Early<'_> {
    fn take(&mut self, len: u64, align: u64, limit: u64) -> Option<u64> {
        let at = self.free.take_top(len, align, limit)?;
        // All but the trampoline come from the top, so a handful of ranges is enough.
        assert!(self.taken.add(Range {
            start: at,
            end: at + len
        }));
        Some(at)
    }
}

impl Source for Early<'_> {
    fn frame(&mut self) -> Option<Hpa> {
        self.take(PAGE_SIZE, PAGE_SIZE, GIB4).map(Hpa)
    }
    fn pointer(&self, table: Hpa) -> *mut u8 {
        table.0 as *mut u8
    }
}

fn no_room<T>(what: &str) -> T {
    boot_error(format_args!("not enough memory: no room for {what}"))
}

/// Does it all. Panics with the reason if the machine's memory does not suffice.
#[inline(never)]
pub fn init(boot: &'static BootInfo) {
    let limit = DIRECT_MAP_BYTES.min(1 << super::cpu::physical_bits());
    let (ram, complete) = Free::ram(&boot.regions, limit);
    if !complete {
        crate::warn!("the memory map is too fragmented: some RAM is not used");
    }
    let lost = Free::ram(&boot.regions, u64::MAX).0.total() - ram.total();
    if lost > 0 {
        crate::warn!(
            "{} MiB of RAM lie beyond what is supported and are not used",
            lost / MIB
        );
    }
    if ram.total() < LEAST_RAM {
        boot_error(format_args!(
            "not enough memory: the machine has {} MiB, the least is {} MiB",
            ram.total() / MIB,
            LEAST_RAM / MIB
        ));
    }

    let mut free = ram.clone();
    let mut taken = Ranges::<64>::new();
    let old_image = Range::pages(
        address!(__image_start) - LINK,
        address!(__image_end) - address!(__image_start),
    );
    // Never handed out: page 0, because a null pointer should stay one; the PC's video memory and ROMs.
    let mut keep_out = |start, end| free.subtract(Range { start, end });
    keep_out(0, PAGE_SIZE);
    keep_out(0xa_0000, MIB);
    keep_out(old_image.start, old_image.end);
    for m in &boot.modules {
        let r = Range::pages(m.start, m.size);
        keep_out(r.start, r.end);
    }

    let mut early = Early {
        free: &mut free,
        taken: &mut taken,
    };
    let trampoline = early
        .take(PAGE_SIZE, PAGE_SIZE, 0xa_0000)
        .unwrap_or_else(|| no_room("the other CPUs' start page below 640 KiB"));
    let image = early
        .take(old_image.len(), 2 * MIB, GIB4)
        .unwrap_or_else(|| no_room("the hypervisor below 4 GiB"));
    let table_len = (ram.end() / PAGE_SIZE) as usize;
    let table = early
        .take(frames::table_bytes(table_len) as u64, PAGE_SIZE, u64::MAX)
        .unwrap_or_else(|| no_room("the frame table"));

    let image = Range {
        start: image,
        end: image + old_image.len(),
    };
    let (root, trampoline_root) = build(boot, early, image, trampoline)
        .unwrap_or_else(|NoMemory| no_room("page tables below 4 GiB"));
    // SAFETY: `root` maps the image at its link address to `image`, everything else that is used from here on through
    // the direct map, and the destination is free RAM below 4 GiB.
    unsafe {
        super::cpu::move_image(
            image.start as *mut u8,
            address!(__image_start) as *const u8,
            old_image.len(),
            root,
        )
    };
    IMAGE_BASE.store(image.start, Ordering::Release);
    paging::adopt(root, super::cpu::gib_pages());
    super::cpu::init_cpu();

    let table = phys_to_virt(Hpa(table));
    // SAFETY: the range was taken for this and is mapped in the direct map; nothing else uses it.
    unsafe {
        table.write_bytes(0, frames::table_bytes(table_len));
        frames::init(table.cast(), table_len);
    }
    // The old image's place is RAM like any other now.
    for r in ram.iter() {
        free.add(Range {
            start: old_image.start.max(r.start),
            end: old_image.end.min(r.end),
        });
    }
    for r in free.iter() {
        frames::add_free(Hpa(r.start).mfn(), (r.len() / PAGE_SIZE) as usize);
    }
    for r in taken.iter() {
        frames::mark_hypervisor(Hpa(r.start).mfn(), (r.len() / PAGE_SIZE) as usize);
    }
    crate::info!(
        "RAM: {} MiB, free {} MiB, hypervisor {} KiB at {:#x}",
        ram.total() / MIB,
        free.total() / MIB,
        taken.total() / 1024,
        image.start,
    );
    LAYOUT.call_once(|| Layout {
        ram,
        trampoline: Hpa(trampoline),
        trampoline_root,
        image,
    });
}

/// The final tree and the one that other CPUs start with.
fn build(
    boot: &BootInfo,
    early: Early<'_>,
    image: Range,
    trampoline: u64,
) -> Result<(Hpa, Hpa), NoMemory> {
    let gib_pages = super::cpu::gib_pages();
    let kinds = [Kind::Ram, Kind::AcpiReclaim, Kind::AcpiNvs];
    let (mut direct, _) = Free::of_kinds(&boot.regions, DIRECT_MAP_BYTES, &kinds);
    // Without a second, writable view of the code.
    direct.subtract(image);
    let mut tables = Tables::new(early, gib_pages)?;
    for r in direct.iter() {
        tables.map(
            DIRECT_MAP_BASE as u64 + r.start,
            Hpa(r.start),
            r.len(),
            Use::Data,
        )?;
    }
    let start = address!(__image_start);
    for (from, to, what) in [
        (start, address!(__text_end), Use::Code),
        (address!(__text_end), address!(__rodata_end), Use::Constant),
        (address!(__rodata_end), address!(__stack_guard), Use::Data),
        (address!(__stack_bottom), address!(__image_end), Use::Data),
    ] {
        tables.map_small(from, Hpa(image.start + (from - start)), to - from, what)?;
    }
    let root = tables.root();
    let mut start = Tables::new(tables.into_source(), gib_pages)?;
    start.share_upper_half(root);
    start.map(trampoline, Hpa(trampoline), PAGE_SIZE, Use::Code)?;
    Ok((root, start.root()))
}

/// The page below 1 MiB that other CPUs start in. Reached through the direct map for writing.
pub fn trampoline_page() -> Hpa {
    layout().trampoline
}

/// Page-table root for the way of another CPU from real mode: below 4 GiB, maps the trampoline page at its own
/// address (executable) and everything of ours. The CPU switches to [`paging::root`] when it has left the page.
pub fn trampoline_root() -> Hpa {
    layout().trampoline_root
}

/// Where the image is now.
pub fn image() -> Range {
    layout().image
}

/// All RAM of the memory map, whoever uses it, as whole pages.
pub fn ram() -> impl DoubleEndedIterator<Item = Range> {
    layout().ram.iter()
}

/// The boot CPU's stack (virtual addresses); the page below it is not mapped.
pub fn stack() -> Range {
    Range {
        start: address!(__stack_bottom),
        end: address!(__stack_top),
    }
}

/// The image's code (virtual addresses).
pub fn text() -> Range {
    Range {
        start: address!(__image_start),
        end: address!(__text_end),
    }
}

/// The symbol table (see [`crate::log::symbols`]); zeroes in an image that the build tool has not completed.
pub fn symbol_table() -> &'static [u8] {
    constant(address!(__symbols_start), address!(__symbols_end))
}

/// Where the image comes from.
pub fn origin() -> Origin<'static> {
    Origin::parse(constant(address!(__origin_start), address!(__origin_end)))
}

/// What identifies the build (the linker's GNU note); empty if the linker made none.
pub fn build_id() -> &'static [u8] {
    let note = constant(address!(__build_note_start), address!(__build_note_end));
    // Three words of header and the name "GNU".
    note.get(16..).unwrap_or_default()
}

/// The part of the read-only image between two borders of the linker script.
fn constant(start: u64, end: u64) -> &'static [u8] {
    // SAFETY: private, and called with the borders of one section only, whose bytes stay as they are for ever.
    unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) }
}

/// Room for the table, filled after linking.
#[used]
#[unsafe(link_section = ".symbols")]
static SYMBOLS: [u8; 192 << 10] = [0; 192 << 10];

/// Room for [`origin`], filled after linking.
#[used]
#[unsafe(link_section = ".origin")]
static ORIGIN: [u8; origin::ROOM] = [0; origin::ROOM];

/// Machine address of something in the image or the direct map; `None` for other pointers.
pub fn phys_of(ptr: *const u8) -> Option<Hpa> {
    let va = ptr as u64;
    let image = address!(__image_start)..address!(__image_end);
    let direct = DIRECT_MAP_BASE as u64..DIRECT_MAP_BASE as u64 + DIRECT_MAP_BYTES;
    if image.contains(&va) {
        Some(Hpa(va - image.start + IMAGE_BASE.load(Ordering::Acquire)))
    } else {
        direct.contains(&va).then(|| Hpa(va - direct.start))
    }
}

/// A boot module's contents. Dropping it gives its memory to the frame pool.
pub struct ModuleData {
    pages: Range,
    start: u64,
    len: usize,
}

/// The contents of module number `index`, once. `None` if there is no such module, if it was taken before, or if the
/// loader put it where there is no RAM.
pub fn take_module(index: usize) -> Option<ModuleData> {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let m = loader::info().modules.get(index)?;
    let pages = Range::pages(m.start, m.size);
    if !layout().ram.contains(pages) {
        return None;
    }
    let bit = 1 << index;
    (TAKEN.fetch_or(bit, Ordering::AcqRel) & bit == 0).then_some(ModuleData {
        pages,
        start: m.start,
        len: m.size as usize,
    })
}

impl core::ops::Deref for ModuleData {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: RAM in the direct map that nobody else uses until the drop (kept out of the frame pool; given out once).
        unsafe { core::slice::from_raw_parts(phys_to_virt(Hpa(self.start)), self.len) }
    }
}

impl Drop for ModuleData {
    fn drop(&mut self) {
        // A page may hold the end of one module and the start of the next: such pages stay reserved.
        let mut pages = Ranges::<4>::new();
        pages.add(self.pages);
        for m in &loader::info().modules {
            if m.start != self.start {
                let other = Range::pages(m.start, m.size);
                for edge in [other.start, other.end.saturating_sub(PAGE_SIZE)] {
                    pages.subtract(Range {
                        start: edge,
                        end: edge + PAGE_SIZE,
                    });
                }
            }
        }
        for r in pages.iter() {
            frames::add_free(Hpa(r.start).mfn(), (r.len() / PAGE_SIZE) as usize);
        }
    }
}
