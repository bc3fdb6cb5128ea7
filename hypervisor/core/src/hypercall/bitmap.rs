//! Sets of CPUs and nodes in the toolstack's form (`xenctl_bitmap`).

use hv_hw::machine::CpuId;
use xen_abi::Errno;
use xen_abi::domctl::CtlBitmap;

use super::{Call, ptr};
use crate::sched::{CpuMask, MAX_CPUS};

/// Bytes of the largest set that is kept.
const BYTES: usize = MAX_CPUS.div_ceil(8) as usize;

/// Reads a set; members that do not fit are left out. EFAULT.
pub fn read(call: &Call<'_, '_>, from: &CtlBitmap) -> Result<CpuMask, Errno> {
    let mut bytes = [0u8; BYTES];
    let len = (from.nr_bits.div_ceil(8) as usize).min(BYTES);
    call.memory().copy_in(ptr(from.bitmap), &mut bytes[..len])?;
    let mut mask = CpuMask::NONE;
    for n in 0..from.nr_bits.min(MAX_CPUS) {
        if bytes[n as usize / 8] >> (n % 8) & 1 != 0 {
            mask.set(CpuId(n));
        }
    }
    Ok(mask)
}

/// Writes a set, with zeroes behind it as far as the caller's goes. EFAULT; E2BIG: the caller's is absurdly long.
pub fn write(call: &Call<'_, '_>, to: &CtlBitmap, mask: &CpuMask) -> Result<(), Errno> {
    /// More bytes than any set that a toolstack makes.
    const MOST: usize = 4096;
    let len = to.nr_bits.div_ceil(8) as usize;
    if len > MOST {
        return Err(Errno::E2BIG);
    }
    let mut bytes = [0u8; MOST];
    for cpu in mask.iter(to.nr_bits) {
        bytes[cpu.0 as usize / 8] |= 1 << (cpu.0 % 8);
    }
    call.memory().copy_out(ptr(to.bitmap), &bytes[..len])
}
