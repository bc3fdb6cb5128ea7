//! Guest memory by linear or guest-physical address: translated with the caller's paging state, checked, copied by value
//! once. No reference into guest memory exists; reading twice shows as two calls.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::Ordering;

use alloc::vec::Vec;
use hv_hw::machine::PagingState;
use hv_hw::mem::FrameRef;
use x86_model::walk::{self, Access, PagingInputs, WalkFault};
use x86_model::{Gfn, Gpa, Gva, PAGE_SIZE, Width};
use xen_abi::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::walk_cache::{self, Key, Step, WalkCache, Walked};
use crate::p2m::P2m;
use crate::vcpu::info::FrameAt;

/// Access to one domain's memory as one vCPU sees it now. Cheap to make; keep it no longer than one exit.
pub struct GuestAccess<'a> {
    p2m: &'a P2m,
    inputs: PagingInputs,
    cache: Option<&'a RefCell<WalkCache>>,
}

impl<'a> GuestAccess<'a> {
    /// Access with the paging state of a vCPU.
    pub fn new(p2m: &'a P2m, paging: &PagingState, phys_bits: u8) -> Self {
        let inputs = PagingInputs {
            cr0: paging.cr0,
            cr3: paging.cr3,
            cr4: paging.cr4,
            efer: paging.efer,
            ac: paging.rflags & 1 << 18 != 0,
            phys_bits,
        };
        GuestAccess {
            p2m,
            inputs,
            cache: None,
        }
    }

    /// The same, with the vCPU's memory of recent translations.
    pub fn cached(self, cache: &'a RefCell<WalkCache>) -> Self {
        GuestAccess {
            cache: Some(cache),
            ..self
        }
    }

    /// Translates one linear address.
    #[inline]
    pub fn translate(&self, gva: Gva, access: Access) -> Result<Gpa, WalkFault> {
        walk::walk(&self.inputs, gva, access, |gpa, width| {
            self.read_entry(gpa, width)
        })
        .map(|t| t.gpa)
    }

    /// As [`Self::translate`] for a read by the kernel; tells `each` the guest-physical address and the value of every
    /// page-table entry on the way, `None` for one outside the domain's memory. For dumps.
    pub fn translate_telling(
        &self,
        gva: Gva,
        mut each: impl FnMut(Gpa, Option<u64>),
    ) -> Result<Gpa, WalkFault> {
        walk::walk(&self.inputs, gva, Self::kernel(false), |gpa, width| {
            let entry = self.read_entry(gpa, width);
            each(gpa, entry);
            entry
        })
        .map(|t| t.gpa)
    }

    #[inline]
    fn read_entry(&self, gpa: Gpa, width: Width) -> Option<u64> {
        let (frame, _) = self.p2m.frame(gpa.gfn())?;
        let offset = gpa.page_offset() as usize;
        Some(match width {
            Width::B8 => frame.atomic_u64(offset & !7).load(Ordering::Relaxed),
            _ => read_u32(&frame, offset),
        })
    }

    /// Calls `f` with the frame behind a linear address, if `access` is allowed, and the offset in it.
    #[inline]
    fn with_frame<R>(
        &self,
        gva: Gva,
        access: Access,
        f: impl FnOnce(&FrameRef, usize) -> R,
    ) -> Result<R, Errno> {
        let key = Key {
            inputs: self.inputs,
            page: gva.0 >> 12,
            access,
        };
        let generation = self.p2m.stage2().generation();
        let offset = gva.page_offset() as usize;
        match self.cache.map(RefCell::try_borrow_mut) {
            Some(Ok(mut cache)) => {
                if let Some(frame) = cache.get(generation, &key) {
                    return Ok(f(frame, offset));
                }
                Ok(f(cache.put(self.walk(generation, key)?), offset))
            }
            _ => Ok(f(&self.walk(generation, key)?.frame, offset)),
        }
    }

    /// Walks the guest's tables for a page. `generation` was read before.
    #[cold]
    fn walk(&self, generation: u64, key: Key) -> Result<Walked, Errno> {
        let mut steps = [const { None }; walk_cache::LEVELS];
        let mut n = 0;
        let mut cacheable = true;
        let gpa = walk::walk(
            &key.inputs,
            Gva(key.page << 12),
            key.access,
            |gpa, width| {
                let (frame, _) = self.p2m.frame(gpa.gfn())?;
                let offset = gpa.page_offset() as usize;
                if width != Width::B8 {
                    cacheable = false;
                    return Some(read_u32(&frame, offset));
                }
                let entry = frame.atomic_u64(offset & !7).load(Ordering::Relaxed);
                if let Some(slot) = steps.get_mut(n) {
                    n += 1;
                    *slot = Some(Step {
                        frame,
                        offset: offset & !7,
                        entry,
                    });
                }
                Some(entry)
            },
        )
        .map_err(|_| Errno::EFAULT)?
        .gpa;
        let (frame, writable) = self.p2m.frame(gpa.gfn()).ok_or(Errno::EFAULT)?;
        if key.access.write && !writable {
            return Err(Errno::EFAULT);
        }
        Ok(Walked {
            // Generations start at 1: this one never matches.
            generation: if cacheable { generation } else { 0 },
            key,
            steps,
            frame,
        })
    }

