//! `cargo xtask bench create`: from `xl create` until the guest's first line and until its user space, by our `xl` on Xenolith and
//! by Debian's on Xenolith and on Debian's Xen, with the same kernels, RAM disks and machine.

use super::boot::see;
use crate::media::{self, On, Plan};
use crate::setup::{self, Need};
use crate::{build, ui};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtest::bundle::Bundle;
use vmtest::kernels::{self, Kernel};
use vmtest::place::Place;
use vmtest::qemu::Vm;

/// Goal: this part of the time of Debian's `xl` on Xen to the guest's first line.
const GOAL: f32 = 0.5;
/// The script in dom0, and what it prints.
const SCRIPT: &str = "create-time";
const TIME: &str = "XT-TIME ";

/// Options of `bench create`.
#[derive(clap::Args)]
pub struct Args {
    /// Boots of each kind; the median of all guests counts.
    #[arg(short = 'n', long, default_value_t = 3)]
    rounds: usize,
    /// Guests in each boot, after one that is not counted.
    #[arg(long, default_value_t = 2)]
    guests: u32,
    /// Number of CPUs.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Debian kernel series of dom0 and the guest.
    #[arg(long, default_value = "6.1")]
    kernel: String,
    /// Only Xenolith, not Xen.
    #[arg(long)]
    no_peer: bool,
    /// Seconds for one boot with its guests.
    #[arg(long, default_value_t = 900)]
    timeout: u64,
}

/// What makes the guest, on what.
struct Kind {
    name: &'static str,
    on: On,
    hypervisor: PathBuf,
    initrd: PathBuf,
    cmdline: &'static str,
    dom0_cmdline: &'static str,
    samples: Vec<Sample>,
}

/// Milliseconds from the start of `xl create`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    /// Until it returns.
    made: f32,
    /// Until the guest's first line.
    first: f32,
    /// Until its user space.
    user: f32,
}

/// Prints the table; false if the goal was missed.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let ours = build::build(&build::Args::default())?;
    let kernel = Kernel::find(&args.kernel)?;
    let debian = media::initrd_with_debian(&kernel, vm_tests::Debian::Twelve)?;
    let kind = |name, on, hypervisor: &Path, initrd: &Path, cmdline, dom0_cmdline| Kind {
        name,
        on,
        hypervisor: hypervisor.to_owned(),
        initrd: initrd.to_owned(),
        cmdline,
        dom0_cmdline,
        samples: Vec::new(),
    };
    let system = media::initrd_with_system(&kernel, false, false)?;
    let memory = "dom0_mem=900M";
    let mut kinds = vec![
        kind(
            "our xl on Xenolith",
            On::XenolithDirect,
            &ours,
            &system,
            memory,
            "",
        ),
        kind(
            "Debian's xl on Xenolith",
            On::XenolithDirect,
            &ours,
            &debian,
            memory,
            "xt.xl=debian",
        ),
    ];
    if !args.no_peer {
        let xen = kernels::peer_xen()?;
        let memory = "dom0_mem=900M,max:900M";
        kinds.push(kind(
            "Debian's xl on Xen 4.17",
            On::Xen,
            &xen,
            &debian,
            memory,
            "xt.xl=debian",
        ));
    }
    // Turn by turn, so that a busy spell of the host hits all.
    for round in 0..args.rounds.max(1) {
        for kind in &mut kinds {
            let step = ui::step(&format!(
                "boot {} of {}: {}",
                round + 1,
                args.rounds,
                kind.name
            ));
            let samples = boot(kind, &kernel, args)?;
            let firsts: Vec<String> = samples.iter().map(|s| format!("{:.0}", s.first)).collect();
            step.end(
                "ok",
                &format!("{} ms to the guest's first line", firsts.join(", ")),
            );
            kind.samples.extend(samples);
        }
    }
    Ok(print(&kinds))
}

