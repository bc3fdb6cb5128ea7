//! Physical writes while dom0 is built: before its frames have an owner, when nothing else uses that RAM.
//!
//! For the boot CPU only, before the first vCPU runs. The hypervisor's own frames cannot be reached this way.

use x86_model::{Hpa, PAGE_SIZE};

use super::frames::{self, FrameKind};
use super::phys_to_virt;

/// Whether every byte of `start .. start + len` is RAM that is not the hypervisor's.
fn reachable(start: Hpa, len: u64) -> bool {
    let Some(end) = start.0.checked_add(len) else {
        return false;
    };
    let ours = |page: u64| frames::kind(Hpa(page).mfn()) == FrameKind::Hypervisor;
    is_ram(start.0, end)
        && (start.0 / PAGE_SIZE..end.div_ceil(PAGE_SIZE)).all(|n| !ours(n * PAGE_SIZE))
}

#[cfg(target_os = "none")]
fn is_ram(start: u64, end: u64) -> bool {
    crate::x86::boot::ram().any(|r| r.start <= start && end <= r.end)
}

#[cfg(not(target_os = "none"))]
fn is_ram(_start: u64, end: u64) -> bool {
    end <= (crate::host::arena::frames() as u64) * PAGE_SIZE
}

/// Copies `len` bytes; the ranges may overlap. False, and nothing is done, if a byte is out of reach.
pub fn copy(from: Hpa, to: Hpa, len: u64) -> bool {
    if !reachable(from, len) || !reachable(to, len) {
        return false;
    }
    // SAFETY: both ranges are RAM in the direct map that no Rust object lives in (checked above), and nobody else runs.
    unsafe { core::ptr::copy(phys_to_virt(from), phys_to_virt(to), len as usize) };
    true
}

/// Writes bytes; see [`copy`].
pub fn write(to: Hpa, bytes: &[u8]) -> bool {
    if !reachable(to, bytes.len() as u64) {
        return false;
    }
    // SAFETY: as in `copy`. `copy`, not `copy_nonoverlapping`: the bytes may be a boot module that lies in the target.
    unsafe { core::ptr::copy(bytes.as_ptr(), phys_to_virt(to), bytes.len()) };
    true
}

/// Writes zeros; see [`copy`].
pub fn zero(to: Hpa, len: u64) -> bool {
    if !reachable(to, len) {
        return false;
    }
    // SAFETY: as in `copy`.
    unsafe { core::ptr::write_bytes(phys_to_virt(to), 0, len as usize) };
    true
}