    /// Calls `f` for every piece of `gva .. gva + len` that lies in one page, in order.
    fn pieces(
        &self,
        gva: Gva,
        len: usize,
        access: Access,
        mut f: impl FnMut(&FrameRef, usize, Range<usize>),
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            let at = gva.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let n = (PAGE_SIZE - at.page_offset()).min((len - done) as u64) as usize;
            self.with_frame(at, access, |frame, offset| {
                f(frame, offset, done..done + n);
            })?;
            done += n;
        }
        Ok(())
    }

    fn kernel(write: bool) -> Access {
        // Hypercall buffers are accessed as supervisor; SMAP is not enforced, since the caller asked for the access.
        let base = if write { Access::WRITE } else { Access::READ };
        Access {
            ignore_smap: true,
            ..base
        }
    }

    /// Copies bytes from the guest.
    pub fn copy_in(&self, gva: Gva, buf: &mut [u8]) -> Result<(), Errno> {
        let len = buf.len();
        self.pieces(gva, len, Self::kernel(false), |frame, offset, range| {
            frame.read(offset, &mut buf[range])
        })
    }

    /// Copies bytes to the guest.
    pub fn copy_out(&self, gva: Gva, buf: &[u8]) -> Result<(), Errno> {
        self.pieces(
            gva,
            buf.len(),
            Self::kernel(true),
            |frame, offset, range| frame.write(offset, &buf[range]),
        )
    }

    /// Checks that a later [`GuestAccess::copy_out`] of `len` bytes can succeed, before side effects are made.
    pub fn probe_out(&self, gva: Gva, len: usize) -> Result<(), Errno> {
        self.pieces(gva, len, Self::kernel(true), |_, _, _| ())
    }

    /// Reads one structure.
    #[inline]
    pub fn read<T: FromBytes + IntoBytes + FromZeros>(&self, gva: Gva) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.copy_in(gva, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes one structure.
    pub fn write<T: IntoBytes + Immutable>(&self, gva: Gva, value: &T) -> Result<(), Errno> {
        self.copy_out(gva, value.as_bytes())
    }

    /// Reads entry `index` of an array of structures.
    pub fn read_at<T: FromBytes + IntoBytes>(&self, base: Gva, index: u64) -> Result<T, Errno> {
        self.read(Self::element::<T>(base, index)?)
    }

    /// Writes entry `index` of an array of structures.
    pub fn write_at<T: IntoBytes + Immutable>(
        &self,
        base: Gva,
        index: u64,
        value: &T,
    ) -> Result<(), Errno> {
        self.write(Self::element::<T>(base, index)?, value)
    }

    fn element<T>(base: Gva, index: u64) -> Result<Gva, Errno> {
        let offset = index
            .checked_mul(size_of::<T>() as u64)
            .ok_or(Errno::EFAULT)?;
        base.checked_add(offset).ok_or(Errno::EFAULT)
    }

    /// Copies instruction bytes at a linear address; returns how many could be read (fewer at the end of a mapping).
    pub fn fetch(&self, gva: Gva, buf: &mut [u8], cpl: u8) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = gva.checked_add(done as u64) else {
                break;
            };
            let n = (PAGE_SIZE - at.page_offset()).min((buf.len() - done) as u64) as usize;
            let part = &mut buf[done..done + n];
            let access = Access::FETCH.at_cpl(cpl);
            if self
                .with_frame(at, access, |frame, offset| frame.read(offset, part))
                .is_err()
            {
                break;
            }
            done += n;
        }
        done
    }

    /// Translates a buffer once and keeps its frames, for areas that are updated while another address space is active.
    pub fn pin(&self, gva: Gva, len: usize) -> Result<Vec<(FrameAt, usize)>, Errno> {
        let mut parts = Vec::new();
        self.pieces(gva, len, Self::kernel(true), |frame, offset, range| {
            parts.push((
                FrameAt {
                    frame: frame.clone(),
                    offset,
                },
                range.len(),
            ));
        })?;
        Ok(parts)
    }

    /// The domain's map.
    pub fn p2m(&self) -> &'a P2m {
        self.p2m
    }

    /// Copies from guest-physical memory.
    pub fn read_phys(&self, gpa: Gpa, buf: &mut [u8]) -> Result<(), Errno> {
        phys_pieces(self.p2m, gpa, buf.len(), |frame, _, offset, range| {
            frame.read(offset, &mut buf[range]);
            Ok(())
        })
    }
}

fn read_u32(frame: &FrameRef, offset: usize) -> u64 {
    frame.atomic_u32(offset & !3).load(Ordering::Relaxed).into()
}

/// Calls `f(frame, writable, offset, range)` for each page piece of a guest-physical range.
fn phys_pieces(
    p2m: &P2m,
    gpa: Gpa,
    len: usize,
    mut f: impl FnMut(&FrameRef, bool, usize, Range<usize>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let at = gpa.checked_add(done as u64).ok_or(Errno::EFAULT)?;
        let (frame, writable) = p2m.frame(Gfn(at.0 >> 12)).ok_or(Errno::EFAULT)?;
        let offset = at.page_offset() as usize;
        let n = (PAGE_SIZE as usize - offset).min(len - done);
        f(&frame, writable, offset, done..done + n)?;
        done += n;
    }
    Ok(())
}

/// Copies to a domain's guest-physical memory (domain building).
pub fn write_phys(p2m: &P2m, gpa: Gpa, buf: &[u8]) -> Result<(), Errno> {
    phys_pieces(p2m, gpa, buf.len(), |frame, _, offset, range| {
        frame.write(offset, &buf[range]);
        Ok(())
    })
}