/// One boot; the samples of its guests but the first.
fn boot(kind: &Kind, kernel: &Kernel, args: &Args) -> Result<Vec<Sample>> {
    let bundle = Bundle::new(&format!(
        "bench/create-{}",
        kind.name.replace([' ', '\''], "-")
    ))?;
    let mut machine = media::machine("q35", kind.on)?;
    machine.cpus = args.cpus;
    let line = format!(
        "xt.test={SCRIPT} xt.rounds={} {}",
        args.guests + 1,
        kind.dom0_cmdline
    );
    let plan = Plan {
        on: kind.on,
        hypervisor: &kind.hypervisor,
        cmdline: kind.cmdline,
        kernel: &kernel.image,
        initrd: &kind.initrd,
        dom0_cmdline: &line,
        tables: &[],
    };
    let mut vm = Vm::start(
        plan.args(&machine, &bundle.dir)?,
        &bundle.dir,
        Place::Anywhere,
    )?;
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let mut samples = Vec::new();
    for _ in 0..=args.guests {
        see(&mut vm, TIME, &["XT-FAIL", "XT-RESULT"], until)?;
        let rest = see(&mut vm, "\n", &[], until)?;
        samples.push(sample(&rest).with_context(|| format!("a line makes no sense: {rest}"))?);
    }
    see(
        &mut vm,
        &format!("XT-RESULT {SCRIPT} pass"),
        &["XT-FAIL"],
        until,
    )?;
    drop(vm);
    bundle.drop_media();
    if samples.len() < 2 {
        bail!("no guest counts: --guests must be at least 1");
    }
    Ok(samples.split_off(1))
}

/// The figures of a line.
fn sample(line: &str) -> Option<Sample> {
    let figure = |key: &str| {
        let (_, rest) = line.rsplit_once(&format!("{key}="))?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    };
    Some(Sample {
        made: figure("made")?,
        first: figure("first")?,
        user: figure("user")?,
    })
}

/// Prints the medians, each as a part of the last kind's; false if the goal was missed.
fn print(kinds: &[Kind]) -> bool {
    println!(
        "{:26} {:>15} {:>7} {:>12} {:>7} {:>12} {:>7}   of {} guests",
        "milliseconds until",
        "xl returns",
        "ratio",
        "first line",
        "ratio",
        "user space",
        "ratio",
        kinds.first().map_or(0, |k| k.samples.len()),
    );
    let figures: Vec<Sample> = kinds.iter().map(|k| medians(&k.samples)).collect();
    let base = figures.last().copied().unwrap_or_default();
    for (kind, f) in kinds.iter().zip(&figures) {
        println!(
            "{:26} {:>15.0} {:>7.2} {:>12.0} {:>7.2} {:>12.0} {:>7.2}",
            kind.name,
            f.made,
            f.made / base.made,
            f.first,
            f.first / base.first,
            f.user,
            f.user / base.user
        );
    }
    let (Some(first), true) = (figures.first(), kinds.iter().any(|k| k.on == On::Xen)) else {
        return true;
    };
    let ratio = first.first / base.first;
    if ratio > GOAL {
        println!(
            "goal missed: {ratio:.2} of the time on Xen to the first line, wanted at most {GOAL}"
        );
    }
    ratio <= GOAL
}

fn medians(samples: &[Sample]) -> Sample {
    let median = |of: fn(&Sample) -> f32| {
        let mut values: Vec<f32> = samples.iter().map(of).collect();
        values.sort_by(f32::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Sample {
        made: median(|s| s.made),
        first: median(|s| s.first),
        user: median(|s| s.user),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_medians_taken() {
        let of = |line| sample(line).expect("complete");
        let a = of("timed1 made=900 first=1000 user=9000\r");
        assert_eq!((a.made, a.first, a.user), (900.0, 1000.0, 9000.0));
        assert_eq!(sample("timed1 made=900 first=1000"), None);
        let b = of("made=1 first=3000 user=2");
        assert_eq!(medians(&[a, b, a]), a);
    }
}
