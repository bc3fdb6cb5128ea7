//! The areas of guest memory that the hypervisor keeps up to date for a vCPU: vcpu_info (upcall flags and clock), the
//! runstate area, the time area.
//!
//! Shared state with the guest: written with atomics or under the version protocol, never read back as truth.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};

use hv_hw::mem::FrameRef;
use hv_hw::sync::{SpinLock, rank};
use xen_abi::compat::shared_info::offset as narrow;
use xen_abi::shared_info::offset;

/// Bytes of a `vcpu_info` (`xen.h`), in both layouts.
pub const VCPU_INFO_SIZE: usize = 64;
/// Slots of vcpu_info in shared_info (`XEN_LEGACY_MAX_VCPUS`).
pub const LEGACY_VCPUS: u32 = 32;

const UPCALL_PENDING: usize = offset::UPCALL_PENDING;
const TIME: usize = offset::TIME;

/// A place inside a guest frame.
#[derive(Clone, Debug)]
pub struct FrameAt {
    /// The frame.
    pub frame: FrameRef,
    /// Byte offset inside it.
    pub offset: usize,
}

/// A guest buffer that was translated once and may cross pages.
#[derive(Debug, Default)]
pub struct GuestArea {
    parts: Vec<(FrameAt, usize)>,
}

impl GuestArea {
    /// An area made of consecutive parts (place, length).
    pub fn new(parts: Vec<(FrameAt, usize)>) -> Self {
        GuestArea { parts }
    }
    /// Writes `bytes` at `offset` of the area; what lies beyond its end is dropped.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let mut start = 0;
        for (at, len) in &self.parts {
            let (lo, hi) = (offset.max(start), (offset + bytes.len()).min(start + len));
            if lo < hi {
                at.frame
                    .write(at.offset + lo - start, &bytes[lo - offset..hi - offset]);
            }
            start += len;
        }
    }
}

/// Where a vCPU's areas are.
pub struct Areas {
    default_info: Option<FrameAt>,
    registered: spin::Once<FrameAt>,
    /// The guest has the 32-bit layout of what it shares with the hypervisor.
    narrow: AtomicBool,
    /// What the guest's TSC is ahead of the machine's, since it wrote it.
    tsc_offset: AtomicU64,
    /// Runstate area.
    pub runstate: SpinLock<Option<GuestArea>, { rank::DEVICE }>,
    /// Secondary time area (`VCPUOP_register_vcpu_time_memory_area`).
    pub time: SpinLock<Option<GuestArea>, { rank::DEVICE }>,
}

/// What the guest needs to turn its TSC into nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSnapshot {
    /// The machine's TSC.
    pub tsc: u64,
    /// System time at that TSC, in ns.
    pub system_ns: u64,
    /// 32.32 multiplier.
    pub mul: u32,
    /// Shift applied before multiplying.
    pub shift: i8,
    /// TSC_STABLE and friends.
    pub flags: u8,
}

impl ClockSnapshot {
    /// Multiplier and shift for a TSC rate, so that `ns = (delta << shift) * mul >> 32`, with the top bit of `mul` set
    /// for precision. `khz` must not be 0.
    pub fn scale(khz: u32) -> (u32, i8) {
        let mut shift = 0i8;
        // ns per 2^32 ticks.
        let mut mul = (1_000_000u64 << 32) / u64::from(khz.max(1));
        while mul >> 32 != 0 {
            mul >>= 1;
            shift += 1;
        }
        while mul & 1 << 31 == 0 {
            // Recomputed instead of shifted, to keep the low bits.
            shift -= 1;
            mul = (1_000_000u128 << (32 - i32::from(shift))) as u64 / u64::from(khz.max(1));
        }
        (mul as u32, shift)
    }
}

impl Areas {
    /// Areas of a vCPU whose legacy slot is in `shared_info` (vCPUs 0 to 31) or that has none yet.
    pub fn new(shared_info: &FrameRef, vcpu: u32) -> Self {
        let default_info = (vcpu < LEGACY_VCPUS).then(|| FrameAt {
            frame: shared_info.clone(),
            offset: vcpu as usize * VCPU_INFO_SIZE,
        });
        Areas {
            default_info,
            registered: spin::Once::new(),
            narrow: AtomicBool::new(false),
            tsc_offset: AtomicU64::new(0),
            runstate: SpinLock::new(None),
            time: SpinLock::new(None),
        }
    }

