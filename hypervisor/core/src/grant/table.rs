//! One domain's grant table under its lock: the frames, their growth, the version, and pinning of entries.

use alloc::vec::Vec;

use hv_hw::mem::FrameRef;
use xen_abi::grant_table::{reserved, status};
use xen_abi::{DomId, Errno};

use super::active::Active;
use super::entry::{Entry, Request, STATUS_PER_FRAME, Target, Version};
use super::maptrack::Maptrack;
use super::{GrantHost, Limits, Status};

/// The state behind the lock.
pub struct Inner {
    owner: DomId,
    limits: Limits,
    version: Version,
    shared: Vec<FrameRef>,
    status: Vec<FrameRef>,
    /// One list per shared frame, long enough for either version.
    active: Vec<Vec<Active>>,
    pub(super) maptrack: Maptrack,
}

/// Version 2 entries per status frame, over entries per shared frame.
const SHARED_PER_STATUS: u32 = STATUS_PER_FRAME / Version::V2.per_frame();

impl Inner {
    pub(super) fn new(owner: DomId, limits: Limits) -> Self {
        Inner {
            owner,
            limits,
            version: Version::V1,
            shared: Vec::new(),
            status: Vec::new(),
            active: Vec::new(),
            maptrack: Maptrack::new(limits.max_handles),
        }
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn frames(&self) -> u32 {
        self.shared.len() as u32
    }

    pub(super) fn max_frames(&self) -> u32 {
        self.limits.max_frames
    }

    pub(super) fn entries(&self) -> u32 {
        self.frames() * self.version.per_frame()
    }

    /// Makes the table at least `frames` long. EINVAL above the limit, ENOMEM without memory; frames made so far stay.
    pub(super) fn grow(&mut self, frames: u32) -> Result<(), Errno> {
        if frames > self.limits.max_frames {
            return Err(Errno::EINVAL);
        }
        while self.frames() < frames {
            if self.version == Version::V2 {
                self.grow_status(self.frames() + 1)?;
            }
            let mut list = Vec::new();
            list.try_reserve_exact(Version::V1.per_frame() as usize)
                .map_err(|_| Errno::ENOMEM)?;
            list.resize_with(Version::V1.per_frame() as usize, Active::default);
            self.active.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            add_frame(&mut self.shared, self.owner)?;
            self.active.push(list);
        }
        Ok(())
    }

    /// Makes the status frames that `shared` shared frames need.
    fn grow_status(&mut self, shared: u32) -> Result<(), Errno> {
        while (self.status.len() as u32) < shared.div_ceil(SHARED_PER_STATUS) {
            add_frame(&mut self.status, self.owner)?;
        }
        Ok(())
    }

    /// A frame of the table, which grows as needed.
    pub(super) fn frame(&mut self, index: u32, status: bool) -> Result<FrameRef, Errno> {
        let needed = if !status {
            index
        } else if self.version == Version::V2 {
            index.checked_mul(SHARED_PER_STATUS).ok_or(Errno::EINVAL)?
        } else {
            return Err(Errno::EINVAL);
        };
        self.grow(needed.checked_add(1).ok_or(Errno::EINVAL)?)?;
        let list = if status { &self.status } else { &self.shared };
        list.get(index as usize).cloned().ok_or(Errno::EINVAL)
    }

    fn entry(&self, reference: u32) -> Option<Entry<'_>> {
        let per_frame = self.version.per_frame();
        let shared = self.shared.get((reference / per_frame) as usize)?;
        let slot = reference % per_frame;
        Some(match self.version {
            Version::V1 => Entry::v1(shared, slot),
            Version::V2 => {
                let status = self.status.get((reference / STATUS_PER_FRAME) as usize)?;
                Entry::v2(shared, slot, status, reference % STATUS_PER_FRAME)
            }
        })
    }

    fn active(&self, reference: u32) -> Option<&Active> {
        let per_frame = self.version.per_frame();
        self.active
            .get((reference / per_frame) as usize)?
            .get((reference % per_frame) as usize)
    }

    fn active_mut(&mut self, reference: u32) -> Option<&mut Active> {
        let per_frame = self.version.per_frame();
        self.active
            .get_mut((reference / per_frame) as usize)?
            .get_mut((reference % per_frame) as usize)
    }

