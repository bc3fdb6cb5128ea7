//! `multicall` (13): a list of hypercalls in one.

use xen_abi::Errno;
use xen_abi::hypercall::MulticallEntry;

use super::{Call, HcResult, call_number, ret};
use crate::vcpu::exits::Next;

/// `multicall(list, count)`.
pub fn handle(call: &mut Call<'_, '_>, [list, count, ..]: [u64; 5]) -> HcResult {
    let long = call.is_long();
    // Where the list goes on after a restart.
    let behind = |call: &Call<'_, '_>, i: u64| {
        list.wrapping_add(i.wrapping_mul(call.size::<MulticallEntry>() as u64))
    };
    for i in 0..count {
        if call.should_restart() {
            return call.restart([behind(call, i), count - i, 0, 0, 0]);
        }
        let at = call.entry::<MulticallEntry>(list, i)?;
        let mut entry: MulticallEntry = call.read(at)?;
        let [a, b, c, d, e, _] = entry.args;
        // A multicall inside a multicall would recurse as deep as the guest likes.
        let result = if entry.op == 13 {
            Err(Errno::EINVAL)
        } else {
            call_number(call, entry.op, [a, b, c, d, e], long)
        };
        if let Some([a, b, c, d, e]) = call.restart.take() {
            // The inner call wants to restart: store its progress in the entry and run the entry again.
            entry.args = [a, b, c, d, e, entry.args[5]];
            call.write(at, &entry)?;
            return call.restart([behind(call, i), count - i, 0, 0, 0]);
        }
        entry.result = ret(result) as u64;
        call.write(at, &entry)?;
        if call.next != Next::Continue && i + 1 < count {
            return call.restart([behind(call, i + 1), count - i - 1, 0, 0, 0]);
        }
    }
    Ok(0)
}
