//! Guest memory by linear or guest-physical address: translated with the caller's paging state, checked, copied by value
//! once. No reference into guest memory exists; reading twice shows as two calls.

use core::ops::Range;

use alloc::vec::Vec;
use hv_hw::machine::PagingState;
use hv_hw::mem::FrameRef;
use x86_model::walk::{self, Access, PagingInputs, WalkFault};
use x86_model::{Gfn, Gpa, Gva, PAGE_SIZE, Width};
use xen_abi::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::p2m::P2m;
use crate::vcpu::info::FrameAt;

/// Access to one domain's memory as one vCPU sees it now. Cheap to make; keep it no longer than one exit.
pub struct GuestAccess<'a> {
    p2m: &'a P2m,
    inputs: PagingInputs,
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
        GuestAccess { p2m, inputs }
    }

    /// Translates one linear address.
    #[inline]
    pub fn translate(&self, gva: Gva, access: Access) -> Result<Gpa, WalkFault> {
        walk::walk(&self.inputs, gva, access, |gpa, width| {
            self.read_entry(gpa, width)
        })
        .map(|t| t.gpa)
    }

    #[inline]
    fn read_entry(&self, gpa: Gpa, width: Width) -> Option<u64> {
        let (frame, _) = self.p2m.frame(gpa.gfn())?;
        let offset = gpa.page_offset() as usize;
        Some(match width {
            Width::B8 => frame
                .atomic_u64(offset & !7)
                .load(core::sync::atomic::Ordering::Relaxed),
            _ => u64::from(
                frame
                    .atomic_u32(offset & !3)
                    .load(core::sync::atomic::Ordering::Relaxed),
            ),
        })
    }

    /// The frame behind a linear address, for `access`.
    fn frame(&self, gva: Gva, access: Access) -> Result<(FrameRef, usize), Errno> {
        let gpa = self.translate(gva, access).map_err(|_| Errno::EFAULT)?;
        let (frame, writable) = self.p2m.frame(gpa.gfn()).ok_or(Errno::EFAULT)?;
        if access.write && !writable {
            return Err(Errno::EFAULT);
        }
        Ok((frame, gpa.page_offset() as usize))
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
            let (frame, offset) = self.frame(at, access)?;
            let n = (PAGE_SIZE as usize - offset).min(len - done);
            f(&frame, offset, done..done + n);
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
            let Ok((frame, offset)) = self.frame(at, Access::FETCH.at_cpl(cpl)) else {
                break;
            };
            let n = (PAGE_SIZE as usize - offset).min(buf.len() - done);
            frame.read(offset, &mut buf[done..done + n]);
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
