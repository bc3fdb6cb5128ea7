//! The Rust side: the bare-metal target and the tools that the checks use.

use crate::{exec, ui};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// Target of the hypervisor.
pub const METAL: &str = "x86_64-unknown-none";
/// Target of programs for dom0.
pub const STATIC: &str = "x86_64-unknown-linux-musl";

/// Installs the targets through rustup where they are missing.
pub fn ensure() -> Result<()> {
    if !has_target(METAL) {
        add("target", METAL);
        if !has_target(METAL) && !has_source() {
            // The standard library can also be built from its source.
            add("component", "rust-src");
            if !has_source() {
                bail!(
                    "the Rust target {METAL} is missing and rustup did not install it: run `rustup target add {METAL}`, \
                     or install the standard library's source (`rustup component add rust-src`)"
                );
            }
        }
    }
    if !has_target(STATIC) {
        // Only programs inside dom0 need it; those say so themselves if it is still missing.
        add("target", STATIC);
    }
    Ok(())
}

/// Arguments for Cargo that build for bare metal: with the installed target, or with `core` from source.
pub fn metal_target_flags(command: &mut Command) {
    command.args(["--target", METAL]);
    if !has_target(METAL) {
        command.args([
            "-Zbuild-std=core,alloc",
            "-Zbuild-std-features=compiler-builtins-mem",
        ]);
        command.env("RUSTC_BOOTSTRAP", "1");
    }
}

/// Arguments for Cargo that build a static program for dom0, and the directory below target/ in which the result is.
/// Without the target the host's is used: good for trying a program out, not for shipping it.
pub fn static_target_flags(command: &mut Command) -> &'static str {
    if !has_target(STATIC) {
        return "";
    }
    command.args(["--target", STATIC]);
    STATIC
}

/// Installs a Cargo subcommand's component; a reason if it stays missing.
pub fn missing_component(name: &str, probe: &str) -> Option<String> {
    let there = || exec::text("cargo", &[probe, "--version"]).is_some();
    if !there() {
        add("component", name);
    }
    (!there()).then(|| format!("{name} is not installed and rustup did not install it"))
}

fn add(kind: &str, name: &str) {
    if exec::text("rustup", &["--version"]).is_none() {
        return;
    }
    // The caller looks at the result on disk, not at rustup's status.
    if exec::step(
        &format!("rustup {kind} add {name}"),
        exec::command("rustup", [kind, "add", name]),
    )
    .is_err()
    {
        ui::say("rustup refused; trying without");
    }
}

fn has_target(target: &str) -> bool {
    exec::first_line("rustc", &["--print", "target-libdir", "--target", target])
        .is_some_and(|dir| Path::new(&dir).is_dir())
}

fn has_source() -> bool {
    exec::first_line("rustc", &["--print", "sysroot"]).is_some_and(|dir| {
        Path::new(&dir)
            .join("lib/rustlib/src/rust/library/core/src/lib.rs")
            .exists()
    })
}
