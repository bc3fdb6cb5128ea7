//! The other processors: started one by one with INIT-SIPI-SIPI, then waiting for work.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::boot::MAX_CPUS;
use crate::{cpu, lapic, time};

static ONLINE: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];
static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
static WORK: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];
static COUNT: AtomicUsize = AtomicUsize::new(1);

/// First Rust code on another processor.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
extern "C" fn rt_ap_start(index: u32) -> ! {
    let index = index as usize;
    cpu::install(index);
    crate::trap::load();
    APIC_IDS[index].store(cpu::cpuid(1, 0)[1] >> 24, Ordering::Relaxed);
    ONLINE[index].store(true, Ordering::Release);
    loop {
        let work = WORK[index].load(Ordering::Acquire);
        if work == 0 {
            cpu::pause();
            continue;
        }
        // SAFETY: only `start_on` stores here, always an `fn()`.
        let work: fn() = unsafe { core::mem::transmute(work) };
        work();
        WORK[index].store(0, Ordering::Release);
    }
}

/// Copies the trampoline to its place below 1 MiB.
#[cfg(target_os = "none")]
pub fn install_trampoline() {
    unsafe extern "C" {
        static ap_trampoline: u8;
        static ap_trampoline_end: u8;
    }
    let from = &raw const ap_trampoline;
    let len = (&raw const ap_trampoline_end).addr() - from.addr();
    // SAFETY: the source is our own code; the target is free RAM below 1 MiB, identity mapped, used by nobody else.
    unsafe { core::ptr::copy_nonoverlapping(from, crate::boot::TRAMPOLINE as *mut u8, len) };
}

/// Tells the next processor to come its stack and index.
#[cfg(target_os = "none")]
pub fn prepare(index: usize) {
    unsafe extern "C" {
        static ap_stack: AtomicU32;
        static ap_index: AtomicU32;
        static stacks: u8;
    }
    // SAFETY: words of our own data section, only accessed as atomics from Rust.
    unsafe {
        let top = (&raw const stacks).addr() + (index + 1) * crate::boot::STACK_SIZE;
        ap_stack.store(top as u32, Ordering::SeqCst);
        ap_index.store(index as u32, Ordering::SeqCst);
    }
}

/// Nothing to copy on a host.
#[cfg(not(target_os = "none"))]
pub fn install_trampoline() {}

/// Nothing to prepare on a host.
#[cfg(not(target_os = "none"))]
pub fn prepare(_index: usize) {}

/// Starts the processor with APIC ID `apic_id` as number `index`; false if it does not appear within 5 s.
pub fn start(index: usize, apic_id: u32) -> bool {
    install_trampoline();
    prepare(index);
    lapic::send(apic_id, 0xc500);
    lapic::send(apic_id, 0x8500);
    time::spin_ms(2);
    let page = (crate::boot::TRAMPOLINE >> 12) as u32;
    lapic::send(apic_id, 0x600 | page);
    time::spin_ms(1);
    lapic::send(apic_id, 0x600 | page);
    if !time::wait_ms(5000, || ONLINE[index].load(Ordering::Acquire)) {
        return false;
    }
    COUNT.fetch_max(index + 1, Ordering::AcqRel);
    true
}

/// Starts processor `index`, which ran before and is halted or in INIT, again.
pub fn restart(index: usize) -> bool {
    ONLINE[index].store(false, Ordering::Release);
    WORK[index].store(0, Ordering::Release);
    start(index, apic_id(index))
}

/// Starts every enabled processor of the MADT. Returns how many run, the boot processor included.
pub fn start_all() -> usize {
    let Some(madt) = crate::acpi::madt() else {
        return 1;
    };
    let own = cpu::cpuid(1, 0)[1] >> 24;
    APIC_IDS[0].store(own, Ordering::Relaxed);
    let mut index = 1;
    for processor in madt.processors[..madt.count]
        .iter()
        .filter(|p| p.flags & 1 != 0)
    {
        if processor.apic_id == own || index == MAX_CPUS {
            continue;
        }
        if start(index, processor.apic_id) {
            index += 1;
        }
    }
    index
}

/// Processors that run.
pub fn count() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// Initial APIC ID of processor `index`.
pub fn apic_id(index: usize) -> u32 {
    APIC_IDS[index].load(Ordering::Relaxed)
}

/// Gives processor `index` work to do; it must be idle.
pub fn start_on(index: usize, work: fn()) {
    assert!(
        WORK[index].swap(work as usize, Ordering::AcqRel) == 0,
        "cpu {index} is busy"
    );
}

/// True if processor `index` has finished its work.
pub fn idle(index: usize) -> bool {
    WORK[index].load(Ordering::Acquire) == 0
}

/// Runs `work` on processor `index` and waits up to 10 s for it; false if it does not finish.
pub fn run_on(index: usize, work: fn()) -> bool {
    start_on(index, work);
    time::wait_ms(10_000, || idle(index))
}
