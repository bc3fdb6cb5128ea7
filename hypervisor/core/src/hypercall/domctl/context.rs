//! A domain's saved hardware state: a list of records, each behind its descriptor (`XEN_DOMCTL_{get,set}hvmcontext`).

use alloc::vec::Vec;

use hv_hw::Machine;
use xen_abi::Errno;
use xen_abi::domctl::{HvmContext, HvmContextPartial};
use xen_abi::hvm::save::{
    HwCpu, HwIsaIrqs, HwLapic, HwLapicRegs, HwMsr, HwMtrr, HwPciIrqs, HwPciLink, HwTscAdjust,
    HwVmce, SaveDescriptor, SaveHeader, code, file,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::super::ptr;
use super::{Done, Op, Result, record, xsave};
use crate::domain::{Domain, DomainRef, Life};
use crate::hvm::vlapic::Clocks;
use crate::hypervisor::Hypervisor;
use crate::vcpu::{Vcpu, VcpuLocal, VcpuRef};

type Outcome<T> = core::result::Result<T, Errno>;

const DESCRIPTOR: usize = size_of::<SaveDescriptor>();
/// Most bytes of records that are taken: more than 128 vCPUs have.
const MAX_SIZE: u32 = 2 << 20;
/// Units of work per vCPU, for [`super::super::Call::spend`].
const VCPU_COST: u32 = 12;
/// Records of each vCPU.
const OF_VCPUS: [u16; 8] = [
    code::CPU,
    code::LAPIC,
    code::LAPIC_REGS,
    code::MTRR,
    code::CPU_XSAVE,
    code::VMCE_VCPU,
    code::TSC_ADJUST,
    code::CPU_MSR,
];
/// Records of the domain's wires: a PVH domain has none, but Xen tells their levels.
const OF_WIRES: [u16; 3] = [code::PCI_IRQ, code::ISA_IRQ, code::PCI_LINK];
/// Capabilities of virtual machine checks that a record may claim: the number of banks, and a control register.
const MCG_CAP: u64 = 0x1ff;

/// Bytes of a domain's records at most.
fn size(hv: &Hypervisor, d: &Domain) -> usize {
    let of_vcpu = size_of::<HwCpu>()
        + size_of::<HwLapic>()
        + size_of::<HwLapicRegs>()
        + size_of::<HwMtrr>()
        + xsave::max_size(hv, d)
        + size_of::<HwVmce>()
        + size_of::<HwTscAdjust>()
        + 8
        + record::SENT_MSRS.len() * size_of::<HwMsr>();
    let of_wires = size_of::<HwPciIrqs>() + size_of::<HwIsaIrqs>() + size_of::<HwPciLink>();
    (2 + OF_WIRES.len()) * DESCRIPTOR
        + size_of::<SaveHeader>()
        + of_wires
        + d.vcpus().len() * (OF_VCPUS.len() * DESCRIPTOR + of_vcpu)
}

fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Outcome<()> {
    out.try_reserve(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn push(out: &mut Vec<u8>, typecode: u16, instance: u32, record: &[u8]) -> Outcome<()> {
    let descriptor = SaveDescriptor {
        typecode,
        instance: instance as u16,
        length: record.len() as u32,
    };
    append(out, descriptor.as_bytes())?;
    append(out, record)
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

fn clocks(hv: &Hypervisor, local: &VcpuLocal) -> Clocks {
    Clocks {
        now_ns: hv.hw.now_ns(),
        guest_tsc: hv.hw.tsc().wrapping_add(local.tsc_offset),
    }
}

/// A record of a vCPU; nothing if this vCPU has none.
fn of_vcpu(hv: &Hypervisor, d: &Domain, v: &Vcpu, kind: u16) -> Outcome<Vec<u8>> {
    let mut out = Vec::new();
    // A vCPU that is down has no registers to tell; it stays down when the list is loaded.
    let down = !v.up.load(core::sync::atomic::Ordering::SeqCst);
    hv.with_local(v, |local| match kind {
        code::CPU if down => Ok(()),
        code::CPU => append(&mut out, record::save_cpu(hv, local).as_bytes()),
        code::LAPIC => append(&mut out, local.lapic.save_hidden().as_bytes()),
        code::LAPIC_REGS => {
            local.merge_posted(v);
            local.take_tpr();
            let regs = local.lapic.save_regs(clocks(hv, local));
            append(&mut out, regs.as_bytes())
        }
        code::MTRR => append(&mut out, record::save_mtrr(d, local).as_bytes()),
        code::CPU_XSAVE => xsave::save(local, &mut |b| append(&mut out, b)),
        // There are no banks.
        code::VMCE_VCPU => append(&mut out, HwVmce::default().as_bytes()),
        code::TSC_ADJUST => {
            let tsc_adjust = local.msrs.tsc_adjust;
            append(&mut out, HwTscAdjust { tsc_adjust }.as_bytes())
        }
        _ => record::save_msrs(d, local, &mut |b| append(&mut out, b)),
    })??;
    Ok(out)
}

fn of_wires(kind: u16) -> &'static [u8] {
    match kind {
        code::PCI_IRQ => &[0; size_of::<HwPciIrqs>()],
        code::ISA_IRQ => &[0; size_of::<HwIsaIrqs>()],
        _ => &[0; size_of::<HwPciLink>()],
    }
}

/// All records, by type and then by vCPU.
fn save(hv: &Hypervisor, d: &Domain) -> Outcome<Vec<u8>> {
    let mut out = Vec::new();
    push(&mut out, code::HEADER, 0, header(hv).as_bytes())?;
    for kind in code::CPU..=code::MAX {
        if OF_WIRES.contains(&kind) {
            push(&mut out, kind, 0, of_wires(kind))?;
        }
        if !OF_VCPUS.contains(&kind) {
            continue;
        }
        for v in d.vcpus() {
            let record = of_vcpu(hv, d, v, kind)?;
            if !record.is_empty() {
                push(&mut out, kind, v.key.vcpu, &record)?;
            }
        }
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
    let size = size(o.call.hv(), d);
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
    let hv = o.call.hv();
    let out = match kind {
        _ if OF_VCPUS.contains(&kind) => {
            let v = d.vcpu(a.instance).ok_or(Errno::ENOENT)?;
            let record = held(hv, d, || of_vcpu(hv, d, v, kind))?;
            o.call.spend(VCPU_COST);
            if record.is_empty() {
                return Err(Errno::ENODATA);
            }
            record
        }
        code::VIRIDIAN_VCPU => {
            let absent = d.vcpu(a.instance).is_none();
            return Err(if absent {
                Errno::ENOENT
            } else {
                Errno::ENODATA
            });
        }
        _ if OF_WIRES.contains(&kind) && a.instance == 0 => {
            let mut out = Vec::new();
            append(&mut out, of_wires(kind))?;
            out
        }
        // Records of devices that a PVH domain has not.
        code::CPU..=code::MAX => return Err(Errno::ENOENT),
        _ => return Err(Errno::EINVAL),
    };
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

/// The record that a descriptor stands before, and what follows it. `None` if there are not so many bytes.
fn body<'a>(descriptor: &SaveDescriptor, rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    rest.split_at_checked(descriptor.length as usize)
}

fn load(hv: &Hypervisor, d: &Domain, bytes: &[u8]) -> Outcome<()> {
    let (descriptor, rest) = SaveDescriptor::read_from_prefix(bytes).map_err(|_| Errno::ENODATA)?;
    let (first, mut rest) = body(&descriptor, rest).ok_or(Errno::ENODATA)?;
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
        let (descriptor, after) =
            SaveDescriptor::read_from_prefix(rest).map_err(|_| Errno::ENODATA)?;
        if descriptor.typecode == code::END {
            return Ok(());
        }
        rest = load_one(hv, d, &descriptor, after)?;
    }
}

/// Takes one record over; what follows it. The order of the checks is Xen's.
fn load_one<'a>(
    hv: &Hypervisor,
    d: &Domain,
    descriptor: &SaveDescriptor,
    rest: &'a [u8],
) -> Outcome<&'a [u8]> {
    let kind = descriptor.typecode;
    match kind {
        // Devices that a PVH domain has not.
        code::PIC | code::IOAPIC | code::PIT..=code::PMTIMER => return Err(Errno::ENODEV),
        _ if OF_WIRES.contains(&kind) => {
            let (record, rest) = body(descriptor, rest).ok_or(Errno::EINVAL)?;
            load_wires(kind, record)?;
            return Ok(rest);
        }
        _ if OF_VCPUS.contains(&kind) => {}
        _ => return Err(Errno::EINVAL),
    }
    let v = d.vcpu(descriptor.instance.into()).ok_or(Errno::EINVAL)?;
    if kind == code::CPU_XSAVE && !xsave::possible(hv) {
        return Err(Errno::EOPNOTSUPP);
    }
    let variable = matches!(kind, code::CPU_XSAVE | code::CPU_MSR);
    let short = if variable {
        Errno::ENODATA
    } else {
        Errno::EINVAL
    };
    let (record, rest) = body(descriptor, rest).ok_or(short)?;
    load_of_vcpu(hv, d, v, kind, record)?;
    Ok(rest)
}

fn load_of_vcpu(hv: &Hypervisor, d: &Domain, v: &VcpuRef, kind: u16, bytes: &[u8]) -> Outcome<()> {
    match kind {
        code::CPU => record::load_cpu(hv, d, v, &cpu_record(bytes)?),
        code::MTRR => record::load_mtrr(hv, d, v, &exactly(bytes)?),
        _ => hv.with_local(v, |local| match kind {
            code::LAPIC => local
                .lapic
                .load_hidden(&extended(bytes)?)
                .map_err(|_| Errno::EINVAL),
            code::LAPIC_REGS => {
                let clocks = clocks(hv, local);
                local.lapic.load_regs(&exactly(bytes)?, clocks);
                local.show_tpr();
                Ok(())
            }
            code::CPU_XSAVE => xsave::load(local, bytes),
            code::VMCE_VCPU => {
                let r: HwVmce = extended(bytes)?;
                if r.caps & !MCG_CAP != 0 {
                    return Err(Errno::EINVAL);
                }
                Ok(())
            }
            code::TSC_ADJUST => {
                local.msrs.tsc_adjust = exactly::<HwTscAdjust>(bytes)?.tsc_adjust;
                Ok(())
            }
            _ => record::load_msrs(d, local, bytes),
        })?,
    }
}

/// Levels of wires that lead nowhere.
fn load_wires(kind: u16, bytes: &[u8]) -> Outcome<()> {
    match kind {
        code::PCI_IRQ => exactly::<HwPciIrqs>(bytes).map(|_| ()),
        code::ISA_IRQ => exactly::<HwIsaIrqs>(bytes).map(|_| ()),
        _ => {
            let links: HwPciLink = exactly(bytes)?;
            if links.route.iter().any(|&line| line > 15) {
                return Err(Errno::EINVAL);
            }
            Ok(())
        }
    }
}

/// A record that has its full length.
fn exactly<T: FromBytes>(bytes: &[u8]) -> Outcome<T> {
    T::read_from_bytes(bytes).map_err(|_| Errno::EINVAL)
}

/// A record that may be shorter, with zeroes to follow.
fn extended<T: FromBytes + IntoBytes + Immutable>(bytes: &[u8]) -> Outcome<T> {
    let mut r = T::new_zeroed();
    let room = r.as_mut_bytes();
    let room = room.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?;
    room.copy_from_slice(bytes);
    Ok(r)
}

/// A CPU record. Older tools leave it shorter, without flags: then there is floating-point state. The oldest have no TSC_AUX,
/// and what follows it stands eight bytes lower.
fn cpu_record(bytes: &[u8]) -> Outcome<HwCpu> {
    const OLDEST: usize = 1016;
    let mut r: HwCpu = extended(bytes)?;
    if bytes.len() == OLDEST {
        r.error_code = (r.tsc >> 32) as u32;
        r.pending_event = r.tsc as u32;
        r.tsc = core::mem::take(&mut r.msr_tsc_aux);
    }
    if bytes.len() < size_of::<HwCpu>() {
        r.flags = xen_abi::hvm::save::cpu_flags::FPU_INITIALISED;
        r._pad0 = 0;
    }
    Ok(r)
}
