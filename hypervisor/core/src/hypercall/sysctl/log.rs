//! The hypervisor's log and its debug keys.

use hv_hw::Machine;
use xen_abi::Errno;
use xen_abi::sysctl::{DebugKeys, ReadConsole};

use super::super::ptr;
use super::{Op, Result};

/// Bytes copied at a time.
const CHUNK: usize = 256;
/// Most bytes that one call gives; callers ask until nothing comes.
const MOST: u32 = 32768;

/// `readconsole`. The index is the low half of a position in the stream of all bytes.
pub fn read(o: &mut Op<'_, '_, '_>) -> Result {
    let mut a: ReadConsole = o.get()?;
    let hw = &o.call.hv().hw;
    let (_, end) = hw.log_read(u64::MAX, &mut []);
    let mut position = 0;
    if a.incremental != 0 {
        position = end & !0xffff_ffff | u64::from(a.index);
        if position > end {
            position = position.saturating_sub(1 << 32);
        }
    }
    let wanted = a.count.min(MOST) as usize;
    let mut done = 0;
    let mut chunk = [0; CHUNK];
    while done < wanted {
        let room = CHUNK.min(wanted - done);
        let (n, next) = hw.log_read(position, &mut chunk[..room]);
        if n == 0 {
            position = next;
            break;
        }
        let at = a.buffer.checked_add(done as u64).ok_or(Errno::EFAULT)?;
        o.call.memory().copy_out(ptr(at), &chunk[..n])?;
        done += n;
        position = next;
    }
    if a.clear != 0 {
        // Only what the caller has got: the next call tells the rest.
        hw.log_clear(position);
    }
    a.count = done as u32;
    a.index = position as u32;
    o.put(&a)
}

/// `debug_keys`: those of the console. E2BIG: more than a line of them.
pub fn keys(o: &mut Op<'_, '_, '_>) -> Result {
    const MOST_KEYS: u32 = 128;
    let a: DebugKeys = o.get()?;
    if a.nr_keys > MOST_KEYS {
        return Err(Errno::E2BIG);
    }
    for i in 0..u64::from(a.nr_keys) {
        let key: u8 = o.call.memory().read_at(ptr(a.keys), i)?;
        o.call.hv().debug_key(key);
    }
    Ok(())
}
