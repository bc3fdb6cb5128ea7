//! Text output: console_io hypercall; where that is refused, the ring to the console daemon, and without one port 0xe9.
//!
//! A line is handed over in one call, so that lines of the hypervisor and of the guest do not mix. The lock
//! keeps processors apart; trap handlers print only when they end the test.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::{cpu, hypercall, ring};

const LINE: usize = 1024;

static BUSY: AtomicBool = AtomicBool::new(false);
/// Where text goes: the first that works is kept.
static WAY: AtomicU8 = AtomicU8::new(HYPERCALL);
const HYPERCALL: u8 = 0;
const RING: u8 = 1;
const PORT: u8 = 2;

struct Line {
    bytes: [u8; LINE],
    used: usize,
}

impl Line {
    fn flush(&mut self) {
        emit(&self.bytes[..self.used]);
        self.used = 0;
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.used == LINE {
                self.flush();
            }
            self.bytes[self.used] = byte;
            self.used += 1;
        }
        Ok(())
    }
}

fn emit(bytes: &[u8]) {
    if WAY.load(Ordering::Relaxed) == HYPERCALL {
        let address = bytes.as_ptr().expose_provenance() as u64;
        if hypercall::call(
            hypercall::CONSOLE_IO,
            [0, bytes.len() as u64, address, 0, 0],
        ) >= 0
        {
            return;
        }
        WAY.store(RING, Ordering::Relaxed);
    }
    if WAY.load(Ordering::Relaxed) == RING {
        if ring::write(bytes) {
            return;
        }
        WAY.store(PORT, Ordering::Relaxed);
    }
    for &byte in bytes {
        cpu::out8(0xe9, byte);
    }
}

/// Prints one piece of text; use [`crate::println!`].
pub fn print(args: fmt::Arguments<'_>) {
    while BUSY.swap(true, Ordering::Acquire) {
        cpu::pause();
    }
    let mut line = Line {
        bytes: [0; LINE],
        used: 0,
    };
    // Writing to a `Line` cannot fail.
    let _ = line.write_fmt(args);
    line.flush();
    BUSY.store(false, Ordering::Release);
}

/// Takes the lock away from whoever holds it: for the last words of a dying test.
pub fn break_lock() {
    BUSY.store(false, Ordering::Release);
}

/// Prints one line on the hypervisor's console.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::console::print(format_args!("{}\n", format_args!($($arg)*))) };
}
