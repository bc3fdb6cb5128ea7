//! `cargo xtask bench exits`: builds the counting plugin and lets the micro-guest runner boot the guest `bench` with it.

use crate::setup::{self, Need};
use crate::{build, exec};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use vmtest::paths;

/// Options of `bench exits`.
#[derive(clap::Args)]
pub struct Args {
    /// Only Xenolith, not Xen.
    #[arg(long)]
    no_peer: bool,
    /// Samples of each operation.
    #[arg(short = 'n', long, default_value_t = 100)]
    samples: u32,
}

/// Prints the table; false if a goal was missed or a run failed.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let image = build::build(&build::Args::default())?;
    let plugin = plugin()?;
    let mut cargo = exec::cargo();
    cargo
        .args(["run", "--quiet", "--package", "micro", "--", "bench"])
        .args(["--smp", "1", "--timeout", "300"])
        .arg("--args")
        .arg(format!("n={}", args.samples))
        .arg("--count")
        .arg(plugin)
        .arg("--hv")
        .arg(image);
    if !args.no_peer {
        cargo.args(["--peer", "xen"]);
    }
    let status = cargo.status().context("cannot run cargo")?;
    Ok(status.success())
}

/// Compiles `ci/bench/exitcount.c`.
pub fn plugin() -> Result<PathBuf> {
    let out = paths::target().join("bench/exitcount.so");
    fs::create_dir_all(paths::target().join("bench"))?;
    let mut cc = exec::command(
        "cc",
        [
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-o",
        ],
    );
    cc.arg(&out).arg(paths::root().join("ci/bench/exitcount.c"));
    exec::step("build the instruction counter", cc)?;
    Ok(out)
}