    /// The place of vcpu_info, if the vCPU has one.
    #[inline]
    pub fn info(&self) -> Option<&FrameAt> {
        self.registered.get().or(self.default_info.as_ref())
    }

    /// Whether the guest registered its own vcpu_info.
    pub fn is_registered(&self) -> bool {
        self.registered.is_completed()
    }

    /// Moves vcpu_info to `to`: copies the old contents, marks every selector bit and the upcall pending, so that no
    /// event is lost. False if one was registered before. The caller raises the upcall.
    pub fn register_info(&self, to: FrameAt) -> bool {
        if self.is_registered() {
            return false;
        }
        let mut old = [0u8; VCPU_INFO_SIZE];
        if let Some(from) = &self.default_info {
            from.frame.read(from.offset, &mut old);
        }
        to.frame.write(to.offset, &old);
        self.registered.call_once(|| to);
        if let Some(FrameAt { frame, offset: at }) = self.info() {
            if self.is_narrow() {
                frame.write(at + narrow::PENDING_SEL, &u32::MAX.to_le_bytes());
            } else {
                frame.write(at + offset::PENDING_SEL, &u64::MAX.to_le_bytes());
            }
            fence(Ordering::Release);
        }
        if let Some(pending) = self.upcall_pending() {
            pending.store(1, Ordering::Release);
        }
        true
    }

    /// evtchn_upcall_pending.
    #[inline]
    pub fn upcall_pending(&self) -> Option<&AtomicU8> {
        self.info()
            .map(|at| at.frame.atomic_u8(at.offset + UPCALL_PENDING))
    }

    /// Whether the guest has the 32-bit layout.
    pub fn is_narrow(&self) -> bool {
        self.narrow.load(Ordering::Relaxed)
    }

    /// Takes a layout into use.
    pub fn set_narrow(&self, narrow: bool) {
        self.narrow.store(narrow, Ordering::Relaxed);
    }

    /// What the offset of a registered vcpu_info must be a multiple of.
    pub fn info_alignment(&self) -> usize {
        if self.is_narrow() { 4 } else { 8 }
    }

    /// The guest has written its TSC, which is `offset` ahead of the machine's now. The clock must be written next.
    pub fn set_tsc_offset(&self, offset: u64) {
        self.tsc_offset.store(offset, Ordering::Relaxed);
    }

    /// Writes the clock into vcpu_info and into the time area, with the TSC as the guest reads it, under the version protocol (odd while writing).
    pub fn update_clock(&self, c: &ClockSnapshot) {
        let mut body = [0u8; 24];
        let tsc = c.tsc.wrapping_add(self.tsc_offset.load(Ordering::Relaxed));
        body[0..8].copy_from_slice(&tsc.to_le_bytes());
        body[8..16].copy_from_slice(&c.system_ns.to_le_bytes());
        body[16..20].copy_from_slice(&c.mul.to_le_bytes());
        body[20] = c.shift as u8;
        body[21] = c.flags;
        if let Some(at) = self.info() {
            let version = at.frame.atomic_u32(at.offset + TIME);
            let odd = version.load(Ordering::Relaxed).wrapping_add(1) | 1;
            version.store(odd, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            at.frame.write(at.offset + TIME + 8, &body);
            fence(Ordering::SeqCst);
            version.store(odd.wrapping_add(1), Ordering::Release);
        }
        if let Some(area) = &*self.time.lock() {
            // Even versions only: this vCPU, the only reader, is not running.
            area.write(8, &body);
            area.write(0, &2u32.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_scale_is_exact_enough() {
        for khz in [
            1_000_000, 2_000_000, 2_445_333, 999_999, 3_700_123, 10_000, 100,
        ] {
            let (mul, shift) = ClockSnapshot::scale(khz);
            assert!(mul & 1 << 31 != 0);
            // One second of ticks.
            let ticks = u128::from(khz) * 1000;
            let scaled = if shift >= 0 {
                ticks << shift
            } else {
                ticks >> -shift
            };
            let ns = (scaled * u128::from(mul)) >> 32;
            assert!(
                ns.abs_diff(1_000_000_000) < 20,
                "{khz} kHz: {ns} (mul {mul:#x} shift {shift})"
            );
        }
    }
}
