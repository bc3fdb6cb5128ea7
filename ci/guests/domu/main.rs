//! Can a control domain build another domain, see it run, and get all of its memory back?
//!
//! The other domain is a page of 32-bit code that leaves what it found in its memory and halts with interrupts off.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering;

use guest_rt::boot::HOLE;
use guest_rt::hypercall::{self, DOMID_SELF, MEMORY_OP, Ret, call, ptr};
use guest_rt::start::option;
use guest_rt::time::wait_ms;
use guest_rt::{Page, check, fact};

guest_rt::entry!("domu", run);

const SYSCTL: u64 = 35;
const DOMCTL: u64 = 36;
/// Interfaces of Xen 4.17.
const VERSION: u32 = 0x15;

/// Argument of a domctl or sysctl.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Arg {
    words: [u32; 36],
}

impl Arg {
    fn domctl(cmd: u32, domain: u16) -> Self {
        let mut words = [0; 36];
        (words[0], words[1], words[2]) = (cmd, VERSION, domain.into());
        Arg { words }
    }
    /// Sets words of the operation's structure, which begins at byte 16.
    fn with(mut self, values: &[(usize, u32)]) -> Self {
        for (offset, value) in values {
            self.words[4 + offset / 4] = *value;
        }
        self
    }
    fn call(&mut self) -> Ret {
        Ret(call(DOMCTL, [ptr(self), 0, 0, 0, 0]))
    }
}

/// Pages of memory that nobody has.
fn free_pages() -> u64 {
    let mut arg = Arg { words: [0; 36] };
    (arg.words[0], arg.words[1]) = (3, VERSION);
    let ret = Ret(call(SYSCTL, [ptr(&mut arg), 0, 0, 0, 0]));
    check!(ret.0 == 0, "physinfo: {ret}");
    // Offset 48 of the structure, which begins at byte 8.
    u64::from(arg.words[14]) | u64::from(arg.words[15]) << 32
}

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

/// Records of the start state: header, CPU, end.
fn start_state() -> [u32; 274] {
    const CPU: usize = 8 + 2;
    let mut s = [0u32; 274];
    // Descriptor (type and instance, length), header (magic, version).
    (s[0], s[1], s[2], s[3]) = (1, 24, 0x5438_1286, 1);
    (s[8], s[9]) = (2, 1032);
    let mut put = |offset: usize, value: u32| s[CPU + offset / 4] = value;
    put(520, 0x00c0_ffee); // RBX
    put(640, 0x1000); // RIP
    put(656, 0x11); // CR0
    put(720, 0xffff_0ff0);
    put(728, 0x400);
    for limit in [768, 772, 776, 788] {
        put(limit, u32::MAX);
    }
    put(792, 0x67);
    put(888, 0xc9b);
    for data in [892, 896, 908] {
        put(data, 0xc93);
    }
    put(912, 0x8b);
    // The end has neither contents nor length.
    (s[CPU + 258], s[CPU + 259]) = (0, 0);
    s
}

/// Maps a page of a domain at [`HOLE`].
fn map_foreign(domain: u16, gfn: u64) -> &'static Page {
    let (mut idx, mut at, mut error) = (gfn, HOLE >> 12, 0i32);
    let mut arg = [
        u64::from(DOMID_SELF) | 4 << 16 | 1 << 32 | u64::from(domain) << 48,
        ptr(&mut idx),
        ptr(&mut at),
        ptr(&mut error),
    ];
    let ret = Ret(call(MEMORY_OP, [23, ptr(&mut arg), 0, 0, 0]));
    check!(
        ret.0 == 0 && error == 0,
        "foreign page {gfn:#x}: {ret} {error}"
    );
    Page::at(HOLE)
}

fn unmap_foreign() {
    let mut arg = [u64::from(DOMID_SELF), HOLE >> 12];
    let ret = Ret(call(MEMORY_OP, [15, ptr(&mut arg), 0, 0, 0]));
    check!(ret.0 == 0, "unmap: {ret}");
}

fn populate(domain: u16, order: u32, first: u64) {
    let mut extent = first;
    let mut arg = [ptr(&mut extent), 1, u64::from(order), u64::from(domain)];
    let ret = Ret(call(MEMORY_OP, [6, ptr(&mut arg), 0, 0, 0]));
    check!(ret.0 == 1, "populate order {order} at {first:#x}: {ret}");
}

/// Builds the domain with these `XEN_X86_` flags, lets it run until it stops, ends it. What it saw in CPUID 0x40000004 EAX.
fn cycle(round: u32, misc: u32) -> u32 {
    // HVM with nested paging, one vCPU, 64 ports, default grant table, a local APIC.
    let mut arg = Arg::domctl(1, 0).with(&[
        (20, 3),
        (28, 1),
        (32, 63),
        (36, u32::MAX),
        (40, u32::MAX),
        (44, 1),
        (56, 1),
        (60, misc),
    ]);
    let ret = arg.call();
    check!(ret.0 == 0, "createdomain: {ret}");
    let id = arg.words[2] as u16;
    let run = |cmd: u32, values: &[(usize, u32)]| {
        let ret = Arg::domctl(cmd, id).with(values).call();
        check!(ret.0 == 0, "domctl {cmd}: {ret}");
    };
    run(15, &[(0, 1)]);
    run(11, &[(0, 8192)]);
    populate(id, 9, 0);
    populate(id, 0, 0x200);

    let page = map_foreign(id, 1);
    let call_bytes = if hypercall::uses_vmmcall() {
        [0x0f, 0x01, 0xd9]
    } else {
        [0x0f, 0x01, 0xc1]
    };
    for (i, byte) in code(call_bytes).into_iter().enumerate() {
        page.u8(i).store(byte, Ordering::Relaxed);
    }
    // Xen does not map over another domain's page.
    unmap_foreign();
    let mut state = start_state();
    let at = ptr(&mut state);
    let bytes = (size_of_val(&state) - 8) as u32;
    run(34, &[(0, bytes), (8, at as u32), (12, (at >> 32) as u32)]);
    run(4, &[]);
    let mut info = Arg::domctl(5, id);
    let stopped = wait_ms(2000, || {
        let mut i = Arg::domctl(5, id);
        i.call().0 == 0 && i.words[5] & 4 != 0
    });
    check!(stopped, "the domain does not stop");
    check!(info.call().0 == 0, "getdomaininfo");
    let page = map_foreign(id, 2);
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
    unmap_foreign();
    run(2, &[]);
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
    let free = free_pages();
    for round in 4..20 {
        cycle(round, 0);
    }
    let back = wait_ms(1000, || free_pages() >= free);
    check!(back, "{free} pages were free, now {}", free_pages());
}
