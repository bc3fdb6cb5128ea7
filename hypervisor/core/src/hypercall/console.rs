//! `console_io` (18): raw output to and input from the hypervisor's console, for the control domain.

use xen_abi::Errno;
use xen_abi::console::io;

use super::{Call, HcResult, ptr};

/// Bytes moved in one piece.
const CHUNK: usize = 256;

/// `console_io`: (0, count, buffer) writes, (1, count, buffer) reads.
pub fn handle(call: &mut Call<'_, '_>, [cmd, count, buffer, ..]: [u64; 5]) -> HcResult {
    // Xen takes both as 32-bit numbers.
    let count = count as u32 as usize;
    if !call.domain().privileged && cfg!(CONFIG_VERBOSE_DEBUG) && cmd as u32 == io::WRITE {
        return message(call, count, buffer);
    }
    call.privileged()?;
    match cmd as u32 {
        io::WRITE => write(call, count, buffer),
        io::READ if count > i32::MAX as usize => Err(Errno::E2BIG),
        io::READ => read(call, count, buffer),
        _ => Err(Errno::ENOSYS),
    }
}

fn write(call: &mut Call<'_, '_>, count: usize, buffer: u64) -> HcResult {
    let mut done = 0;
    let mut chunk = [0u8; CHUNK];
    while done < count {
        let n = CHUNK.min(count - done);
        let at = ptr(buffer.checked_add(done as u64).ok_or(Errno::EFAULT)?);
        call.memory().copy_in(at, &mut chunk[..n])?;
        call.hv().guest_output(&chunk[..n]);
        done += n;
        // A serial line is slow: let interrupts in after every few pieces.
        if done < count && done % (8 * CHUNK) == 0 {
            return call.restart([
                0,
                (count - done) as u64,
                buffer.wrapping_add(done as u64),
                0,
                0,
            ]);
        }
    }
    Ok(0)
}

/// A message of another domain, which builds with `CONFIG_VERBOSE_DEBUG` let through: its first piece, line by line, as
/// what a guest causes (rate-limited), with control characters taken out.
fn message(call: &mut Call<'_, '_>, count: usize, buffer: u64) -> HcResult {
    let mut chunk = [0u8; CHUNK];
    let bytes = &mut chunk[..count.min(CHUNK)];
    call.memory().copy_in(ptr(buffer), bytes)?;
    let plain = |b: &mut u8| {
        if !matches!(*b, b' '..=b'~' | b'\n') {
            *b = b' ';
        }
    };
    bytes.iter_mut().for_each(plain);
    for line in core::str::from_utf8(bytes).unwrap_or("").lines() {
        hv_hw::guest_log!(Debug, "({}) {line}", call.domain().id);
    }
    Ok(0)
}

fn read(call: &mut Call<'_, '_>, count: usize, buffer: u64) -> HcResult {
    if call.hv().console_owner() != call.domain().id {
        return Ok(0);
    }
    call.memory().probe_out(ptr(buffer), count.min(CHUNK))?;
    let mut chunk = [0u8; CHUNK];
    let n = call.hv().console_take(&mut chunk[..count.min(CHUNK)]);
    call.memory().copy_out(ptr(buffer), &chunk[..n])?;
    Ok(n as u64)
}
