//! `cargo xtask pack`: kernel, initial RAM disk and their command lines in one file, for loaders that pass a single module:
//! `qemu-system-x86_64 -kernel xenolith -append 'loglvl=all' -initrd FILE`. The format is `hv_hw::bootinfo::bundle`'s.

use crate::ui;
use anyhow::{Context, Result, ensure};
use hv_hw::bootinfo::{MAX_COMMAND_LINE, MAX_MODULES, bundle};
use std::path::PathBuf;

/// Options of `pack`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to write the bundle.
    #[arg(short, long)]
    output: PathBuf,
    /// Files in Multiboot2 order, dom0 kernel first, each with its command line after a comma: `vmlinuz,console=hvc0`.
    #[arg(required = true)]
    modules: Vec<String>,
}

/// Writes the bundle.
pub fn run(args: &Args) -> Result<()> {
    ensure!(
        args.modules.len() <= MAX_MODULES,
        "more than {MAX_MODULES} modules"
    );
    let mut files = Vec::new();
    for module in &args.modules {
        let (path, line) = module.split_once(',').unwrap_or((module, ""));
        ensure!(
            line.len() <= MAX_COMMAND_LINE,
            "{path}: the command line is longer than {MAX_COMMAND_LINE} bytes"
        );
        files.push((
            std::fs::read(path).with_context(|| format!("read {path}"))?,
            line,
        ));
    }
    let parts: Vec<(&[u8], &str)> = files.iter().map(|(f, l)| (f.as_slice(), *l)).collect();
    let packed = bundle::pack(&parts);
    std::fs::write(&args.output, &packed)
        .with_context(|| format!("write {}", args.output.display()))?;
    ui::say(&format!(
        "{}: {} KiB",
        args.output.display(),
        packed.len().div_ceil(1024)
    ));
    Ok(())
}
