//! Another domain, made by the guest as control domain: one vCPU, some memory, code in 32-bit mode.

use core::sync::atomic::Ordering;

use crate::boot::HOLE;
use crate::hypercall::{DOMID_SELF, MEMORY_OP, Ret, call, ptr};
use crate::{Page, check};

const SYSCTL: u64 = 35;
const DOMCTL: u64 = 36;
/// Interfaces of Xen 4.17.
const VERSION: u32 = 0x15;
/// Where the code begins.
pub const CODE: u64 = 0x1000;

/// Argument of a domctl or sysctl.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Arg {
    /// The structure.
    pub words: [u32; 36],
}

impl Arg {
    /// Of a domctl.
    pub fn domctl(cmd: u32, domain: u16) -> Self {
        let mut words = [0; 36];
        (words[0], words[1], words[2]) = (cmd, VERSION, domain.into());
        Arg { words }
    }
    /// Sets words of the operation's structure, which begins at byte 16.
    pub fn with(mut self, values: &[(usize, u32)]) -> Self {
        for (offset, value) in values {
            self.words[4 + offset / 4] = *value;
        }
        self
    }
    /// Makes the domctl.
    pub fn call(&mut self) -> Ret {
        Ret(call(DOMCTL, [ptr(self), 0, 0, 0, 0]))
    }
}

/// Makes a domctl that must succeed.
pub fn control(cmd: u32, domain: u16, values: &[(usize, u32)]) {
    let ret = Arg::domctl(cmd, domain).with(values).call();
    check!(ret.0 == 0, "domctl {cmd}: {ret}");
}

/// Pages of memory that nobody has.
pub fn free_pages() -> u64 {
    let mut arg = Arg { words: [0; 36] };
    (arg.words[0], arg.words[1]) = (3, VERSION);
    let ret = Ret(call(SYSCTL, [ptr(&mut arg), 0, 0, 0, 0]));
    check!(ret.0 == 0, "physinfo: {ret}");
    // Offset 48 of the structure, which begins at byte 8.
    u64::from(arg.words[14]) | u64::from(arg.words[15]) << 32
}

/// Records of the start state: header, CPU, end.
fn start_state(rbx: u32) -> [u32; 274] {
    const CPU: usize = 8 + 2;
    let mut s = [0u32; 274];
    // Descriptor (type and instance, length), header (magic, version).
    (s[0], s[1], s[2], s[3]) = (1, 24, 0x5438_1286, 1);
    (s[8], s[9]) = (2, 1032);
    let mut put = |offset: usize, value: u32| s[CPU + offset / 4] = value;
    put(520, rbx);
    put(640, CODE as u32); // RIP
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
pub fn map_foreign(domain: u16, gfn: u64) -> &'static Page {
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

/// Takes it out again: Xen does not map over another domain's page.
pub fn unmap_foreign() {
    let mut arg = [u64::from(DOMID_SELF), HOLE >> 12];
    let ret = Ret(call(MEMORY_OP, [15, ptr(&mut arg), 0, 0, 0]));
    check!(ret.0 == 0, "unmap: {ret}");
}

/// Writes bytes into a page of the domain.
pub fn write(domain: u16, gpa: u64, bytes: &[u8]) {
    let page = map_foreign(domain, gpa >> 12);
    for (i, byte) in bytes.iter().enumerate() {
        page.u8((gpa as usize & 0xfff) + i)
            .store(*byte, Ordering::Relaxed);
    }
    unmap_foreign();
}

fn populate(domain: u16, order: u32, first: u64) {
    let mut extent = first;
    let mut arg = [ptr(&mut extent), 1, u64::from(order), u64::from(domain)];
    let ret = Ret(call(MEMORY_OP, [6, ptr(&mut arg), 0, 0, 0]));
    check!(ret.0 == 1, "populate order {order} at {first:#x}: {ret}");
}

/// A domain with these `XEN_X86_` flags, 513 pages of memory from 0 on, `code` at [`CODE`] and RBX set: held, ready to run.
/// HVM with nested paging, one vCPU, 64 ports, default grant table, a local APIC.
pub fn build(misc: u32, rbx: u32, code: &[u8]) -> u16 {
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
    control(15, id, &[(0, 1)]);
    control(11, id, &[(0, 8192)]);
    populate(id, 9, 0);
    populate(id, 0, 0x200);
    write(id, CODE, code);
    let mut state = start_state(rbx);
    let at = ptr(&mut state);
    let bytes = (size_of_val(&state) - 8) as u32;
    control(
        34,
        id,
        &[(0, bytes), (8, at as u32), (12, (at >> 32) as u32)],
    );
    id
}

/// Lets it run.
pub fn unpause(domain: u16) {
    control(4, domain, &[]);
}

/// Ends it.
pub fn destroy(domain: u16) {
    control(2, domain, &[]);
}
