//! `cargo xtask run`: Xenolith with a Debian dom0 in QEMU, its serial port on this terminal.

use crate::media::{self, On, Plan};
use crate::setup::{self, Need};
use crate::{build, ui};
use anyhow::{Context, Result};
use std::fs;
use vmtest::kernels::{self, Kernel};
use vmtest::machine::Firmware;
use vmtest::{paths, qemu};

/// The rest is for guests.
const DOM0_MEMORY: &str = "dom0_mem=1G";

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
    /// Let QEMU load the hypervisor itself (PVH entry) instead of GRUB: quicker.
    #[arg(long, conflicts_with_all = ["peer", "native", "efi"])]
    direct: bool,
    /// dom0 with Debian's own toolstack and a guest; `. /xt/tests/debian-start.sh` there starts its daemons.
    #[arg(long)]
    debian_xl: bool,
    /// Print the QEMU command instead of running it.
    #[arg(long)]
    print: bool,
}

/// Builds, boots and hands the terminal over.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let kernel = Kernel::find(&args.kernel)?;
    let on = match (args.peer, args.native, args.direct) {
        (true, ..) => On::Xen,
        (_, true, _) => On::Bare,
        (.., true) => On::XenolithDirect,
        _ => On::Xenolith,
    };
    let initrd = match on {
        On::Bare => media::initrd(&kernel)?,
        _ if args.debian_xl => media::initrd_with_debian(&kernel, vm_tests::Debian::Twelve)?,
        _ => media::initrd_with_system(&kernel, false, false)?,
    };
    let mut machine = media::machine(&args.machine, on)?;
    machine.cpus = args.cpus;
    machine.memory = args.mem.clone();
    if args.efi {
        machine.firmware = Firmware::Efi;
    }
    let dir = paths::target().join("run");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let hypervisor = match on {
        On::Xen => kernels::peer_xen()?,
        On::Bare => kernel.image.clone(),
        On::Xenolith | On::XenolithDirect => build::build(&build::Args::default())?,
    };
    // What is said later counts.
    let cmdline = format!("{DOM0_MEMORY} {}", args.cmdline);
    let plan = Plan {
        on,
        hypervisor: &hypervisor,
        cmdline: &cmdline,
        kernel: &kernel.image,
        initrd: &initrd,
        dom0_cmdline: &args.dom0_cmdline,
        tables: &[],
    };
    let step = ui::step("make the boot image");
    let mut all = plan.args(&machine, &dir)?;
    step.end("ok", "");
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
