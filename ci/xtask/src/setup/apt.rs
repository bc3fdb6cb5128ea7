//! Debian packages: QEMU, GRUB's image maker, OVMF, Xen's headers.

use crate::exec;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// TCG learned x2APIC in QEMU 9.0; Debian 12 has a newer one in backports.
const QEMU_AT_LEAST: u32 = 9;
const BACKPORTS_LIST: &str = "/etc/apt/sources.list.d/xenolith-backports.list";

/// A package, and the file by which its presence is seen.
const PACKAGES: &[(&str, &str)] = &[
    ("grub-common", "/usr/bin/grub-mkrescue"),
    ("grub-pc-bin", "/usr/lib/grub/i386-pc/multiboot2.mod"),
    (
        "grub-efi-amd64-bin",
        "/usr/lib/grub/x86_64-efi/multiboot2.mod",
    ),
    ("xorriso", "/usr/bin/xorriso"),
    ("mtools", "/usr/bin/mformat"),
    ("ovmf", "/usr/share/OVMF"),
    ("libxen-dev", "/usr/include/xen/xen.h"),
    ("gcc", "/usr/bin/cc"),
    ("libc6-dev", "/usr/include/stdio.h"),
    ("binutils", "/usr/bin/strip"),
    ("xz-utils", "/usr/bin/xz"),
];

/// Installs what is missing, or says which command would.
pub fn ensure() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, f)| !Path::new(f).exists())
        .map(|(p, _)| *p)
        .collect();
    let old_qemu = qemu_major().is_none_or(|v| v < QEMU_AT_LEAST);
    if missing.is_empty() && !old_qemu {
        return Ok(());
    }
    let codename = codename();
    if exec::text("apt-get", &["--version"]).is_none() {
        bail!(
            "missing: {}{}; this is not a Debian system, so install them by hand",
            missing.join(" "),
            if old_qemu { " QEMU 9 or newer" } else { "" }
        );
    }
    let backports = old_qemu && codename == "bookworm";
    if !is_root() {
        bail!(
            "packages are missing; as root run: {}",
            line_to_run(&missing, old_qemu, backports)
        );
    }
    if backports && !has_backports() {
        add_backports()?;
    }
    if let Err(error) = update() {
        // One broken source of the user's need not stop us: what matters is whether the packages can be had.
        if !lists_are_there() {
            return Err(error);
        }
    }
    if !missing.is_empty() {
        let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
        args.extend(&missing);
        exec::step(
            &format!("apt-get install {}", missing.join(" ")),
            apt(&args),
        )?;
    }
    if old_qemu {
        let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
        if backports {
            args.extend(["-t", "bookworm-backports"]);
        }
        args.push("qemu-system-x86");
        exec::step("apt-get install qemu-system-x86", apt(&args))?;
    }
    match qemu_major() {
        Some(v) if v >= QEMU_AT_LEAST => Ok(()),
        Some(v) => bail!(
            "QEMU {v} is too old and Debian {codename} has no newer one: install QEMU 9 or newer"
        ),
        None => bail!("qemu-system-x86_64 does not run after its installation"),
    }
}

/// Debian's kernels of other series come from backports: makes them known to apt. Needs root.
pub fn ensure_backports() -> Result<()> {
    if codename() != "bookworm" || has_backports() {
        return Ok(());
    }
    if !is_root() {
        bail!(
            "bookworm-backports is not among apt's sources; as root run: {} && apt-get update",
            backports_line()
        );
    }
    add_backports()?;
    update()
}

/// `apt-get update`.
pub fn update() -> Result<()> {
    if !is_root() {
        bail!("apt's package lists are missing or old; as root run: apt-get update");
    }
    exec::step("apt-get update", apt(&["update", "-q"])).map(drop)
}

fn apt(args: &[&str]) -> std::process::Command {
    let mut command = exec::command("apt-get", args);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C");
    command
}

fn line_to_run(missing: &[&str], qemu: bool, backports: bool) -> String {
    let mut line = String::new();
    if backports && !has_backports() {
        line += &format!("{} && ", backports_line());
    }
    line += "apt-get update";
    if !missing.is_empty() {
        line += &format!(
            " && apt-get install -y --no-install-recommends {}",
            missing.join(" ")
        );
    }
    if qemu {
        let from = if backports {
            "-t bookworm-backports "
        } else {
            ""
        };
        line += &format!(" && apt-get install -y --no-install-recommends {from}qemu-system-x86");
    }
    line
}

fn backports_source() -> &'static str {
    "deb http://deb.debian.org/debian bookworm-backports main"
}

fn backports_line() -> String {
    format!("echo '{}' > {BACKPORTS_LIST}", backports_source())
}

fn add_backports() -> Result<()> {
    fs::write(BACKPORTS_LIST, format!("{}\n", backports_source()))
        .with_context(|| format!("cannot write {BACKPORTS_LIST}"))
}

fn has_backports() -> bool {
    exec::text("apt-cache", &["policy"]).is_some_and(|t| t.contains("bookworm-backports"))
        || Path::new(BACKPORTS_LIST).exists()
}

fn lists_are_there() -> bool {
    exec::text("apt-cache", &["policy"]).is_some_and(|t| t.contains("Packages"))
}

/// Debian's code name, for example `bookworm`.
pub fn codename() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release
        .lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .unwrap_or("unknown")
        .to_owned()
}

fn is_root() -> bool {
    exec::first_line("id", &["-u"]).as_deref() == Some("0")
}

fn qemu_major() -> Option<u32> {
    let line = exec::first_line("qemu-system-x86_64", &["--version"])?;
    let version = line.split("version ").nth(1)?;
    version.split('.').next()?.parse().ok()
}
