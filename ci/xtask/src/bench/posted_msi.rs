//! `cargo xtask bench posted-msi`: two threads on two cores. One is the model of a unit that posts messages at a set rate,
//! the other the CPU that takes notifications and serves them. Handler shapes and loop bounds are compared, beside the
//! figures of the Linux series that the handler comes from.
//!
//! What is modelled: a post sets a bit and, where allowed, ON and the notification (the machine's own code). A unit does it
//! in one exclusive access to the line, here it is two locked operations. A notification is a flag that the CPU polls;
//! entering and ending an interrupt, and a device's handler, are spins of a set length. The counts are exact; times are
//! those of this machine, and of whatever else runs on it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use x86_model::posted::{Descriptor, Ndst, Notice, msi};

use super::perf;
use crate::exec;

/// First vector that the modelled devices use, and the range that they may.
const FIRST: u8 = 0x30;
const DEVICES: std::ops::RangeInclusive<u8> = 0x30..=0xdf;

/// Options of `bench posted-msi`.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Messages per second that the unit posts; 0 for as many as it can.
    #[arg(long, default_values_t = [100_000, 1_000_000, 0])]
    rate: Vec<u64>,
    /// Different vectors, spread over the four words.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=176))]
    vectors: u8,
    /// Nanoseconds that entering and ending an interrupt take.
    #[arg(long, default_value_t = 400)]
    entry_ns: u64,
    /// Nanoseconds that a device's handler takes.
    #[arg(long, default_value_t = 50)]
    handler_ns: u64,
    /// Milliseconds for each row.
    #[arg(long, default_value_t = 1000)]
    time_ms: u64,
    /// Only this row of the table, and machine-readable.
    #[arg(long, hide = true)]
    row: Option<usize>,
}

/// How messages are served.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// An interrupt for each message.
    Unposted,
    /// All four words exchanged in each turn; one more only if something is there.
    Rfc,
    /// Each word read, exchanged and dispatched before the next.
    Compact,
    /// Ours: all words read, then exchanged, then dispatched.
    CopyFirst,
}

const ROWS: [(Shape, u32); 8] = [
    (Shape::Unposted, 0),
    (Shape::Rfc, 3),
    (Shape::Compact, 3),
    (Shape::CopyFirst, 1),
    (Shape::CopyFirst, 2),
    (Shape::CopyFirst, 3),
    (Shape::CopyFirst, 5),
    (Shape::CopyFirst, 8),
];

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Unposted => "not posted",
            Self::Rfc => "RFC loop",
            Self::Compact => "compact",
            Self::CopyFirst => "copy first",
        }
    }
    /// The series' interrupts per second in millions, one device and vector.
    fn seed(self, bound: u32) -> &'static str {
        match (self, bound) {
            (Self::Rfc, _) => "9.29 M/s",
            (Self::Compact, _) => "8.82 M/s; 8.28 M misses",
            (Self::CopyFirst, 3) => "9.54 M/s; 7.76 M misses",
            _ => "",
        }
    }
}

/// What the two threads share. Each part has cache lines of its own, as the hardware's have.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    descriptor: Apart<Descriptor>,
    /// Interrupt requests of the CPU's local APIC: bits of messages that are not posted.
    requests: Apart<[AtomicU64; 4]>,
    /// The notification vector's request.
    notified: Apart<AtomicU32>,
    stop: Apart<AtomicBool>,
}

/// What a row measured.
#[derive(Default, Debug, Clone, Copy, PartialEq)]
struct Figures {
    posts: u64,
    /// Posts that raised an interrupt: notifications, or requests that were not pending.
    sent: u64,
    /// Interrupts that the CPU entered.
    entered: u64,
    /// Device handlers run.
    handled: u64,
    ns: u64,
}

/// Steps of a spin that take a nanosecond, times 1024.
fn calibrate() -> u64 {
    let spins = 2_000_000u64;
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..spins).for_each(wait);
        start.elapsed().as_nanos() as u64
    });
    (spins * 1024 / best.min().unwrap_or(1).max(1)).max(1)
}

fn spin(ns: u64, scale: u64) {
    (0..ns * scale / 1024).for_each(wait);
}

