//! The TSCs of all CPUs side by side, while they start.

use core::sync::atomic::{AtomicU64, Ordering};

use super::super::{asm, time};
use crate::warn;

/// Comparisons that each starting CPU makes, while the boot CPU and the other ones make theirs.
pub(super) const ROUNDS: u32 = 100;

static LAST: AtomicU64 = AtomicU64::new(0);
static WORST_WARP: AtomicU64 = AtomicU64::new(0);

/// Compares this CPU's TSC with the largest value that any CPU has read before: it must not be less. For any number of
/// CPUs at once.
pub(super) fn watch() {
    let last = LAST.load(Ordering::Acquire);
    let now = asm::rdtsc_ordered();
    if now < last {
        WORST_WARP.fetch_max(last - now, Ordering::AcqRel);
    }
    LAST.fetch_max(now, Ordering::AcqRel);
}

/// Says if any CPU went backwards.
pub(super) fn judge() {
    let warp = WORST_WARP.load(Ordering::Acquire);
    if warp != 0 {
        time::mark_unreliable();
        warn!("The CPUs' TSCs disagree by at least {warp} cycles: time may go backwards");
    }
}
