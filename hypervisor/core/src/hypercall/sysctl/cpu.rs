//! The processors' features, as toolstacks level them.

use hv_hw::Machine;
use x86_model::policy::features::Regs;
use xen_abi::sysctl::{CpuFeatureset, CpuPolicy, cpu_policy, featureset};
use xen_abi::{DomId, Errno};

use super::super::domctl::policy::{MAX_LEAVES, MAX_MSRS, write_leaves, write_msrs};
use super::super::ptr;
use super::{Op, Result};
use crate::domain;
use crate::hvm::cpuid::{CpuidTable, Live};
use crate::hypervisor::Hypervisor;

/// Words of a feature set of Xen 4.17: leaf, subleaf, register. The last two are halves of an MSR that no domain has.
const WORDS: [(u32, u32, usize); 16] = [
    (1, 0, 3),
    (1, 0, 2),
    (0x8000_0001, 0, 3),
    (0x8000_0001, 0, 2),
    (0xd, 1, 0),
    (7, 0, 1),
    (7, 0, 2),
    (0x8000_0007, 0, 3),
    (0x8000_0008, 0, 1),
    (7, 0, 3),
    (7, 1, 0),
    (0x8000_0021, 0, 0),
    (7, 1, 1),
    (7, 2, 3),
    (7, 1, 2),
    (7, 1, 3),
];
/// Number of words.
const COUNT: u32 = 18;

fn words(lookup: impl Fn(u32, u32) -> Regs) -> [u32; COUNT as usize] {
    let mut out = [0; COUNT as usize];
    for (slot, (leaf, sub, reg)) in out.iter_mut().zip(WORDS) {
        *slot = lookup(leaf, sub)[reg];
    }
    out
}

/// The host's own features. Leaves beyond its limits are zero.
pub fn host_words(hv: &Hypervisor) -> [u32; COUNT as usize] {
    words(|leaf, sub| host(hv, leaf, sub))
}

fn host(hv: &Hypervisor, leaf: u32, sub: u32) -> Regs {
    let limit = hv.hw.cpuid(leaf & 0x8000_0000, 0)[0];
    if leaf > limit || leaf == 7 && sub > hv.hw.cpuid(7, 0)[0] {
        return [0; 4];
    }
    hv.hw.cpuid(leaf, sub)
}

/// What a domain with one vCPU sees.
fn guest(hv: &Hypervisor) -> CpuidTable {
    let version = (hv.identity.major, hv.identity.minor);
    let policy = domain::CpuPolicy::new(&hv.hw, DomId::INVALID, 1, version, false);
    policy.table(&hv.hw, 0)
}

fn shown(table: &CpuidTable) -> impl Fn(u32, u32) -> Regs + '_ {
    let live = Live {
        apic_on: true,
        ..Live::default()
    };
    move |leaf, sub| table.lookup(leaf, sub, &live)
}

/// `get_cpu_featureset`; a null list asks for the number of words. ENOBUFS: there are more words than room, but those that
/// fit are written.
pub fn featureset(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: CpuFeatureset = o.get()?;
    if a.features == 0 {
        a.nr_features = COUNT;
        return o.put(&a);
    }
    let hv = o.call.hv();
    let set = match a.index {
        featureset::RAW | featureset::HOST => host_words(hv),
        featureset::HVM | featureset::HVM_MAX => words(shown(&guest(hv))),
        featureset::PV | featureset::PV_MAX => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    };
    let fits = a.nr_features.min(COUNT);
    for (i, word) in (0..fits.into()).zip(set) {
        o.call.memory().write_at(ptr(a.features), i, &word)?;
    }
    a.nr_features = fits;
    o.put(&a)?;
    if fits < COUNT {
        return Err(Errno::ENOBUFS);
    }
    Ok(())
}

/// `get_cpu_policy`; null lists ask for the room that is needed.
pub fn policy(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: CpuPolicy = o.get()?;
    let hv = o.call.hv();
    if a._rsvd != 0 || a.index > cpu_policy::HVM_DEFAULT {
        return Err(Errno::EINVAL);
    }
    if matches!(a.index, cpu_policy::PV_MAX | cpu_policy::PV_DEFAULT) {
        return Err(Errno::EOPNOTSUPP);
    }
    let of_host = matches!(a.index, cpu_policy::RAW | cpu_policy::HOST);
    a.nr_leaves = match a.leaves {
        0 => MAX_LEAVES,
        at if of_host => write_leaves(o.call, |l, s| host(hv, l, s), at, a.nr_leaves)?,
        at => write_leaves(o.call, shown(&guest(hv)), at, a.nr_leaves)?,
    };
    a.nr_msrs = match a.msrs {
        0 => MAX_MSRS,
        at => write_msrs(o.call, at, a.nr_msrs)?,
    };
    o.put(&a)
}
