//! Shared entries: what the granting guest writes, and the in-use bits that the hypervisor adds.
//!
//! The guest can change an entry at any instant. Each value is read once into a local; flags and domain are one 32-bit
//! word; the in-use bits are set so that a guest which revokes the grant at the same time either sees them or wins.

use core::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use hv_hw::mem::FrameRef;
use x86_model::{Gfn, PAGE_SIZE};
use xen_abi::DomId;
use xen_abi::grant_table::{GrantEntryV1, GrantEntryV2, gtf, status};

use super::Status;

/// How often a version 1 entry may change under our hands before it is called unstable (as in Xen).
const RETRIES: u32 = 4;

/// Version of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 8-byte entries, in-use bits among the flags.
    V1,
    /// 16-byte entries, in-use bits in status frames.
    V2,
}

impl Version {
    /// Version `n`.
    pub const fn from_number(n: u32) -> Option<Self> {
        match n {
            1 => Some(Version::V1),
            2 => Some(Version::V2),
            _ => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        match self {
            Version::V1 => 1,
            Version::V2 => 2,
        }
    }

    const fn entry_size(self) -> usize {
        match self {
            Version::V1 => size_of::<GrantEntryV1>(),
            Version::V2 => size_of::<GrantEntryV2>(),
        }
    }

    /// Entries in a frame.
    pub const fn per_frame(self) -> u32 {
        (PAGE_SIZE as usize / self.entry_size()) as u32
    }
}

/// Status words in a status frame.
pub const STATUS_PER_FRAME: u32 = (PAGE_SIZE / 2) as u32;

/// What a grant gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Frame of the granting domain.
    pub gfn: Gfn,
    /// First byte that may be used.
    pub start: u16,
    /// Bytes that may be used; 4096 for a whole page.
    pub length: u16,
    /// Only a part of the page: may be copied but not mapped.
    pub sub_page: bool,
}

/// A shared entry in its frame.
pub struct Entry<'a> {
    frame: &'a FrameRef,
    at: usize,
    /// Version 2: status frame and offset.
    status: Option<(&'a FrameRef, usize)>,
}

/// Who wants what from an entry.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The domain that wants access.
    pub by: DomId,
    /// Also writing.
    pub write: bool,
    /// For a mapping, which must be of a whole page.
    pub map: bool,
    /// Type and domain were checked by an earlier use that still lasts.
    pub pinned: bool,
}

impl<'a> Entry<'a> {
    /// Entry `slot` of a version 1 frame.
    pub fn v1(frame: &'a FrameRef, slot: u32) -> Self {
        Entry {
            frame,
            at: slot as usize * Version::V1.entry_size(),
            status: None,
        }
    }

    /// Entry `slot` of a version 2 frame with its status word.
    pub fn v2(frame: &'a FrameRef, slot: u32, status: &'a FrameRef, status_slot: u32) -> Self {
        Entry {
            frame,
            at: slot as usize * Version::V2.entry_size(),
            status: Some((status, status_slot as usize * 2)),
        }
    }

    /// Flags in the low half, domain in the high half.
    fn header(&self) -> &AtomicU32 {
        self.frame.atomic_u32(self.at)
    }

    /// Where the in-use bits are.
    fn in_use(&self) -> &AtomicU16 {
        match self.status {
            None => self.frame.atomic_u16(self.at),
            Some((frame, at)) => frame.atomic_u16(at),
        }
    }

    /// Marks the entry as in use for `request`. `GENERAL_ERROR` if it does not grant that, or keeps changing.
    pub fn mark(&self, request: Request) -> Result<(), Status> {
        match self.status {
            None => self.mark_v1(request),
            Some(_) => self.mark_v2(request),
        }
    }

    fn mark_v1(&self, request: Request) -> Result<(), Status> {
        let header = self.header();
        let bits = in_use_bits(request.write);
        let mut old = header.load(Ordering::SeqCst);
        for _ in 0..=RETRIES {
            check(old, request)?;
            match header.compare_exchange(
                old,
                old | u32::from(bits),
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => old = now,
            }
        }
        Err(Status(status::GENERAL_ERROR))
    }

    fn mark_v2(&self, request: Request) -> Result<(), Status> {
        check(self.header().load(Ordering::SeqCst), request)?;
        let before = self
            .in_use()
            .fetch_or(in_use_bits(request.write), Ordering::SeqCst);
        // The guest must see the bits before the flags are looked at again: it revokes in the opposite order.
        fence(Ordering::SeqCst);
        let checked = check(self.header().load(Ordering::SeqCst), request);
        if checked.is_err() {
            self.in_use()
                .fetch_and(before | !in_use_bits(request.write), Ordering::SeqCst);
        }
        checked
    }

