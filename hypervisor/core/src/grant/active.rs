//! What the hypervisor knows of each entry in use: by whom, how often, and the frame, which is held as long.

use hv_hw::mem::FrameRef;
use xen_abi::DomId;
use xen_abi::grant_table::status;

use super::Status;
use super::entry::Target;

/// Most uses of one entry at a time, of each kind.
const MAX_USES: u32 = 0x7fff;

/// One entry's uses.
#[derive(Debug, Default)]
pub struct Active {
    readers: u32,
    writers: u32,
    used: Option<Used>,
}

/// What is in use.
#[derive(Debug)]
struct Used {
    by: DomId,
    target: Target,
    frame: FrameRef,
    /// Whether the granting domain may write the frame itself.
    writable: bool,
}

impl Active {
    /// Whether anything uses the entry.
    pub fn is_pinned(&self) -> bool {
        self.used.is_some()
    }

    /// Whether anything uses it for writing.
    pub fn has_writers(&self) -> bool {
        self.writers != 0
    }

    /// Whether another use of this kind by `by` can be added to what there is.
    pub fn check(&self, by: DomId, write: bool, map: bool) -> Result<(), Status> {
        match &self.used {
            Some(u)
                if u.by != by
                    || map && u.target.sub_page
                    || self.readers >= MAX_USES
                    || self.writers >= MAX_USES =>
            {
                Err(Status(status::GENERAL_ERROR))
            }
            Some(u) if write && !u.writable => Err(Status(status::BAD_PAGE)),
            _ => Ok(()),
        }
    }

    /// Notes the first use's frame, and whether the granting domain may write it.
    pub fn set(&mut self, by: DomId, target: Target, (frame, writable): (FrameRef, bool)) {
        self.used = Some(Used {
            by,
            target,
            frame,
            writable,
        });
    }

    /// Counts a use; the frame and the range. `None` if the entry was never [`Active::set`].
    pub fn pin(&mut self, write: bool) -> Option<(FrameRef, Target)> {
        let used = self.used.as_ref()?;
        if write {
            self.writers += 1;
        } else {
            self.readers += 1;
        }
        Some((used.frame.clone(), used.target))
    }

    /// Ends a use.
    pub fn unpin(&mut self, write: bool) {
        let count = if write {
            &mut self.writers
        } else {
            &mut self.readers
        };
        *count = count.saturating_sub(1);
        if self.readers == 0 && self.writers == 0 {
            self.used = None;
        }
    }
}
