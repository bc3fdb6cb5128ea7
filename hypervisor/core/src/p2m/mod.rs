//! A domain's physical-to-machine map: which machine frame backs each guest frame, and as what.
//!
//! Owned by the domain. Look-ups are lock-free; changes are serialised inside the stage-2 tree (rank P2M). Every mapped
//! RAM frame is held by one reference. Where an identity-mapped domain gave a page up, only the frame with that number may
//! come back (DMA needs gfn == mfn): while another domain has it, the page cannot be populated.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

mod claim;
pub mod huge;
mod populate;

use hv_hw::mem::stage2::{Format, Leaf};
use hv_hw::mem::{FrameRef, FrameRun, Perms, RawRun, Stage2, Stage2Error};
use hv_hw::sync::{SpinLock, rank};
use x86_model::apic::DEFAULT_BASE;
use x86_model::{Gfn, Mfn, PAGE_SIZE};
use xen_abi::{DomId, Errno};

/// What backs a guest frame. The discriminant is the stage-2 tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageType {
    /// The domain's own RAM.
    Ram = 1,
    /// Device memory, passed through.
    Mmio = 2,
    /// Another domain's page, mapped by privilege.
    Foreign = 3,
    /// Another domain's page, mapped by grant.
    Grant = 4,
    /// A page that the hypervisor shares with the domain (shared_info, grant table frames).
    Shared = 5,
}

impl PageType {
    const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Ram),
            2 => Some(Self::Mmio),
            3 => Some(Self::Foreign),
            4 => Some(Self::Grant),
            5 => Some(Self::Shared),
            _ => None,
        }
    }
    /// Whether guest frames of this type are backed by counted memory.
    pub const fn is_memory(self) -> bool {
        !matches!(self, Self::Mmio)
    }
}

/// Tag of a page that belongs to none of the types.
const UNTYPED: u8 = 0;

/// Frames `start .. end` in which gfn == mfn, whether mapped or ballooned out.
pub type IdentityRange = core::ops::Range<u64>;

/// The map.
pub struct P2m {
    stage2: Stage2,
    owner: DomId,
    identity: Vec<IdentityRange>,
    max_gfn: AtomicU64,
    phys_bits: u8,
    /// Pages of RAM that the domain has (mapped ones; ballooned-out pages do not count), and those of `huge`.
    pages: AtomicUsize,
    /// Pages of them that are not there yet.
    coming: AtomicUsize,
    /// Free frames that are set aside for the domain.
    claimed: AtomicUsize,
    /// A 1 GiB page in the making.
    huge: SpinLock<Option<Huge>, { rank::DEVICE }>,
}

/// A 1 GiB page that is zeroed in pieces, and where it will be.
struct Huge {
    at: Gfn,
    run: RawRun,
}

impl From<Stage2Error> for P2mError {
    fn from(e: Stage2Error) -> Self {
        match e {
            Stage2Error::NoMemory => P2mError(Errno::ENOMEM),
            Stage2Error::BadFrame | Stage2Error::Occupied => P2mError(Errno::EINVAL),
        }
    }
}

/// Wrapper so that `?` turns tree errors into the errno that callers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct P2mError(pub Errno);

impl From<P2mError> for Errno {
    fn from(e: P2mError) -> Errno {
        e.0
    }
}

impl P2m {
    /// An empty map for `owner` with guest-physical addresses of `phys_bits` bits.
    pub fn new(
        owner: DomId,
        format: Format,
        phys_bits: u8,
        identity: Vec<IdentityRange>,
    ) -> Result<Self, P2mError> {
        Ok(P2m {
            stage2: Stage2::new(format)?,
            owner,
            identity,
            max_gfn: AtomicU64::new(0),
            phys_bits: phys_bits.clamp(32, 48),
            pages: AtomicUsize::new(0),
            coming: AtomicUsize::new(0),
            claimed: AtomicUsize::new(0),
            huge: SpinLock::new(None),
        })
    }

    /// The hardware tree.
    pub fn stage2(&self) -> &Stage2 {
        &self.stage2
    }

    /// RAM pages mapped.
    pub fn pages(&self) -> usize {
        let coming = self.coming.load(Ordering::Relaxed);
        self.pages.load(Ordering::Relaxed).saturating_sub(coming)
    }

    /// Highest guest frame that was ever mapped.
    pub fn max_gfn(&self) -> Gfn {
        Gfn(self.max_gfn.load(Ordering::Relaxed))
    }

    /// Bits of the domain's physical addresses.
    pub fn phys_bits(&self) -> u8 {
        self.phys_bits
    }

    /// Whether the domain keeps frames at their own addresses.
    pub fn has_identity(&self) -> bool {
        !self.identity.is_empty()
    }

    /// Whether a guest frame number can be mapped at all.
    pub fn in_range(&self, gfn: Gfn) -> bool {
        gfn.0 >> (u32::from(self.phys_bits) - 12) == 0
    }

    /// Whether `gfn` belongs to the domain's identity-mapped frames.
    pub fn is_identity(&self, gfn: Gfn) -> bool {
        self.identity.iter().any(|r| r.contains(&gfn.0))
    }

    /// The type of a guest frame; `None` for a hole.
    pub fn page_type(&self, gfn: Gfn) -> Option<PageType> {
        self.stage2
            .lookup(gfn)
            .and_then(|l| PageType::from_tag(l.tag))
    }

