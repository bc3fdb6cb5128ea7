//! The report: facts, checks and one result line.
//!
//! The result is monotone: success, skip, error, failure; it can only get worse. `TEST name: RESULT` is the last
//! line, then the domain powers itself off. A guest that ends without it has crashed.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crate::{console, cpu, hypercall, println};

const SUCCESS: u8 = 0;
const SKIP: u8 = 1;
const ERROR: u8 = 2;
const FAILURE: u8 = 3;
const TEXT: usize = 200;

static RESULT: AtomicU8 = AtomicU8::new(SUCCESS);
static REASON: [AtomicU8; TEXT] = [const { AtomicU8::new(0) }; TEXT];
static REASON_LEN: AtomicUsize = AtomicUsize::new(0);
static NAME: [AtomicU8; 32] = [const { AtomicU8::new(0) }; 32];
static NAME_LEN: AtomicUsize = AtomicUsize::new(0);
static DYING: AtomicBool = AtomicBool::new(false);

struct Fixed<'a> {
    bytes: &'a [AtomicU8],
    len: &'a AtomicUsize,
}

impl Write for Fixed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let used = self.len.load(Ordering::Relaxed);
            if used < self.bytes.len() {
                self.bytes[used].store(byte, Ordering::Relaxed);
                self.len.store(used + 1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

impl fmt::Display for Fixed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.bytes[..self.len.load(Ordering::Relaxed)] {
            f.write_char(char::from(byte.load(Ordering::Relaxed)))?;
        }
        Ok(())
    }
}

fn name() -> Fixed<'static> {
    Fixed {
        bytes: &NAME,
        len: &NAME_LEN,
    }
}

fn reason() -> Fixed<'static> {
    Fixed {
        bytes: &REASON,
        len: &REASON_LEN,
    }
}

/// Starts the report of guest `guest`.
pub fn begin(guest: &str) {
    // Writing to a `Fixed` cannot fail.
    let _ = name().write_str(guest);
    println!("BEGIN {guest}");
}

fn worsen(to: u8, why: fmt::Arguments<'_>) {
    if RESULT.fetch_max(to, Ordering::AcqRel) < to {
        REASON_LEN.store(0, Ordering::Relaxed);
        let _ = reason().write_fmt(why);
    }
}

/// Prints `FACT key value`: something that two hypervisors can be compared by. Use [`crate::fact!`].
pub fn fact(key: fmt::Arguments<'_>, value: fmt::Arguments<'_>) {
    println!("FACT {key} {value}");
}

/// Records a condition that every hypervisor with this ABI must satisfy. Returns it.
pub fn check(ok: bool, what: fmt::Arguments<'_>) -> bool {
    if !ok {
        println!("CHECK failed: {what}");
        worsen(FAILURE, what);
    }
    ok
}

/// Records that the question cannot be asked here.
pub fn skip(why: fmt::Arguments<'_>) {
    worsen(SKIP, why);
}

/// Records that the guest itself could not do its work.
pub fn error(why: fmt::Arguments<'_>) {
    worsen(ERROR, why);
}

/// Prints the result and powers the domain off.
pub fn end() -> ! {
    let unasked = crate::trap::unasked();
    check(
        unasked == 0,
        format_args!("{unasked} interrupts came while the interrupt flag was clear"),
    );
    match RESULT.load(Ordering::Acquire) {
        SUCCESS => println!("TEST {}: SUCCESS", name()),
        SKIP => println!("TEST {}: SKIP {}", name(), reason()),
        ERROR => println!("TEST {}: ERROR {}", name(), reason()),
        _ => println!("TEST {}: FAILURE {}", name(), reason()),
    }
    hypercall::shutdown(0);
    cpu::down()
}

/// Ends the test from any context.
pub fn die(why: fmt::Arguments<'_>) -> ! {
    if !DYING.swap(true, Ordering::AcqRel) {
        console::break_lock();
        error(why);
        if RESULT.load(Ordering::Acquire) == FAILURE {
            println!("ERROR {why}");
        }
        end()
    }
    cpu::down()
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => die(format_args!(
            "panic at {}:{}: {}",
            at.file(),
            at.line(),
            info.message()
        )),
        None => die(format_args!("panic: {}", info.message())),
    }
}

/// `fact!("key", "format", args...)` or `fact!(("key {}", arg), "format", args...)`: one line to compare by.
#[macro_export]
macro_rules! fact {
    (($($key:tt)*), $($value:tt)*) => {
        $crate::report::fact(format_args!($($key)*), format_args!($($value)*))
    };
    ($key:literal, $($value:tt)*) => {
        $crate::report::fact(format_args!($key), format_args!($($value)*))
    };
}

/// `check!(condition, "what", args...)`: a condition that must hold on every hypervisor.
#[macro_export]
macro_rules! check {
    ($ok:expr, $($what:tt)*) => { $crate::report::check($ok, format_args!($($what)*)) };
}
