//! `cargo xtask bench ap`: how long the other CPUs take to come up, all at once against one by one, by the hypervisor's own
//! clock; beside the peer's time stamps around its bring-up.

use crate::media::{self, On, Plan};
use crate::setup::{self, Need};
use crate::{build, iso, ui};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};
use vmtest::bundle::Bundle;
use vmtest::console::Outcome;
use vmtest::kernels::{self, Kernel};
use vmtest::place::Place;
use vmtest::qemu::{self, Boot, Vm};

/// Goal: this part of the serial time is saved with the old pauses, from 8 CPUs on, by the quickest boots. (With 4 CPUs three start, and all at
/// once cannot save more than two of three.)
const GOAL: f32 = 0.7;
/// What the seed's series saved on three machines.
const SEED: &str = "the parallel series for Xen saved 36 to 68 %, and 0.25 % with smt=off";

/// Options of `bench ap`.
#[derive(clap::Args)]
pub struct Args {
    /// Boots of each kind; median and quickest are shown.
    #[arg(short = 'n', long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of CPUs.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64])]
    cpus: Vec<u32>,
    /// Only Xenolith, not Xen.
    #[arg(long)]
    no_peer: bool,
    /// Seconds for one boot.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
}

/// A row's kind: what is said on the command line in both of its columns, and whether cores have two threads.
struct Kind {
    name: &'static str,
    delays: bool,
    siblings: bool,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "no pauses",
        delays: false,
        siblings: false,
    },
    Kind {
        name: "old pauses",
        delays: true,
        siblings: false,
    },
    Kind {
        name: "old pauses, smt=off",
        delays: true,
        siblings: true,
    },
];

/// Prints the table; false if a goal was missed.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let image = build::build(&build::Args::default())?;
    println!("Milliseconds from before the first INIT until the last CPU has reported; {SEED}.");
    println!(
        "{:>4} {:22} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "CPUs", "", "serial", "(best)", "parallel", "(best)", "saved"
    );
    let mut good = true;
    for &cpus in &args.cpus {
        for kind in &KINDS {
            if kind.siblings && (cpus < 4 || cpus % 2 != 0) {
                continue;
            }
            good &= row(args, &image, cpus, kind)?;
        }
        if !args.no_peer {
            let ms = peer(args, cpus)?;
            println!("{cpus:>4} {:22} {ms:>9.1}", "Xen 4.17, its stamps");
        }
    }
    Ok(good)
}

fn row(args: &Args, image: &Path, cpus: u32, kind: &Kind) -> Result<bool> {
    let (mut serial, mut parallel) = (Vec::new(), Vec::new());
    // Turn by turn, so that a busy spell of the host hits both.
    for _ in 0..args.rounds.max(1) {
        serial.push(boot(args, image, cpus, kind, "serial")?);
        parallel.push(boot(args, image, cpus, kind, "parallel")?);
    }
    let (serial, parallel) = (Times::of(serial), Times::of(parallel));
    let saved = 1.0 - parallel.median / serial.median;
    println!(
        "{cpus:>4} {:22} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>5.1} %",
        kind.name,
        serial.median,
        serial.best,
        parallel.median,
        parallel.best,
        saved * 100.0
    );
    // By the quickest boots: a busy host only adds.
    let saved = 1.0 - parallel.best / serial.best;
    if kind.delays && cpus >= 8 && saved < GOAL {
        println!("     goal missed: at least {:.0} % wanted", GOAL * 100.0);
        return Ok(false);
    }
    Ok(true)
}

/// Milliseconds of several boots.
struct Times {
    median: f32,
    best: f32,
}

impl Times {
    fn of(mut values: Vec<f32>) -> Self {
        values.sort_by(f32::total_cmp);
        Self {
            median: values.get(values.len() / 2).copied().unwrap_or(0.0),
            best: values.first().copied().unwrap_or(0.0),
        }
    }
}

/// One boot, without a dom0: the hypervisor ends by itself after the bring-up. Milliseconds.
fn boot(args: &Args, image: &Path, cpus: u32, kind: &Kind, how: &str) -> Result<f32> {
    let bundle = Bundle::new(&format!("bench/ap-{how}"))?;
    let mut machine = media::machine("q35", On::XenolithDirect)?;
    machine.cpus = cpus;
    let (mut up, mut line) = (cpus, format!("{} noreboot ap-bringup={how}", iso::CMDLINE));
    if kind.delays {
        line += ",delays";
    }
    if kind.siblings {
        line += " smt=off";
        up = cpus / 2;
        let smp = format!("{cpus},sockets=1,cores={up},threads=2");
        machine.devices.extend(["-smp".to_owned(), smp]);
    }
    let boot = Boot::Direct {
        kernel: image,
        module: None,
        cmdline: &line,
    };
    let mut vm = Vm::start(
        qemu::args(&machine, &boot, &bundle.dir)?,
        &bundle.dir,
        Place::Anywhere,
    )?;
    let text = see(&mut vm, "Brought up ", args.timeout)?;
    let (n, ms) = parse(&text).with_context(|| format!("not understood: {text}"))?;
    if n != up {
        bail!("{n} of {up} CPUs came up: {}", bundle.dir.display());
    }
    Ok(ms)
}

