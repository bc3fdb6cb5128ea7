//! The hypervisor's log and its debug keys.

use core::sync::atomic::Ordering;

use hv_hw::Machine;
use hv_hw::mem::{free_frames, total_frames};
use xen_abi::sysctl::{DebugKeys, ReadConsole};
use xen_abi::{DomId, Errno};

use super::super::ptr;
use super::{Op, Result};
use crate::hypervisor::Hypervisor;
use crate::vcpu::run::sleep_name;

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

/// `debug_keys`. E2BIG: more than a line of them.
pub fn keys(o: &mut Op<'_, '_, '_>) -> Result {
    const MOST_KEYS: u32 = 128;
    let a: DebugKeys = o.get()?;
    if a.nr_keys > MOST_KEYS {
        return Err(Errno::E2BIG);
    }
    for i in 0..u64::from(a.nr_keys) {
        let key: u8 = o.call.memory().read_at(ptr(a.keys), i)?;
        press(o.call.hv(), key);
    }
    Ok(())
}

fn press(hv: &Hypervisor, key: u8) {
    match key {
        b'h' => {
            hv_hw::info!("'h' pressed -> showing installed handlers");
            hv_hw::info!(" key 'h' (ascii '68') => show this message");
            hv_hw::info!(" key 'm' (ascii '6d') => memory info");
            hv_hw::info!(" key 'q' (ascii '71') => dump domain info");
        }
        b'm' => {
            let (free, total) = (free_frames(), total_frames());
            hv_hw::info!("memory: {free} of {total} frames are free");
        }
        b'q' => domains(hv),
        _ => hv_hw::info!(
            "'{}' pressed: no such key",
            char::from(key).escape_default()
        ),
    }
}

/// All domains and vCPUs.
fn domains(hv: &Hypervisor) {
    let mut next = hv.next_domain(DomId::DOM0);
    while let Some(d) = next {
        hv_hw::info!(
            "{}: {:?}, {} of {} pages, {} vCPUs, shutdown {:?}, held {}",
            d.id,
            d.life(),
            d.p2m.pages(),
            d.max_pages(),
            d.max_vcpus(),
            d.shutdown_reason(),
            d.is_paused()
        );
        for v in d.vcpus() {
            hv_hw::info!(
                "  {}: up {}, {}, holds {}, {} exits, {} hypercalls",
                v.key,
                v.up.load(Ordering::Relaxed),
                sleep_name(v.sleep.load(Ordering::Relaxed)),
                v.pause.load(Ordering::Relaxed),
                v.stats.exits(),
                v.stats.hypercalls()
            );
        }
        next = hv.next_domain(DomId(d.id.0 + 1));
    }
}
