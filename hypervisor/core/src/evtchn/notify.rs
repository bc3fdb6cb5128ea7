//! Whom an operation made to have news: the answer that event channels give instead of calling anyone.

/// Most vCPUs that a domain can have (Xen's limit for hardware-assisted guests).
pub const MAX_VCPUS: u32 = 128;

/// A set of vCPU indexes below [`MAX_VCPUS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcpuSet(u128);

impl VcpuSet {
    /// Adds a vCPU; indexes out of range are dropped.
    pub fn insert(&mut self, vcpu: u32) {
        self.0 |= 1u128.checked_shl(vcpu).unwrap_or(0);
    }

    /// Whether the vCPU is in the set.
    pub fn contains(&self, vcpu: u32) -> bool {
        vcpu < MAX_VCPUS && self.0 >> vcpu & 1 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The vCPUs in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(next)
        })
    }
}

/// vCPUs of one domain that the caller has to tell something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a lost notification is a guest that sleeps for ever"]
pub struct Notify {
    /// `evtchn_upcall_pending` went from 0 to 1: deliver the upcall.
    pub upcalls: VcpuSet,
    /// In SCHEDOP_poll for a port that was raised: wake.
    pub pollers: VcpuSet,
}

impl Notify {
    /// Whether there is nobody to tell.
    pub fn is_empty(&self) -> bool {
        self.upcalls.is_empty() && self.pollers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_they_can() {
        let mut set = VcpuSet::default();
        assert!(set.is_empty());
        for v in [127, 0, 64, 128, u32::MAX] {
            set.insert(v);
        }
        assert!(set.iter().eq([0, 64, 127]));
        assert!(set.contains(64) && !set.contains(1) && !set.contains(128));
    }
}
