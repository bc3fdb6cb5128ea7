//! `XEN_DOMCTL_createdomain`: what may be asked for, and the domain that comes of it.

use alloc::vec::Vec;

use hv_hw::Machine;
use xen_abi::domctl::{CreateDomain, CreateDomain17, cdf, emu, misc, version};
use xen_abi::{DomId, Errno};

use super::{Done, Op, Result};
use crate::domain::{CpuPolicy, Domain, DomainConfig, DomainSetup};
use crate::evtchn::MAX_VCPUS;
use crate::grant::{HANDLES_PER_FRAME, Limits};
use crate::hypervisor::Hypervisor;
use crate::irq::pirq::Pirqs;
use crate::p2m::P2m;

/// Frames for the tables of a new domain's memory map (as Xen gives a domain with nested paging).
pub const TABLE_FRAMES: usize = 256;
/// Bits of [`CreateDomain17::altp2m_opts`] that name a mode.
const ALTP2M_MODE: u32 = 3;
/// Bits of `grant_opts` that name a version.
const GRANT_VERSION: u32 = 0xf;

/// What the toolstack asks for, in terms of the newest layout.
pub fn parse(o: &Op<'_, '_, '_>) -> core::result::Result<CreateDomain17, Errno> {
    if o.arg.interface_version >= version::XEN_4_19 {
        return o.get();
    }
    let c: CreateDomain = o.get()?;
    Ok(CreateDomain17 {
        ssidref: c.ssidref,
        handle: c.handle,
        flags: c.flags,
        iommu_opts: c.iommu_opts,
        max_vcpus: c.max_vcpus,
        max_evtchn_port: c.max_evtchn_port,
        max_grant_frames: c.max_grant_frames,
        max_maptrack_frames: c.max_maptrack_frames,
        grant_opts: c.grant_opts,
        altp2m_opts: 0,
        vmtrace_size: c.vmtrace_size,
        cpupool_id: c.cpupool_id,
        arch: c.arch,
    })
}

fn need(ok: bool, errno: Errno) -> core::result::Result<(), Errno> {
    if ok { Ok(()) } else { Err(errno) }
}

/// Refuses what there is not, with Xen's numbers and in its order.
fn check(c: &CreateDomain17, most: Limits) -> core::result::Result<DomainConfig, Errno> {
    let known = cdf::HVM
        | cdf::HAP
        | cdf::S3_INTEGRITY
        | cdf::OOS_OFF
        | cdf::XS_DOMAIN
        | cdf::IOMMU
        | cdf::NESTED_VIRT
        | cdf::VPMU;
    // PV, shadow paging, device assignment, nested virtualization and shared counters are not there.
    let absent = cdf::S3_INTEGRITY | cdf::IOMMU | cdf::NESTED_VIRT | cdf::VPMU;
    let wanted = cdf::HVM | cdf::HAP;
    need(c.flags & !known == 0, Errno::EINVAL)?;
    need(c.grant_opts & !GRANT_VERSION == 0, Errno::EINVAL)?;
    need((1..=MAX_VCPUS).contains(&c.max_vcpus), Errno::EINVAL)?;
    need(
        c.flags & absent == 0 && c.flags & wanted == wanted,
        Errno::EINVAL,
    )?;
    need(c.iommu_opts == 0 && c.vmtrace_size == 0, Errno::EINVAL)?;
    need(c.altp2m_opts & !ALTP2M_MODE == 0, Errno::EINVAL)?;
    need(c.altp2m_opts == 0, Errno::EINVAL)?;
    let options = misc::MSR_RELAXED | misc::NO_ASSISTED_XAPIC | misc::NO_ASSISTED_X2APIC;
    need(c.arch.misc_flags & !options == 0, Errno::EINVAL)?;
    let grants = grant_limits(c, most)?;
    // The other selections are for HVM and for a PVH dom0. Xen has pirqs with the former only.
    need(
        c.arch.emulation_flags & !emu::USE_PIRQ == emu::LAPIC,
        Errno::EOPNOTSUPP,
    )?;
    // Pool 0 is the only one.
    need(c.cpupool_id == 0, Errno::ESRCH)?;
    Ok(DomainConfig {
        flags: c.flags,
        emulation: c.arch.emulation_flags,
        misc: c.arch.misc_flags,
        ssidref: c.ssidref,
        max_ports: c.max_evtchn_port.saturating_add(1),
        grants,
    })
}

fn grant_limits(c: &CreateDomain17, most: Limits) -> core::result::Result<Limits, Errno> {
    let version = c.grant_opts & GRANT_VERSION;
    need((1..=most.max_version).contains(&version), Errno::EINVAL)?;
    let frames = u32::try_from(c.max_grant_frames).unwrap_or(most.max_frames);
    let handles = match u32::try_from(c.max_maptrack_frames) {
        Ok(frames) => frames.checked_mul(HANDLES_PER_FRAME).ok_or(Errno::EINVAL)?,
        Err(_) => most.max_handles,
    };
    need(
        (1..=most.max_frames).contains(&frames) && handles <= most.max_handles,
        Errno::EINVAL,
    )?;
    Ok(Limits {
        max_frames: frames,
        max_handles: handles,
        max_version: version,
    })
}

/// An identifier for a new domain: the one asked for, or the next free one after the last that was given. EEXIST; ENOMEM:
/// all are in use.
fn choose_id(hv: &Hypervisor, asked: DomId, last: &mut u16) -> core::result::Result<DomId, Errno> {
    let free = |id: u16| hv.domain(DomId(id)).is_none();
    if asked != DomId::DOM0 && asked.is_ordinary() {
        return if free(asked.0) {
            Ok(asked)
        } else {
            Err(Errno::EEXIST)
        };
    }
    let end = DomId::FIRST_RESERVED.0;
    let id = (*last + 1..end)
        .chain(1..(*last + 1).min(end))
        .find(|&id| free(id))
        .ok_or(Errno::ENOMEM)?;
    *last = id;
    Ok(DomId(id))
}

/// Makes a domain without vCPUs and memory, held until the toolstack lets it go.
pub fn create(o: &mut Op<'_, '_, '_>) -> Result {
    let asked = parse(o)?;
    let hv = o.call.hv();
    let id = choose_id(hv, o.arg.domain, &mut o.control.last_id)?;
    let config = check(&asked, hv.grant_limits)?;
    let p2m = P2m::new(id, hv.hw.stage2_format(), hv.hw.phys_bits(), Vec::new())?;
    p2m.stage2().set_table_limit(TABLE_FRAMES);
    let version = (hv.identity.major, hv.identity.minor);
    let setup = DomainSetup {
        id,
        privileged: false,
        handle: asked.handle,
        memory_map: Vec::new(),
        max_pages: 0,
        vcpus: asked.max_vcpus,
        config,
        cpu: CpuPolicy::new(&hv.hw, id, asked.max_vcpus, version, false),
        io_bitmap: None,
        platform: None,
        // It has no lines: only messages.
        pirqs: (config.emulation & emu::USE_PIRQ != 0).then(|| Pirqs::new(0)),
    };
    let domain = Domain::new(&hv.hw, setup, p2m)?;
    hv.pause_new(&domain);
    domain.publish_wallclock(hv.wallclock());
    hv.add_domain(domain)?;
    o.arg.domain = id;
    Ok(Done::Answer)
}
