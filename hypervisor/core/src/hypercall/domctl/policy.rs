//! CPU policies as the toolstack sees them: lists of CPUID leaves and MSRs (`XEN_DOMCTL_{get,set}_cpu_policy`).
//!
//! A domain shows what the machine has and the hypervisor can give; the toolstack can only take away. What follows from the
//! number of vCPUs (APIC ids, topology, cache sharing) is the hypervisor's alone, whatever the list says.

use alloc::vec::Vec;

use hv_hw::GuestContext;
use x86_model::policy::features::Regs;
use xen_abi::Errno;
use xen_abi::domctl::{CpuPolicy, CpuidLeaf, MsrEntry, policy};

use super::super::{Call, ptr};
use super::{Done, Op, Result};
use crate::domain::DomainRef;
use crate::hvm::cpuid::Live;
use crate::hvm::cr;

/// Most leaves of a policy, as Xen 4.17 has room for: 14 basic ones with 5 further caches, 2 feature, 1 topology and 62 state
/// subleaves, 34 extended ones, and two limits of hypervisor leaves.
pub const MAX_LEAVES: u32 = 120;
/// MSRs of a policy: PLATFORM_INFO and ARCH_CAPABILITIES.
pub const MAX_MSRS: u32 = 2;

const PLATFORM_INFO: u32 = 0xce;
const ARCH_CAPABILITIES: u32 = 0x10a;
/// No MSR or leaf to blame.
const NONE: u32 = u32::MAX;
/// Highest basic leaf, number of subleaves by leaf, highest extended leaf that a list may name.
const LAST_BASIC: u32 = 0xd;
const LAST_EXTENDED: u32 = 0x8000_0021;

const fn subleaves(leaf: u32) -> Option<u32> {
    match leaf {
        4 => Some(6),
        7 => Some(3),
        0xb => Some(2),
        0xd => Some(63),
        _ => None,
    }
}

/// The leaves that `lookup` has, in Xen's order: those up to each range's limit, zeroes included.
fn serialise(lookup: impl Fn(u32, u32) -> Regs, mut each: impl FnMut(CpuidLeaf)) {
    let mut put = |leaf, subleaf| {
        let [a, b, c, d] = lookup(leaf, if subleaf == NONE { 0 } else { subleaf });
        each(CpuidLeaf {
            leaf,
            subleaf,
            a,
            b,
            c,
            d,
        });
        a
    };
    let states = {
        let [low, .., high] = lookup(0xd, 0);
        u64::from(high) << 32 | u64::from(low)
    };
    let last = lookup(0, 0)[0].min(LAST_BASIC);
    for leaf in 0..=last {
        match leaf {
            4 => {
                for sub in 0..6 {
                    // A cache of type 0 ends the list.
                    if put(leaf, sub) & 0x1f == 0 {
                        break;
                    }
                }
            }
            7 => {
                for sub in 0..=lookup(7, 0)[0].min(2) {
                    put(leaf, sub);
                }
            }
            0xb => {
                put(leaf, 0);
                put(leaf, 1);
            }
            0xd => {
                put(leaf, 0);
                put(leaf, 1);
                for sub in (2..63).filter(|n| states >> n & 1 != 0) {
                    put(leaf, sub);
                }
            }
            _ => {
                put(leaf, NONE);
            }
        }
    }
    // Limits of the hypervisor's own leaves; 0: the usual.
    for leaf in [0x4000_0000, 0x4000_0100] {
        each(CpuidLeaf {
            leaf,
            subleaf: policy::NO_SUBLEAF,
            ..Default::default()
        });
    }
    let mut put = |leaf| {
        let [a, b, c, d] = lookup(leaf, 0);
        each(CpuidLeaf {
            leaf,
            subleaf: policy::NO_SUBLEAF,
            a,
            b,
            c,
            d,
        });
    };
    for leaf in 0x8000_0000..=lookup(0x8000_0000, 0)[0].min(LAST_EXTENDED) {
        put(leaf);
    }
}

/// Writes the leaves that `lookup` has to the caller. ENOBUFS: more than `room`; EFAULT. Returns how many.
pub fn write_leaves(
    call: &Call<'_, '_>,
    lookup: impl Fn(u32, u32) -> Regs,
    at: u64,
    room: u32,
) -> core::result::Result<u32, Errno> {
    let mut written = 0;
    let mut result = Ok(());
    serialise(lookup, |leaf| {
        if result.is_err() {
            return;
        }
        result = if written == room {
            Err(Errno::ENOBUFS)
        } else {
            call.memory().write_at(ptr(at), written.into(), &leaf)
        };
        written += 1;
    });
    result.map(|()| written)
}

/// Writes the MSRs of a policy: no domain has CPUID faulting or capabilities. As [`write_leaves`].
pub fn write_msrs(call: &Call<'_, '_>, at: u64, room: u32) -> core::result::Result<u32, Errno> {
    if room < MAX_MSRS {
        return Err(Errno::ENOBUFS);
    }
    for (i, idx) in (0..).zip([PLATFORM_INFO, ARCH_CAPABILITIES]) {
        let entry = MsrEntry {
            idx,
            ..Default::default()
        };
        call.memory().write_at(ptr(at), i, &entry)?;
    }
    Ok(MAX_MSRS)
}

