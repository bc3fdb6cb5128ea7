//! The record of a vCPU's extended registers: XCR0, and the XSAVE area in its standard form.

use hv_hw::{GuestContext, Machine};
use x86_model::policy::xstate::{with_dependencies, xcr0_valid};
use x86_model::xsave;
use xen_abi::Errno;
use xen_abi::hvm::save::HwCpuXsave;
use zerocopy::{FromBytes, IntoBytes};

use crate::domain::Domain;
use crate::hypervisor::Hypervisor;
use crate::vcpu::VcpuLocal;

type Outcome<T> = core::result::Result<T, Errno>;

/// Bytes of the record before the area.
const BEFORE: usize = 24;
const XSAVE: (u32, usize, u32) = (1, 2, 26);

/// Whether this machine can hold such state at all.
pub fn possible(hv: &Hypervisor) -> bool {
    hv.hw.cpuid(XSAVE.0, 0)[XSAVE.1] & 1 << XSAVE.2 != 0
}

/// Components that the vCPU may have; 0 if its processor has no XSAVE.
fn allowed(local: &VcpuLocal) -> u64 {
    if local.cpuid.has(XSAVE.0, XSAVE.1, XSAVE.2) {
        local.xcr0_allowed
    } else {
        0
    }
}

fn area_size(local: &VcpuLocal, components: u64) -> usize {
    local.cpuid.xstates().size(components) as usize
}

/// Bytes of a domain's records at most.
pub fn max_size(hv: &Hypervisor, d: &Domain) -> usize {
    let size = if possible(hv) { d.xsave_size() } else { 0 };
    BEFORE + (size as usize).max(xsave::MIN)
}

/// Gives the record in pieces; none without XSAVE.
pub fn save(local: &VcpuLocal, out: &mut dyn FnMut(&[u8]) -> Outcome<()>) -> Outcome<()> {
    let allowed = allowed(local);
    if allowed == 0 {
        return Ok(());
    }
    let area = local.ctx.extended();
    // Before its first run a vCPU has no XCR0 of its own yet.
    let xcr0 = local.ctx.xcr0() & allowed | 1;
    // Registers can be in use that XCR0 does not enable: SSE always, others from before.
    let all = with_dependencies(xcr0 | xsave::components(area) & allowed);
    let area = area.get(..area_size(local, all)).ok_or(Errno::ENODATA)?;
    for word in [allowed, xcr0, all] {
        out(word.as_bytes())?;
    }
    out(area)
}

/// Takes the record over. EINVAL: components that the domain may not have, in a combination that the processor does not
/// take, or a length that does not fit them. EOPNOTSUPP: the compacted form, or more than there is room for. EIO: reserved
/// parts of the header in use.
pub fn load(local: &mut VcpuLocal, bytes: &[u8]) -> Outcome<()> {
    let (r, _) = HwCpuXsave::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
    let allowed = allowed(local);
    let all = r.xcr0_accum;
    if r.xstate_bv & !all != 0
        || r.xcr0 & !all != 0
        || !xcr0_valid(r.xcr0, allowed)
        || !xcr0_valid(all, allowed)
    {
        return Err(Errno::EINVAL);
    }
    if r.xcomp_bv != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if r.reserved != [0; 6] {
        return Err(Errno::EIO);
    }
    let size = BEFORE + area_size(local, all);
    let area = bytes.get(BEFORE..size).ok_or(Errno::EINVAL)?;
    // Old versions of Xen sent a longer area, with nothing in the rest.
    if bytes[size..].iter().any(|&b| b != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    local.ctx.set_xcr0(r.xcr0);
    local.ctx.set_extended(area);
    Ok(())
}
