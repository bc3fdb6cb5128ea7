//! `cargo xtask bench ipi`: TLB flushes on other CPUs, for each way of addressing: time, writes to the interrupt command
//! register, and the sender's instructions. The hypervisor measures itself (`ipi-bench=`); instructions are counted by the
//! emulator in a second boot.

use crate::media::{self, On};
use crate::setup::{self, Need};
use crate::{build, iso};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, str};
use vmtest::bundle::Bundle;
use vmtest::console::Outcome;
use vmtest::place::Place;
use vmtest::qemu::{self, Boot, Vm};

/// Flushes of each kind in the boot that counts instructions. They are the same each time.
const COUNTED: usize = 20;
/// Flushes before the first kind, as `hw/src/x86/smp/flush.rs` makes them: at most this many.
const WARM_UP: usize = 100;

/// Instructions that the shorthand may take, whatever the number of CPUs.
const SHORTHAND: u64 = 100;

/// Options of `bench ipi`.
#[derive(clap::Args)]
pub struct Args {
    /// Flushes of each kind.
    #[arg(short = 'n', long, default_value_t = 10_000)]
    rounds: u32,
    /// QEMU's `-smp`, one machine each (`+` stands for a comma).
    #[arg(long, value_delimiter = ',', default_values = ["16", "18+sockets=3+cores=3+threads=2", "64"])]
    smp: Vec<String>,
    /// Seconds for one boot.
    #[arg(long, default_value_t = 900)]
    timeout: u64,
}

/// One kind's figures.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    driver: String,
    targets: String,
    cpus: u64,
    clusters: u64,
    rounds: u64,
    ns: u64,
    icr: u64,
}

/// Prints a table for each machine; false if the figures contradict what the design says.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let image = build::build(&build::Args::default())?;
    let plugin = super::exits::plugin()?;
    let mut good = true;
    for smp in &args.smp {
        let smp = smp.replace('+', ",");
        let rows = boot(args, &image, &smp, args.rounds, None)?;
        let counted = boot(args, &image, &smp, COUNTED as u32, Some(&plugin))?;
        let instructions = counts(counted.len())?;
        println!("-smp {smp}, {} flushes of each kind:", args.rounds);
        println!(
            "  {:16} {:12} {:>7} {:>8} {:>10} {:>10} {:>13}",
            "driver", "targets", "CPUs", "clusters", "ICR writes", "us", "instructions"
        );
        for (row, n) in rows.iter().zip(&instructions) {
            let per = |v: u64| v as f32 / row.rounds as f32;
            println!(
                "  {:16} {:12} {:>7} {:>8} {:>10} {:>10.1} {:>13}",
                row.driver,
                row.targets,
                row.cpus,
                row.clusters,
                per(row.icr),
                per(row.ns) / 1000.0,
                n
            );
        }
        for fault in faults(&rows, &instructions) {
            println!("  WRONG: {fault}");
            good = false;
        }
    }
    println!(
        "ICR writes, microseconds and the sender's instructions are per flush. The time is an emulator's: it shows how\n\
         quickly the host's threads wake each other, not what a processor does. The writes and instructions are exact."
    );
    Ok(good)
}

fn boot(
    args: &Args,
    image: &Path,
    smp: &str,
    rounds: u32,
    plugin: Option<&Path>,
) -> Result<Vec<Row>> {
    let bundle = Bundle::new("bench/ipi")?;
    let mut machine = media::machine("q35", On::XenolithDirect)?;
    machine.devices.extend(["-smp".to_owned(), smp.to_owned()]);
    if let Some(plugin) = plugin {
        let argument = format!(
            "{},out={},markers=hypervisor",
            plugin.display(),
            count_file()?.display()
        );
        machine.devices.extend(["-plugin".to_owned(), argument]);
    }
    let line = format!("{} noreboot ipi-bench={rounds}", iso::CMDLINE);
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
    let until = Instant::now() + Duration::from_secs(args.timeout);
    match vm.wait(&["Xenolith cannot start: no dom0 kernel"], until) {
        Outcome::Found(..) => {}
        outcome => bail!(
            "the measurement did not end: {outcome:?}; see {}",
            bundle.dir.display()
        ),
    }
    let rows: Vec<Row> = vm.console.text().lines().filter_map(parse).collect();
    if rows.is_empty() {
        bail!("the hypervisor measured nothing: {}", bundle.dir.display());
    }
    Ok(rows)
}

fn count_file() -> Result<std::path::PathBuf> {
    let dir = vmtest::paths::target().join("bench");
    fs::create_dir_all(&dir)?;
    Ok(dir.join("ipi.count"))
}

