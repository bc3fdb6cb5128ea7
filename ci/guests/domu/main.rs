//! Can a control domain build another domain, see it run, and get all of its memory back?
//!
//! The other domain is a page of 32-bit code that leaves what it found in its memory and halts with interrupts off.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::child::{self, Arg};
use guest_rt::hypercall::{self, call};
use guest_rt::start::option;
use guest_rt::time::wait_ms;
use guest_rt::{check, fact};

guest_rt::entry!("domu", run);

/// The code, at 0x1000: notes at 0x2000 a constant, EBX at the start, the hypervisor's signature and version, and what CPUID
/// says about the local APIC.
fn code(hypercall: [u8; 3]) -> [u8; 66] {
    let mut c = [0xf4; 66];
    let parts: [&[u8]; 13] = [
        &[0x89, 0x1d, 0x04, 0x20, 0, 0],  // mov [0x2004], ebx
        &[0xb8, 0, 0, 0, 0x40],           // mov eax, 0x40000000
        &[0x31, 0xc9, 0x0f, 0xa2],        // xor ecx, ecx; cpuid
        &[0x89, 0x1d, 0x08, 0x20, 0, 0],  // mov [0x2008], ebx
        &[0xb8, 17, 0, 0, 0, 0x31, 0xdb], // mov eax, 17; xor ebx, ebx
        &hypercall,
        &[0xa3, 0x0c, 0x20, 0, 0],       // mov [0x200c], eax
        &[0xb8, 4, 0, 0, 0x40],          // mov eax, 0x40000004
        &[0x31, 0xc9, 0x0f, 0xa2],       // xor ecx, ecx; cpuid
        &[0xa3, 0x10, 0x20, 0, 0],       // mov [0x2010], eax
        &[0xb8, 0x78, 0x56, 0x34, 0x12], // mov eax, 0x12345678
        &[0xa3, 0x00, 0x20, 0, 0],       // mov [0x2000], eax
        &[0xfa, 0xf4],                   // cli; hlt
    ];
    let mut at = 0;
    for part in parts {
        c[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    c
}

/// Builds the domain with these `XEN_X86_` flags, lets it run until it stops, ends it. What it saw in CPUID 0x40000004 EAX.
fn cycle(round: u32, misc: u32) -> u32 {
    let call_bytes = if hypercall::uses_vmmcall() {
        [0x0f, 0x01, 0xd9]
    } else {
        [0x0f, 0x01, 0xc1]
    };
    let id = child::build(misc, 0x00c0_ffee, &code(call_bytes));
    child::unpause(id);
    let mut info = Arg::domctl(5, id);
    let stopped = wait_ms(2000, || {
        let mut i = Arg::domctl(5, id);
        i.call().0 == 0 && i.words[5] & 4 != 0
    });
    check!(stopped, "the domain does not stop");
    check!(info.call().0 == 0, "getdomaininfo");
    let page = child::map_foreign(id, 2);
    let words = [0, 4, 8, 12].map(|n| page.u32(n).load(Ordering::Relaxed));
    let features = page.u32(16).load(Ordering::Relaxed);
    if round == 0 {
        fact!(("flags"), "{:#x}", info.words[5]);
        fact!(("pages"), "{}", info.words[6]);
        fact!(("left"), "{words:x?}");
    }
    let version = call(hypercall::XEN_VERSION, [0, 0, 0, 0, 0]) as u32;
    check!(
        words == [0x1234_5678, 0x00c0_ffee, 0x566e_6558, version],
        "the domain left {words:x?}"
    );
    // Powered off: stopped with reason 0.
    check!(info.words[5] >> 16 == 0, "flags {:#x}", info.words[5]);
    check!(info.words[6] == 513, "{} pages", info.words[6]);
    child::unmap_foreign();
    child::destroy(id);
    check!(
        info.call().0 != 0 || info.words[2] as u16 != id,
        "domain {id} is still there"
    );
    features
}

fn run() {
    fact!("features", "{:#x}", cycle(0, 0));
    // What the processor may not do for a domain's local APICs; Xen has no such switches.
    if option("switches").is_some() {
        for (name, misc) in [("xapic", 1 << 31), ("x2apic", 1 << 30), ("both", 3 << 30)] {
            fact!(("features-without-{name}"), "{:#x}", cycle(1, misc));
        }
    }
    // The first rounds make tables that stay, and Xen frees the last of a domain a little later.
    for round in 1..4 {
        cycle(round, 0);
    }
    let free = child::free_pages();
    for round in 4..20 {
        cycle(round, 0);
    }
    let back = wait_ms(1000, || child::free_pages() >= free);
    check!(back, "{free} pages were free, now {}", child::free_pages());
}
