//! `cargo xtask run`: Xenolith with a Debian dom0 in QEMU, its serial port on this terminal.

use crate::setup::{self, Need};
use crate::{build, iso as iso_cmd, media, ui};
use anyhow::{Context, Result};
use std::fs;
use vmtest::iso::{self, Iso};
use vmtest::kernels::{self, Kernel};
use vmtest::machine::{Firmware, Machine};
use vmtest::{paths, qemu};

/// Options of `run`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of CPUs.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory, as QEMU's -m takes it.
    #[arg(long, default_value = "2G")]
    mem: String,
    /// Debian kernel series for dom0: 6.1 or 6.12.
    #[arg(long, default_value = "6.1")]
    kernel: String,
    /// Machine: a name from ci/machines (q35, pc, ...).
    #[arg(long, default_value = "q35")]
    machine: String,
    /// Start by EFI firmware instead of BIOS.
    #[arg(long)]
    efi: bool,
    /// Added to the hypervisor's command line.
    #[arg(long, default_value = "")]
    cmdline: String,
    /// Added to dom0's command line.
    #[arg(long, default_value = "")]
    dom0_cmdline: String,
    /// Boot Debian's Xen instead, with the same kernel as PV dom0, for comparison.
    #[arg(long)]
    peer: bool,
    /// Boot the kernel without a hypervisor, for comparison.
    #[arg(long, conflicts_with = "peer")]
    native: bool,
    /// Print the QEMU command instead of running it.
    #[arg(long)]
    print: bool,
}

/// Builds, boots and hands the terminal over.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let kernel = Kernel::find(&args.kernel)?;
    let initrd = media::initrd(&kernel)?;
    let name = if args.peer && args.machine == "q35" {
        "peer"
    } else {
        &args.machine
    };
    let mut machine = Machine::load(name)?;
    machine.cpus = args.cpus;
    machine.memory = args.mem.clone();
    if args.efi {
        machine.firmware = Firmware::Efi;
    }
    let dir = paths::target().join("run");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let iso_path = dir.join("boot.iso");
    let boot = if args.native {
        let cmdline = format!("console=ttyS0 {}", args.dom0_cmdline);
        qemu::args(
            &machine,
            &qemu::Boot::Direct {
                kernel: &kernel.image,
                module: Some(&initrd),
                cmdline: &cmdline,
            },
            &dir,
        )?
    } else {
        let hypervisor = if args.peer {
            kernels::peer_xen()?
        } else {
            build::build(&build::Args::default())?
        };
        let extra = if args.peer {
            " dom0_mem=768M cpuidle=0 mwait-idle=0"
        } else {
            ""
        };
        let iso = Iso {
            hypervisor: &hypervisor,
            cmdline: &format!("{}{extra} {}", iso_cmd::CMDLINE, args.cmdline),
            kernel: Some(&kernel.image),
            dom0_cmdline: &format!("{} {}", iso_cmd::DOM0_CMDLINE, args.dom0_cmdline),
            initrd: Some(&initrd),
            efi_only: false,
        };
        let step = ui::step("make the boot image");
        iso::build(&iso, &iso_path)?;
        step.end("ok", "");
        qemu::args(&machine, &qemu::Boot::Iso(&iso_path), &dir)?
    };
    let mut all = boot;
    all.extend(
        [
            "-chardev",
            "stdio,id=con,mux=on,signal=off",
            "-serial",
            "chardev:con",
            "-mon",
            "chardev=con",
        ]
        .map(String::from),
    );
    if args.print {
        println!("{}", qemu::shell_line(&all));
        return Ok(true);
    }
    ui::say("starting the machine; `poweroff` in dom0 or Ctrl-A x ends it");
    let status = qemu::command(&all)
        .status()
        .context("cannot start qemu-system-x86_64")?;
    Ok(status.success())
}
