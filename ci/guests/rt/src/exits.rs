//! Exits of a vCPU so far, by the hypervisor's count. Xen has none.

use crate::hypercall::{HYPFS_OP, Ret, call, ptr};

/// What has been counted for a vCPU with a one-digit number of a domain with one; `None` if nothing is.
pub fn of(domain: u8, vcpu: u8) -> Option<u64> {
    let mut path = *b"/exits/0/0\0";
    path[7] += domain;
    path[9] += vcpu;
    let mut buffer = [0u8; 4096];
    let (at, len) = (ptr(&mut path), path.len() as u64);
    let size = buffer.len() as u64;
    if Ret(call(HYPFS_OP, [1, at, len, ptr(&mut buffer), size])) != Ret(0) {
        return None;
    }
    let text = buffer.get(12..)?;
    let end = text.iter().position(|&b| b == 0)?;
    let text = core::str::from_utf8(&text[..end]).ok()?;
    let mut sum = 0u64;
    for line in text.lines() {
        let mut words = line.split(' ');
        if words.next() == Some("exit") && words.next() != Some("schedule") {
            sum += words.next()?.parse::<u64>().ok()?;
        }
    }
    Some(sum)
}
