//! The memory maps that a domain may ask for.

use alloc::vec::Vec;

use x86_model::Gpa;
use xen_abi::Errno;
use xen_abi::memory::{E820Entry, ForeignMemoryMap, MemoryMap, ReservedDeviceMemoryMap, rdm};

use super::{Call, HcResult, ptr};
use crate::domain::MemoryRange;

/// Most entries of a map that the control domain sets (as the BIOS interface has room for).
const MAX_ENTRIES: u32 = 128;

/// Bytes of an E820 entry (address, size, type without padding).
const ENTRY: u64 = 20;

/// `XENMEM_memory_map`: the caller's own map; as many entries as fit.
pub fn own(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let mut a: MemoryMap = call.read(arg)?;
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
    call.write(arg, &a)?;
    Ok(0)
}

/// `XENMEM_set_memory_map`: the map that [`own`] will give to a domain.
pub fn set(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    call.privileged()?;
    let a: ForeignMemoryMap = call.read(arg)?;
    if a.map.nr_entries > MAX_ENTRIES {
        return Err(Errno::EINVAL);
    }
    let target = call.target(a.domid)?;
    let mut map = Vec::new();
    map.try_reserve_exact(a.map.nr_entries as usize)
        .map_err(|_| Errno::ENOMEM)?;
    for i in 0..u64::from(a.map.nr_entries) {
        let entry: E820Entry = call.memory().read_at(ptr(a.map.buffer), i)?;
        map.push(MemoryRange {
            start: Gpa(entry.addr.get()),
            len: entry.size.get(),
            ty: entry.kind.get(),
        });
    }
    *target.memory_map.lock() = map;
    Ok(0)
}

/// `XENMEM_reserved_device_memory_map`: no device has reserved regions to report.
pub fn reserved_devices(call: &mut Call<'_, '_>, arg: u64) -> HcResult {
    let mut a: ReservedDeviceMemoryMap = call.read(arg)?;
    if a.flags & !rdm::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    a.nr_entries = 0;
    call.write(arg, &a)?;
    Ok(0)
}
