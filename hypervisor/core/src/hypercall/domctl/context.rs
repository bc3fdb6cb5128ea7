//! A domain's saved hardware state: a list of records, each behind its descriptor (`XEN_DOMCTL_{get,set}hvmcontext`).

use alloc::vec::Vec;

use hv_hw::Machine;
use xen_abi::Errno;
use xen_abi::domctl::{HvmContext, HvmContextPartial};
use xen_abi::hvm::save::{HwCpu, HwMtrr, SaveDescriptor, SaveHeader, code, file};
use zerocopy::{FromBytes, IntoBytes};

use super::super::ptr;
use super::{Done, Op, Result, record};
use crate::domain::{Domain, DomainRef, Life};
use crate::hypervisor::Hypervisor;
use crate::vcpu::Vcpu;

const DESCRIPTOR: usize = size_of::<SaveDescriptor>();
/// Most bytes of records that are taken: far more than 128 vCPUs have.
const MAX_SIZE: u32 = 1 << 20;
/// Units of work per vCPU, for [`super::super::Call::spend`].
const VCPU_COST: u32 = 4;

/// Bytes of a domain's records at most.
fn size(d: &Domain) -> usize {
    let per_vcpu = 2 * DESCRIPTOR + size_of::<HwCpu>() + size_of::<HwMtrr>();
    2 * DESCRIPTOR + size_of::<SaveHeader>() + d.vcpus().len() * per_vcpu
}

fn push(
    out: &mut Vec<u8>,
    typecode: u16,
    instance: u32,
    record: &[u8],
) -> core::result::Result<(), Errno> {
    out.try_reserve(DESCRIPTOR + record.len())
        .map_err(|_| Errno::ENOMEM)?;
    let descriptor = SaveDescriptor {
        typecode,
        instance: instance as u16,
        length: record.len() as u32,
    };
    out.extend_from_slice(descriptor.as_bytes());
    out.extend_from_slice(record);
    Ok(())
}

fn header(hv: &Hypervisor) -> SaveHeader {
    SaveHeader {
        magic: file::MAGIC,
        version: file::VERSION,
        // Unknown.
        changeset: u64::MAX,
        cpuid: hv.hw.cpuid(1, 0)[0],
        gtsc_khz: hv.hw.tsc_khz(),
    }
}

fn cpu(hv: &Hypervisor, v: &Vcpu) -> core::result::Result<Option<HwCpu>, Errno> {
    // A vCPU that is down has no record; it stays down when the list is loaded.
    if !v.up.load(core::sync::atomic::Ordering::SeqCst) {
        return Ok(None);
    }
    hv.with_local(v, |local| record::save_cpu(hv, local))
        .map(Some)
}

fn mtrr(hv: &Hypervisor, d: &Domain, v: &Vcpu) -> core::result::Result<HwMtrr, Errno> {
    hv.with_local(v, |local| record::save_mtrr(d, local))
}

fn save(hv: &Hypervisor, d: &Domain) -> core::result::Result<Vec<u8>, Errno> {
    let mut out = Vec::new();
    push(&mut out, code::HEADER, 0, header(hv).as_bytes())?;
    for v in d.vcpus() {
        if let Some(r) = cpu(hv, v)? {
            push(&mut out, code::CPU, v.key.vcpu, r.as_bytes())?;
        }
    }
    for v in d.vcpus() {
        push(&mut out, code::MTRR, v.key.vcpu, mtrr(hv, d, v)?.as_bytes())?;
    }
    push(&mut out, code::END, 0, &[])?;
    Ok(out)
}

/// Runs `f` while the domain is held.
fn held<R>(
    hv: &Hypervisor,
    d: &Domain,
    f: impl FnOnce() -> core::result::Result<R, Errno>,
) -> core::result::Result<R, Errno> {
    hv.hold(d);
    let result = f();
    hv.let_go(d);
    result
}

/// `gethvmcontext`; a null buffer asks for the size.
pub fn get(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: HvmContext = o.get()?;
    o.not_self(d)?;
    let size = size(d);
    if a.buffer == 0 {
        a.size = size as u32;
        return o.put(&a);
    }
    if (a.size as usize) < size {
        return Err(Errno::ENOSPC);
    }
    if d.life() != Life::Alive {
        return Err(Errno::EINVAL);
    }
    let hv = o.call.hv();
    let records = held(hv, d, || save(hv, d))?;
    o.call.spend(VCPU_COST * d.max_vcpus());
    o.call.memory().copy_out(ptr(a.buffer), &records)?;
    a.size = records.len() as u32;
    o.put(&a)
}