/// "(XEN) Brought up 4 CPUs in 3.021 ms, one by one": CPUs and milliseconds.
fn parse(line: &str) -> Option<(u32, f32)> {
    let (cpus, rest) = line.split_once("Brought up ")?.1.split_once(" CPUs in ")?;
    Some((cpus.parse().ok()?, rest.split_once(" ms")?.0.parse().ok()?))
}

fn see(vm: &mut Vm, text: &str, timeout: u64) -> Result<String> {
    let until = Instant::now() + Duration::from_secs(timeout);
    // The whole line: its end must have been printed.
    match vm.wait(&[text], until) {
        Outcome::Found(_, _) => {}
        outcome => bail!("{text:?} did not appear: {outcome:?}"),
    }
    vm.wait(&["\n"], until);
    let all = vm.console.text();
    let line = all.lines().find(|l| l.contains(text));
    Ok(line.unwrap_or_default().to_owned())
}

/// Debian's Xen on the same machine: from its last line before the other CPUs to the one after them, by its own clock, in
/// milliseconds. One boot.
fn peer(args: &Args, cpus: u32) -> Result<f32> {
    let step = ui::step(&format!("Xen with {cpus} CPUs"));
    let bundle = Bundle::new("bench/ap-xen")?;
    let mut machine = media::machine("q35", On::Xen)?;
    machine.cpus = cpus;
    let kernel = Kernel::find("6.1")?;
    let plan = Plan {
        on: On::Xen,
        hypervisor: &kernels::peer_xen()?,
        cmdline: "console_timestamps=raw dom0_max_vcpus=1",
        kernel: &kernel.image,
        initrd: &media::initrd(&kernel)?,
        dom0_cmdline: "",
        tables: &[],
    };
    let mut vm = Vm::start(
        plan.args(&machine, &bundle.dir)?,
        &bundle.dir,
        Place::Anywhere,
    )?;
    see(&mut vm, "Brought up ", args.timeout)?;
    let text = vm.console.text();
    drop(vm);
    bundle.drop_media();
    let ms = stamps(&text).context("Xen's log has no time stamps")?;
    step.end("ok", &format!("{ms:.1} ms"));
    Ok(ms)
}

/// Milliseconds between the line before the first CPU is added and the line after the last, from raw time stamps
/// (counter values) and the counter's rate, which the log has as well.
fn stamps(log: &str) -> Option<f32> {
    let lines: Vec<&str> = log.lines().collect();
    let end = lines.iter().position(|l| l.contains("Brought up "))?;
    let start = lines[..end].iter().rposition(|l| {
        !l.contains("Adding cpu") && !l.contains("runqueue") && stamp(l).is_some()
    })?;
    let rate = lines.iter().find_map(|l| {
        let (before, _) = l.split_once(" MHz processor")?;
        before.rsplit(' ').next()?.parse::<f64>().ok()
    })?;
    let ticks = stamp(lines[end])?.checked_sub(stamp(lines[start])?)?;
    Some((ticks as f64 / rate / 1000.0) as f32)
}

/// "(XEN) [0123456789abcdef] text"
fn stamp(line: &str) -> Option<u64> {
    let hex = line.split_once("(XEN) [")?.1.split_once(']')?.0;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        assert_eq!(
            parse("(XEN) Brought up 4 CPUs in 3.021 ms, one by one"),
            Some((4, 3.021))
        );
        assert_eq!(parse("(XEN) Brought up 4 CPUs"), None);
        let log = "(XEN) [0000000000000010] Detected 2000.000 MHz processor.\n\
                   (XEN) [0000000000000100] HVM: HAP page sizes\n\
                   (XEN) [0000000000000200] Adding cpu 1 to runqueue 0\n\
                   (XEN) [0000000000200100] Brought up 2 CPUs\n";
        assert_eq!(stamps(log), Some(2.097152 / 2.0));
    }

    #[test]
    fn median_and_best() {
        let t = Times::of(vec![5.0, 1.0, 9.0]);
        assert_eq!((t.median, t.best), (5.0, 1.0));
    }
}
