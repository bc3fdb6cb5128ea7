//! A vCPU's registers in the log, and the way of its page tables to where it stopped.

use alloc::string::String;
use core::fmt::Write;

use hv_hw::machine::Seg;
use hv_hw::{GuestContext, guest_log};
use x86_model::Gva;

use super::VcpuKey;
use crate::guest::access::GuestAccess;

/// Logs the registers of a vCPU, and how its page tables translate the addresses of its code, its stack, its interrupt table
/// and its last page fault.
pub fn stopped(key: VcpuKey, ctx: &impl GuestContext, memory: &GuestAccess<'_>) {
    registers(key, ctx);
    let s = ctx.state();
    let (idt, limit) = s.idtr;
    guest_log!(Error, "{key} idt {idt:016x} limit {limit:04x}");
    let rsp = ctx.gprs().get(x86_model::Gpr::Rsp);
    for (name, gva) in [("rip", s.rip), ("rsp", rsp), ("idt", idt), ("cr2", s.cr2)] {
        guest_log!(Error, "{key} {name}{}", way(memory, Gva(gva)));
    }
}

/// `address=entry` of each level, and where it leads to or why it leads nowhere.
fn way(memory: &GuestAccess<'_>, gva: Gva) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let end = memory.translate_telling(gva, |at, entry| {
        let _ = match entry {
            Some(entry) => write!(text, " {:x}={entry:x}", at.0),
            None => write!(text, " {:x}=?", at.0),
        };
    });
    let _ = match end {
        Ok(gpa) => write!(text, " -> {:x}", gpa.0),
        Err(fault) => write!(text, ": {fault:?}"),
    };
    text
}

/// Logs the registers of a vCPU.
fn registers(key: VcpuKey, ctx: &impl GuestContext) {
    let s = ctx.state();
    let g = &ctx.gprs().0;
    guest_log!(
        Error,
        "{key} rip {:016x} rflags {:08x} cr0 {:x} cr2 {:x} cr3 {:x} cr4 {:x} efer {:x}",
        s.rip,
        s.rflags,
        s.cr0,
        s.cr2,
        s.cr3,
        s.cr4,
        s.efer
    );
    const NAMES: [&str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    for row in 0..4 {
        let n = |i: usize| (NAMES[row * 4 + i], g[row * 4 + i]);
        let [a, b, c, d] = [n(0), n(1), n(2), n(3)];
        guest_log!(
            Error,
            "{key} {:>3} {:016x} {:>3} {:016x} {:>3} {:016x} {:>3} {:016x}",
            a.0,
            a.1,
            b.0,
            b.1,
            c.0,
            c.1,
            d.0,
            d.1
        );
    }
    for (seg, name) in [
        (Seg::Cs, "cs"),
        (Seg::Ss, "ss"),
        (Seg::Ds, "ds"),
        (Seg::Fs, "fs"),
        (Seg::Gs, "gs"),
        (Seg::Tr, "tr"),
    ] {
        let r = s.segments[seg as usize];
        guest_log!(
            Error,
            "{key} {name} {:04x} base {:016x} limit {:08x} access {:05x}",
            r.selector,
            r.base,
            r.limit,
            r.access
        );
    }
}