/// `gethvmcontext_partial`: one record without its descriptor.
pub fn get_one(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: HvmContextPartial = o.get()?;
    o.not_self(d)?;
    let kind = u16::try_from(a.kind).map_err(|_| Errno::EINVAL)?;
    if d.life() != Life::Alive {
        return Err(Errno::EINVAL);
    }
    match kind {
        code::CPU | code::MTRR => {}
        // Records of devices that a PVH domain has not.
        3 | 4 | 7..=13 | 15 => return Err(Errno::ENOENT),
        _ => return Err(Errno::EINVAL),
    }
    let hv = o.call.hv();
    let v = d.vcpu(a.instance).ok_or(Errno::ENOENT)?;
    let mut out = Vec::new();
    held(hv, d, || {
        let r = match kind {
            code::CPU => cpu(hv, v)?.ok_or(Errno::ENODATA)?.as_bytes().to_vec(),
            _ => mtrr(hv, d, v)?.as_bytes().to_vec(),
        };
        out = r;
        Ok(())
    })?;
    if a.buffer != 0 {
        if a.bufsz < out.len() as u64 {
            return Err(Errno::ENOBUFS);
        }
        o.call.memory().copy_out(ptr(a.buffer), &out)?;
    }
    a.bufsz = out.len() as u64;
    o.put(&a)
}

/// `sethvmcontext`: takes all vCPUs down; those with a CPU record come up with it.
pub fn set(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let a: HvmContext = o.get()?;
    o.not_self(d)?;
    if a.size > MAX_SIZE {
        return Err(Errno::ENOMEM);
    }
    let mut records = Vec::new();
    records
        .try_reserve_exact(a.size as usize)
        .map_err(|_| Errno::ENOMEM)?;
    records.resize(a.size as usize, 0);
    o.call.memory().copy_in(ptr(a.buffer), &mut records)?;
    if d.life() != Life::Alive {
        return Err(Errno::EINVAL);
    }
    let hv = o.call.hv();
    held(hv, d, || load(hv, d, &records))?;
    o.call.spend(VCPU_COST * d.max_vcpus());
    Ok(Done::Quiet)
}

/// The next record: descriptor, contents, and what follows. ENODATA at the end of the bytes.
fn next(bytes: &[u8]) -> core::result::Result<(SaveDescriptor, &[u8], &[u8]), Errno> {
    let (descriptor, rest) = SaveDescriptor::read_from_prefix(bytes).map_err(|_| Errno::ENODATA)?;
    let (record, rest) = rest
        .split_at_checked(descriptor.length as usize)
        .ok_or(Errno::EINVAL)?;
    Ok((descriptor, record, rest))
}

fn load(hv: &Hypervisor, d: &Domain, bytes: &[u8]) -> core::result::Result<(), Errno> {
    let (descriptor, first, mut rest) = next(bytes).map_err(|_| Errno::ENODATA)?;
    if descriptor.typecode != code::HEADER {
        return Err(Errno::ENODATA);
    }
    let header = SaveHeader::read_from_bytes(first).map_err(|_| Errno::ENODATA)?;
    if header.magic != file::MAGIC || header.version != file::VERSION {
        return Err(Errno::EINVAL);
    }
    for v in d.vcpus() {
        hv.take_down(v);
    }
    loop {
        let (descriptor, record, after) = next(rest)?;
        if descriptor.typecode == code::END {
            return Ok(());
        }
        let v = d.vcpu(descriptor.instance.into()).ok_or(Errno::EINVAL);
        match descriptor.typecode {
            code::CPU => {
                let r = cpu_record(record)?;
                record::load_cpu(hv, d, v?, &r)?;
            }
            code::MTRR => {
                let r = HwMtrr::read_from_bytes(record).map_err(|_| Errno::EINVAL)?;
                record::load_mtrr(hv, d, v?, &r)?;
            }
            _ => return Err(Errno::EINVAL),
        }
        rest = after;
    }
}

/// A CPU record, which older tools leave shorter.
fn cpu_record(bytes: &[u8]) -> core::result::Result<HwCpu, Errno> {
    let mut r = HwCpu::default();
    let room = r.as_mut_bytes();
    let room = room.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?;
    room.copy_from_slice(bytes);
    Ok(r)
}
