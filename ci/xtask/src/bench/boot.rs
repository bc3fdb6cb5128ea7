//! `cargo xtask bench boot`: from GRUB handing over until dom0's first line and until its user space, beside Debian's
//! Xen with the same kernel, RAM disk and machine; image sizes and the memory that dom0 is left with.

use crate::media::{self, On, Plan};
use crate::setup::{self, Need};
use crate::{build, exec, ui};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use vm_tests::{FATAL, READY};
use vmtest::bundle::Bundle;
use vmtest::console::Outcome;
use vmtest::iso::HANDOVER;
use vmtest::kernels::{self, Kernel};
use vmtest::place::Place;
use vmtest::qemu::Vm;

/// The first line of Linux; its early console makes it come at once on both hypervisors.
const FIRST_LINE: &str = "Linux version ";
/// Goal: this part of Xen's time to dom0's first line.
const GOAL: f32 = 0.5;

/// Options of `bench boot`.
#[derive(clap::Args)]
pub struct Args {
    /// Boots of each hypervisor; the median counts.
    #[arg(short = 'n', long, default_value_t = 3)]
    rounds: usize,
    /// Number of CPUs.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Debian kernel series for dom0.
    #[arg(long, default_value = "6.1")]
    kernel: String,
    /// Only Xenolith, not Xen.
    #[arg(long)]
    no_peer: bool,
    /// Seconds for one boot.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
}

/// One boot: seconds from the hand-over, and dom0's memory in KiB.
#[derive(Clone, Copy, Debug)]
struct Sample {
    first_line: f32,
    user_space: f32,
    memory: u64,
}

/// Prints the table; false if the goal was missed.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let ours = build::build(&build::Args::default())?;
    let xen = kernels::peer_xen()?;
    let kernel = Kernel::find(&args.kernel)?;
    let initrd = media::initrd(&kernel)?;
    let mut on = vec![(On::Xenolith, ours.as_path(), Vec::new())];
    if !args.no_peer {
        on.push((On::Xen, xen.as_path(), Vec::new()));
    }
    // Turn by turn, so that a busy spell of the host hits both.
    for round in 0..args.rounds.max(1) {
        for (on, hypervisor, samples) in &mut on {
            let plan = Plan {
                on: *on,
                hypervisor,
                cmdline: "",
                kernel: &kernel.image,
                initrd: &initrd,
                dom0_cmdline: "earlyprintk=xen",
                tables: &[],
            };
            let step = ui::step(&format!("boot {} of {} on {on:?}", round + 1, args.rounds));
            let sample = boot(&plan, args, &format!("bench/boot-{on:?}"))?;
            step.end(
                "ok",
                &format!("{:.2} s to dom0's first line", sample.first_line),
            );
            samples.push(sample);
        }
    }
    let sizes = (loaded_size(&ours)?, unpacked_size(&xen)?);
    let all: Vec<&[Sample]> = on.iter().map(|(.., samples)| samples.as_slice()).collect();
    Ok(print(&all, sizes))
}

fn boot(plan: &Plan<'_>, args: &Args, name: &str) -> Result<Sample> {
    let bundle = Bundle::new(name)?;
    let mut machine = media::machine("q35", plan.on)?;
    machine.cpus = args.cpus;
    let mut vm = Vm::start(
        plan.args(&machine, &bundle.dir)?,
        &bundle.dir,
        Place::Anywhere,
    )?;
    let until = Instant::now() + Duration::from_secs(args.timeout);
    see(&mut vm, HANDOVER, &[], until)?;
    let start = Instant::now();
    see(&mut vm, FIRST_LINE, &[], until)?;
    let first_line = start.elapsed().as_secs_f32();
    see(&mut vm, READY, &[], until)?;
    let user_space = start.elapsed().as_secs_f32();
    let ready = see(&mut vm, "\n", &[], until)?;
    drop(vm);
    bundle.drop_media();
    let memory = ready
        .split("mem=")
        .nth(1)
        .and_then(|m| m.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("no dom0 memory in {ready:?}"))?;
    Ok(Sample {
        first_line,
        user_space,
        memory,
    })
}

