//! What does a message that the control domain injects cost the running vCPU of its guest, and does each arrive?
//!
//! The guest is a loop in 32-bit mode with its APIC in x2APIC mode; the handler ends the interrupt and counts it.
//!
//! Command line: `expect=none` (posted: no exit) or `expect=each` (an exit for each).
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering};

use guest_rt::hypercall::{Ret, call, ptr};
use guest_rt::{check, child, exits, fact, shared, start, time};

guest_rt::entry!("msi", run);

const DM_OP: u64 = 41;
const VECTOR: u8 = 0x51;
/// Messages of a round.
const SENT: u32 = 2000;
/// How long one may take, in milliseconds.
const PATIENCE: u64 = 5000;

/// The guest's page with its variables and tables; its stack grows down from the end.
const DATA: u64 = 0x2000;
const READY: usize = 4;
const GDT: u64 = 0x2100;
const GDT_POINTER: u64 = 0x2080;
const IDT_POINTER: u64 = 0x2090;
const IDT: u64 = 0x3000;
const HANDLER: u64 = child::CODE + 0x100;

/// Tables, segments, stack; x2APIC mode, APIC on; then a loop with interrupts on.
const CODE: &[&[u8]] = &[
    &[0x0f, 0x01, 0x15, 0x80, 0x20, 0, 0],       // lgdt [0x2080]
    &[0xea, 0x0e, 0x10, 0, 0, 0x08, 0],          // jmp 0x08:next
    &[0xb8, 0x10, 0, 0, 0],                      // next: mov eax, 0x10
    &[0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0],       // mov ds, ax; mov es, ax; mov ss, ax
    &[0xbc, 0x00, 0x30, 0, 0],                   // mov esp, 0x3000
    &[0x0f, 0x01, 0x1d, 0x90, 0x20, 0, 0],       // lidt [0x2090]
    &[0xb9, 0x1b, 0, 0, 0, 0x0f, 0x32],          // mov ecx, 0x1b; rdmsr
    &[0x0d, 0x00, 0x0c, 0, 0, 0x0f, 0x30],       // or eax, 0xc00; wrmsr
    &[0xb9, 0x0f, 0x08, 0, 0],                   // mov ecx, 0x80f
    &[0xb8, 0xff, 0x01, 0, 0],                   // mov eax, 0x1ff
    &[0x31, 0xd2, 0x0f, 0x30],                   // xor edx, edx; wrmsr
    &[0xfb],                                     // sti
    &[0xc7, 0x05, 0x04, 0x20, 0, 0, 1, 0, 0, 0], // mov [0x2004], 1
    &[0xf3, 0x90, 0xeb, 0xfc],                   // again: pause; jmp again
];

/// Ends the interrupt, then counts it: the next message finds this one done with.
const AT_INTERRUPT: &[&[u8]] = &[
    &[0x50, 0x51, 0x52],                   // push eax; push ecx; push edx
    &[0xb9, 0x0b, 0x08, 0, 0],             // mov ecx, 0x80b
    &[0x31, 0xc0, 0x31, 0xd2, 0x0f, 0x30], // xor eax, eax; xor edx, edx; wrmsr
    &[0xf0, 0xff, 0x05, 0x00, 0x20, 0, 0], // lock inc [0x2000]
    &[0x5a, 0x59, 0x58, 0xcf],             // pop edx; pop ecx; pop eax; iret
];

/// Puts the parts one behind the other.
fn joined(parts: &[&[u8]]) -> ([u8; 128], usize) {
    let mut all = [0; 128];
    let mut at = 0;
    for part in parts {
        all[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    (all, at)
}

fn build() -> u16 {
    let (code, len) = joined(CODE);
    let id = child::build(0, 0, &code[..len]);
    let (handler, len) = joined(AT_INTERRUPT);
    child::write(id, HANDLER, &handler[..len]);
    let pointer = |limit: u64, base: u64| (limit | base << 16).to_le_bytes();
    child::write(id, GDT_POINTER, &pointer(23, GDT));
    child::write(id, IDT_POINTER, &pointer(0x7ff, IDT));
    // Flat segments of 4 GiB: nothing, code, data.
    for (n, entry) in [0, 0x00cf_9b00_0000_ffff_u64, 0x00cf_9300_0000_ffff]
        .into_iter()
        .enumerate()
    {
        child::write(id, GDT + 8 * n as u64, &entry.to_le_bytes());
    }
    // An interrupt gate.
    let gate = HANDLER & 0xffff | 0x08 << 16 | 0x8e00 << 32;
    child::write(id, IDT + 8 * u64::from(VECTOR), &gate.to_le_bytes());
    id
}

/// Injects the message.
fn send(domain: u16) -> Ret {
    let mut op = [14u64, u64::from(VECTOR), 0xfee0_0000];
    let mut buffer = [ptr(&mut op), size_of_val(&op) as u64];
    Ret(call(DM_OP, [domain.into(), 1, ptr(&mut buffer), 0, 0]))
}

/// Sends messages one after the other, each when the last has been counted.
fn round(domain: u16, taken: &AtomicU32) -> bool {
    for n in 0..SENT {
        let before = taken.load(Ordering::Acquire);
        let ret = send(domain);
        let came = time::wait_ms(PATIENCE, || taken.load(Ordering::Acquire) != before);
        check!(ret == Ret(0) && came, "message {n}: {ret}, arrived: {came}");
        if !came {
            return false;
        }
    }
    true
}

fn run() {
    shared::init();
    time::calibrate();
    let id = build();
    let data = child::map_foreign(id, DATA >> 12);
    child::unpause(id);
    let ready = time::wait_ms(PATIENCE, || data.u32(READY).load(Ordering::Acquire) == 1);
    check!(ready, "the guest does not come to its loop");
    if ready {
        // It has left guest mode for the last time.
        time::spin_ms(20);
        // Now and then the hypervisor's own timer adds an exit: the best of three counts.
        let mut least: Option<u64> = None;
        for _ in 0..3 {
            let before = exits::of(id as u8, 0);
            if !round(id, data.u32(0)) {
                break;
            }
            if let (Some(before), Some(after)) = (before, exits::of(id as u8, 0)) {
                let cost = after - before;
                least = Some(least.map_or(cost, |l| l.min(cost)));
            }
            if least == Some(0) {
                break;
            }
        }
        fact!("sent", "{SENT}");
        match (start::option("expect"), least) {
            (Some("none"), cost) => {
                check!(cost == Some(0), "{cost:?} exits");
            }
            (Some("each"), cost) => {
                check!(cost >= Some(SENT.into()), "{cost:?} exits only");
            }
            _ => {}
        }
        if let Some(cost) = least {
            guest_rt::println!("sent={SENT} exits={cost}");
        }
    }
    child::unmap_foreign();
    child::destroy(id);
}
