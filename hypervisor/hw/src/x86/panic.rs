//! The end of the road: a bug of ours, or a boot that cannot go on.
//!
//! Takes no lock in an orderly way and allocates nothing: it may run in the middle of anything, NMI included.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use spin::Once;

use super::boot;
use super::cpu::nmi;
use super::cpu::percpu::PerCpu;
use crate::log;
use crate::log::symbols;
use crate::machine::PowerAction;

/// What the panic path needs of parts that come up later.
pub struct Hooks {
    /// A number that only this CPU has, also while it starts.
    pub slot: fn() -> u32,
    /// Writes this CPU's name.
    pub name: fn(&mut fmt::Formatter<'_>) -> fmt::Result,
    /// Marks this CPU as stopped, and stops it.
    pub stop_here: fn() -> !,
    /// Stops all other CPUs, in bounded time.
    pub stop_others: fn(),
    /// Waits that many microseconds.
    pub delay_us: fn(u64),
    /// Ends the machine.
    pub end: fn(PowerAction) -> !,
}

static HOOKS: Once<Hooks> = Once::new();
static NO_REBOOT: AtomicBool = AtomicBool::new(false);
/// The CPU that panics: its slot plus 1.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// How many panics that CPU is in.
static DEPTH: AtomicU32 = AtomicU32::new(0);

/// Seconds between the message and the reboot.
const GRACE_S: u64 = 5;

/// Installs the hooks; once.
pub fn set_hooks(hooks: Hooks) {
    HOOKS.call_once(|| hooks);
}

/// `noreboot`: halt after a fatal error, so that the message can be read.
pub fn set_no_reboot(on: bool) {
    NO_REBOOT.store(on, Ordering::Relaxed);
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    begin();
    crate::error!("****************************************");
    match info.location() {
        Some(at) => crate::error!(
            "Panic on {}: {} ({}:{})",
            Me,
            info.message(),
            at.file(),
            at.line()
        ),
        None => crate::error!("Panic on {}: {}", Me, info.message()),
    }
    let frame: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags))
    };
    back_trace(frame);
    crate::error!("****************************************");
    end()
}

/// Ends a boot that cannot go on for a reason outside the hypervisor: one line, no trace.
pub fn boot_error(message: fmt::Arguments<'_>) -> ! {
    begin();
    crate::error!("Xenolith cannot start: {message}");
    end()
}

/// Shows this CPU.
struct Me;

impl fmt::Display for Me {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match HOOKS.get() {
            Some(h) => (h.name)(f),
            None => f.write_str("CPU 0"),
        }
    }
}

/// The watchdog's end: another CPU has made no progress for more than `seconds`. That CPU may hold any lock, so it is asked first
/// and reported once the locks are broken.
pub(super) fn hang(stuck: &PerCpu, seconds: u64) -> ! {
    let answered = nmi::ask(stuck);
    begin();
    crate::error!("****************************************");
    crate::error!(
        "Watchdog on {Me}: CPU {} stuck for more than {seconds} s at",
        stuck.id().0
    );
    nmi::print(stuck, answered);
    crate::error!("****************************************");
    end()
}

/// Makes this CPU the only one that runs and the log usable.
fn begin() {
    // SAFETY: interrupts stay off from here to the end.
    unsafe { core::arch::asm!("cli", options(nomem, nostack)) };
    let me = HOOKS.get().map_or(0, |h| (h.slot)()) + 1;
    match OWNER.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Some(h) = HOOKS.get() {
                (h.stop_others)();
            }
        }
        Err(owner) if owner == me => {}
        // Another CPU tells its story; its stop request reaches us here as well.
        Err(_) => match HOOKS.get() {
            Some(h) => (h.stop_here)(),
            None => halt(),
        },
    }
    match DEPTH.fetch_add(1, Ordering::AcqRel) {
        0 => {}
        1 => {
            log::break_locks();
            crate::error!("panic inside the panic path: stopping");
            halt()
        }
        _ => halt(),
    }
    log::break_locks();
    boot::console::add_defaults();
}

fn end() -> ! {
    let Some(hooks) = HOOKS.get() else {
        crate::error!("Halted.");
        halt()
    };
    if NO_REBOOT.load(Ordering::Relaxed) {
        crate::error!("Halted (noreboot).");
        (hooks.end)(PowerAction::Halt)
    }
    crate::error!("Rebooting in {GRACE_S} seconds. (The option noreboot halts instead.)");
    (hooks.delay_us)(GRACE_S * 1_000_000);
    (hooks.end)(PowerAction::Reboot)
}

fn halt() -> ! {
    loop {
        // SAFETY: stops this CPU for good.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Logs the calls that lead to a frame, given its frame pointer.
pub fn back_trace(frame: u64) {
    let mut at = frame;
    for _ in 0..64 {
        // Frames lie in stacks, all of which the hypervisor's own tables map. A walk that leaves them ends.
        if at & 7 != 0 || !super::paging::is_stack(at, 16) {
            return;
        }
        // SAFETY: in a mapped stack, aligned; only read.
        let [next, rip] = unsafe { (at as *const [u64; 2]).read_volatile() };
        if rip == 0 {
            return;
        }
        // The return address may belong to the next function after a call that never returns.
        crate::error!("  {}", Address(rip - 1));
        if next <= at {
            return;
        }
        at = next;
    }
}

/// Shows a code address with the function that it is in.
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match symbols::lookup(boot::symbol_table(), self.0) {
            Some((name, offset)) => write!(f, "{:#x} {name}+{offset:#x}", self.0),
            None => write!(f, "{:#x}", self.0),
        }
    }
}