/// One step of a spin. No PAUSE: in a virtual machine, many in a row give the processor to somebody else.
fn wait(n: u64) {
    black_box(n);
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // Without the right to choose, the scheduler's choice has to do.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// The vectors in use, one in each word in turn.
fn vectors(count: u8) -> Vec<u8> {
    let per_word = |w: u8| (w * 64..=w * 64 + 63).filter(|v| DEVICES.contains(v));
    let mut words: Vec<_> = (0..4).map(per_word).collect();
    let mut out = Vec::new();
    while out.len() < usize::from(count) {
        out.extend(words.iter_mut().filter_map(Iterator::next));
    }
    out.truncate(count.into());
    if out.is_empty() { vec![FIRST] } else { out }
}

/// The unit: posts until the time is over. Returns posts, and those that raised an interrupt.
fn unit(shared: &Shared, shape: Shape, rate: u64, vectors: &[u8], time: Duration) -> (u64, u64) {
    let start = Instant::now();
    let (mut posts, mut sent) = (0u64, 0u64);
    'all: loop {
        for &vector in vectors {
            if let Some(ns) = (posts * 1_000_000_000).checked_div(rate) {
                let due = start + Duration::from_nanos(ns);
                while Instant::now() < due {
                    wait(0);
                }
            }
            if (rate != 0 || posts.is_multiple_of(64)) && start.elapsed() >= time {
                break 'all;
            }
            posts += 1;
            if shape == Shape::Unposted {
                let (word, bit) = (usize::from(vector) / 64, 1u64 << (vector % 64));
                let old = shared.requests.0[word].fetch_or(bit, Ordering::AcqRel);
                sent += u64::from(old & bit == 0);
            } else if shared.descriptor.0.post_by_unit(vector, false).is_some() {
                sent += 1;
                shared.notified.0.store(1, Ordering::Release);
            }
        }
    }
    shared.stop.0.store(true, Ordering::SeqCst);
    (posts, sent)
}

fn each(base: usize, word: u64, f: &mut impl FnMut(u8)) {
    let mut rest = word;
    while rest != 0 {
        f((base * 64) as u8 + rest.trailing_zeros() as u8);
        rest &= rest - 1;
    }
}

/// One notification, by one of the shapes.
fn serve(d: &Descriptor, shape: Shape, bound: u32, mut run: impl FnMut(u8)) {
    let pending = || d.words() != [0; 4];
    match shape {
        Shape::Unposted => {}
        Shape::Rfc => {
            let mut all = || {
                let words: [u64; 4] = std::array::from_fn(|n| d.exchange(n));
                words
                    .iter()
                    .enumerate()
                    .for_each(|(n, &w)| each(n, w, &mut run));
            };
            for _ in 0..bound {
                all();
                if !pending() {
                    break;
                }
            }
            d.clear_on();
            if pending() {
                all();
            }
        }
        Shape::Compact => {
            let mut turn = || {
                let mut handled = false;
                for n in 0..4 {
                    if d.words()[n] != 0 {
                        handled = true;
                        each(n, d.exchange(n), &mut run);
                    }
                }
                handled
            };
            for _ in 0..bound {
                if !turn() {
                    break;
                }
            }
            d.clear_on();
            turn();
        }
        Shape::CopyFirst => {
            msi::serve(d, DEVICES, bound, run, || ());
        }
    }
}

/// The CPU: takes interrupts until the unit has stopped and nothing is left. Interrupts entered, handlers run.
fn cpu(shared: &Shared, shape: Shape, bound: u32, args: &Args, scale: u64) -> (u64, u64) {
    let (mut entered, mut handled) = (0, 0);
    loop {
        let stopped = shared.stop.0.load(Ordering::SeqCst);
        let mut idle = true;
        if shape == Shape::Unposted {
            for word in &shared.requests.0 {
                let now = word.load(Ordering::Relaxed);
                if now != 0 {
                    // The local APIC gives one vector at a time.
                    let bit = 1u64 << now.trailing_zeros();
                    word.fetch_and(!bit, Ordering::AcqRel);
                    entered += 1;
                    handled += 1;
                    spin(args.entry_ns + args.handler_ns, scale);
                    idle = false;
                    break;
                }
            }
        } else if shared.notified.0.load(Ordering::Relaxed) != 0 {
            // Taken before the handler runs, so that a notification during it is an interrupt of its own.
            shared.notified.0.swap(0, Ordering::AcqRel);
            entered += 1;
            spin(args.entry_ns, scale);
            serve(&shared.descriptor.0, shape, bound, |_| {
                handled += 1;
                spin(args.handler_ns, scale);
            });
            idle = false;
        }
        if idle && stopped {
            return (entered, handled);
        }
        if idle {
            wait(0);
        }
    }
}

/// Runs one row. The error is for a message that was lost.
fn measure(shape: Shape, bound: u32, rate: u64, args: &Args, scale: u64) -> Result<Figures> {
    let descriptor = Descriptor::suppressed();
    descriptor.run_on(Notice {
        vector: 0xe2,
        dest: Ndst::new(1, true).context("no such CPU")?,
    });
    let shared = Shared {
        descriptor: Apart(descriptor),
        requests: Apart(Default::default()),
        notified: Apart(AtomicU32::new(0)),
        stop: Apart(AtomicBool::new(false)),
    };
    let list = vectors(args.vectors);
    let time = Duration::from_millis(args.time_ms);
    let start = Instant::now();
    let ((posts, sent), (entered, handled)) = thread::scope(|s| {
        let unit = s.spawn(|| {
            pin(0);
            unit(&shared, shape, rate, &list, time)
        });
        let cpu = s.spawn(|| {
            pin(1);
            cpu(&shared, shape, bound, args, scale)
        });
        (
            unit.join().expect("the unit's thread"),
            cpu.join().expect("the CPU's thread"),
        )
    });
    let left = shared.descriptor.0.words() != [0; 4];
    ensure!(
        !left,
        "{}: a message was posted and never served",
        shape.name()
    );
    ensure!(
        handled <= posts && entered <= sent && handled > 0,
        "the books do not balance"
    );
    Ok(Figures {
        posts,
        sent,
        entered,
        handled,
        ns: start.elapsed().as_nanos() as u64,
    })
}