/// Waits for a text and returns its line so far; a fatal text or one of `bad` is an error.
pub fn see(vm: &mut Vm, text: &str, bad: &[&str], until: Instant) -> Result<String> {
    let needles: Vec<&str> = ([text].iter().chain(bad).chain(FATAL)).copied().collect();
    match vm.wait(&needles, until) {
        Outcome::Found(0, line) => Ok(line),
        Outcome::Found(_, line) => {
            // The reason stands behind it.
            let rest = match vm.wait(&["\n"], Instant::now() + Duration::from_secs(5)) {
                Outcome::Found(_, whole) => whole,
                _ => line,
            };
            bail!("the console says: {}", rest.trim())
        }
        outcome => bail!("{text:?} did not appear: {outcome:?}"),
    }
}

/// Prints ours, and the peer's if it was measured; false if the goal was missed.
fn print(samples: &[&[Sample]], sizes: (u64, u64)) -> bool {
    let rows: [(&str, Vec<f32>, &str); 4] = [
        (
            "GRUB's hand-over to dom0's first line",
            medians(samples, |s| s.first_line),
            "s",
        ),
        (
            "GRUB's hand-over to dom0's user space",
            medians(samples, |s| s.user_space),
            "s",
        ),
        (
            "memory that dom0 sees",
            medians(samples, |s| s.memory as f32 / 1024.0),
            "MiB",
        ),
        (
            "hypervisor in memory",
            vec![mib(sizes.0), mib(sizes.1)],
            "MiB",
        ),
    ];
    println!(
        "{:40} {:>10} {:>10} {:>7}",
        "", "Xenolith", "Xen 4.17", "ratio"
    );
    for (what, figures, unit) in &rows {
        let ours = figures.first().copied().unwrap_or(0.0);
        match figures.get(1).filter(|_| samples.len() > 1) {
            Some(xen) => {
                println!(
                    "{what:40} {ours:>8.2} {unit:3} {xen:>6.2} {unit:3} {:>6.2}",
                    ours / xen
                );
            }
            None => println!("{what:40} {ours:>8.2} {unit}"),
        }
    }
    let first = &rows[0].1;
    match (first.first(), first.get(1)) {
        (Some(ours), Some(xen)) if ours / xen > GOAL => {
            println!(
                "goal missed: {:.2} of Xen's time, wanted at most {GOAL}",
                ours / xen
            );
            false
        }
        _ => true,
    }
}

fn medians(samples: &[&[Sample]], figure: impl Fn(&Sample) -> f32) -> Vec<f32> {
    let median = |of: &&[Sample]| {
        let mut values: Vec<f32> = of.iter().map(&figure).collect();
        values.sort_by(f32::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    samples.iter().map(median).collect()
}

fn mib(bytes: u64) -> f32 {
    bytes as f32 / 1_048_576.0
}

/// Bytes that the program headers of an ELF take in memory.
fn loaded_size(elf: &Path) -> Result<u64> {
    let text =
        exec::text("readelf", &["-lW", &elf.display().to_string()]).context("readelf failed")?;
    let load = text.lines().filter(|l| l.trim_start().starts_with("LOAD"));
    let sizes = load.filter_map(|l| l.split_whitespace().nth(5));
    Ok(sizes
        .filter_map(|s| u64::from_str_radix(s.trim_start_matches("0x"), 16).ok())
        .sum())
}

/// The same for the peer, which comes compressed.
fn unpacked_size(gz: &Path) -> Result<u64> {
    let elf = gz.with_extension("elf");
    let out = exec::command("gzip", ["-dc"])
        .arg(gz)
        .output()
        .context("cannot run gzip")?;
    fs::write(&elf, out.stdout).with_context(|| format!("cannot write {}", elf.display()))?;
    loaded_size(&elf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_one() {
        let sample = |first_line| Sample {
            first_line,
            user_space: 0.0,
            memory: 0,
        };
        let samples = [sample(9.0), sample(1.0), sample(2.0)];
        assert_eq!(medians(&[&samples], |s| s.first_line), [2.0]);
    }
}
