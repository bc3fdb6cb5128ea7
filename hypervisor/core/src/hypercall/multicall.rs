//! `multicall` (13): a list of hypercalls in one.
//!
//! Entry: op 0:8, result 8:8, args 16:48 (`multicall_entry`, `xen.h`).

use xen_abi::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Call, HcResult, call_number, ptr, ret};
use crate::vcpu::exits::Next;

#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    op: u64,
    result: u64,
    args: [u64; 6],
}

/// `multicall(list, count)`.
pub fn handle(call: &mut Call<'_, '_>, [list, count, ..]: [u64; 5]) -> HcResult {
    for i in 0..count {
        if call.should_restart() {
            let at = list.wrapping_add(i * size_of::<Entry>() as u64);
            return call.restart([at, count - i, 0, 0, 0]);
        }
        let mut entry: Entry = call.memory().read_at(ptr(list), i)?;
        let [a, b, c, d, e, _] = entry.args;
        // A multicall inside a multicall would recurse as deep as the guest likes.
        let result = if entry.op == 13 {
            Err(Errno::EINVAL)
        } else {
            call_number(call, entry.op, [a, b, c, d, e], true)
        };
        if let Some([a, b, c, d, e]) = call.restart.take() {
            // The inner call wants to restart: store its progress in the entry and run the entry again.
            entry.args = [a, b, c, d, e, entry.args[5]];
            call.memory().write_at(ptr(list), i, &entry)?;
            let at = list.wrapping_add(i * size_of::<Entry>() as u64);
            return call.restart([at, count - i, 0, 0, 0]);
        }
        entry.result = ret(result) as u64;
        call.memory().write_at(ptr(list), i, &entry)?;
        if call.next != Next::Continue && i + 1 < count {
            let at = list.wrapping_add((i + 1) * size_of::<Entry>() as u64);
            return call.restart([at, count - i - 1, 0, 0, 0]);
        }
    }
    Ok(0)
}