    /// Takes in-use bits back: writing if no writer is left, both if no user is.
    pub fn unmark(&self, writers_left: bool, users_left: bool) {
        let mut bits = 0;
        if !writers_left {
            bits |= gtf::WRITING;
        }
        if !users_left {
            bits |= gtf::READING;
        }
        if bits != 0 {
            self.in_use().fetch_and(!bits, Ordering::SeqCst);
        }
    }

    /// What the entry gives. Read once, after [`Entry::mark`].
    pub fn target(&self) -> Target {
        let whole = |gfn| Target {
            gfn: Gfn(gfn),
            start: 0,
            length: PAGE_SIZE as u16,
            sub_page: false,
        };
        if self.status.is_none() {
            return whole(u64::from(
                self.frame.atomic_u32(self.at + 4).load(Ordering::SeqCst),
            ));
        }
        let flags = self.header().load(Ordering::SeqCst) as u16;
        let range = self.frame.atomic_u32(self.at + 4).load(Ordering::SeqCst);
        let gfn = self.frame.atomic_u64(self.at + 8).load(Ordering::SeqCst);
        if flags & gtf::SUB_PAGE == 0 {
            return whole(gfn);
        }
        Target {
            gfn: Gfn(gfn),
            start: range as u16,
            length: (range >> 16) as u16,
            sub_page: true,
        }
    }

    /// Contents in the terms of version 1, for a change of versions; `None` if it is no plain page grant.
    pub fn save(&self) -> Option<(u16, DomId, u32)> {
        let header = self.header().load(Ordering::SeqCst);
        let flags = header as u16 | self.in_use().load(Ordering::SeqCst);
        if self.status.is_some() && flags & (gtf::TYPE_MASK | gtf::SUB_PAGE) != gtf::PERMIT_ACCESS {
            return None;
        }
        Some((
            flags,
            DomId((header >> 16) as u16),
            self.target().gfn.0 as u32,
        ))
    }

    /// Writes contents that [`Entry::save`] returned.
    pub fn restore(&self, (flags, domid, gfn): (u16, DomId, u32)) {
        let in_use = gtf::READING | gtf::WRITING;
        let own = if self.status.is_some() {
            flags & !in_use
        } else {
            flags
        };
        match self.status {
            None => self
                .frame
                .atomic_u32(self.at + 4)
                .store(gfn, Ordering::SeqCst),
            Some(_) => {
                self.frame
                    .atomic_u64(self.at + 8)
                    .store(gfn.into(), Ordering::SeqCst);
                self.in_use().store(flags & in_use, Ordering::SeqCst);
            }
        }
        self.header()
            .store(u32::from(own) | u32::from(domid.0) << 16, Ordering::SeqCst);
    }

    /// Exchanges the contents of two entries, status included.
    pub fn swap(&self, other: &Entry<'_>) {
        let words = match self.status {
            None => 1,
            Some(_) => 2,
        };
        for word in 0..words {
            let a = self.frame.atomic_u64(self.at + word * 8);
            let b = other.frame.atomic_u64(other.at + word * 8);
            let old = a.load(Ordering::SeqCst);
            a.store(b.swap(old, Ordering::SeqCst), Ordering::SeqCst);
        }
        if self.status.is_some() {
            let old = self.in_use().load(Ordering::SeqCst);
            self.in_use()
                .store(other.in_use().swap(old, Ordering::SeqCst), Ordering::SeqCst);
        }
    }
}

const fn in_use_bits(write: bool) -> u16 {
    if write {
        gtf::READING | gtf::WRITING
    } else {
        gtf::READING
    }
}

/// Whether a header grants the request. Transitive grants are refused, as Xen does with `gnttab=no-transitive`.
fn check(header: u32, request: Request) -> Result<(), Status> {
    let (flags, domid) = (header as u16, DomId((header >> 16) as u16));
    let mut mask = gtf::TYPE_MASK;
    if request.map {
        mask |= gtf::SUB_PAGE;
    }
    let granted = request.pinned || flags & mask == gtf::PERMIT_ACCESS && domid == request.by;
    if granted && !(request.write && flags & gtf::READONLY != 0) {
        Ok(())
    } else {
        Err(Status(status::GENERAL_ERROR))
    }
}
