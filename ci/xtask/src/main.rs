//! Build, run, test and measure Xenolith: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod compat;
mod config;
mod exec;
mod iso;
mod lints;
mod media;

mod micro;
mod pack;
mod run;
mod setup;
mod soak;
mod source;
mod symbols;
mod test;
mod ui;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Build, run, test and measure Xenolith.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install and fetch what the other commands need (they call it themselves).
    Setup(setup::Args),
    /// Build the hypervisor: target/image/xenolith.
    Build(build::Args),
    /// Choose what is built, on a screen or by questions: hypervisor/configs/.config.
    Menuconfig,
    /// Start from a named configuration (`hypervisor/configs/NAME_defconfig`).
    Defconfig(config::Name),
    /// Bring .config up to date: new symbols get their defaults, lines that cannot be followed are dropped.
    Olddefconfig,
    /// The fewest lines that lead to .config, printed or kept as a named configuration.
    Savedefconfig(config::Save),
    /// Boot Xenolith with a Debian dom0 in QEMU; ends at a shell in dom0.
    Run(run::Args),
    /// Run every check and test; the last line is `N passed, N failed, N skipped`.
    Test(test::Args),
    /// Make a GRUB boot image (BIOS and EFI) from any kernel.
    Iso(iso::Args),
    /// Put several modules into one file, for QEMU's `-initrd`.
    Pack(pack::Args),
    /// Check the rules of the source tree.
    Lint,
    /// Measure, beside the peer.
    Bench(bench::Args),
    /// Boot the micro-guests and compare what they see with Xen.
    Micro(micro::Args),
    /// Boot guests that nobody here wrote, also on Debian's Xen: docs/compat.md.
    Compat(compat::Args),
    /// Boot many times in a row.
    Soak(soak::Args),
}

fn main() -> ExitCode {
    let result: Result<bool> = match Cli::parse().command {
        Command::Setup(args) => setup::run(&args).map(|()| true),
        Command::Build(args) => build::run(&args).map(|()| true),
        Command::Menuconfig => config::menu(),
        Command::Defconfig(args) => config::defconfig(&args).map(|()| true),
        Command::Olddefconfig => config::old().map(|()| true),
        Command::Savedefconfig(args) => config::save(&args).map(|()| true),
        Command::Run(args) => run::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Iso(args) => iso::run(&args).map(|()| true),
        Command::Pack(args) => pack::run(&args).map(|()| true),
        Command::Lint => lints::run(),
        Command::Bench(args) => bench::run(&args),
        Command::Micro(args) => micro::run(&args),
        Command::Compat(args) => compat::run(&args),
        Command::Soak(args) => soak::run(&args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // One line: what failed, and each reason behind it.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