    /// The memory behind a guest frame and whether the guest may write it. `None` for holes and device memory.
    #[inline]
    pub fn frame(&self, gfn: Gfn) -> Option<(FrameRef, bool)> {
        loop {
            let generation = self.stage2.generation();
            let leaf = self.stage2.lookup(gfn)?;
            if !PageType::from_tag(leaf.tag)?.is_memory() {
                return None;
            }
            let frame = FrameRef::get(leaf.mfn)?;
            // The frame could have been unmapped, freed and reused between the look-up and the reference. The tree's
            // generation rises after the unmapping and before the freeing, so this read sees it.
            if self.stage2.generation() == generation
                || self
                    .stage2
                    .lookup(gfn)
                    .is_some_and(|again| again.mfn == leaf.mfn)
            {
                return Some((frame, leaf.perms.write));
            }
        }
    }

    /// Like [`P2m::frame`], but only for the domain's own RAM or shared pages.
    pub fn own_frame(&self, gfn: Gfn) -> Option<FrameRef> {
        match self.page_type(gfn)? {
            PageType::Ram | PageType::Shared => self.frame(gfn).map(|(f, _)| f),
            _ => None,
        }
    }

    fn note(&self, gfn: Gfn, order: u8) {
        self.max_gfn
            .fetch_max(gfn.0 + (1 << order) - 1, Ordering::Relaxed);
    }

    /// Maps the domain's own identity frames `first .. first + (1 << order)` as RAM. The frames must have been claimed.
    pub fn map_identity_ram(&self, first: Gfn, order: u8) -> Result<(), P2mError> {
        let old = self
            .stage2
            .map(first, Mfn(first.0), order, Perms::RAM, PageType::Ram as u8)?;
        self.dropped(old);
        self.pages.fetch_add(1 << order, Ordering::Relaxed);
        self.note(first, order);
        Ok(())
    }

    /// Maps device memory one to one (superpages where the order says so).
    pub fn map_mmio(&self, gfn: Gfn, order: u8) -> Result<(), P2mError> {
        if !self.in_range(gfn) {
            return Err(P2mError(Errno::EINVAL));
        }
        let old = self
            .stage2
            .map(gfn, Mfn(gfn.0), order, Perms::MMIO, PageType::Mmio as u8)?;
        self.dropped(old);
        Ok(())
    }

    /// Maps a page at the address of the local APICs' registers, for a processor that tells accesses to it from others. The
    /// caller keeps it as long as the map. It is no memory of the domain's, and a hole to all hypercalls; to a vCPU it is memory
    /// while the processor handles x2APIC mode for it, so no other domain may have the same one (XSA-412).
    pub fn map_apic_page(&self) -> Result<FrameRef, P2mError> {
        let page = FrameRef::alloc(self.owner).ok_or(P2mError(Errno::ENOMEM))?;
        // What nothing at all would read as.
        page.write(0, &[0xff; PAGE_SIZE as usize]);
        let gfn = Gfn(DEFAULT_BASE / PAGE_SIZE);
        let perms = Perms {
            exec: false,
            ..Perms::RAM
        };
        self.stage2.map(gfn, page.mfn(), 0, perms, UNTYPED)?;
        Ok(page)
    }

    /// Puts memory at `gfn`, taking over the reference. Returns what was there, under the rule of [`P2m::unmap`].
    pub fn map(
        &self,
        gfn: Gfn,
        frame: FrameRef,
        ty: PageType,
        write: bool,
    ) -> Result<Option<Removed>, P2mError> {
        if !self.in_range(gfn) {
            return Err(P2mError(Errno::EINVAL));
        }
        let perms = if write { Perms::RAM } else { Perms::RO };
        let mfn = frame.mfn();
        let old = self.stage2.map(gfn, mfn, 0, perms, ty as u8)?;
        // From here on the tree owns the reference.
        let _ = frame.into_raw();
        if ty == PageType::Ram {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
        self.note(gfn, 0);
        Ok(self.take(old))
    }

    /// Makes `gfn` a hole. Returns what was there. The caller flushes before the frame may be reused: see
    /// [`crate::hypervisor::Hypervisor::flush_domain`]; the returned frame keeps it alive until then.
    pub fn unmap(&self, gfn: Gfn) -> Result<Option<Removed>, P2mError> {
        let old = self.stage2.unmap(gfn)?;
        Ok(self.take(old))
    }

    fn dropped(&self, old: Option<Leaf>) {
        drop(self.take(old));
    }

    fn take(&self, old: Option<Leaf>) -> Option<Removed> {
        let leaf = old?;
        let ty = PageType::from_tag(leaf.tag)?;
        if ty == PageType::Ram {
            self.pages.fetch_sub(1 << leaf.order, Ordering::Relaxed);
        }
        let counted = ty.is_memory();
        Some(Removed {
            ty,
            mfn: leaf.mfn,
            frame: (counted && leaf.order == 0).then(|| FrameRef::from_raw(leaf.mfn)),
            run: (counted && leaf.order != 0).then(|| FrameRun::from_raw(leaf.mfn, leaf.order)),
        })
    }
}

impl Drop for P2m {
    /// Gives up the references that the map holds. Nothing runs on the tree any more: its domain is gone.
    fn drop(&mut self) {
        self.end_claim();
        self.drop_huge();
        let mut from = Some(Gfn(0));
        while let Some(at) = from {
            from = self.release(at, u32::MAX);
        }
    }
}

/// A mapping that was removed; holds the frame's reference, if it had one, until dropped.
#[derive(Debug)]
pub struct Removed {
    /// What it was.
    pub ty: PageType,
    /// The frame.
    pub mfn: Mfn,
    /// The reference that the map held, of a base page.
    pub frame: Option<FrameRef>,
    /// The references that it held, of a superpage.
    pub run: Option<FrameRun>,
}
