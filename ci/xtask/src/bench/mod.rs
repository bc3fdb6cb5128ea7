//! `cargo xtask bench`: every figure that we hold ourselves to, beside the peer's.

mod ap;
mod boot;
mod create;
mod exits;
mod ipi;
mod perf;
mod posted_msi;

use anyhow::Result;

/// Options of `bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Time from GRUB handing over until dom0 runs, image size, memory, beside Xen 4.17.
    Boot(boot::Args),
    /// Time from `xl create` until the guest runs, beside Debian's `xl` on Xenolith and on Xen 4.17.
    Create(create::Args),
    /// Time until all CPUs are up, all at once against one by one, beside Xen 4.17.
    Ap(ap::Args),
    /// TLB flushes on other CPUs for each way of addressing: time, register writes, instructions of the sender.
    Ipi(ipi::Args),
    /// Instructions of the hypervisor per guest exit, counted exactly, beside Xen 4.17.
    Exits(exits::Args),
    /// Serving posted MSIs on two cores: notifications per message and messages per second for each shape of handler.
    PostedMsi(posted_msi::Args),
}

/// Measures; false if a goal was missed.
pub fn run(args: &Args) -> Result<bool> {
    match &args.what {
        What::Boot(args) => boot::run(args),
        What::Create(args) => create::run(args),
        What::Ap(args) => ap::run(args),
        What::Ipi(args) => ipi::run(args),
        What::Exits(args) => exits::run(args),
        What::PostedMsi(args) => posted_msi::run(args),
    }
}
