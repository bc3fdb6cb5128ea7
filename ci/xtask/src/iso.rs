//! `cargo xtask iso`: a GRUB boot image from any kernel.

use crate::setup::{self, Need};
use crate::{build, ui};
use anyhow::Result;
use std::path::PathBuf;
use vmtest::iso::{self, Iso};

/// The hypervisor's command line unless another is given.
pub const CMDLINE: &str = "console=com1 com1=115200,8n1 loglvl=all guest_loglvl=all";
/// dom0's command line unless another is given.
pub const DOM0_CMDLINE: &str = "console=hvc0";

/// Options of `iso`.
#[derive(clap::Args)]
pub struct Args {
    /// dom0's kernel: a bzImage or an ELF with a PVH entry note.
    #[arg(long)]
    kernel: PathBuf,
    /// dom0's initial RAM disk.
    #[arg(long)]
    initrd: Option<PathBuf>,
    /// The hypervisor's command line.
    #[arg(long, default_value = CMDLINE)]
    cmdline: String,
    /// dom0's command line.
    #[arg(long, default_value = DOM0_CMDLINE)]
    dom0_cmdline: String,
    /// For EFI only (the default boots on BIOS and EFI).
    #[arg(long)]
    efi: bool,
    /// Use this hypervisor ELF instead of building one.
    #[arg(long)]
    hypervisor: Option<PathBuf>,
    /// Where the image goes.
    #[arg(short, long)]
    output: PathBuf,
}

/// Makes the image.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure(Need::Machines)?;
    let hypervisor = match &args.hypervisor {
        Some(path) => path.clone(),
        None => build::build(&build::Args::default())?,
    };
    let iso = Iso {
        hypervisor: &hypervisor,
        cmdline: &args.cmdline,
        kernel: Some(&args.kernel),
        dom0_cmdline: &args.dom0_cmdline,
        initrd: args.initrd.as_deref(),
        tables: &[],
        efi_only: args.efi,
    };
    let step = ui::step("make the boot image");
    iso::build(&iso, &args.output)?;
    step.end("ok", &args.output.display().to_string());
    Ok(())
}
