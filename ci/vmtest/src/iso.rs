//! Boot media: a CD image with GRUB 2 that loads a Multiboot2 kernel and its modules, on BIOS and EFI.

use crate::acpi::Table;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The last thing that GRUB prints before it hands over.
pub const HANDOVER: &str = "GRUB hands over";

/// What GRUB loads.
pub struct Iso<'a> {
    /// The Multiboot2 kernel: the hypervisor.
    pub hypervisor: &'a Path,
    /// Its command line.
    pub cmdline: &'a str,
    /// The first module: dom0's kernel. Without it GRUB loads the hypervisor alone.
    pub kernel: Option<&'a Path>,
    /// dom0's command line.
    pub dom0_cmdline: &'a str,
    /// The second module: dom0's initial RAM disk.
    pub initrd: Option<&'a Path>,
    /// Firmware tables in the place of the machine's own.
    pub tables: &'a [Table],
    /// Leave the BIOS half out.
    pub efi_only: bool,
}

/// The menu that goes with `iso`.
pub fn grub_cfg(iso: &Iso<'_>) -> String {
    // On EFI a graphics mode needs its driver, and there is no other mode.
    let mut cfg = String::from(
        "set timeout=0\nset default=0\nserial --unit=0 --speed=115200\nterminal_input serial console\n\
         terminal_output serial console\nset gfxpayload=text\n\
         if [ \"$grub_platform\" = efi ]; then insmod all_video; fi\nmenuentry \"Xenolith\" {\n",
    );
    if !iso.tables.is_empty() {
        let names: Vec<_> = iso.tables.iter().map(Table::signature).collect();
        let files: String = names.iter().map(|n| format!(" /boot/{n}.bin")).collect();
        cfg += &format!("  acpi --exclude={}{files}\n", names.join(","));
    }
    cfg += &format!("  multiboot2 /boot/xenolith {}\n", quote(iso.cmdline));
    if iso.kernel.is_some() {
        // Modules go over as they are: GRUB would otherwise unpack what the hypervisor unpacks itself.
        cfg += &format!(
            "  module2 --nounzip /boot/vmlinuz {}\n",
            quote(iso.dom0_cmdline)
        );
    }
    if iso.initrd.is_some() {
        cfg += "  module2 --nounzip /boot/initrd\n";
    }
    cfg + &format!("  echo '{HANDOVER}'\n}}\n")
}

/// GRUB's shell splits at `;`, `{`, `$` and friends: each word that needs it goes into single quotes.
fn quote(line: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "=,.:/_-+@%~".contains(c);
    let words = line.split_ascii_whitespace();
    let quoted = words.map(|w| {
        if w.chars().all(safe) {
            w.to_owned()
        } else {
            format!("'{}'", w.replace('\'', ""))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Writes the image to `out`, with a work directory beside it.
pub fn build(iso: &Iso<'_>, out: &Path) -> Result<()> {
    let work = PathBuf::from(format!("{}.d", out.display()));
    let boot = work.join("boot");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(boot.join("grub"))
        .with_context(|| format!("cannot create {}", boot.display()))?;
    copy(iso.hypervisor, &boot.join("xenolith"))?;
    if let Some(kernel) = iso.kernel {
        copy(kernel, &boot.join("vmlinuz"))?;
    }
    if let Some(initrd) = iso.initrd {
        copy(initrd, &boot.join("initrd"))?;
    }
    for table in iso.tables {
        fs::write(
            boot.join(format!("{}.bin", table.signature())),
            table.bytes(),
        )?;
    }
    fs::write(boot.join("grub/grub.cfg"), grub_cfg(iso))?;
    let mut command = Command::new("grub-mkrescue");
    // No compression and few modules: the image is made in a second and GRUB starts faster.
    command.args(["--compress=no", "--fonts=", "--locales=", "--themes="]);
    command.arg("--install-modules=multiboot2 normal iso9660 part_gpt part_msdos fat serial terminal configfile \
                 search search_fs_file echo all_video gzio boot reboot test ls acpi");
    if iso.efi_only {
        command.args(["-d", "/usr/lib/grub/x86_64-efi"]);
    }
    command.arg("-o").arg(out).arg(&work);
    let done = command
        .output()
        .context("cannot run grub-mkrescue: run `cargo xtask setup`")?;
    if !done.status.success() {
        bail!(
            "grub-mkrescue failed: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// A link where the file system allows it, else a copy.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let from = from
        .canonicalize()
        .with_context(|| format!("cannot find {}", from.display()))?;
    if fs::hard_link(&from, to).is_err() {
        fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn menu_has_modules_in_order_and_quotes() {
        let iso = Iso {
            hypervisor: Path::new("h"),
            cmdline: "console=com1 com1=115200,8n1 x=a;b",
            kernel: Some(Path::new("k")),
            dom0_cmdline: "console=hvc0",
            initrd: Some(Path::new("i")),
            tables: &[Table::Madt(&[]), Table::PhysicalFadt],
            efi_only: false,
        };
        let cfg = grub_cfg(&iso);
        let find = |what: &str| {
            cfg.find(what)
                .unwrap_or_else(|| panic!("{what} is not in {cfg}"))
        };
        assert!(
            find("multiboot2 /boot/xenolith console=com1 com1=115200,8n1 'x=a;b'")
                < find("/boot/vmlinuz console=hvc0")
        );
        assert!(find("/boot/vmlinuz") < find("/boot/initrd"));
        find("\n  acpi --exclude=APIC,FACP /boot/APIC.bin /boot/FACP.bin\n");
    }
}
