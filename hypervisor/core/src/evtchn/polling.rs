//! vCPUs in SCHEDOP_poll: which port each waits for. Read on every raise, so it is atomic and costs one load when nobody
//! polls.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use super::notify::VcpuSet;

/// Waits for nothing.
pub const NONE: u32 = 0;
/// Waits for several ports, or for none in particular: any raise ends it, and the poller looks again.
pub const SEVERAL: u32 = u32::MAX;

/// What each vCPU waits for.
pub struct Polling {
    ports: Box<[AtomicU32]>,
    active: AtomicU32,
}

impl Polling {
    /// Nobody polls.
    pub fn new(vcpus: u32) -> Self {
        Polling {
            ports: (0..vcpus).map(|_| AtomicU32::new(NONE)).collect(),
            active: AtomicU32::new(0),
        }
    }

    /// Announces that a vCPU waits for a port, for [`SEVERAL`], or for [`NONE`] any more. A raise takes the announcement back
    /// ([`Polling::waits`]), and wakes the vCPU if it is asleep already.
    pub fn set(&self, vcpu: u32, port: u32) {
        let Some(slot) = self.ports.get(vcpu as usize) else {
            return;
        };
        if port != NONE {
            // Counted before it can be seen, so that the count is never too low.
            self.active.fetch_add(1, Ordering::SeqCst);
        }
        if slot.swap(port, Ordering::SeqCst) != NONE {
            self.active.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether what a vCPU announced still stands: nobody has woken it.
    pub fn waits(&self, vcpu: u32) -> bool {
        self.ports
            .get(vcpu as usize)
            .is_some_and(|slot| slot.load(Ordering::SeqCst) != NONE)
    }

    /// Collects the vCPUs that wait for `port`; they wait no longer.
    pub fn wake(&self, port: u32, out: &mut VcpuSet) {
        if self.active.load(Ordering::SeqCst) == 0 {
            return;
        }
        for (vcpu, slot) in (0u32..).zip(&self.ports) {
            let waits = slot.load(Ordering::SeqCst);
            if (waits == port || waits == SEVERAL)
                && slot
                    .compare_exchange(waits, NONE, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            {
                self.active.fetch_sub(1, Ordering::SeqCst);
                out.insert(vcpu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(polling: &Polling, port: u32) -> Vec<u32> {
        let mut set = VcpuSet::default();
        polling.wake(port, &mut set);
        set.iter().collect()
    }

    #[test]
    fn wakes_whom_it_concerns_once() {
        let polling = Polling::new(4);
        polling.set(0, 5);
        polling.set(1, SEVERAL);
        polling.set(2, 6);
        polling.set(9, 5);
        assert_eq!(woken(&polling, 5), [0, 1]);
        assert_eq!(woken(&polling, 5), []);
        polling.set(2, NONE);
        assert_eq!(woken(&polling, 6), []);
        assert_eq!(polling.active.load(Ordering::SeqCst), 0);
        polling.set(2, 6);
        polling.set(2, 7);
        assert_eq!(woken(&polling, 6), []);
        assert_eq!(woken(&polling, 7), [2]);
        assert_eq!(polling.active.load(Ordering::SeqCst), 0);
    }
}
