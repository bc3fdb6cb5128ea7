//! `cargo xtask micro`: the micro-guests, each booted as dom0; the work is done by `ci/micro`.

use crate::setup::{self, Need};
use crate::{build, exec};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use vmtest::paths;

/// Options of `micro`.
#[derive(clap::Args)]
pub struct Args {
    /// Names of guests and options of the runner; `cargo xtask micro -- --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Builds the hypervisor and runs the guests.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    build::build(&build::Args::default())?;
    let status = runner(&args.rest).status().context("cannot run cargo")?;
    Ok(status.success())
}

/// The runner with its arguments.
pub fn runner<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    let mut cargo = exec::cargo();
    cargo
        .args(["run", "--quiet", "--package", "micro", "--"])
        .args(args);
    cargo
}

/// Builds the guests and gives the path of one.
pub fn build_guest(name: &str) -> Result<PathBuf> {
    Ok(build_guests()?.join(name))
}

/// Builds the guests and gives the directory in which they are.
pub fn build_guests() -> Result<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().expect("no panic while locked");
    let mut cargo = exec::cargo();
    cargo.args(["build", "--quiet", "--package", "micro-guests"]);
    cargo.args(["--target", "x86_64-unknown-none", "--profile", "guest"]);
    let built = exec::collect(cargo, |_| {})?;
    if !built.ok {
        bail!("the micro-guests do not build: {}", built.lines.join("\n"));
    }
    Ok(paths::target().join("x86_64-unknown-none/guest"))
}

/// The names of all guests that every test run boots.
pub fn guests() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(paths::root().join("ci/guests")) else {
        return Vec::new();
    };
    let dirs = entries
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .filter(|p| p.join("main.rs").exists());
    let mut names: Vec<String> = dirs
        .filter_map(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
        .collect();
    // The measuring guest has no verdict of its own.
    names.retain(|n| n != "bench");
    names.sort();
    names
}
