//! Memory as the whole machine's.

use super::{Xen, is};
use crate::hypercalls::Call;
use std::io;
use xen_abi::memory::{PodTarget, op};
use xen_abi::{DomId, Errno, hypercall::nr};
use zerocopy::IntoBytes;

impl Xen {
    /// Pages that sharing between domains has freed; 0 on a hypervisor without sharing.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn sharing_freed_pages(&self) -> io::Result<u64> {
        self.sharing_counter(op::GET_SHARING_FREED_PAGES)
    }

    /// Pages that are shared.
    ///
    /// # Errors
    /// The hypervisor's.
    pub fn sharing_used_pages(&self) -> io::Result<u64> {
        self.sharing_counter(op::GET_SHARING_SHARED_PAGES)
    }

    /// Says how many pages of a domain that began with less than its limit shall be populated on demand at most.
    ///
    /// # Errors
    /// The hypervisor's: `EINVAL` for a PV domain.
    pub fn set_pod_target(&self, domid: DomId, pages: u64) -> io::Result<()> {
        let mut own = PodTarget {
            target_pages: pages,
            domid,
            ..PodTarget::default()
        };
        self.calls
            .call(&mut Call {
                number: nr::MEMORY_OP,
                operation: Some(op::SET_POD_TARGET),
                argument: own.as_mut_bytes(),
                rest: &[],
                slots: &mut [],
            })
            .map(drop)
    }

    fn sharing_counter(&self, operation: u32) -> io::Result<u64> {
        let result = self.calls.call(&mut Call {
            number: nr::MEMORY_OP,
            operation: Some(operation),
            argument: &mut [],
            rest: &[],
            slots: &mut [],
        });
        match result {
            Err(e) if is(&e, Errno::ENOSYS) => Ok(0),
            other => other,
        }
    }
}
