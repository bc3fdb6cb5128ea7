//! What grants change in a domain's memory map.

use alloc::sync::Arc;

use hv_hw::mem::FrameRef;
use x86_model::{Gfn, Mfn};
use xen_abi::{DomId, Errno};

use super::DomainRef;
use crate::grant::{GrantHost, GrantTable};
use crate::hypervisor::Hypervisor;
use crate::p2m::PageType;

/// A domain in a grant operation, with the system that runs it.
pub struct GrantSide<'a> {
    hv: &'a Hypervisor,
    domain: DomainRef,
}

impl<'a> GrantSide<'a> {
    /// The domain's side.
    pub fn new(hv: &'a Hypervisor, domain: DomainRef) -> Self {
        GrantSide { hv, domain }
    }
}

impl GrantHost for GrantSide<'_> {
    fn id(&self) -> DomId {
        self.domain.id
    }

    fn grants(&self) -> &Arc<GrantTable> {
        &self.domain.grants
    }

    fn own_frame(&self, gfn: Gfn) -> Option<(FrameRef, bool)> {
        let p2m = &self.domain.p2m;
        if p2m.page_type(gfn)? != PageType::Ram {
            return None;
        }
        // The entry may have changed since it was looked at; another domain's page must not be granted on.
        p2m.frame(gfn)
            .filter(|(frame, _)| frame.owner() == self.domain.id)
    }

    fn map_grant(&self, gfn: Gfn, frame: FrameRef, write: bool) -> Result<(), Errno> {
        let p2m = &self.domain.p2m;
        if !p2m.in_range(gfn) {
            return Err(Errno::ENXIO);
        }
        // A device page may stand where the domain once touched a hole.
        if !matches!(p2m.page_type(gfn), None | Some(PageType::Mmio)) {
            return Err(Errno::EINVAL);
        }
        let removed = p2m.map(gfn, frame, PageType::Grant, write)?;
        self.hv.clear_limbo(&self.domain);
        if let Some(removed) = removed {
            self.hv.flush_domain(&self.domain);
            drop(removed);
        }
        Ok(())
    }

    fn unmap_grant(&self, gfn: Gfn, mfn: Mfn) -> Result<FrameRef, Errno> {
        let p2m = &self.domain.p2m;
        let mapped = p2m.page_type(gfn) == Some(PageType::Grant)
            && p2m.frame(gfn).is_some_and(|(f, _)| f.mfn() == mfn);
        if !mapped {
            return Err(Errno::EINVAL);
        }
        match p2m.unmap(gfn)? {
            Some(removed) if removed.ty == PageType::Grant && removed.mfn == mfn => {
                removed.frame.ok_or(Errno::EINVAL)
            }
            // The domain changed the entry on another vCPU at the same time; what it put there is gone, too.
            other => {
                self.hv.flush_domain(&self.domain);
                drop(other);
                Err(Errno::EINVAL)
            }
        }
    }

    fn flush(&self) {
        self.hv.flush_domain(&self.domain);
    }
}