/// "... ipi-bench: driver=D targets=T cpus=N clusters=N rounds=N ns=N icr=N"
fn parse(line: &str) -> Option<Row> {
    let fields: BTreeMap<&str, &str> = line
        .split_once("ipi-bench: ")?
        .1
        .split_whitespace()
        .filter_map(|f| f.split_once('='))
        .collect();
    let number = |name| fields.get(name)?.parse().ok();
    Some(Row {
        driver: (*fields.get("driver")?).to_owned(),
        targets: (*fields.get("targets")?).to_owned(),
        cpus: number("cpus")?,
        clusters: number("clusters")?,
        rounds: number("rounds")?,
        ns: number("ns")?,
        icr: number("icr")?,
    })
}

/// Instructions of each kind's sending: the counter's lines ("ID CPU HYPERVISOR GUEST") in the order of the measurement,
/// the least of each kind (an NMI or the like can only add).
fn counts(kinds: usize) -> Result<Vec<u64>> {
    let path = count_file()?;
    let text =
        fs::read_to_string(&path).with_context(|| format!("no counts in {}", path.display()))?;
    least(&text, kinds).with_context(|| format!("{} is not complete", path.display()))
}

fn least(text: &str, kinds: usize) -> Option<Vec<u64>> {
    let all: Vec<u64> = text
        .lines()
        .filter_map(|l| l.split(' ').nth(2)?.parse().ok())
        .collect();
    let rest = all.get(COUNTED.min(WARM_UP)..)?;
    let least = rest.chunks(COUNTED).map(|c| c.iter().copied().min());
    let least: Option<Vec<u64>> = least.collect();
    least.filter(|l| l.len() == kinds && rest.len() == kinds * COUNTED)
}

/// What contradicts the design: one write per target in physical mode, one per cluster in the others, one for the
/// shorthand, which is as short for any number; mixed and cluster alike, and cheaper for the sender than physical where clusters save writes.
fn faults(rows: &[Row], instructions: &[u64]) -> Vec<String> {
    let mut faults = Vec::new();
    let cost = |driver: &str, targets: &str| {
        let at = rows
            .iter()
            .position(|r| r.driver == driver && r.targets == targets)?;
        Some(*instructions.get(at)?)
    };
    for row in rows {
        let wanted = match row.driver.as_str() {
            "shorthand" => 1,
            "x2apic_phys" | "bigsmp" => row.cpus,
            _ => row.clusters,
        };
        if row.icr != wanted * row.rounds {
            faults.push(format!(
                "{} to {}: {} writes in {} flushes, not {wanted} each",
                row.driver, row.targets, row.icr, row.rounds
            ));
        }
    }
    let by_shorthand = rows.iter().zip(instructions);
    for (_, n) in by_shorthand.filter(|(r, n)| r.driver == "shorthand" && **n > SHORTHAND) {
        faults.push(format!(
            "shorthand: {n} instructions, more than {SHORTHAND}"
        ));
    }
    for row in rows.iter().filter(|r| r.driver == "x2apic_mixed") {
        let at = |driver| cost(driver, &row.targets);
        let (mixed, cluster, physical) =
            (at("x2apic_mixed"), at("x2apic_cluster"), at("x2apic_phys"));
        if mixed != cluster {
            faults.push(format!(
                "to {}: mixed {mixed:?} and cluster {cluster:?} instructions differ",
                row.targets
            ));
        }
        if row.clusters * 4 <= row.cpus && mixed >= physical {
            faults.push(format!(
                "to {}: mixed {mixed:?} instructions, physical {physical:?}",
                row.targets
            ));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "(XEN) ipi-bench: driver=x2apic_mixed targets=all cpus=15 clusters=1 rounds=10 ns=900 icr=10";

    #[test]
    fn rows_are_read_and_judged() {
        let mixed = parse(LINE).unwrap();
        assert_eq!((mixed.cpus, mixed.clusters, mixed.icr), (15, 1, 10));
        assert_eq!(parse("(XEN) ipi-bench: driver=x"), None);
        let row = |driver: &str, icr| Row {
            driver: driver.to_owned(),
            icr,
            ..mixed.clone()
        };
        let rows = [
            row("x2apic_phys", 150),
            row("x2apic_cluster", 10),
            mixed.clone(),
        ];
        assert!(faults(&rows, &[500, 200, 200]).is_empty());
        assert_eq!(faults(&rows, &[500, 201, 200]).len(), 1);
        assert_eq!(faults(&rows, &[200, 200, 200]).len(), 1);
        assert_eq!(faults(&[row("x2apic_phys", 10)], &[1]).len(), 1);
        assert_eq!(faults(&[row("shorthand", 20)], &[1]).len(), 1);
        assert_eq!(faults(&[row("shorthand", 10)], &[101]).len(), 1);
    }

    #[test]
    fn counts_are_split_by_kind() {
        let line = |n: usize| format!("1 0 {n} 0\n");
        let text: String = (0..COUNTED * 3).map(|i| line(100 + i)).collect();
        assert_eq!(least(&text, 2), Some(vec![120, 140]));
        assert_eq!(least(&text, 3), None);
    }
}
