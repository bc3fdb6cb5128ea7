//! The log on the machine: ring, consoles, levels, all under one lock.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use arrayvec::ArrayVec;

use super::canvas::{PixelCanvas, TextCanvas};
use super::levels::{RateLimit, Threshold, Verdict};
use super::ring::Ring;
use super::screen::Screen;
use super::stamp::Stamps;
use super::uart::{Native, Uart};
use super::{Class, Level};
use crate::sync::{SpinLock, rank};

/// Bytes of the memory ring.
pub const RING: usize = 1 << crate::config::CONRING_SHIFT;

/// What the screen is.
pub enum Display {
    /// Text mode.
    Text(TextCanvas),
    /// A frame buffer.
    Pixels(PixelCanvas),
}

fn write_serial(uart: &mut Uart<Native>, bytes: &[u8]) {
    // Terminals want a carriage return before each line feed.
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        match line.split_last() {
            Some((b'\n', text)) => {
                uart.write(text);
                uart.write(b"\r\n");
            }
            _ => uart.write(line),
        }
    }
}

struct State {
    ring: Ring<RING>,
    serial: ArrayVec<Uart<Native>, 2>,
    display: Option<Display>,
    screen: Screen,
    stamps: Stamps,
    host: Option<Threshold>,
    guest: Option<Threshold>,
    guest_limit: RateLimit,
    host_limit: RateLimit,
}

/// Xen's default for the hypervisor's own lines is `warning`; ours tells the story of the boot.
const HOST_DEFAULT: Threshold = Threshold {
    always: 3,
    limited: 3,
};
/// None always, warnings within the rate limit.
const GUEST_DEFAULT: Threshold = Threshold {
    always: 0,
    limited: 2,
};

// All zero at first, so that the ring takes no room in the file.
static STATE: SpinLock<State, { rank::LOG }> = SpinLock::new(State {
    ring: Ring::new(),
    serial: ArrayVec::new_const(),
    display: None,
    screen: Screen::new(),
    stamps: Stamps::None,
    host: None,
    guest: None,
    guest_limit: RateLimit::new(),
    host_limit: RateLimit::new(),
});

/// [`Ring::end`] of the ring.
static END: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds since boot, as soon as there is a clock.
static CLOCK: Hook<fn() -> u64> = Hook::new();
/// Wall clock: seconds since 1970 and nanoseconds.
static WALL: Hook<fn() -> (u64, u32)> = Hook::new();

/// A function installed once at boot and callable from anywhere.
struct Hook<F>(AtomicPtr<()>, core::marker::PhantomData<F>);

impl<F: Copy> Hook<F> {
    const fn new() -> Self {
        Hook(
            AtomicPtr::new(core::ptr::null_mut()),
            core::marker::PhantomData,
        )
    }
    fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut ()>()) };
        let p = self.0.load(Ordering::Acquire);
        // SAFETY: only `set` stores here, a value of type `F`, which is a function pointer (private type, two uses).
        (!p.is_null()).then(|| unsafe { core::mem::transmute_copy(&p) })
    }
}

/// Installs the clock that time stamps and the rate limit use.
pub fn set_clock(now_ns: fn() -> u64) {
    CLOCK.0.store(now_ns as *mut (), Ordering::Release);
}

/// Installs the wall clock that dates use.
pub fn set_wall_clock(now: fn() -> (u64, u32)) {
    WALL.0.store(now as *mut (), Ordering::Release);
}