/// `get_cpu_policy`. Null lists ask for the room that is needed.
pub fn get(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: CpuPolicy = o.get()?;
    let table = d.cpuid_table(&o.call.hv().hw, 0);
    a.nr_leaves = if a.leaves == 0 {
        MAX_LEAVES
    } else {
        let live = Live {
            apic_on: true,
            ..Live::default()
        };
        let lookup = |leaf, sub| table.lookup(leaf, sub, &live);
        write_leaves(o.call, lookup, a.leaves, a.nr_leaves)?
    };
    a.nr_msrs = if a.msrs == 0 {
        MAX_MSRS
    } else {
        write_msrs(o.call, a.msrs, a.nr_msrs)?
    };
    o.put(&a)
}

/// What is wrong with a list.
struct Refusal {
    errno: Errno,
    leaf: (u32, u32),
    msr: u32,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Refusal {
            errno,
            leaf: (NONE, NONE),
            msr: NONE,
        }
    }
}

fn bad_leaf(errno: Errno, leaf: u32, subleaf: u32) -> Refusal {
    Refusal {
        leaf: (leaf, subleaf),
        ..errno.into()
    }
}

fn read_leaves(o: &Op<'_, '_, '_>, a: &CpuPolicy) -> core::result::Result<Vec<CpuidLeaf>, Refusal> {
    if a.nr_leaves > MAX_LEAVES || a.nr_msrs > MAX_MSRS {
        return Err(Errno::E2BIG.into());
    }
    let mut leaves = Vec::new();
    leaves
        .try_reserve_exact(a.nr_leaves as usize)
        .map_err(|_| Errno::ENOMEM)?;
    for i in 0..u64::from(a.nr_leaves) {
        let l: CpuidLeaf = o.call.memory().read_at(ptr(a.leaves), i)?;
        let known = matches!(
            l.leaf,
            0..=LAST_BASIC | 0x4000_0000 | 0x4000_0100 | 0x8000_0000..=LAST_EXTENDED
        );
        let sub_ok = match subleaves(l.leaf) {
            Some(n) => l.subleaf < n,
            None => l.subleaf == policy::NO_SUBLEAF,
        };
        if !known || !sub_ok {
            return Err(bad_leaf(Errno::ERANGE, l.leaf, l.subleaf));
        }
        leaves.push(l);
    }
    for i in 0..u64::from(a.nr_msrs) {
        let m: MsrEntry = o.call.memory().read_at(ptr(a.msrs), i)?;
        let bad = |errno| Refusal {
            msr: m.idx,
            ..Refusal::from(errno)
        };
        if m.flags != 0 {
            return Err(bad(Errno::EINVAL));
        }
        match m.idx {
            PLATFORM_INFO | ARCH_CAPABILITIES if m.val == 0 => {}
            PLATFORM_INFO | ARCH_CAPABILITIES => return Err(bad(Errno::EINVAL)),
            _ => return Err(bad(Errno::ERANGE)),
        }
    }
    Ok(leaves)
}

/// `set_cpu_policy`, before the domain first runs.
pub fn set(o: &mut Op<'_, '_, '_>, d: &DomainRef) -> Result {
    let mut a: CpuPolicy = o.get()?;
    o.not_self(d)?;
    if d.has_started() {
        return Err(Errno::EEXIST);
    }
    (a.err_leaf, a.err_subleaf, a.err_msr) = (NONE, NONE, NONE);
    let hv = o.call.hv();
    hv.hold(d);
    let applied = apply(o, d, &a);
    hv.let_go(d);
    match applied {
        Ok(()) => o.put(&a),
        Err(refusal) => {
            (a.err_leaf, a.err_subleaf) = refusal.leaf;
            a.err_msr = refusal.msr;
            o.put(&a)?;
            o.failed = Some(refusal.errno);
            Ok(Done::Answer)
        }
    }
}

fn apply(o: &Op<'_, '_, '_>, d: &DomainRef, a: &CpuPolicy) -> core::result::Result<(), Refusal> {
    let leaves = read_leaves(o, a)?;
    let hv = o.call.hv();
    let ours = d.cpuid_table(&hv.hw, 0);
    let limit = |leaf| ours.lookup(leaf, 0, &Live::default())[0];
    for l in &leaves {
        let over = match (l.leaf, l.subleaf) {
            (0 | 0x8000_0000, _) => l.a > limit(l.leaf),
            (7, 0) => l.a > limit(7),
            _ => false,
        };
        if over {
            return Err(bad_leaf(Errno::EINVAL, l.leaf, l.subleaf));
        }
    }
    *d.cpuid_allowed.lock() = leaves;
    for v in d.vcpus() {
        let table = d.cpuid_table(&hv.hw, v.key.vcpu);
        hv.with_local(v, |local| {
            local.cr4_allowed = cr::allowed_cr4(|leaf, reg, bit| table.has(leaf, reg, bit));
            local.cpuid = table;
            // Nothing runs yet, so no register holds what was just taken away.
            debug_assert_eq!(local.ctx.paging().cr4 & !local.cr4_allowed, 0);
        })?;
    }
    Ok(())
}
