//! Walk of a guest's own page tables: from a guest-linear to a guest-physical address, with the permission checks that
//! the processor makes. Pure: entries are read through a closure, so the same walk serves hypercall arguments,
//! instruction fetch for emulation, and tests on plain arrays.
//!
//! Modes: no paging, 32-bit, PAE and 4-level. 5-level paging is refused ([`WalkFault::Unsupported`]); its CPUID bit is
//! hidden from guests. Protection keys are not applied. 1 GiB leaves are always accepted.
//!
//! ```
//! use x86_model::walk::{Access, PagingInputs, walk};
//! use x86_model::{Gpa, Gva, Width};
//! // A PML4 at 0x1000 whose entry 0 points to a PDPT at 0x2000 with a 1 GiB leaf at 0.
//! let paging = PagingInputs { cr0: 1 << 31 | 1, cr3: 0x1000, cr4: 1 << 5, efer: 0xd00, ac: false, phys_bits: 40 };
//! let mut read = |at: Gpa, _: Width| match at.0 {
//!     0x1000 => Some(0x2003),
//!     0x2000 => Some(0x83),
//!     _ => Some(0),
//! };
//! let t = walk(&paging, Gva(0x1234), Access::READ, &mut read).unwrap();
//! assert_eq!((t.gpa, t.page_shift, t.writable), (Gpa(0x1234), 30, true));
//! ```

use crate::addr::{Gpa, Gva};
use crate::width::Width;

const CR0_WP: u64 = 1 << 16;
const CR0_PG: u64 = 1 << 31;
const CR4_PSE: u64 = 1 << 4;
const CR4_PAE: u64 = 1 << 5;
const CR4_LA57: u64 = 1 << 12;
const CR4_SMEP: u64 = 1 << 20;
const CR4_SMAP: u64 = 1 << 21;
const EFER_LMA: u64 = 1 << 10;
const EFER_NXE: u64 = 1 << 11;

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const NX: u64 = 1 << 63;

/// Page-fault error code: the translation was present (a protection fault).
pub const PF_PRESENT: u32 = 1;
/// Page-fault error code: a write.
pub const PF_WRITE: u32 = 1 << 1;
/// Page-fault error code: a user-mode access.
pub const PF_USER: u32 = 1 << 2;
/// Page-fault error code: a reserved bit was set in an entry.
pub const PF_RESERVED: u32 = 1 << 3;
/// Page-fault error code: an instruction fetch (only reported with NX or SMEP on).
pub const PF_FETCH: u32 = 1 << 4;

/// The registers that steer a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagingInputs {
    /// CR0.
    pub cr0: u64,
    /// CR3.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// EFER.
    pub efer: u64,
    /// RFLAGS.AC: explicit supervisor accesses to user pages are allowed in spite of SMAP.
    pub ac: bool,
    /// Physical-address width that the guest was told, 32 to 52; bits above it are reserved in entries.
    pub phys_bits: u8,
}

/// What the access is. The default is a supervisor data read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A write.
    pub write: bool,
    /// An instruction fetch.
    pub fetch: bool,
    /// With user privilege (CPL 3).
    pub user: bool,
    /// Do not apply SMAP: for accesses that the hypervisor makes on behalf of the kernel, whatever AC says.
    pub ignore_smap: bool,
}

impl Access {
    /// Supervisor read.
    pub const READ: Self = Self {
        write: false,
        fetch: false,
        user: false,
        ignore_smap: false,
    };
    /// Supervisor write.
    pub const WRITE: Self = Self {
        write: true,
        ..Self::READ
    };
    /// Supervisor instruction fetch.
    pub const FETCH: Self = Self {
        fetch: true,
        ..Self::READ
    };
    /// The same access with user privilege if `cpl` is 3.
    pub const fn at_cpl(self, cpl: u8) -> Self {
        Self {
            user: cpl == 3,
            ..self
        }
    }
}

/// Where a linear address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Guest-physical address of the byte.
    pub gpa: Gpa,
    /// log2 of the page size (12, 21, 22 or 30); 12 without paging.
    pub page_shift: u8,
    /// R/W is set at every level.
    pub writable: bool,
    /// U/S is set at every level.
    pub user: bool,
    /// No level forbids execution.
    pub executable: bool,
}