    /// Puts an entry to use: checks it, marks it for the guest, finds the frame and counts.
    pub(super) fn pin(
        &mut self,
        granter: &impl GrantHost,
        reference: u32,
        by: DomId,
        write: bool,
        map: bool,
    ) -> Result<(FrameRef, Target), Status> {
        let bad_ref = Status(status::BAD_GNTREF);
        let active = self.active(reference).ok_or(bad_ref)?;
        active.check(by, write, map)?;
        let (pinned, had_writers) = (active.is_pinned(), active.has_writers());
        let entry = self.entry(reference).ok_or(bad_ref)?;
        if !pinned || write && !had_writers {
            entry.mark(Request {
                by,
                write,
                map,
                pinned,
            })?;
        }
        if !pinned {
            match own_frame(granter, &entry, write, map) {
                Ok((target, frame)) => {
                    self.active_mut(reference)
                        .ok_or(bad_ref)?
                        .set(by, target, frame);
                }
                Err(e) => {
                    entry.unmark(false, false);
                    return Err(e);
                }
            }
        }
        self.active_mut(reference)
            .and_then(|a| a.pin(write))
            .ok_or(bad_ref)
    }

    /// Ends a use that [`Inner::pin`] began.
    pub(super) fn unpin(&mut self, reference: u32, write: bool) {
        let Some(active) = self.active_mut(reference) else {
            return;
        };
        active.unpin(write);
        let (writers, users) = (active.has_writers(), active.is_pinned());
        if let Some(entry) = self.entry(reference) {
            entry.unmark(writers, users);
        }
    }

    /// Changes the version; the reserved entries keep their contents. EBUSY while others are in use, ENOSYS for a version
    /// that the domain may not have. Returns the status frames that are given up.
    pub(super) fn set_version(&mut self, version: u32) -> Result<Vec<FrameRef>, Errno> {
        let new = Version::from_number(version).ok_or(Errno::EINVAL)?;
        if version > self.limits.max_version {
            return Err(Errno::ENOSYS);
        }
        if new == self.version {
            return Ok(Vec::new());
        }
        let in_use = |r| self.active(r).is_some_and(Active::is_pinned);
        if (reserved::ENTRIES..self.entries()).any(in_use) {
            return Err(Errno::EBUSY);
        }
        if new == Version::V2 {
            self.grow_status(self.frames())?;
        }
        let mut kept = [None; reserved::ENTRIES as usize];
        for (reference, slot) in (0..).zip(&mut kept) {
            *slot = self.entry(reference).and_then(|e| e.save());
        }
        for f in self.shared.iter().chain(&self.status) {
            f.zero();
        }
        self.version = new;
        let given_up = match new {
            Version::V1 => core::mem::take(&mut self.status),
            Version::V2 => Vec::new(),
        };
        for (reference, kept) in (0..).zip(kept) {
            if let (Some(entry), Some(kept)) = (self.entry(reference), kept) {
                entry.restore(kept);
            }
        }
        Ok(given_up)
    }

    /// Exchanges two entries that are not in use.
    pub(super) fn swap(&mut self, a: u32, b: u32) -> Result<(), Status> {
        let bad_ref = Status(status::BAD_GNTREF);
        let (entry_a, entry_b) = (self.entry(a).ok_or(bad_ref)?, self.entry(b).ok_or(bad_ref)?);
        if a == b {
            return Ok(());
        }
        if [a, b]
            .iter()
            .any(|&r| self.active(r).is_some_and(Active::is_pinned))
        {
            return Err(Status(status::EAGAIN));
        }
        entry_a.swap(&entry_b);
        Ok(())
    }
}

fn add_frame(list: &mut Vec<FrameRef>, owner: DomId) -> Result<(), Errno> {
    list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    let frame = FrameRef::alloc(owner).ok_or(Errno::ENOMEM)?;
    list.push(frame);
    Ok(())
}

/// The granting domain's page behind a marked entry.
fn own_frame(
    granter: &impl GrantHost,
    entry: &Entry<'_>,
    write: bool,
    map: bool,
) -> Result<(Target, (FrameRef, bool)), Status> {
    let target = entry.target();
    if map && target.sub_page {
        // It was a whole page when it was marked; the guest has changed it since.
        return Err(Status(status::GENERAL_ERROR));
    }
    match granter.own_frame(target.gfn) {
        Some((frame, writable)) if writable || !write => Ok((target, (frame, writable))),
        _ => Err(Status(status::BAD_PAGE)),
    }
}