fn tsc() -> u64 {
    // SAFETY: RDTSC is always allowed in ring 0.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Time since boot, or the counter as nanoseconds of a 1 GHz clock before there is one (only for rate limits).
fn now() -> u64 {
    CLOCK.get().map_or_else(tsc, |f| f())
}

/// Chooses what the lines start with.
pub fn set_stamps(stamps: Stamps) {
    STATE.lock().stamps = stamps;
}

/// Chooses which lines are printed.
pub fn set_levels(host: Option<Threshold>, guest: Option<Threshold>) {
    let mut state = STATE.lock();
    state.host = host.or(state.host);
    state.guest = guest.or(state.guest);
}

/// Adds a serial console (at most two) and sends it everything that is still in the ring.
pub fn add_serial(mut uart: Uart<Native>) {
    let mut state = STATE.lock();
    let (a, b) = state.ring.since(0);
    write_serial(&mut uart, a);
    write_serial(&mut uart, b);
    // The two that the command line can name.
    let _ = state.serial.try_push(uart);
}

/// Makes `display` the screen (a new mapping of the same one keeps its contents), and shows what is in the ring if there
/// was none before.
pub fn set_display(display: Display) {
    let mut state = STATE.lock();
    let state = &mut *state;
    if state.display.replace(display).is_none() {
        let (a, b) = state.ring.since(0);
        for part in [a, b] {
            state.screen.show(state.display.as_mut(), part);
        }
    }
}

/// Stops using the screen, which belongs to dom0 from here on.
pub fn release_display() {
    STATE.lock().display = None;
}

/// Whether there is any console.
pub fn has_console() -> bool {
    let state = STATE.lock();
    !state.serial.is_empty() || state.display.is_some()
}

/// Whether the port belongs to one of our serial consoles.
pub fn owns_port(port: u16) -> bool {
    let state = STATE.lock();
    let mut ports = state.serial.iter().map(|uart| uart.base()..uart.base() + 8);
    ports.any(|p| p.contains(&port))
}

/// Asks the serial consoles to raise their interrupt when a byte arrives.
pub fn enable_input_interrupt() {
    for uart in &mut STATE.lock().serial {
        uart.set_receive_interrupt(true);
    }
}

/// Copies ring contents from `position` on: number of bytes, and the position to go on from.
pub fn read_ring(position: u64, buf: &mut [u8]) -> (usize, u64) {
    STATE.lock().ring.read(position, buf)
}

/// Forgets the ring's contents before a position.
pub fn clear_ring(position: u64) {
    STATE.lock().ring.clear(position);
}

/// Position after the newest byte of the ring. Takes no lock: a look at it costs one load.
#[inline]
pub fn ring_end() -> u64 {
    END.load(Ordering::Relaxed)
}

/// Writes bytes as they are to the consoles, and to the ring if they are to be kept.
pub fn console_write(bytes: &[u8], keep: bool) {
    let mut state = STATE.lock();
    if keep {
        state.keep(bytes);
    }
    state.show(bytes);
}

/// Takes bytes typed on a serial console; returns how many.
pub fn console_read(buf: &mut [u8]) -> usize {
    let mut state = STATE.lock();
    let mut n = 0;
    for uart in &mut state.serial {
        n += uart.read(&mut buf[n..]);
    }
    n
}

/// One line to ring and consoles.
pub(super) fn line(level: Level, class: Class, args: fmt::Arguments<'_>) {
    let now = now();
    let mut state = STATE.lock();
    let state = &mut *state;
    let (threshold, limit) = match class {
        Class::Host => (state.host.unwrap_or(HOST_DEFAULT), &mut state.host_limit),
        Class::Guest => (state.guest.unwrap_or(GUEST_DEFAULT), &mut state.guest_limit),
    };
    let missed = match threshold.verdict(level) {
        Verdict::Drop => return,
        Verdict::Print => 0,
        Verdict::Limit if !limit.allow(now) => return,
        Verdict::Limit => core::mem::take(&mut limit.missed),
    };
    if missed > 0 {
        state.format(format_args!("{missed} messages suppressed"));
    }
    state.format(args);
}

impl Screen {
    fn show(&mut self, display: Option<&mut Display>, bytes: &[u8]) {
        match display {
            None => {}
            Some(Display::Text(canvas)) => self.write(bytes, canvas),
            Some(Display::Pixels(canvas)) => self.write(bytes, canvas),
        }
    }
}

impl State {
    fn put(&mut self, bytes: &[u8]) {
        self.keep(bytes);
        self.show(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.ring.write(bytes);
        END.store(self.ring.end(), Ordering::Relaxed);
    }

    fn show(&mut self, bytes: &[u8]) {
        for uart in &mut self.serial {
            write_serial(uart, bytes);
        }
        self.screen.show(self.display.as_mut(), bytes);
    }

    fn format(&mut self, args: fmt::Arguments<'_>) {
        let stamps = self.stamps;
        let wall = matches!(stamps, Stamps::Date | Stamps::DateMs)
            .then(|| WALL.get().map(|f| f()))
            .flatten();
        let mut out = Buffered {
            state: self,
            buf: ArrayVec::new(),
        };
        // Writing to the ring and the consoles cannot fail.
        let _ = out.write_str("(XEN) ");
        let _ = stamps.write(&mut out, tsc(), CLOCK.get().map(|f| f()), wall);
        let _ = out.write_fmt(args);
        let _ = out.write_str("\n");
        out.flush();
    }
}

/// Gathers the small pieces of formatted output, so that serial bursts are full.
struct Buffered<'a> {
    state: &'a mut State,
    buf: ArrayVec<u8, 256>,
}

impl Buffered<'_> {
    fn flush(&mut self) {
        self.state.put(&self.buf);
        self.buf.clear();
    }
}

impl Write for Buffered<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for piece in s.as_bytes().chunks(256) {
            if self.buf.remaining_capacity() < piece.len() {
                self.flush();
            }
            self.buf.extend(piece.iter().copied());
        }
        Ok(())
    }
}

/// Opens the log by force: for a panic, after the other CPUs were told to stop. Waits a little for an orderly release.
pub fn break_locks() {
    crate::sync::stop_checks();
    for _ in 0..1_000_000 {
        if STATE.try_lock().is_some() {
            return;
        }
        core::hint::spin_loop();
    }
    // SAFETY: the holder is stopped, or is this very CPU, interrupted; at worst one line is garbled, since the state has
    // no pointers that could dangle half-written.
    unsafe { STATE.force_unlock() };
}
