//! `cargo xtask soak`: the same boot many times in a row, to find what fails once in a hundred.

use crate::setup::{self, Need};
use crate::test::vm::Runner;
use crate::ui;
use anyhow::Result;
use vmtest::place::Place;

/// Options of `soak`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of boots.
    #[arg(short = 'n', long, default_value_t = 200)]
    count: u32,
    /// Which VM test is repeated.
    #[arg(long, default_value = "soak/boot-smp2")]
    test: String,
    /// Stop at the first failure.
    #[arg(long)]
    stop: bool,
    /// Let the emulator use all CPUs of the host.
    #[arg(long)]
    parallel: bool,
}

/// Boots `count` times; false if any failed.
pub fn run(args: &Args) -> Result<bool> {
    setup::ensure(Need::Machines)?;
    let runner = Runner::new()?;
    let test = vm_tests::find(&args.test)?;
    if let Some(name) = test.defconfig {
        crate::build::for_tests(name)?;
    }
    let place = Place::of_job(0, args.parallel);
    let mut failed = 0;
    for round in 1..=args.count {
        let verdict = runner.run(&test, &format!("{}-{round}", test.name), place)?;
        match verdict {
            Ok(seconds) => {
                ui::say(&format!(
                    "boot {round} of {}: ok ({seconds:.1} s)",
                    args.count
                ));
                runner.forget(&format!("{}-{round}", test.name));
            }
            Err(reason) => {
                failed += 1;
                ui::say(&format!("boot {round} of {}: FAILED: {reason}", args.count));
                if args.stop {
                    break;
                }
            }
        }
    }
    println!("{} boots, {failed} failed", args.count);
    Ok(failed == 0)
}
