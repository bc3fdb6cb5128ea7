//! Ranked spin locks and an epoch-free "once". Interrupts are off in the hypervisor wherever a lock is held (see
//! `docs/adr`), so there is a single lock kind.
//!
//! A CPU may take a lock only if its rank is higher than every rank it holds. Tests on the host check that, and the
//! machine does in builds with `CONFIG_DEBUG_LOCKS`.

mod held;

use core::ops::{Deref, DerefMut};

#[cfg(all(CONFIG_DEBUG_LOCKS, target_os = "none"))]
pub use held::self_test;
pub use held::{Ranks, stop_checks};

/// Lock ranks, low to high; the table with the reasons is `docs/security/locking.md`.
pub mod rank {
    /// The control of domains: held over a whole domctl, which may touch everything below.
    pub const CONTROL: u8 = 5;
    /// The list of domains.
    pub const DOMAIN_LIST: u8 = 10;
    /// A domain's life-cycle state.
    pub const DOMAIN: u8 = 20;
    /// The run loop's half of a vCPU.
    pub const VCPU: u8 = 25;
    /// Writers of a domain's physical-to-machine map.
    pub const P2M: u8 = 30;
    /// Grant table.
    pub const GRANT: u8 = 40;
    /// Event-channel ports of a domain.
    pub const PORT: u8 = 50;
    /// Virtual interrupt controllers shared by a domain's vCPUs, PCI state.
    pub const DEVICE: u8 = 54;
    /// Physical interrupt bindings.
    pub const IRQ: u8 = 56;
    /// Interrupt-remapping tables and the units' queues.
    pub const IOMMU: u8 = 58;
    /// Scheduler run queues.
    pub const RUNQ: u8 = 60;
    /// Frame allocator, heap.
    pub const FRAMES: u8 = 70;
    /// Host heap allocator (below FRAMES users on its slow path).
    pub const HEAP: u8 = 68;
    /// The hypervisor's own page tables.
    pub const HOST_MAP: u8 = 69;
    /// Log ring and consoles.
    pub const LOG: u8 = 80;
}

/// A spin lock of a fixed rank around a value.
pub struct SpinLock<T, const RANK: u8> {
    inner: spin::mutex::SpinMutex<T>,
}

/// Access to the locked value; the lock opens when this is dropped.
pub struct SpinGuard<'a, T, const RANK: u8> {
    inner: spin::mutex::SpinMutexGuard<'a, T>,
    ordered: bool,
}

impl<T, const RANK: u8> SpinLock<T, RANK> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        SpinLock {
            inner: spin::mutex::SpinMutex::new(value),
        }
    }

    /// Waits for the lock. Panics, where the order is checked, if this CPU holds a lock of this or a higher rank.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T, RANK> {
        held::check(RANK);
        let inner = self.inner.lock();
        held::push(RANK);
        SpinGuard {
            inner,
            ordered: true,
        }
    }

    /// Takes a second lock of the same rank. The caller must take such pairs in one global order (ascending domid).
    #[inline]
    pub fn lock_second(&self) -> SpinGuard<'_, T, RANK> {
        let inner = self.inner.lock();
        SpinGuard {
            inner,
            ordered: false,
        }
    }

    /// The lock if it is free now. Never waits, so any rank may try (panic path, run loop).
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T, RANK>> {
        let inner = self.inner.try_lock()?;
        Some(SpinGuard {
            inner,
            ordered: false,
        })
    }

    /// Opens the lock whoever holds it: for the panic path, which must print whatever happened.
    ///
    /// # Safety
    /// The holder must never use its guard again, or both must tolerate each other's writes.
    pub unsafe fn force_unlock(&self) {
        // SAFETY: the caller's contract.
        unsafe { self.inner.force_unlock() }
    }

    /// The value, without locking, since `&mut` proves that nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: Default, const RANK: u8> Default for SpinLock<T, RANK> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, const RANK: u8> Deref for SpinGuard<'_, T, RANK> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, const RANK: u8> DerefMut for SpinGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T, const RANK: u8> Drop for SpinGuard<'_, T, RANK> {
    fn drop(&mut self) {
        if self.ordered {
            held::pop(RANK);
        }
    }
}
