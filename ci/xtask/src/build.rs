//! `cargo xtask build`: the bootable ELF.

use crate::setup::{self, Need};
use crate::{config, exec, symbols, ui};
use anyhow::{Context, Result, bail};
use hv_hw::origin::Origin;
use std::fs;
use std::path::PathBuf;
use vmtest::paths;

/// Options of `build`.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// Cargo profile.
    #[arg(long, default_value = "release")]
    pub profile: String,
    /// Build this named configuration instead of .config, to target/image/xenolith-NAME.
    #[arg(long, value_name = "NAME")]
    pub defconfig: Option<String>,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            profile: "release".into(),
            defconfig: None,
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

/// Where the image of a named configuration goes; `None` is the one that people boot.
pub fn image(defconfig: Option<&str>) -> PathBuf {
    let image = paths::image();
    match defconfig {
        None => image,
        Some(name) => image.with_file_name(format!("xenolith-{name}")),
    }
}

/// Builds a named configuration, quickly rather than well, and accepts no warning of the compiler.
pub fn for_tests(defconfig: &str) -> Result<()> {
    let args = Args {
        profile: "defconfig".into(),
        defconfig: Some(defconfig.into()),
    };
    let output = compile(&args)?;
    let warnings: Vec<&str> = output
        .lines
        .iter()
        .map(String::as_str)
        .filter(|l| l.starts_with("warning"))
        .collect();
    if !warnings.is_empty() {
        bail!("the compiler warns: {}", warnings.join("; "));
    }
    finish(&args)?;
    Ok(())
}

/// Builds; the path of the ELF.
pub fn build(args: &Args) -> Result<PathBuf> {
    compile(args)?;
    finish(args)
}

fn compile(args: &Args) -> Result<exec::Output> {
    let named = args.defconfig.as_deref().map(config::defconfig_file);
    let chosen = config::chosen(named.as_deref())?;
    setup::ensure(Need::Build)?;
    let mut cargo = exec::cargo();
    cargo.args(["build", "-p", "hv-image", "--profile", &args.profile]);
    setup::metal_target_flags(&mut cargo);
    if chosen.debug {
        let profile = &args.profile;
        cargo.args([
            "--config",
            &format!("profile.{profile}.debug-assertions=true"),
        ]);
    }
    let what = match &chosen.file {
        None => "build the hypervisor".into(),
        Some(file) => {
            cargo.env("KCONFIG_CONFIG", file);
            let name = file.strip_prefix(paths::root()).unwrap_or(file);
            format!("build the hypervisor ({})", name.display())
        }
    };
    exec::step(&what, cargo)
}

/// Puts the symbol table into what Cargo left, and strips it.
fn finish(args: &Args) -> Result<PathBuf> {
    let folder = if args.profile == "dev" {
        "debug"
    } else {
        &args.profile
    };
    let built = paths::target()
        .join("x86_64-unknown-none")
        .join(folder)
        .join("hv-image");
    let image = image(args.defconfig.as_deref());
    let debug = image.with_extension("debug");
    fs::create_dir_all(image.parent().context("the image lies in a directory")?)?;
    fs::copy(&built, &debug).with_context(|| format!("cargo left no {}", built.display()))?;
    let [changeset, compiler, date] = origin();
    let origin = Origin {
        changeset: &changeset,
        compiler: &compiler,
        date: &date,
    };
    symbols::embed(&debug, &origin)?;
    // The boot loader reads the whole file: debug information and the linker's symbols stay in the copy beside it.
    let mut strip = exec::command("strip", ["--strip-all", "-o"]);
    strip.arg(&image).arg(&debug);
    let output = exec::collect(strip, |_| {})?;
    if !output.ok {
        bail!("strip failed: {}", output.tail());
    }
    Ok(image)
}

/// Revision, compiler and the revision's date, empty where nothing answers: sources from an archive have no revision. Both
/// times are the commit's, so that the same source gives the same image.
fn origin() -> [String; 3] {
    let first = |mut command: std::process::Command| {
        command.current_dir(paths::root()).env("TZ", "UTC");
        let output = exec::collect(command, |_| {});
        let output = output.ok().filter(|output| output.ok);
        output.map_or_else(String::new, |o| o.lines.join(" "))
    };
    let date = "--date=format-local:%a %b %e %H:%M:%S UTC %Y";
    let commit = ["log", "-1", date, "--format=%cd git:%h"];
    let changeset = first(exec::command("git", commit));
    let date = changeset.split(" git:").next().unwrap_or_default().into();
    [
        changeset,
        first(exec::command("rustc", ["--version"])),
        date,
    ]
}