impl Translation {
    /// Bytes from the address to the end of its page: how much one translation is good for.
    pub const fn bytes_left(&self) -> u64 {
        let size = 1u64 << self.page_shift;
        size - (self.gpa.0 & (size - 1))
    }
}

/// Why there is no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkFault {
    /// The processor would raise #PF with this error code.
    PageFault {
        /// Error code ([`PF_PRESENT`] and others).
        error_code: u32,
    },
    /// The address is not canonical (#GP, or #SS through the stack segment).
    NonCanonical,
    /// A page-table entry lies outside of readable guest memory.
    BadTable {
        /// Address of the entry.
        at: Gpa,
    },
    /// 5-level paging.
    Unsupported,
}

impl WalkFault {
    /// Error code for a #PF; `None` for the other faults.
    pub const fn error_code(self) -> Option<u32> {
        match self {
            Self::PageFault { error_code } => Some(error_code),
            _ => None,
        }
    }
}

/// Translates `gva`. `read_entry` reads a table entry (4 or 8 bytes, naturally aligned) of guest memory.
#[inline]
pub fn walk(
    paging: &PagingInputs,
    gva: Gva,
    access: Access,
    mut read_entry: impl FnMut(Gpa, Width) -> Option<u64>,
) -> Result<Translation, WalkFault> {
    walk_inner(paging, gva, access, &mut read_entry, |_, _, _| {})
}

/// As [`walk`], and on success names the accessed and dirty bits that the processor would set: `mark(address, width,
/// bits)` is called for each entry that lacks some, from the root to the leaf. The caller sets them with an atomic OR.
pub fn walk_marking(
    paging: &PagingInputs,
    gva: Gva,
    access: Access,
    mut read_entry: impl FnMut(Gpa, Width) -> Option<u64>,
    mark: impl FnMut(Gpa, Width, u64),
) -> Result<Translation, WalkFault> {
    walk_inner(paging, gva, access, &mut read_entry, mark)
}

/// Geometry of one paging mode.
struct Mode {
    root: u64,
    levels: u32,
    index_bits: u32,
    width: Width,
    /// Bits that must be clear in every entry.
    reserved: u64,
    pae3: bool,
}

impl Mode {
    #[inline(always)]
    fn of(p: &PagingInputs) -> Self {
        let addr_mask = (1u64 << p.phys_bits.clamp(32, 52)) - 1;
        let nx_reserved = if p.efer & EFER_NXE == 0 { NX } else { 0 };
        if p.efer & EFER_LMA != 0 {
            Self {
                root: p.cr3 & addr_mask & !0xfff,
                levels: 4,
                index_bits: 9,
                width: Width::B8,
                // Bits 62:52 are free for software here.
                reserved: (!addr_mask & ((1 << 52) - 1)) | nx_reserved,
                pae3: false,
            }
        } else if p.cr4 & CR4_PAE != 0 {
            Self {
                root: p.cr3 & 0xffff_ffe0,
                levels: 3,
                index_bits: 9,
                width: Width::B8,
                reserved: (!addr_mask & !NX) | nx_reserved,
                pae3: true,
            }
        } else {
            Self {
                root: p.cr3 & 0xffff_f000,
                levels: 2,
                index_bits: 10,
                width: Width::B4,
                reserved: 0,
                pae3: false,
            }
        }
    }

    /// Bits that must be clear in this entry at `level` (1 = page table).
    #[inline(always)]
    fn reserved_in(&self, level: u32, leaf: bool) -> u64 {
        let low = match (level, leaf, self.width) {
            (_, false, Width::B8) if self.pae3 && level == 3 => 0x1e6 | NX,
            (4, ..) => LARGE,
            (3, true, _) => 0x3fff_e000,
            (2, true, Width::B8) => 0x001f_e000,
            // PSE-36: bits 20:13 are address bits 39:32.
            (2, true, _) => 1 << 21,
            _ => 0,
        };
        self.reserved | low
    }
}

