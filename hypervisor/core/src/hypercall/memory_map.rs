//! The memory maps that a domain may ask for.

use xen_abi::Errno;
use xen_abi::memory::{MemoryMap, ReservedDeviceMemoryMap};

use super::{Call, HcResult, ptr};

/// Bytes of an E820 entry (address, size, type without padding).
const ENTRY: u64 = 20;

/// `XENMEM_memory_map`: the caller's own map; as many entries as fit.
pub fn own(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let mut a: MemoryMap = call.memory().read(ptr(arg))?;
    let map = call.domain().memory_map.lock().clone();
    if map.is_empty() {
        return Err(Errno::ENOSYS);
    }
    let n = map.len().min(a.nr_entries as usize);
    for (i, r) in map[..n].iter().enumerate() {
        let mut entry = [0u8; ENTRY as usize];
        entry[0..8].copy_from_slice(&r.start.0.to_le_bytes());
        entry[8..16].copy_from_slice(&r.len.to_le_bytes());
        entry[16..20].copy_from_slice(&r.ty.to_le_bytes());
        let at = a
            .buffer
            .checked_add(i as u64 * ENTRY)
            .ok_or(Errno::EFAULT)?;
        call.memory().copy_out(ptr(at), &entry)?;
    }
    a.nr_entries = n as u32;
    call.memory().write(ptr(arg), &a)?;
    Ok(0)
}

/// `XENMEM_reserved_device_memory_map`: no device has reserved regions to report.
pub fn reserved_devices(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let mut a: ReservedDeviceMemoryMap = call.memory().read(ptr(arg))?;
    if a.flags & !1 != 0 {
        return Err(Errno::EINVAL);
    }
    a.nr_entries = 0;
    call.memory().write(ptr(arg), &a)?;
    Ok(0)
}
