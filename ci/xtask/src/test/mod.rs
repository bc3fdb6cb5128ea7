//! `cargo xtask test`: every check and test, and one closing line.

mod cargo;
mod defconfigs;
mod report;
pub mod vm;
mod xenstore;

use crate::setup::{self, Need};
use crate::{build, config, lints, micro};
use anyhow::Result;
use clap::ValueEnum;
use report::Report;
use vm_tests::Level;

/// What the VM tests run on instead of Xenolith.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// Debian's Xen with the same kernel as PV dom0 (a PVH dom0 does not come up on Xen 4.17 in this emulator).
    Xen,
    /// The kernel alone on the bare machine: shows whether a test itself is sound.
    None,
}

/// Options of `test`.
#[derive(clap::Args)]
pub struct Args {
    /// Only the few VM tests that show most.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The long VM tests too.
    #[arg(long)]
    full: bool,
    /// Run the VM tests on something else, to compare.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Only the VM tests on this machine (a file of `ci/machines`), at every level.
    #[arg(long, conflicts_with = "quick")]
    machine: Option<String>,
    /// VM tests at a time (default: 2 with two or more CPUs).
    #[arg(long)]
    jobs: Option<usize>,
    /// Let each emulator use all CPUs of the host: quicker, and truly at the same time, but a fault of QEMU's then ends some
    /// of the boots (see the guide to testing).
    #[arg(long)]
    parallel: bool,
    /// List the names and end.
    #[arg(long)]
    list: bool,
    /// Only what has this text in its name, for example `vm/boot` or `lint`.
    filter: Option<String>,
}

/// Names of the checks that are not VM tests.
const CHECKS: &[&str] = &[
    "fmt",
    "clippy/host",
    "clippy/metal",
    "lint",
    "host",
    "abi",
    "xenstore",
    "build",
];

/// Runs what is selected; true if nothing failed.
pub fn run(args: &Args) -> Result<bool> {
    let level = match (args.quick, args.full || args.machine.is_some()) {
        (true, _) => Level::Quick,
        (_, true) => Level::Full,
        _ => Level::Normal,
    };
    let on = args.machine.as_deref();
    let wanted = |name: &str| {
        on.is_none_or(|_| name.starts_with("vm/"))
            && args
                .filter
                .as_ref()
                .is_none_or(|f| name.contains(f.as_str()) || (name == "lint" && f.contains("lint")))
    };
    // Asking for a test by its full name runs it, whatever its level.
    let exact = |name: &str| args.filter.as_deref() == Some(name);
    let vm: Vec<_> = vm_tests::all()
        .into_iter()
        .filter(|t| {
            let name = format!("vm/{}", t.name);
            (wanted(&name) && t.level <= level) || exact(&name) || exact(&t.name)
        })
        .filter(|t| on.is_none_or(|m| m == t.machine))
        // A build of ours cannot run on a peer, and a machine for VT-x shows nothing there.
        .filter(|t| (t.defconfig.is_none() && t.machine != "bochs") || args.peer.is_none())
        .collect();
    let configs: Vec<String> = config::names()?
        .into_iter()
        .filter(|c| wanted(&format!("kconfig/{c}")) && args.peer.is_none())
        .collect();
    let checks: Vec<&str> = CHECKS
        .iter()
        .copied()
        .filter(|c| wanted(c) && args.peer.is_none())
        .collect();
    let micro: Vec<String> = micro::guests()
        .into_iter()
        .filter(|g| wanted(&format!("micro/{g}")) && args.peer != Some(Peer::None))
        .collect();
    let wrong_lines = wanted(defconfigs::WRONG) && args.peer.is_none();
    if args.list {
        checks.iter().for_each(|c| println!("{c}"));
        configs.iter().for_each(|c| println!("kconfig/{c}"));
        if wrong_lines {
            println!("{}", defconfigs::WRONG);
        }
        micro.iter().for_each(|g| println!("micro/{g}"));
        vm.iter().for_each(|t| println!("vm/{}", t.name));
        return Ok(true);
    }
    let mut report = Report::default();
    let machines = !vm.is_empty() || !micro.is_empty();
    let headers = checks.contains(&"abi");
    setup::ensure(if machines || headers {
        Need::Machines
    } else {
        Need::Build
    })?;
    for check in &checks {
        match *check {
            "fmt" => cargo::fmt(&mut report),
            "clippy/host" => cargo::clippy_host(&mut report),
            "clippy/metal" => cargo::clippy_metal(check, None, &mut report),
            "lint" => lints::report(&mut |name, findings| {
                let ok = findings.is_empty();
                report.add(
                    &format!("lint/{name}"),
                    if ok { Ok(()) } else { Err(findings.join("\n")) },
                );
            })?,
            "host" => cargo::host_tests(&mut report),
            "abi" => cargo::abi_check(&mut report),
            "xenstore" => xenstore::check(&mut report),
            _ => {}
        }
    }
    configs
        .iter()
        .for_each(|name| defconfigs::check(name, &mut report));
    if wrong_lines {
        defconfigs::wrong_lines(&mut report);
    }
    let vm = defconfigs::build(vm, &mut report);
    let mut image_ok = true;
    // With a peer the micro-guests still run on both; the VM tests run on the peer alone.
    if checks.contains(&"build") || !micro.is_empty() || (machines && args.peer.is_none()) {
        let built = build::build(&build::Args::default());
        image_ok = built.is_ok();
        report.add("build", built.map(drop).map_err(|e| format!("{e:#}")));
    }
    if !image_ok {
        let names = micro.iter().map(|g| format!("micro/{g}"));
        let names = names.chain(vm.iter().map(|t| format!("vm/{}", t.name)));
        names.for_each(|name| report.add(&name, Err("the image was not built".into())));
        return Ok(report.close());
    }
    micro
        .iter()
        .for_each(|guest| cargo::micro_guest(guest, args.peer, &mut report));
    if !vm.is_empty() {
        vm::run_all(&vm, args.peer, args.jobs, args.parallel, &mut report)?;
    }
    Ok(report.close())
}