#[inline(always)]
fn walk_inner(
    p: &PagingInputs,
    gva: Gva,
    access: Access,
    read_entry: &mut impl FnMut(Gpa, Width) -> Option<u64>,
    mut mark: impl FnMut(Gpa, Width, u64),
) -> Result<Translation, WalkFault> {
    if p.cr0 & CR0_PG == 0 {
        return Ok(Translation {
            gpa: Gpa(gva.0 & 0xffff_ffff),
            page_shift: 12,
            writable: true,
            user: true,
            executable: true,
        });
    }
    let long = p.efer & EFER_LMA != 0;
    if long && p.cr4 & CR4_LA57 != 0 {
        return Err(WalkFault::Unsupported);
    }
    let va = if long { gva.0 } else { gva.0 & 0xffff_ffff };
    if long && ((va as i64) << 16 >> 16) as u64 != va {
        return Err(WalkFault::NonCanonical);
    }
    let mode = Mode::of(p);
    let pse = mode.width == Width::B8 || p.cr4 & CR4_PSE != 0;
    let entry_shift = if mode.width == Width::B8 { 3 } else { 2 };

    let mut table = mode.root;
    let mut level = mode.levels;
    let mut rights = WRITE | USER;
    let mut no_exec = 0u64;
    let mut path = [(0u64, 0u64); 4];
    let (entry, shift) = loop {
        let shift = 12 + (level - 1) * mode.index_bits;
        let index = (va >> shift) & ((1 << mode.index_bits) - 1);
        // PAE has four root entries only.
        let index = if mode.pae3 && level == 3 {
            index & 3
        } else {
            index
        };
        let at = table + (index << entry_shift);
        let entry = read_entry(Gpa(at), mode.width).ok_or(WalkFault::BadTable { at: Gpa(at) })?;
        if entry & PRESENT == 0 {
            return Err(fault(p, access, 0));
        }
        let pdpte = mode.pae3 && level == 3;
        let leaf = level == 1 || (entry & LARGE != 0 && level <= 3 && !pdpte && pse);
        if entry & mode.reserved_in(level, leaf) != 0 {
            return Err(fault(p, access, PF_PRESENT | PF_RESERVED));
        }
        path[level as usize - 1] = (at, entry);
        if !pdpte {
            rights &= entry;
            no_exec |= entry & NX;
        }
        if leaf {
            break (entry, shift);
        }
        table = entry & 0x000f_ffff_ffff_f000;
        level -= 1;
    };
    let t = finish(&mode, va, entry, shift, rights, no_exec == 0);
    if !allowed(p, access, &t) {
        return Err(fault(p, access, PF_PRESENT));
    }
    for l in (level..=mode.levels).rev() {
        let (at, entry) = path[l as usize - 1];
        let want = match l {
            3 if mode.pae3 => 0,
            _ if l == level && access.write => ACCESSED | DIRTY,
            _ => ACCESSED,
        };
        if want & !entry != 0 {
            mark(Gpa(at), mode.width, want & !entry);
        }
    }
    Ok(t)
}

#[inline(always)]
fn finish(mode: &Mode, va: u64, entry: u64, shift: u32, rights: u64, exec: bool) -> Translation {
    let offset = va & ((1 << shift) - 1);
    let mut base = entry & 0x000f_ffff_ffff_f000 & !((1u64 << shift) - 1);
    if shift == 22 && mode.width == Width::B4 {
        base |= (entry >> 13 & 0xff) << 32;
    }
    Translation {
        gpa: Gpa(base | offset),
        page_shift: shift as u8,
        writable: rights & WRITE != 0,
        user: rights & USER != 0,
        executable: exec,
    }
}

#[inline(always)]
fn allowed(p: &PagingInputs, access: Access, t: &Translation) -> bool {
    if access.user {
        return t.user && (!access.write || t.writable) && (!access.fetch || t.executable);
    }
    if access.fetch {
        return t.executable && !(t.user && p.cr4 & CR4_SMEP != 0);
    }
    if t.user && p.cr4 & CR4_SMAP != 0 && !p.ac && !access.ignore_smap {
        return false;
    }
    !access.write || t.writable || p.cr0 & CR0_WP == 0
}

#[cold]
fn fault(p: &PagingInputs, access: Access, cause: u32) -> WalkFault {
    let nx = p.efer & EFER_NXE != 0 && p.cr4 & CR4_PAE != 0;
    let mut error_code = cause;
    if access.write {
        error_code |= PF_WRITE;
    }
    if access.user {
        error_code |= PF_USER;
    }
    if access.fetch && (nx || p.cr4 & CR4_SMEP != 0) {
        error_code |= PF_FETCH;
    }
    WalkFault::PageFault { error_code }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