/// Prints the tables; false if a goal was missed.
pub fn run(args: &Args) -> Result<bool> {
    if cfg!(debug_assertions) {
        return optimised();
    }
    if thread::available_parallelism()?.get() < 2 {
        println!("two cores are needed: this machine offers one");
        return Ok(false);
    }
    let scale = calibrate();
    if let Some(row) = args.row {
        let (shape, bound) = *ROWS.get(row).context("no such row")?;
        measure(shape, bound, args.rate[0], args, scale)?;
        return Ok(true);
    }
    println!(
        "{} vectors; entering and ending an interrupt {} ns, a handler {} ns; {} ms a row",
        args.vectors, args.entry_ns, args.handler_ns, args.time_ms
    );
    let counters = perf::available();
    let mut met = true;
    for &rate in &args.rate {
        match rate {
            0 => println!("\nas many messages as the unit can post:"),
            n => println!("\n{n} messages per second:"),
        }
        println!(
            "{:<11}{:>6}{:>10}{:>10}{:>10}{:>17}{:>11}  the series' figure",
            "handler", "bound", "posted/s", "served/s", "notified", "notified/served", "L1 misses"
        );
        let mut ratios = Vec::new();
        for (n, &(shape, bound)) in ROWS.iter().enumerate() {
            let f = measure(shape, bound, rate, args, scale)?;
            let misses = if counters { count(n, rate, args) } else { None };
            let per = f.sent as f64 / f.handled as f64;
            ratios.push(per);
            println!(
                "{:<11}{:>6}{:>10}{:>10}{:>10}{:>17.4}{:>11}  {}",
                shape.name(),
                if bound == 0 {
                    String::from("-")
                } else {
                    bound.to_string()
                },
                short(f.posts as f64 * 1e9 / f.ns as f64),
                short(f.handled as f64 * 1e9 / f.ns as f64),
                short(f.sent as f64),
                per,
                misses.map_or(String::from("-"), |m| short(m as f64)),
                shape.seed(bound)
            );
        }
        if rate == 0 {
            met = verdict(&ratios);
        }
    }
    if !counters {
        println!("\nL1 misses: `perf` counts none on this machine");
    }
    Ok(met)
}

/// Runs this command again, built with optimisation: without, the loops would be measured and not the memory.
fn optimised() -> Result<bool> {
    let mut cargo = exec::cargo();
    cargo.args([
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--profile",
        "tools",
        "--",
    ]);
    cargo.args(std::env::args_os().skip(1));
    Ok(cargo.status().context("cannot run cargo")?.success())
}

/// Says how much of the gain of the largest bound the chosen one has.
fn verdict(ratios: &[f64]) -> bool {
    let of = |bound| {
        let at = ROWS.iter().position(|&r| r == (Shape::CopyFirst, bound));
        at.map_or(1.0, |n| ratios[n])
    };
    let gain = (1.0 - of(msi::PASSES)) / (1.0 - of(8)).max(f64::EPSILON);
    println!(
        "a bound of {} saves {:.1} % of the notifications, {:.1} % of what a bound of 8 saves (goal: over 90 %)",
        msi::PASSES,
        100.0 * (1.0 - of(msi::PASSES)),
        100.0 * gain
    );
    gain > 0.9
}

/// First-level data-cache misses of a run of one row, by `perf`.
fn count(row: usize, rate: u64, args: &Args) -> Option<u64> {
    let mut all = vec![
        String::from("bench"),
        String::from("posted-msi"),
        format!("--row={row}"),
        format!("--rate={rate}"),
    ];
    all.push(format!("--vectors={}", args.vectors));
    all.push(format!("--entry-ns={}", args.entry_ns));
    all.push(format!("--handler-ns={}", args.handler_ns));
    all.push(format!("--time-ms={}", args.time_ms));
    perf::misses(&all)
}

fn short(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_serves_everything() {
        let args = Args {
            rate: vec![0],
            vectors: 16,
            entry_ns: 100,
            handler_ns: 10,
            time_ms: 20,
            row: None,
        };
        for (shape, bound) in ROWS {
            let f = measure(shape, bound, 0, &args, 1024).unwrap();
            assert!(f.sent <= f.posts && f.handled > 0);
        }
    }

    #[test]
    fn vectors_are_spread_and_allowed() {
        for n in 1..=176 {
            let v = vectors(n);
            assert!(v.len() == usize::from(n) && v.iter().all(|v| DEVICES.contains(v)));
        }
        let words: Vec<_> = vectors(4).iter().map(|v| v / 64).collect();
        assert_eq!(words, [0, 1, 2, 3]);
    }
}
