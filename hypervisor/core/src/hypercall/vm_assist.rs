//! `vm_assist` (21): cmd 0 enable, 1 disable; HVM callers have one type, the runstate update flag (5).

use core::sync::atomic::Ordering;

use xen_abi::Errno;

use super::{Call, HcResult};

/// Types that an HVM/PVH domain may use.
const VALID: u32 = 1 << 5;

/// `vm_assist`.
pub fn handle(call: &mut Call<'_, '_>, [cmd, ty, ..]: [u64; 5]) -> HcResult {
    if ty >= 32 || VALID >> ty & 1 == 0 {
        return Err(Errno::EINVAL);
    }
    let bits = &call.domain().vm_assist;
    match cmd {
        0 => bits.fetch_or(1 << ty, Ordering::Relaxed),
        1 => bits.fetch_and(!(1 << ty), Ordering::Relaxed),
        _ => return Err(Errno::ENOSYS),
    };
    Ok(0)
}
