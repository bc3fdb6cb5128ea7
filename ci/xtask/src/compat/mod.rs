//! `cargo xtask compat`: boots guests that nobody here wrote, on Xenolith and on Debian's Xen beside it, and writes
//! `docs/compat.md`.

mod guests;
mod list;
mod micro;
mod table;

use crate::build;
use crate::setup::{self, Need};
use crate::test::Peer;
use crate::test::vm::Runner;
use crate::{exec, ui};
use anyhow::{Context, Result};
use list::{Entry, What};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use table::{Cell, Ground, Key, Table};
use vm_tests::{Level, VmTest};
use vmtest::kernels::Kernel;
use vmtest::place::Place;
use vmtest::{kernels, paths};

/// Options of `compat`.
#[derive(clap::Args)]
pub struct Args {
    /// Only Xenolith, not Xen.
    #[arg(long)]
    no_peer: bool,
    /// Runs at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Print the list and end.
    #[arg(long)]
    list: bool,
    /// Only guests with this text in their name or kind; the rest of the table stays as it is.
    filter: Option<String>,
}

/// What one run found out about one guest.
struct Found {
    key: Key,
    ground: Ground,
    cell: Cell,
    /// The end of its console, if the cell is red.
    tail: String,
}

/// One machine, or one run of the micro-guests.
enum Job<'a> {
    Dom0(Ground, &'a Entry),
    Guests(Ground, Vec<&'a Entry>),
    Micro(Vec<&'a Entry>),
}

/// Runs what is selected and writes the table; false if a guest fails on Xenolith and nothing is known to be missing for it.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let kernels = setup::all_kernels()?;
    let entries = list::all(&kernels)?;
    let selected: Vec<&Entry> = entries
        .iter()
        .filter(|e| args.filter.as_ref().is_none_or(|f| e.key.has(f)))
        .collect();
    if args.list || selected.is_empty() {
        entries.iter().for_each(|e| println!("{}", e.key));
        return Ok(!selected.is_empty());
    }
    let grounds: &[Ground] = if args.no_peer {
        &[Ground::Xenolith]
    } else {
        &[Ground::Xenolith, Ground::Xen]
    };
    let found = carry_out(jobs(&selected, grounds), &kernels, args)?;
    let path = paths::root().join("docs/compat.md");
    // Without an old one, or with one that cannot be read, all rows are new.
    let mut table = Table::parse(&fs::read_to_string(&path).unwrap_or_default());
    table.arrange(entries.iter().map(|e| e.key.clone()));
    let date = exec::first_line("date", &["-u", "+%-d %b %Y"]).context("no date")?;
    let mut good = true;
    for one in found {
        let entry = entries.iter().find(|e| e.key == one.key);
        let missing = entry.and_then(|e| e.missing(one.ground));
        good &= one.ground == Ground::Xen || one.cell.is_good() || missing.is_some();
        ui::say(&format!("{}, on {}: {}", one.key, one.ground, one.cell));
        table.set(&one.key, one.ground, one.cell, missing, one.tail, &date);
    }
    fs::write(&path, table.to_string())
        .with_context(|| format!("cannot write {}", path.display()))?;
    ui::say(&format!("{}: {}", path.display(), table.summary()));
    Ok(good)
}

/// The longest first.
fn jobs<'a>(selected: &[&'a Entry], grounds: &[Ground]) -> Vec<Job<'a>> {
    let of = |wanted: fn(&What) -> bool| -> Vec<&'a Entry> {
        let wanted = selected.iter().filter(|e| wanted(&e.what));
        wanted.copied().collect()
    };
    let guests = of(|w| matches!(w, What::Guest { .. }));
    let micro = of(|w| matches!(w, What::Micro(_)));
    let mut jobs = Vec::new();
    if !guests.is_empty() {
        jobs.extend(grounds.iter().map(|g| Job::Guests(*g, guests.clone())));
    }
    if !micro.is_empty() {
        jobs.push(Job::Micro(micro));
    }
    for entry in of(|w| matches!(w, What::Dom0 { .. })) {
        jobs.extend(grounds.iter().map(|g| Job::Dom0(*g, entry)));
    }
    jobs
}

/// Runs the jobs, some at a time.
fn carry_out(jobs: Vec<Job<'_>>, kernels: &[Kernel], args: &Args) -> Result<Vec<Found>> {
    let ours = build::build(&build::Args::default())?;
    let xen = kernels::peer_xen()?;
    let series = list::SERIES;
    let runner = |peer, hypervisor: &Path| Runner::with(peer, hypervisor.to_owned(), series);
    let on_ours = runner(None, &ours)?;
    let on_xen = runner(Some(Peer::Xen), &xen)?;
    let on = |ground| match ground {
        Ground::Xenolith => (&on_ours, &ours),
        Ground::Xen => (&on_xen, &xen),
    };
    let carry = |job: &Job<'_>, place| match job {
        Job::Dom0(ground, entry) => dom0(on(*ground).0, *ground, entry, place).map(|f| vec![f]),
        Job::Guests(ground, entries) => {
            guests::run(*ground, on(*ground).1, kernels, entries, place)
        }
        Job::Micro(entries) => micro::run(entries),
    };
    let todo = Mutex::new(jobs.into_iter());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for worker in 0..args.jobs.max(1) {
            let (todo, done, carry) = (&todo, &done, &carry);
            scope.spawn(move || {
                loop {
                    let job = todo.lock().expect("no panic while locked").next();
                    let Some(job) = job else { break };
                    let found = carry(&job, Place::One(worker));
                    done.lock().expect("no panic while locked").push(found);
                }
            });
        }
    });
    let done = done.into_inner().expect("no panic while locked");
    let done: Vec<Vec<Found>> = done.into_iter().collect::<Result<_>>()?;
    Ok(done.into_iter().flatten().collect())
}

/// A kernel as dom0: does it come to user space with the promised CPUs, and does its clock run?
fn dom0(runner: &Runner, ground: Ground, entry: &Entry, place: Place) -> Result<Found> {
    let What::Dom0 { series, cpus } = entry.what else {
        anyhow::bail!("{} is no dom0", entry.key);
    };
    let test = VmTest::new(format!("compat/dom0-{series}-{cpus}"), Level::Full)
        .kernel(series)
        .cpus(cpus)
        .script("boot")
        .direct()
        .extra_time(120);
    let step = ui::step(&format!("{}, on {ground}", entry.key));
    let bundle = format!("{}-{ground}", test.name).replace(' ', "-");
    let verdict = runner.run(&test, &bundle, place)?;
    let (cell, tail) = match verdict {
        Ok(seconds) => (Cell::Pass(format!("{seconds:.0} s")), String::new()),
        Err(text) => {
            let (reason, rest) = text.split_once('\n').unwrap_or((&text, ""));
            let lines = rest.lines().filter_map(|l| l.trim().strip_prefix("| "));
            let lines: Vec<&str> = lines.collect();
            let shown = lines[lines.len().saturating_sub(table::TAIL)..].join("\n");
            (Cell::Red(reason.to_owned()), shown)
        }
    };
    step.end(if cell.is_good() { "ok" } else { "no" }, "");
    Ok(Found {
        key: entry.key.clone(),
        ground,
        cell,
        tail,
    })
}
