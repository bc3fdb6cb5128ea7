//! `ipi-bench=`: TLB flushes on other CPUs, measured for each way of addressing. A request is a message and a set of CPUs
//! that have not obeyed yet; the sender waits until the set is empty. Only while all other CPUs sleep, so that nobody
//! else sends.

use core::sync::atomic::{AtomicU64, Ordering};

use x86_model::interrupt::cluster::Place;
use x86_model::interrupt::driver::{Driver, IpiAddressing};
use x86_model::regs::cr;

use super::super::cpu::percpu::{self, MAX_CPUS, PerCpu};
use super::super::{apic, asm, time};
use crate::info;
use crate::machine::CpuId;

/// CPUs that have not flushed yet.
static PENDING: [AtomicU64; MAX_CPUS.div_ceil(64)] =
    [const { AtomicU64::new(0) }; MAX_CPUS.div_ceil(64)];

/// A sleeping CPU got the message: drops all its translations and says so.
pub(super) fn serve() {
    let cr4 = asm::read_cr4();
    // SAFETY: global pages off and on again: no mapping changes, all cached translations are dropped.
    unsafe {
        asm::write_cr4(cr4 & !cr::CR4_PGE);
        asm::write_cr4(cr4);
    }
    let id = percpu::this().id().0 as usize;
    if let Some(word) = PENDING.get(id / 64) {
        word.fetch_and(!(1 << (id % 64)), Ordering::AcqRel);
    }
}

/// One flush of the targets.
fn flush(ids: &[u64], send: impl FnOnce()) {
    for (word, bits) in PENDING.iter().zip(ids) {
        word.store(*bits, Ordering::Release);
    }
    asm::count_from();
    send();
    asm::count_to();
    for word in &PENDING[..ids.len()] {
        while word.load(Ordering::Acquire) != 0 {
            asm::pause();
        }
    }
}

/// Who is flushed.
#[derive(Clone, Copy)]
struct Targets {
    name: &'static str,
    /// CPUs 1 to this number are not.
    left_out: u32,
}

impl Targets {
    fn cpus(self) -> impl Iterator<Item = &'static PerCpu> + Clone {
        percpu::all().filter(move |c| c.id().0 > self.left_out)
    }
}

/// How the message is sent.
#[derive(Clone, Copy)]
enum How {
    Driver(Driver),
    Shorthand,
}

/// Measures `rounds` flushes for each driver that the APIC's mode has, to all other CPUs and to all but two, and to all
/// with the shorthand. Boot CPU, which is CPU 0.
pub(super) fn measure(rounds: u32) {
    if percpu::this().id() != CpuId(0) || percpu::count() < 2 {
        info!("ipi-bench: needs two CPUs");
        return;
    }
    let x2apic = apic::driver().x2apic();
    let drivers = || {
        Driver::ALL
            .into_iter()
            .filter(move |d| d.x2apic() == x2apic)
            .filter(|d| d.ipi != IpiAddressing::Flat || apic::driver().ipi == d.ipi)
    };
    let all = Targets {
        name: "all",
        left_out: 0,
    };
    let some = Targets {
        name: "all-but-two",
        left_out: 2,
    };
    // Whatever is slow the first time only.
    run(How::Shorthand, all, rounds.min(100));
    for targets in [all, some] {
        if targets.cpus().next().is_none() {
            continue;
        }
        for driver in drivers() {
            report(How::Driver(driver), targets, rounds);
        }
    }
    report(How::Shorthand, all, rounds);
}

fn report(how: How, targets: Targets, rounds: u32) {
    let r = run(how, targets, rounds);
    // Counted apart from the code under test: distinct clusters by the places of the targets, quadratic and simple.
    let slot = |c: &PerCpu| Place::unpack(c.place.load(Ordering::Acquire)).map(|p| p.slot);
    let clusters = (targets.cpus().enumerate())
        .filter(|(n, c)| !targets.cpus().take(*n).any(|d| slot(d) == slot(c)))
        .count();
    info!(
        "ipi-bench: driver={} targets={} cpus={} clusters={clusters} rounds={rounds} ns={} icr={}",
        match how {
            How::Driver(d) => d.name,
            How::Shorthand => "shorthand",
        },
        targets.name,
        targets.cpus().count(),
        r.ns,
        r.writes,
    );
}

struct Measured {
    /// For all rounds.
    ns: u64,
    /// ICR writes of all rounds.
    writes: u64,
}

fn run(how: How, targets: Targets, rounds: u32) -> Measured {
    let mut ids = [0u64; MAX_CPUS.div_ceil(64)];
    for id in targets.cpus().map(|c| c.id().0 as usize) {
        ids[id / 64] |= 1 << (id % 64);
    }
    let words = percpu::count().div_ceil(64) as usize;
    let writes = || percpu::this().icr_writes.load(Ordering::Relaxed);
    let before = writes();
    let start = time::now_ns();
    let vector = apic::vectors::FLUSH;
    for _ in 0..rounds {
        flush(&ids[..words], || match how {
            How::Driver(d) => apic::send_by(d.ipi, &ids[..words], vector),
            How::Shorthand => apic::send_others(vector),
        });
    }
    Measured {
        ns: time::now_ns() - start,
        writes: writes() - before,
    }
}
