//! The part of the `hypfs_op` tree that is ours alone, made when it is read: `/exits/<domain>/<vCPU>`, the counters of
//! [`crate::vcpu::stats`], and `/interrupts/<CPU>`, those of a CPU's interrupts.
//!
//! Lines of words: `format 1` and `tsc_khz <n>` first; `exit <kind> <count> <cycles> <bucket>:<count>...` for each kind
//! that happened, buckets as powers of two of cycles; `inject <vector> <count>` for each vector. Of a CPU: `format 1`, then
//! a name and a number in each line.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use hv_hw::Machine;
use hv_hw::machine::{CpuId, InterruptCounts};
use xen_abi::hypfs::{Direntry, NAME_OFFSET, encoding, kind};
use xen_abi::{DomId, Errno};
use zerocopy::IntoBytes;

use crate::hypervisor::Hypervisor;
use crate::vcpu::Vcpu;

/// Folders at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// Counters of exits.
    Exits,
    /// Counters of interrupts.
    Interrupts,
}

impl Folder {
    /// All of them.
    pub const ALL: [Folder; 2] = [Folder::Exits, Folder::Interrupts];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Folder::Exits => "exits",
            Folder::Interrupts => "interrupts",
        }
    }

    /// The folder that a path lies in, and what is behind the folder's name.
    pub fn of(path: &[u8]) -> Option<(Folder, &[u8])> {
        let path = path.strip_prefix(b"/")?;
        let within = |f: Folder| {
            let rest = path.strip_prefix(f.name().as_bytes())?;
            (rest.is_empty() || rest[0] == b'/').then_some((f, rest))
        };
        Self::ALL.into_iter().find_map(within)
    }

    /// The head and the contents of a path in it (its own name already taken off), or ENOENT.
    pub fn read(self, hv: &Hypervisor, rest: &[u8]) -> Result<(Direntry, Vec<u8>), Errno> {
        let rest = core::str::from_utf8(rest).map_err(|_| Errno::ENOENT)?;
        let mut parts = rest.split('/').filter(|p| !p.is_empty());
        let number = |part: Option<&str>| -> Result<Option<u32>, Errno> {
            let plain = part.map(|p| p.parse().ok().filter(|n: &u32| is_plain(p, *n)));
            plain.map_or(Ok(None), |n| n.ok_or(Errno::ENOENT).map(Some))
        };
        let (first, second) = (number(parts.next())?, number(parts.next())?);
        if parts.next().is_some() {
            return Err(Errno::ENOENT);
        }
        match (self, first, second) {
            (Folder::Exits, domain, vcpu) => exits(hv, domain, vcpu),
            (Folder::Interrupts, None, _) => {
                let there = (0..hv.pcpus.len() as u32).filter(|n| counts(hv, *n).is_some());
                listing(there, kind::STRING)
            }
            (Folder::Interrupts, Some(cpu), None) => {
                let counts = counts(hv, cpu).ok_or(Errno::ENOENT)?;
                Ok(file(interrupts(&counts)))
            }
            (Folder::Interrupts, Some(_), Some(_)) => Err(Errno::ENOENT),
        }
    }
}

fn counts(hv: &Hypervisor, cpu: u32) -> Option<InterruptCounts> {
    hv.pcpus.get(cpu as usize)?;
    hv.hw.interrupt_counts(CpuId(cpu))
}

fn exits(
    hv: &Hypervisor,
    domain: Option<u32>,
    vcpu: Option<u32>,
) -> Result<(Direntry, Vec<u8>), Errno> {
    let Some(domain) = domain else {
        let ids = hv.domains();
        return listing(ids.iter().map(|d| d.id.0.into()), kind::DIR);
    };
    let id = u16::try_from(domain).map_err(|_| Errno::ENOENT)?;
    let domain = hv.domain(DomId(id)).ok_or(Errno::ENOENT)?;
    let Some(vcpu) = vcpu else {
        return listing(0..domain.vcpus().len() as u32, kind::STRING);
    };
    let vcpu = domain.vcpu(vcpu).ok_or(Errno::ENOENT)?;
    Ok(file(report(hv.hw.tsc_khz(), vcpu)))
}

fn file(text: String) -> (Direntry, Vec<u8>) {
    let mut text = text.into_bytes();
    text.push(0);
    (head(kind::STRING, text.len()), text)
}

/// Whether the text is the number as it is listed: no sign, no zeroes before it.
fn is_plain(text: &str, n: u32) -> bool {
    let mut buf = [0u8; 10];
    decimal(n, &mut buf) == text.as_bytes()
}

fn decimal(mut n: u32, buf: &mut [u8; 10]) -> &[u8] {
    let mut at = buf.len();
    loop {
        at -= 1;
        buf[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &buf[at..];
        }
    }
}

const fn head(kind: u8, len: usize) -> Direntry {
    Direntry {
        kind,
        encoding: encoding::PLAIN,
        pad: 0,
        content_len: len as u32,
        max_write_len: 0,
    }
}

/// A folder with these numbers for names. What they hold changes, so its length is not told.
fn listing(names: impl Iterator<Item = u32>, what: u8) -> Result<(Direntry, Vec<u8>), Errno> {
    let mut out = Vec::new();
    let mut last = None;
    for n in names {
        let mut buf = [0u8; 10];
        let name = decimal(n, &mut buf);
        let len = NAME_OFFSET + (name.len() + 1).next_multiple_of(align_of::<Direntry>());
        let at = out.len();
        out.try_reserve(len).map_err(|_| Errno::ENOMEM)?;
        out.resize(at + len, 0);
        out[at..at + 12].copy_from_slice(head(what, 0).as_bytes());
        out[at + 12..at + 14].copy_from_slice(&(len as u16).to_le_bytes());
        out[at + NAME_OFFSET..at + NAME_OFFSET + name.len()].copy_from_slice(name);
        last = Some(at);
    }
    if let Some(at) = last {
        out[at + 12..at + 14].fill(0);
    }
    Ok((head(kind::DIR, out.len()), out))
}

fn report(tsc_khz: u32, vcpu: &Vcpu) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "format 1\ntsc_khz {tsc_khz}");
    for line in vcpu.stats.lines() {
        let _ = write!(out, "exit {} {} {}", line.name, line.count, line.cycles);
        for (n, count) in line.buckets.iter().enumerate().filter(|(_, c)| **c != 0) {
            let _ = write!(out, " {n}:{count}");
        }
        out.push('\n');
    }
    for (vector, count) in vcpu.stats.vectors() {
        let _ = writeln!(out, "inject {vector:#04x} {count}");
    }
    out
}

fn interrupts(c: &InterruptCounts) -> String {
    let mut out = String::from("format 1\n");
    for (name, n) in [
        ("vectors_used", c.vectors_used.into()),
        ("vectors", c.vectors.into()),
        ("spurious", c.spurious),
        ("icr_writes", c.icr_writes),
        ("posted_notifications", c.notifications),
        ("posted_turns", c.posted_turns),
        ("posted_interrupts", c.posted),
        ("posted_stray", c.posted_stray),
        ("exits_settled", c.exits_settled),
        ("exits_repaired", c.exits_repaired),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name} {n}");
    }
    out
}
