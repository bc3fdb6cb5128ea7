//! The account of the locks that a CPU holds, where the order of locks is checked: in tests on the host, and on the machine
//! with `CONFIG_DEBUG_LOCKS`. Elsewhere everything here is empty.

#![cfg_attr(
    not(any(CONFIG_DEBUG_LOCKS, not(target_os = "none"))),
    allow(dead_code, reason = "only builds that check need it")
)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The ranks that one CPU holds, a bit each. Ranks are below 128. Used by its own CPU only.
pub struct Ranks([AtomicU64; 2]);

impl Default for Ranks {
    fn default() -> Self {
        Self::new()
    }
}

impl Ranks {
    /// Holds nothing.
    pub const fn new() -> Self {
        Ranks([const { AtomicU64::new(0) }; 2])
    }

    /// The highest rank that is held, if it forbids to take `rank`.
    pub fn forbids(&self, rank: u8) -> Option<u8> {
        let [low, high] = [0, 1].map(|i: usize| self.0[i].load(Ordering::Relaxed));
        let held = u128::from(high) << 64 | u128::from(low);
        let top = held.checked_ilog2()? as u8;
        (top >= rank).then_some(top)
    }

    /// A lock of `rank` is held from here on.
    pub fn push(&self, rank: u8) {
        self.0[usize::from(rank / 64)].fetch_or(1 << (rank % 64), Ordering::Relaxed);
    }

    /// A lock of `rank` was opened.
    pub fn pop(&self, rank: u8) {
        self.0[usize::from(rank / 64)].fetch_and(!(1 << (rank % 64)), Ordering::Relaxed);
    }
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ends all checks: for the panic path, which takes locks by force.
pub fn stop_checks() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Panics if this CPU holds a lock that forbids one of `rank`.
#[inline(always)]
pub(super) fn check(rank: u8) {
    of_this_cpu(|ranks| {
        if let Some(top) = ranks.forbids(rank)
            && !STOPPED.load(Ordering::Relaxed)
        {
            panic!("lock rank {rank} taken while {top} is held");
        }
    });
}

/// This CPU holds a lock of `rank`.
#[inline(always)]
pub(super) fn push(rank: u8) {
    of_this_cpu(|ranks| ranks.push(rank));
}

/// This CPU opened a lock of `rank`.
#[inline(always)]
pub(super) fn pop(rank: u8) {
    of_this_cpu(|ranks| ranks.pop(rank));
}

#[cfg(all(debug_assertions, not(target_os = "none")))]
fn of_this_cpu(f: impl FnOnce(&Ranks)) {
    std::thread_local!(static HELD: Ranks = const { Ranks::new() });
    HELD.with(f);
}

#[cfg(all(CONFIG_DEBUG_LOCKS, target_os = "none"))]
fn of_this_cpu(f: impl FnOnce(&Ranks)) {
    // Before the first CPU has its block there is only one, which boots.
    if crate::x86::cpu::percpu::ready() {
        f(&crate::x86::cpu::percpu::this().held);
    }
}

#[cfg(not(any(
    all(debug_assertions, not(target_os = "none")),
    all(CONFIG_DEBUG_LOCKS, target_os = "none")
)))]
#[inline(always)]
fn of_this_cpu(_: impl FnOnce(&Ranks)) {}

/// Whether the account works on this CPU: takes a lock, and looks at what would be refused while it is held and after.
#[cfg(all(CONFIG_DEBUG_LOCKS, target_os = "none"))]
pub fn self_test() -> bool {
    use super::{SpinLock, rank};
    static PROBE: SpinLock<(), { rank::IRQ }> = SpinLock::new(());
    let refused = |rank| {
        let mut top = None;
        of_this_cpu(|ranks| top = ranks.forbids(rank));
        top
    };
    let guard = PROBE.lock();
    let during = refused(rank::PORT) == Some(rank::IRQ)
        && refused(rank::IRQ) == Some(rank::IRQ)
        && refused(rank::RUNQ).is_none();
    drop(guard);
    during && refused(rank::PORT).is_none()
}

#[cfg(test)]
mod tests {
    use super::Ranks;
    use crate::sync::SpinLock;

    #[test]
    fn only_upwards() {
        let r = Ranks::new();
        assert_eq!(r.forbids(0), None);
        r.push(10);
        r.push(70);
        assert_eq!(
            (r.forbids(10), r.forbids(70), r.forbids(71)),
            (Some(70), Some(70), None)
        );
        r.pop(70);
        assert_eq!(
            (r.forbids(70), r.forbids(10), r.forbids(9)),
            (None, Some(10), Some(10))
        );
        r.pop(10);
        assert_eq!(r.forbids(0), None);
    }

    #[test]
    #[should_panic(expected = "lock rank 30 taken while 40 is held")]
    fn a_lock_out_of_order_is_a_panic() {
        let (p2m, grant) = (SpinLock::<(), 30>::new(()), SpinLock::<(), 40>::new(()));
        let _grant = grant.lock();
        let _p2m = p2m.lock();
    }
}
