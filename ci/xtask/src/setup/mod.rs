//! `cargo xtask setup`: brings a fresh Debian machine to the point where everything else works.
//!
//! Cheap when all is there. Needs the network only for what is missing.

mod apt;
mod fetch;
mod installed;
mod modules;
mod rust;
mod suite;

use anyhow::Result;
use vmtest::{kernels, paths};

pub use fetch::{all_kernels, kept_tree, tree};
pub use installed::{Installed, make_disk};
pub use rust::{STATIC, metal_target_flags, missing_component, static_target_flags};

/// Options of `setup`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Fetch kernels and tools again even if they are in the cache.
    #[arg(long)]
    pub refresh: bool,
}

/// What a command is about to need.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The hypervisor is built.
    Build,
    /// Media are made and machines run.
    Machines,
}

/// The whole set-up.
pub fn run(args: &Args) -> Result<()> {
    if args.refresh {
        fetch::forget()?;
    }
    ensure(Need::Machines)?;
    for series in fetch::series()? {
        let kernel = kernels::Kernel::find(&series)?;
        crate::ui::say(&format!(
            "kernel {series}: {} in {}",
            kernel.release,
            kernels::dir(&series).display()
        ));
    }
    crate::ui::say(&format!("cache: {}", paths::cache().display()));
    Ok(())
}

/// Sees to it that `need` is met.
pub fn ensure(need: Need) -> Result<()> {
    rust::ensure()?;
    if need == Need::Machines {
        apt::ensure()?;
        fetch::ensure()?;
    }
    Ok(())
}
