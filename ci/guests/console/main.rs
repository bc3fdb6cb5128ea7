//! What does console_io accept?
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use guest_rt::hypercall::{CONSOLE_IO, Ret, call, ptr};
use guest_rt::{check, cpu, fact, println};

guest_rt::entry!("console", run);

fn io(sub: u64, count: u64, at: u64) -> Ret {
    Ret(call(CONSOLE_IO, [sub, count, at, 0, 0]))
}

fn run() {
    let mut line = *b"written by hypercall\n";
    let ret = io(0, line.len() as u64, ptr(&mut line));
    fact!("write", "{ret}");
    check!(ret == Ret(0), "write returned {ret}");
    fact!("write-0", "{}", io(0, 0, ptr(&mut line)));
    fact!("write-0-bad-pointer", "{}", io(0, 0, 0x7f00_0000_0000));
    fact!("write-bad-pointer", "{}", io(0, 8, 0x7f00_0000_0000));
    // A count of minus one is taken as 4 GiB: it would print all memory, so it is not tried with a good pointer.
    fact!("write-negative", "{}", io(0, u64::MAX, 0x7f00_0000_0000));
    fact!("write-count-1<<31", "{}", io(0, 1 << 31, 0x7f00_0000_0000));
    fact!(
        "write-count-1<<32",
        "{}",
        io(0, 1 << 32 | 1, ptr(&mut [b'\n']))
    );
    // Several KiB at once, as early printk does, crossing pages; with NUL and escape bytes in it.
    let mut text = [b'.'; 6000];
    for end in text.iter_mut().skip(79).step_by(80) {
        *end = b'\n';
    }
    text[5999] = b'\n';
    let ret = io(0, text.len() as u64, ptr(&mut text));
    fact!("write-6000", "{ret}");
    check!(ret == Ret(0), "write of 6000 bytes returned {ret}");
    let mut odd = *b"nul\0esc\x1b[0mtab\tend\n";
    fact!(
        "write-control-bytes",
        "{}",
        io(0, odd.len() as u64, ptr(&mut odd))
    );

    let mut buffer = [0u8; 64];
    fact!("read", "{}", io(1, 64, ptr(&mut buffer)));
    fact!("read-0", "{}", io(1, 0, ptr(&mut buffer)));
    fact!("read-bad-pointer", "{}", io(1, 64, 0x7f00_0000_0000));
    fact!("read-negative", "{}", io(1, u64::MAX, ptr(&mut buffer)));
    fact!("sub-2", "{}", io(2, 8, ptr(&mut buffer)));
    fact!("sub-minus-1", "{}", io(u64::MAX, 8, ptr(&mut buffer)));

    // The debug port: bytes written there appear on the hypervisor's console.
    for &byte in b"written to port e9\n" {
        cpu::out8(0xe9, byte);
    }
    fact!("port-e9-read", "{:#x}", cpu::in8(0xe9));
    println!("end");
}
