//! `cargo xtask build`: the bootable ELF.

use crate::setup::{self, Need};
use crate::{exec, symbols, ui};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use vmtest::paths;

/// Options of `build`.
#[derive(clap::Args)]
pub struct Args {
    /// Cargo profile.
    #[arg(long, default_value = "release")]
    pub profile: String,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            profile: "release".into(),
        }
    }
}

/// Builds and says how large the result is.
pub fn run(args: &Args) -> Result<()> {
    let image = build(args)?;
    let size = fs::metadata(&image)?.len();
    ui::say(&format!("{}: {} KiB", image.display(), size.div_ceil(1024)));
    Ok(())
}

/// Builds; the path of the ELF.
pub fn build(args: &Args) -> Result<PathBuf> {
    setup::ensure(Need::Build)?;
    let mut cargo = exec::cargo();
    cargo.args(["build", "-p", "hv-image", "--profile", &args.profile]);
    setup::metal_target_flags(&mut cargo);
    exec::step("build the hypervisor", cargo)?;
    let folder = if args.profile == "dev" {
        "debug"
    } else {
        &args.profile
    };
    let built = paths::target()
        .join("x86_64-unknown-none")
        .join(folder)
        .join("hv-image");
    let image = paths::image();
    let debug = image.with_extension("debug");
    fs::create_dir_all(image.parent().context("the image lies in a directory")?)?;
    fs::copy(&built, &debug).with_context(|| format!("cargo left no {}", built.display()))?;
    symbols::embed(&debug)?;
    // The boot loader reads the whole file: debug information and the linker's symbols stay in the copy beside it.
    let mut strip = exec::command("strip", ["--strip-all", "-o"]);
    strip.arg(&image).arg(&debug);
    let output = exec::collect(strip, |_| {})?;
    if !output.ok {
        bail!("strip failed: {}", output.tail());
    }
    Ok(image)
}
