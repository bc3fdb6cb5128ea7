//! `cargo run -p micro -- [options] [GUEST..]`: boots each micro-guest as PVH dom0 and compares the facts it
//! printed with those of Xen, line by line.
//!
//! Xen's side comes from the recording in `reference/`, or from a live run with `--peer xen`. Differences that
//! are meant are listed with their reasons in `docs/abi/differences.md`; any other one fails the run. So does a row there
//! that nothing needs any more, when the machine and the command lines are those of the recording.
#![forbid(unsafe_code)]

mod args;
mod compare;
mod count;
mod machine;
mod peer;
mod record;
mod report;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use args::Args;
use report::{Outcome, Report};

/// Root of the source tree.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("micro: {message}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether every guest passed.
fn run() -> Result<bool, String> {
    let Some(args) = Args::parse(std::env::args().skip(1))? else {
        print!("{}", args::HELP);
        return Ok(true);
    };
    let guests = guests(&args.guests)?;
    build_guests()?;
    let image = args.image();
    let xen = if args.peer { Some(peer::xen()?) } else { None };
    if image.is_none() && xen.is_none() {
        return Err(format!(
            "no Xenolith image at {} and no --peer: nothing to boot on",
            target_dir().join("image/xenolith").display()
        ));
    }
    let expected = compare::Expected::load(&root().join("docs/abi/differences.md"))?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for guest in &guests {
        let path = target_dir().join("x86_64-unknown-none/guest").join(guest);
        let ours = image
            .as_ref()
            .map(|image| machine::run(&machine::Hypervisor::Xenolith(image), &path, &args));
        let ours = ours.transpose()?;
        let live = xen
            .as_ref()
            .map(|xen| run_peer(guest, &machine::Hypervisor::Xen(xen), &path, &args));
        let live = live.transpose()?;
        if let Some(report) = &live {
            if args.record {
                record::save(guest, report)?;
            } else if let Some(recorded) = record::load(guest)? {
                compare::print_drift(guest, report, &recorded);
            }
        }
        if args.count.is_some() && guest == "bench" {
            failed += usize::from(!print_costs(ours.as_ref(), live.as_ref())?);
        }
        match verdict(guest, ours.as_ref(), live, &expected, &args)? {
            Verdict::Pass => passed += 1,
            Verdict::Skip => skipped += 1,
            Verdict::Fail => failed += 1,
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

/// Prints what the plugin counted; false if a goal was missed.
fn print_costs(ours: Option<&Report>, live: Option<&Report>) -> Result<bool, String> {
    let read = |name, report: Option<&Report>| match report {
        Some(report) if report.outcome == Outcome::Success => {
            count::read(&count::file(name), report).map(Some)
        }
        _ => Ok(None),
    };
    let (table, missed) = count::table(
        read("xenolith", ours)?.as_ref(),
        read("xen-4.17", live)?.as_ref(),
    );
    print!("{table}");
    Ok(missed == 0)
}

/// Runs a guest on the peer. On a loaded machine the emulated Xen sometimes stands still in INIT-SIPI; it is only the
/// reference, so it gets a second try, and the line says so. Xenolith gets one try.
fn run_peer(
    guest: &str,
    xen: &machine::Hypervisor<'_>,
    path: &std::path::Path,
    args: &Args,
) -> Result<Report, String> {
    let report = machine::run(xen, path, args)?;
    if let Outcome::Crash(why) = &report.outcome {
        println!("{guest:18} xen-4.17: {why}; once more");
        return machine::run(xen, path, args);
    }
    Ok(report)
}

enum Verdict {
    Pass,
    Skip,
    Fail,
}

/// Prints the line of one guest with its differences and judges it.
fn verdict(
    guest: &str,
    ours: Option<&Report>,
    live: Option<Report>,
    expected: &compare::Expected,
    args: &Args,
) -> Result<Verdict, String> {
    let Some(ours) = ours else {
        let xen = live.ok_or("nothing ran")?;
        println!(
            "{guest:18} xen-4.17: {} ({} facts)",
            xen.outcome,
            xen.facts.len()
        );
        xen.print_problem(args.verbose);
        return Ok(match xen.outcome {
            Outcome::Success => Verdict::Pass,
            Outcome::Skip(_) => Verdict::Skip,
            _ => Verdict::Fail,
        });
    };
    let other = match live {
        Some(report) => Some(report),
        None => record::load(guest)?,
    };
    let theirs = other
        .as_ref()
        .map_or_else(|| "no recording".to_string(), |r| r.outcome.to_string());
    println!("{guest:18} xenolith: {}   xen-4.17: {theirs}", ours.outcome);
    ours.print_problem(args.verbose);
    let found = other.as_ref().map_or_else(Default::default, |other| {
        compare::print(guest, ours, other, expected, args.verbose)
    });
    let mut agrees = found.unexpected == 0;
    if args.as_recorded() && ours.outcome == Outcome::Success {
        for row in &found.idle {
            println!("    ! docs/abi/differences.md: nothing differs by {row}; remove the row");
            agrees = false;
        }
    }
    Ok(match ours.outcome {
        Outcome::Success if agrees => Verdict::Pass,
        Outcome::Skip(_) if agrees => Verdict::Skip,
        _ => Verdict::Fail,
    })
}

/// All guests, or those named; `bench` runs only when named.
fn guests(named: &[String]) -> Result<Vec<String>, String> {
    let dir = root().join("ci/guests");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.join("main.rs").exists() {
            all.extend(
                path.file_name()
                    .and_then(|name| name.to_str())
                    .map(String::from),
            );
        }
    }
    all.sort();
    if named.is_empty() {
        all.retain(|name| name != "bench");
        return Ok(all);
    }
    match named.iter().find(|name| !all.contains(name)) {
        Some(unknown) => Err(format!("no guest {unknown}; there are: {}", all.join(" "))),
        None => Ok(named.to_vec()),
    }
}

fn build_guests() -> Result<(), String> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", "micro-guests"])
        .args(["--target", "x86_64-unknown-none", "--profile", "guest"])
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err("the guests do not build".into())
    }
}
